"""The ledger fails between the effect and the recording of its outcome."""

import contextlib
import sqlite3
import sys

from checks import is_equal, until
from failing_disk import Disk, Locked, Small
from results import about, is_state
from upstream import Upstream
from fault_sandbox import api, call, charge, elapsed, is_ready, outcome

MAIL = {"to": "ada@example.org", "delay_ms": 2500}

# More than the log has on a small disk.
LOG_PAGES = 1000

# The gateway tries to record the outcome until the lease lapses, which is three times this.
SHORT = """
[operation.short]
max_runtime = "500ms"
in_doubt = "hold"
[gateway]
listen = "127.0.0.1:0"
[[gateway.route]]
upstream = "{url}"
tenant = "fixed:acme"
operation = "short"
"""


def is_answered_with_a_notice(answer):
    """The client has the upstream's response, without the header that promises a replay."""
    is_equal(answer.status, 200)
    is_equal(answer.json(), {"number": 1, "key": "k"})
    assert "Idempotency-Expires" not in answer.headers, answer


def is_held(sandbox, upstream, gateway):
    """After a restart the intent is in doubt, and the gateway does not send it again."""
    is_equal(sandbox.state(), "in_doubt")
    again = charge(gateway, "k", amount=1)
    is_equal(again.status, 409)
    is_equal(len(upstream.requests), 1, "requests")


def a_gateway_whose_ledger_was_moved_after_the_effect_answers_and_holds(sandbox):
    upstream = Upstream(sandbox, holding=True)
    gateway = sandbox.gateway(upstream)
    client = sandbox.later(charge, gateway, "k", amount=1)
    until(lambda: upstream.has(1), "the effect")
    files, aside = sorted(sandbox.folder.glob("ledger.db*")), sandbox.folder / "aside"
    aside.mkdir()
    for file in files:
        file.rename(aside / file.name)
    upstream.let_go()
    is_answered_with_a_notice(outcome(client))
    assert "could not be recorded" in gateway.errors(), gateway.errors()
    # No other process would find what is written now, so nothing runs any more.
    is_equal((charge(gateway, "k", amount=1).status, charge(gateway, "k2", amount=1).status), (503, 503))
    assert not is_ready(gateway)
    is_equal(len(upstream.requests), 1, "requests")
    gateway.stop()
    for file in files:
        (aside / file.name).rename(file)
    is_held(sandbox, upstream, sandbox.gateway(upstream))


def a_gateway_whose_sync_failed_after_the_effect_answers_and_holds(sandbox):
    disk, upstream = Disk(sandbox), Upstream(sandbox, holding=True)
    gateway = sandbox.gateway(upstream, environment=disk.environment)
    client = sandbox.later(charge, gateway, "k", amount=1)
    until(lambda: upstream.has(1), "the effect")
    disk.fail("sync")
    upstream.let_go()
    is_answered_with_a_notice(outcome(client))
    assert "could not be recorded" in gateway.errors(), gateway.errors()
    # From here on the contents of the disk are unknown, even when the disk works again.
    disk.mend()
    is_equal(charge(gateway, "k2", amount=1).status, 503)
    assert not is_ready(gateway)
    gateway.stop()
    gateway = sandbox.gateway(upstream)
    assert is_ready(gateway)
    # The commit may have reached the disk although its sync failed. Then the intent is done, otherwise in doubt.
    again = charge(gateway, "k", amount=1)
    assert (sandbox.state(), again.status) in (("done", 200), ("in_doubt", 409)), (sandbox.state(), again)
    is_equal(len(upstream.requests), 1, "requests")


def a_gateway_whose_write_failed_after_the_effect_answers_and_holds(sandbox):
    disk, upstream = Disk(sandbox), Upstream(sandbox, holding=True)
    gateway = sandbox.gateway(upstream, environment=disk.environment)
    client = sandbox.later(charge, gateway, "k", amount=1)
    until(lambda: upstream.has(1), "the effect")
    disk.fail("write")
    upstream.let_go()
    is_answered_with_a_notice(outcome(client))
    gateway.stop()
    disk.mend()
    is_held(sandbox, upstream, sandbox.gateway(upstream))


def a_gateway_whose_disk_was_full_after_the_effect_answers_and_holds(sandbox):
    disk, upstream = Small(sandbox), Upstream(sandbox, holding=True)
    gateway = sandbox.serve(SHORT.format(url=upstream.url))
    client = sandbox.later(charge, gateway, "k", amount=1)
    until(lambda: upstream.has(1), "the effect")
    disk.fill()
    use_up(sandbox, gateway)
    upstream.let_go()
    took, answer = elapsed(lambda: outcome(client))
    assert took < 10, f"the answer took {took:.1f} s"
    is_answered_with_a_notice(answer)
    gateway.stop()
    disk.free()
    is_held(sandbox, upstream, sandbox.gateway(upstream))


def an_outcome_is_recorded_when_the_disk_has_room_again(sandbox):
    disk, upstream = Small(sandbox), Upstream(sandbox, holding=True)
    gateway = sandbox.gateway(upstream)
    client = sandbox.later(charge, gateway, "k", amount=1)
    until(lambda: upstream.has(1), "the effect")
    disk.fill()
    use_up(sandbox, gateway)
    upstream.let_go()
    until(lambda: "could not be recorded yet" in gateway.errors(), "a try that failed")
    assert not client.done()
    disk.free()
    is_equal(outcome(client).status, 200)
    is_equal(charge(gateway, "k", amount=1).body, outcome(client).body)
    is_equal((sandbox.state(), len(upstream.requests)), ("done", 1))


