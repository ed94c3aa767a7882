"""A disk that is full or fails before a request is sent: nothing runs unguarded, and clients get an error."""

import sys

from checks import is_equal
from failing_disk import Disk, Locked, Small
from results import about, is_fresh
from upstream import Upstream
from fault_sandbox import api, call, charge, elapsed, is_ready

API = '[api]\nlisten = "127.0.0.1:0"\n'
COMMAND = (sys.executable, "-c", 'import sys; open(sys.argv[1], "a").write("{\\"tool\\": \\"job\\"}\\n")')


def is_refused(result):
    """The call had no effect, and its result tells the model why."""
    assert result.get("isError") is True, result
    assert "ledger" in result["content"][0]["text"], result
    assert about(result).get("state") in ("ledger_down", "refused", None), result


def until_refused(ask, is_refusal):
    """Sends requests until one is refused: the write-ahead log may still have room. Returns how many were granted."""
    for number in range(50):
        answer = ask(number)
        if is_refusal(answer):
            return number, answer
    raise AssertionError(f"still not refused: {answer}")


def a_gateway_with_a_full_disk_sends_nothing_and_recovers_by_itself(sandbox):
    disk, upstream = Small(sandbox), Upstream(sandbox)
    gateway = sandbox.gateway(upstream)
    is_equal(charge(gateway, "before", amount=1).status, 200)
    disk.fill()
    ask = lambda number: charge(gateway, f"k{number}", amount=1)
    granted, refused = until_refused(ask, lambda answer: answer.status != 200)
    assert refused.status == 503 and refused.problem(), refused
    assert not is_ready(gateway)
    is_equal(len(upstream.requests), 1 + granted, "requests")
    # Repeats of finished work still get the outcome.
    is_equal(charge(gateway, "before", amount=1).status, 200)
    disk.free()
    assert is_ready(gateway)
    is_equal(charge(gateway, f"k{granted}", amount=1).status, 200)
    is_equal(gateway.stop(), 0)


def a_ledger_cannot_be_made_on_a_full_disk(sandbox):
    disk, upstream = Small(sandbox), Upstream(sandbox)
    disk.fill()
    gateway = sandbox.start("gateway", "--upstream", upstream.url, "--listen", "127.0.0.1:0")
    is_equal(gateway.wait(20), 69)
    assert "no space is left" in gateway.errors(), gateway.errors()
    run = sandbox.run("k", *COMMAND, sandbox.folder / "effects")
    is_equal((run.wait(20), sandbox.effects()), (69, []))
    disk.free()
    run = sandbox.run("k", *COMMAND, sandbox.folder / "effects")
    is_equal((run.wait(20), len(sandbox.effects())), (0, 1))


def a_gateway_whose_disk_fails_sends_nothing_until_it_is_started_again(sandbox):
    disk, upstream = Disk(sandbox), Upstream(sandbox)
    gateway = sandbox.gateway(upstream, environment=disk.environment)
    is_equal(charge(gateway, "before", amount=1).status, 200)
    for kind in ("sync", "write"):
        disk.fail(kind)
        refused = charge(gateway, "k", amount=1)
        assert refused.status == 503 and refused.problem(), refused
        assert not is_ready(gateway)
    disk.mend()
    # The handle is poisoned: the contents of the disk are unknown until the ledger is opened again.
    is_equal(charge(gateway, "k", amount=1).status, 503)
    assert not is_ready(gateway)
    # Unguarded requests still pass.
    is_equal(len(upstream.requests), 1, "requests")
    is_equal(gateway.stop(), 0)
    gateway = sandbox.gateway(upstream)
    assert is_ready(gateway)
    # The claim whose sync failed may have reached the disk; nothing was sent under it, but no record proves that.
    again = charge(gateway, "k", amount=1)
    assert (again.status, len(upstream.requests)) in ((200, 2), (409, 1)), again
    is_equal(charge(gateway, "fresh", amount=1).status, 200)


