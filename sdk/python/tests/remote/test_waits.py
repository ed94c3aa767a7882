"""Callers that wait for the work of another, and stop waiting."""

import asyncio
import contextlib
import os
import signal
import threading
import time

import pytest
from api_server import eventually

import onceward


@pytest.fixture(autouse=True)
def _interruptible():
    """Some runners start programs with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def running_elsewhere(ledger, operation, key, end=lambda: "made"):
    """Another caller holds the claim until the block has ended."""
    working, release, errors = threading.Event(), threading.Event(), []

    def work():
        working.set()
        release.wait(20)
        return end()

    def own():
        try:
            ledger.call(operation, key=key).run(work)
        except Exception as error:
            errors.append(error)

    owner = threading.Thread(target=own)
    owner.start()
    assert working.wait(10)
    try:
        yield release
    finally:
        release.set()
        owner.join(20)


def must_not_run():
    raise AssertionError("a second effect")


def test_without_a_wait_the_caller_is_told_at_once(remote, key):
    with running_elsewhere(remote, "charge", key):
        started = time.monotonic()
        with pytest.raises(onceward.InFlight) as raised:
            remote.call("charge", key=key).run(must_not_run)
        assert time.monotonic() - started < 2
        assert 0 < raised.value.retry_after <= 1
        assert raised.value.for_model().startswith("The same call of charge is already running.")


def test_the_wait_of_the_server_counts_where_the_caller_has_none(remote, key):
    with running_elsewhere(remote, "patient", key) as release:
        threading.Timer(0.4, release.set).start()
        assert remote.call("patient", key=key).run(must_not_run) == "made"


def test_a_wait_ends_when_it_is_over(remote, key):
    with running_elsewhere(remote, "charge", key):
        started = time.monotonic()
        with pytest.raises(onceward.InFlight):
            remote.call("charge", key=key, wait=0.5).run(must_not_run)
        assert 0.4 < time.monotonic() - started < 3


def test_a_wait_of_one_call_comes_before_that_of_the_operation(remote, key):
    act = remote.once(operation="patient", key=["who"], wait="30s")(lambda who: must_not_run())
    with running_elsewhere(remote, "patient", onceward.key_of(act, key)):
        started = time.monotonic()
        with pytest.raises(onceward.InFlight):
            onceward.options(act, wait=0.2)(key)
        assert time.monotonic() - started < 3


def test_a_wait_may_be_longer_than_the_api_allows(remote, key):
    with running_elsewhere(remote, "charge", key) as release:
        threading.Timer(0.5, release.set).start()
        assert remote.call("charge", key=key, wait="90s").run(must_not_run) == "made"


@pytest.mark.parametrize(
    ("end", "kind"), [(onceward.NotSent, onceward.OwnerFailed), (onceward.Unknown, onceward.InDoubt)]
)
def test_a_waiting_caller_is_told_how_the_attempt_failed(remote, key, end, kind):
    def fail():
        raise end("no route")

    with running_elsewhere(remote, "charge", key, fail) as release:
        threading.Timer(0.3, release.set).start()
        with pytest.raises(kind) as raised:
            remote.call("charge", key=key, wait="20s").run(must_not_run)
    if kind is onceward.OwnerFailed:
        assert "no route" in raised.value.reason


def test_a_waiting_caller_is_told_that_the_attempt_may_have_happened(remote, key):
    def fail():
        raise onceward.Unknown("lost")

    with running_elsewhere(remote, "retried", key, fail) as release:
        threading.Timer(0.3, release.set).start()
        with pytest.raises(onceward.OwnerUnknown):
            remote.call("retried", key=key, wait="20s").run(must_not_run)
    # The next call tries again, with the same downstream key.
    assert remote.call("retried", key=key).run(lambda: onceward.claim().attempt) == 2


def test_a_waiting_caller_takes_its_turn_when_a_claim_is_given_back(remote, key):
    started = remote.call("charge", key=key)._operation.native.start(None, None, None, key, None)
    threading.Timer(0.3, lambda: started.withdraw(None, "test")).start()
    assert remote.call("charge", key=key, wait="20s").run(lambda: "made") == "made"


def test_control_c_ends_a_wait(remote, key):
    with running_elsewhere(remote, "charge", key) as release:
        threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT)).start()
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            remote.call("charge", key=key, wait="30s").run(must_not_run)
        assert time.monotonic() - started < 5
        release.set()
    assert eventually(lambda: remote.get("charge", key).status == "done")


def test_a_cancelled_task_stops_waiting(remote, key):
    async def act():
        must_not_run()

    async def give_up():
        await asyncio.wait_for(remote.call("charge", key=key, wait="30s").run_async(act), 0.4)

    def fail():
        raise onceward.NotSent("busy")

    with running_elsewhere(remote, "charge", key, fail) as release:
        started = time.monotonic()
        with pytest.raises(asyncio.TimeoutError):
            asyncio.run(give_up())
        assert time.monotonic() - started < 5
        release.set()
    # The caller that gave up does not get the claim that became free.
    time.sleep(0.3)
    assert remote.get("charge", key).status == "open"
    assert remote.call("charge", key=key).run(lambda: "made") == "made"


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_caller_that_goes_away_before_it_has_its_claim_gives_it_back(proxy, remote, key, is_async):
    proxy.reset(lambda number, _path: "hold" if number == 0 else None)
    ledger = onceward.Ledger(proxy.url)

    async def act():
        must_not_run()

    async def give_up():
        await asyncio.wait_for(ledger.call("charge", key=key).run_async(act), 0.5)

    if is_async:
        with pytest.raises(asyncio.TimeoutError):
            asyncio.run(give_up())
    else:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            ledger.call("charge", key=key).run(must_not_run)
    # The server had granted the claim.
    assert proxy.held.is_set()
    assert eventually(lambda: remote.get("charge", key).status == "open")
    assert remote.call("charge", key=key).run(lambda: "made") == "made"


def test_control_c_in_the_middle_of_the_work_is_a_doubt(remote, key):
    def work():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)

    with pytest.raises(KeyboardInterrupt):
        remote.call("charge", key=key).run(work)
    assert remote.get("charge", key).status == "in_doubt"


def test_a_task_that_is_cancelled_in_the_middle_of_the_work_is_a_doubt(remote, key):
    async def work():
        await asyncio.sleep(20)

    async def give_up():
        await asyncio.wait_for(remote.call("charge", key=key).run_async(work), 0.3)

    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(give_up())
    assert eventually(lambda: remote.get("charge", key).status == "in_doubt")