def an_outcome_is_recorded_when_another_process_lets_the_ledger_go(sandbox):
    upstream = Upstream(sandbox, holding=True)
    gateway = sandbox.gateway(upstream)
    client = sandbox.later(charge, gateway, "k", amount=1)
    until(lambda: upstream.has(1), "the effect")
    lock = Locked(sandbox)
    upstream.let_go()
    # The readiness probe waits behind the outcome, for 2 seconds.
    assert not is_ready(gateway)
    assert not client.done()
    lock.let_go()
    is_equal(outcome(client).status, 200)
    is_equal((sandbox.state(), len(upstream.requests)), ("done", 1))


def use_up(sandbox, gateway):
    """Uses up the room that is left in the write-ahead log, page by page. Where a readiness probe no longer fits, a smaller
    write may, and which writes the gateway has made until now depends on the time."""
    ledger = sqlite3.connect(sandbox.ledger, timeout=20, isolation_level=None)
    ledger.execute("PRAGMA wal_autocheckpoint = 0")
    [[version]] = ledger.execute("PRAGMA user_version")
    with contextlib.closing(ledger):
        is_full, pages = False, 0
        while not is_full:
            try:
                ledger.execute(f"PRAGMA user_version = {version}")
            except sqlite3.OperationalError as error:
                is_full = "full" in str(error)
                assert is_full, error
            pages += 1
            assert pages <= LOG_PAGES, "the log still has room"
    until(lambda: not is_ready(gateway), "a full disk")


def is_told(result):
    """The tool's own result, with a notice that it was not recorded."""
    assert not result.get("isError"), result
    assert any("done" in block.get("text", "") for block in result["content"]), result
    is_equal(about(result).get("state"), "not_recorded")


def an_mcp_gateway_whose_sync_failed_after_the_effect_answers_and_says_so(sandbox):
    disk = Disk(sandbox)
    agent = sandbox.agent(environment=disk.environment)
    first = agent.start_call("send_email", MAIL)
    until(sandbox.effects, "the effect")
    disk.fail("write")
    is_told(agent.wait(first)["result"])
    assert agent.call("send_email", MAIL)["isError"], "nothing runs without a ledger"
    is_equal(len(sandbox.effects()), 1, "effects")
    disk.mend()
    agent.close()
    is_equal(sandbox.state(), "in_doubt")
    is_state(sandbox.agent().call("send_email", MAIL), "in_doubt")
    is_equal(len(sandbox.effects()), 1, "effects")


def an_mcp_gateway_over_http_whose_disk_failed_after_the_effect_answers_and_says_so(sandbox):
    disk, server = Disk(sandbox), sandbox.remote()
    gateway = sandbox.mcp_over_http(server, environment=disk.environment)
    client = sandbox.later(call, gateway, delay_ms=2500)
    until(sandbox.effects, "the effect")
    disk.fail("write")
    is_told(outcome(client))
    gateway.stop()
    disk.mend()
    is_equal(sandbox.state(), "in_doubt")
    is_state(call(sandbox.mcp_over_http(server), delay_ms=2500), "in_doubt")
    is_equal(len(sandbox.effects()), 1, "effects")


COMMAND = """
import sys, time, pathlib
with open(sys.argv[1], "a") as effects:
    effects.write('{"tool": "job"}\\n')
while not pathlib.Path(sys.argv[2]).exists():
    time.sleep(0.02)
print("sent")
"""


def a_command_whose_outcome_cannot_be_recorded_ends_with_its_own_code_and_says_so(sandbox):
    disk, go = Disk(sandbox), sandbox.folder / "go"
    command = (sys.executable, "-c", COMMAND, sandbox.folder / "effects", go)
    run = sandbox.run("k", *command, environment=disk.environment)
    until(sandbox.effects, "the effect")
    disk.fail("write")
    go.touch()
    is_equal((run.wait(20), run.output()), (0, "sent"))
    assert "could not be recorded" in run.errors() and "onceward resolve" in run.errors(), run.errors()
    disk.mend()
    is_equal(sandbox.state(), "in_doubt")
    again = sandbox.run("k", *command)
    is_equal((again.wait(20), len(sandbox.effects())), (76, 1))


def a_caller_of_the_api_can_finish_after_the_ledger_is_back(sandbox):
    disk, configuration = Disk(sandbox), '[api]\nlisten = "127.0.0.1:0"\n'
    server = sandbox.serve(configuration, disk.environment)
    begun = api(server, "begin", operation="op", key="k").json()
    disk.fail("write")
    done = {"verdict": "success", "status": 200, "content_type": "text/plain", "body": {"text": "done"}}
    finish = {"operation": "op", "key": "k", "fence": begun["fence"], "outcome": done}
    took, failed = elapsed(lambda: api(server, "finish", **finish))
    assert failed.status == 503 and took < 40, (failed, took)
    assert not is_ready(server)
    server.stop()
    disk.mend()
    server = sandbox.serve(configuration)
    is_equal(api(server, "begin", operation="op", key="k").json()["decision"], "in_flight")
    is_equal(api(server, "finish", **finish).json()["result"], "written")
    is_equal(sandbox.state(), "done")