def a_gateway_whose_ledger_another_process_has_locked_refuses_in_limited_time(sandbox):
    upstream = Upstream(sandbox)
    gateway = sandbox.gateway(upstream)
    is_equal(charge(gateway, "before", amount=1).status, 200)
    lock = Locked(sandbox)
    # SQLite waits for 15 seconds, and the write order for one more.
    took, refused = elapsed(lambda: charge(gateway, "k", amount=1))
    assert refused.status == 503 and refused.problem(), refused
    assert took < 25, f"it was refused after {took:.1f} s"
    assert not is_ready(gateway)
    is_equal(charge(gateway, "before", amount=1).status, 200)
    lock.let_go()
    assert is_ready(gateway)
    is_equal((charge(gateway, "k", amount=1).status, upstream.requests), (200, ["before", "k"]))


def an_api_whose_disk_fails_grants_nothing(sandbox):
    disk = Disk(sandbox)
    server = sandbox.serve(API, disk.environment)
    disk.fail("write")
    refused = api(server, "begin", operation="op", key="k")
    assert refused.status == 503 and refused.problem(), refused
    disk.mend()
    is_equal(api(server, "begin", operation="op", key="k2").status, 503)
    assert not is_ready(server)
    is_equal(server.stop(), 0)
    server = sandbox.serve(API)
    assert is_ready(server)
    is_equal(api(server, "begin", operation="op", key="k").json()["decision"], "acquired")


def an_api_with_a_full_disk_grants_nothing_and_recovers_by_itself(sandbox):
    disk = Small(sandbox)
    server = sandbox.serve(API)
    disk.fill()
    begin = lambda number: api(server, "begin", operation="op", key=f"k{number}")
    granted, refused = until_refused(begin, lambda answer: answer.status != 200)
    assert refused.status == 503 and refused.problem(), refused
    assert not is_ready(server)
    disk.free()
    assert is_ready(server)
    is_equal(begin(granted).json()["decision"], "acquired")


def an_mcp_gateway_whose_disk_fails_calls_nothing_that_acts(sandbox):
    disk = Disk(sandbox)
    agent = sandbox.agent(environment=disk.environment)
    disk.fail("write")
    is_refused(agent.call("send_email", {"to": "a"}))
    is_refused(agent.call("send_email", {"to": "b"}))
    # Read-only tools pass.
    assert not agent.call("read_inbox").get("isError")
    is_equal(sandbox.effects(), [], "effects")
    disk.mend()
    agent.close()
    is_fresh(sandbox.agent().call("send_email", {"to": "a"}))
    is_equal(len(sandbox.effects()), 1, "effects")


def an_mcp_gateway_over_http_with_a_full_disk_calls_nothing_that_acts(sandbox):
    disk, server = Small(sandbox), sandbox.remote()
    gateway = sandbox.mcp_over_http(server)
    disk.fill()
    granted, refused = until_refused(lambda number: call(gateway, to=str(number)), lambda result: result.get("isError"))
    is_refused(refused)
    is_equal(len(sandbox.effects()), granted, "effects")
    disk.free()
    is_fresh(call(gateway, to=str(granted)))
    is_equal(len(sandbox.effects()), granted + 1, "effects")


def a_command_is_not_run_when_its_disk_fails(sandbox):
    disk = Disk(sandbox)
    command = (*COMMAND, sandbox.folder / "effects")
    is_equal(sandbox.run("first", *command).wait(20), 0)
    for kind in ("write", "sync"):
        disk.fail(kind)
        run = sandbox.run("k", *command, environment=disk.environment)
        is_equal(run.wait(20), 69, kind)
        assert "nothing was run" in run.errors(), run.errors()
        is_equal(len(sandbox.effects()), 1, "effects")
        disk.mend()
    looked = sandbox.ask("list", "--json")
    is_equal(looked[0], 0)
