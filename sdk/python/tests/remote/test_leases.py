"""Leases, claims that are dropped or lost, and clients that die."""

import asyncio
import contextvars
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from api_server import eventually

import onceward


def test_work_may_take_longer_than_its_lease(remote, key):
    effects, others = [], []

    def work():
        effects.append(1)
        for _ in range(4):
            time.sleep(0.25)
            # In a thread of its own, because a call inside of itself is refused.
            with pytest.raises(onceward.InFlight) as raised, ThreadPoolExecutor() as pool:
                pool.submit(remote.call("long", key=key).run, effects.append, 2).result()
            others.append(raised.value.retry_after)
        return "made"

    # The lease is 300 ms.
    assert remote.call("long", key=key, max_runtime=0.1).run(work) == "made"
    assert (effects, len(others)) == ([1], 4)
    assert remote.call("long", key=key).run(effects.append, 3) == "made"


def test_the_lease_of_the_server_is_renewed_too(remote, key):
    def work():
        time.sleep(0.8)
        return remote.get("short", key).status

    assert remote.call("short", key=key).run(work) == "running"


def test_an_async_function_may_block_its_event_loop_for_longer_than_the_lease(remote, key):
    async def work():
        time.sleep(0.8)
        return remote.get("long", key).status

    assert asyncio.run(remote.call("long", key=key, max_runtime=0.1).run_async(work)) == "running"


def test_a_renewal_that_is_lost_is_tried_again(proxy, remote, key):
    proxy.reset(lambda number, path: ("before", "after")[number % 2] if path == "/v1/renew" and number < 6 else None)
    with onceward.Ledger(proxy.url) as cut:
        state = cut.call("long", key=key, max_runtime=0.2).run(lambda: time.sleep(1) or remote.get("long", key).status)
    assert (state, remote.get("long", key).status) == ("running", "done")
    assert proxy.paths.count("/v1/renew") > 6


def test_renewals_end_with_the_claim(proxy, key):
    with onceward.Ledger(proxy.url) as cut:
        cut.call("long", key=key, max_runtime=0.1).run(lambda: None)
        time.sleep(0.5)
    assert "/v1/renew" not in proxy.paths


def test_a_dropped_claim_is_a_doubt(remote, key):
    block = remote.begin("dropped", key=key)
    # In a context of its own: the context keeps the claim for `onceward.claim()`.
    contextvars.copy_context().run(block.__enter__)
    assert remote.get("dropped", key).status == "running"
    del block
    gc.collect()
    assert eventually(lambda: remote.get("dropped", key).status == "in_doubt")
    assert "dropped" in remote.get("dropped", key).error


def test_a_claim_of_another_owner_cannot_be_finished(remote, server, key):
    def taken_over():
        # A person settles the intent while the work runs.
        forced = ["resolve", "--operation", "lost", "--key", key, "--force", "--why", "test"]
        onceward_cli(server, *forced)
        onceward_cli(server, "resolve", "--operation", "lost", "--key", key, "--did-not-happen")
        return "too late"

    with pytest.raises(onceward.ClaimLost) as raised:
        remote.call("lost", key=key).run(taken_over)
    assert raised.value.result_json == b'"too late"'
    assert remote.get("lost", key).status == "open"


def test_an_async_owner_that_lost_its_claim_is_stopped(remote, server, key):
    # Another caller may take over with this policy, so the work must stop.
    async def work():
        onceward_cli(server, "resolve", "--operation", "retried", "--key", key, "--force", "--why", "test")
        onceward_cli(server, "resolve", "--operation", "retried", "--key", key, "--did-not-happen")
        await asyncio.sleep(20)

    started = time.monotonic()
    with pytest.raises(onceward.ClaimLost):
        asyncio.run(remote.call("retried", key=key, max_runtime=0.2).run_async(work))
    assert time.monotonic() - started < 10


def onceward_cli(server, *arguments):
    from api_server import BINARY

    subprocess.run([BINARY, *arguments, "--config", server.folder / "onceward.toml"], check=True, capture_output=True)


VICTIM = """
import sys, time, onceward
ledger = onceward.Ledger(sys.argv[1])

def work():
    print("working", flush=True)
    time.sleep(60)

ledger.call("killed", key=sys.argv[2], max_runtime=0.3, marks_sent=sys.argv[3] == "marks").run(work)
"""


@pytest.mark.parametrize(("marks", "state"), [("", "in_doubt"), ("marks", "open")])
def test_the_claim_of_a_killed_client_lapses(remote, key, marks, state):
    command = [sys.executable, "-c", VICTIM, remote.store, key, marks]
    victim = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert victim.stdout.readline() == "working\n"
    finally:
        victim.kill()
        victim.wait(10)
        victim.stdout.close()
    with pytest.raises(onceward.InFlight):
        remote.call("killed", key=key).run(lambda: None)
    assert eventually(lambda: remote.get("killed", key).status == state)
    call = remote.call("killed", key=key)
    if state == "open":
        assert call.run(lambda: "again") == "again"
    else:
        with pytest.raises(onceward.InDoubt):
            call.run(lambda: None)


LEAVER = """
import contextvars, sys, onceward
ledger = onceward.Ledger(sys.argv[1])
block = ledger.begin("left", key=sys.argv[2])
contextvars.copy_context().run(block.__enter__)
del block
"""


def test_the_end_of_a_program_waits_for_its_last_reports(proxy, remote, key):
    # The first report is lost, so that the program has to wait for the second one.
    proxy.reset(lambda number, path: "before" if path == "/v1/doubt" and number == 1 else None)
    subprocess.run([sys.executable, "-c", LEAVER, proxy.url, key], check=True, timeout=30)
    assert proxy.paths == ["/v1/begin", "/v1/doubt", "/v1/doubt"]
    assert remote.get("left", key).status == "in_doubt"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_uses_connections_of_its_own(remote, key):
    @remote.once(operation="forked", key=["who"])
    def act(who: str) -> int:
        return os.getpid()

    act(f"{key}-before")
    with remote.begin("forked", key=f"{key}-held"):
        child = os.fork()
        if child == 0:
            # The parent's claim must survive the child, and the parent's results are there.
            gc.collect()
            own, seen = act(f"{key}-child"), act(f"{key}-before")
            os._exit(0 if (own, seen) == (os.getpid(), os.getppid()) else 1)
        assert wait_for(child) == 0
        assert act(f"{key}-child") == child
        assert remote.get("forked", f"{key}-held").status == "running"
    assert remote.get("forked", f"{key}-held").status == "done"


def wait_for(child):
    """The exit code of a child; a child that hangs is killed."""
    timer = threading.Timer(20, os.kill, (child, signal.SIGKILL))
    timer.start()
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        timer.cancel()
