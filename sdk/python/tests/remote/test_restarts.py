"""Servers that are down, killed and started again in the middle of a call."""

import asyncio
import socket
import threading
import time

import pytest
from api_server import eventually, new_token

import onceward


def test_nothing_runs_while_the_server_is_down(key):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    effects = []
    # Opening needs no server: a program may be imported before its server runs.
    ledger = onceward.Ledger(f"http://127.0.0.1:{port}")

    @ledger.once(operation="charge", key=["invoice"])
    def charge(invoice: str) -> None:
        effects.append(invoice)

    started = time.monotonic()
    with pytest.raises(onceward.StoreUnavailable, match="cannot connect") as raised:
        charge(key)
    assert time.monotonic() - started < 10
    assert effects == []
    assert (raised.value.store, raised.value.operation) == (ledger.store, "charge")
    assert raised.value.key == onceward.key_of(charge, key)
    with pytest.raises(onceward.StoreUnavailable):
        ledger.list()


@pytest.mark.parametrize("is_down_for", [0.0, 0.7])
def test_a_server_that_is_killed_while_the_work_runs_gets_its_end(own_server, key, is_down_for):
    ledger = onceward.Ledger(own_server.url)
    effects, restarting = [], []

    def work():
        effects.append(1)
        if is_down_for:
            # The work ends while the server is down.
            restarting.append(own_server.restart_later(is_down_for))
        else:
            own_server.restart()
        return "made"

    assert ledger.call("charge", key=key).run(work) == "made"
    for thread in restarting:
        thread.join(20)
    assert ledger.get("charge", key).status == "done"
    assert ledger.call("charge", key=key).run(work) == "made"
    assert effects == [1]


def test_a_lease_survives_a_restart(own_server, key):
    ledger = onceward.Ledger(own_server.url)

    def work():
        own_server.restart_later(0.3).join(20)
        time.sleep(0.8)
        return ledger.get("charge", key).status

    # The lease is 1.5 s; the work takes longer than what is left of it after the restart.
    assert ledger.call("charge", key=key, max_runtime=0.5).run(work) == "running"


def test_a_begin_during_a_restart_is_asked_again(own_server, key):
    ledger = onceward.Ledger(own_server.url)
    ledger.call("charge", key=f"{key}-first").run(lambda: None)
    restarting = own_server.restart_later(0.4)
    effects = []
    assert ledger.call("charge", key=key).run(lambda: effects.append(1) or "made") == "made"
    restarting.join(20)
    assert effects == [1]


def test_a_waiting_caller_gets_the_result_although_the_server_is_restarted(own_server, key):
    ledger = onceward.Ledger(own_server.url)
    working, results = threading.Event(), []

    def work():
        working.set()
        own_server.restart_later(0.2).join(20)
        time.sleep(0.3)
        return "made"

    owner = threading.Thread(target=lambda: ledger.call("charge", key=key).run(work))
    owner.start()
    assert working.wait(10)
    results.append(ledger.call("charge", key=key, wait="20s").run(lambda: "a second effect"))
    owner.join(20)
    assert results == ["made"]


def test_an_outcome_that_the_server_refuses_is_not_lost(tmp_path, key):
    from api_server import ApiServer

    tmp_path.joinpath("server").mkdir()
    token, lines = new_token(tmp_path, "acme", "use,read")
    other, other_lines = new_token(tmp_path, "acme", "use,read")
    server = ApiServer(tmp_path / "server", lines)
    try:
        ledger = onceward.Ledger(server.url, token=token)

        def work():
            # The token is revoked while the work runs.
            server.configure(other_lines)
            server.restart()
            return {"receipt": 17}

        with pytest.raises(onceward.NotRecorded) as raised:
            ledger.call("charge", key=key).run(work)
        assert raised.value.result_json == b'{"receipt":17}'
        assert token not in str(raised.value)
        with pytest.raises(onceward.InFlight):
            onceward.Ledger(server.url, token=other).call("charge", key=key).run(lambda: None)
    finally:
        server.stop()


def test_a_stopped_server_lets_its_owners_finish_later(own_server, key):
    ledger = onceward.Ledger(own_server.url)

    def work():
        own_server.stop()
        own_server.start()
        return "made"

    assert ledger.call("charge", key=key).run(work) == "made"
    assert eventually(lambda: ledger.get("charge", key).status == "done")


def test_a_cancelled_call_does_not_wait_for_a_server_that_is_down(own_server, key):
    ledger = onceward.Ledger(own_server.url)

    async def work():
        own_server.stop()
        await asyncio.sleep(60)

    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(ledger.call("charge", key=key).run_async(work), 3)

    started = time.monotonic()
    asyncio.run(main())
    # Far from the 30 s for which an end is reported.
    assert time.monotonic() - started < 15
