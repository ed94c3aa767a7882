"""A gateway is stopped (SIGSTOP) until its lease lapses, and continued after another gateway has handled its intent."""

import contextlib
import json
import signal
import sqlite3
import time

from checks import is_equal, until
from results import about, is_fresh, is_replay, is_state
from upstream import Upstream
from fault_sandbox import call, charge, outcome

# Leases are three times `max_runtime`.
LEASE = 1.5
GATEWAY = """
[operation.short]
max_runtime = "500ms"
in_doubt = "{in_doubt}"
[gateway]
listen = "127.0.0.1:0"
[[gateway.route]]
upstream = "{url}"
tenant = "fixed:acme"
operation = "short"
wait = "0s"
"""
MCP = """
[mcp.server.fixture.tool.send_email]
max_runtime = "500ms"
in_doubt = "{in_doubt}"
wait = "0s"
"""


def stop(sandbox, send):
    """Stops a process while it does not write: it would hold the ledger's lock and block every other process."""
    for _ in range(100):
        send(signal.SIGSTOP)
        if is_free(sandbox.ledger):
            return
        send(signal.SIGCONT)
        time.sleep(0.02)
    raise AssertionError("the ledger is always locked")


def is_free(ledger):
    with contextlib.closing(sqlite3.connect(ledger, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return False
    return True


def lapse():
    """Waits until the lease of the stopped process has lapsed. No event shows that."""
    time.sleep(LEASE + 0.4)


def stopped_in_flight(sandbox, in_doubt, honours=False):
    """Two gateways on one ledger; the first is stopped in the middle of a request."""
    upstream = Upstream(sandbox, honours=honours, holding=True)
    configuration = GATEWAY.format(in_doubt=in_doubt, url=upstream.url)
    first, second = sandbox.serve(configuration), sandbox.serve(configuration)
    client = sandbox.later(charge, first, "k", amount=1)
    until(lambda: upstream.has(1), "the effect")
    stop(sandbox, first.signal)
    lapse()
    return upstream, first, second, client


def under_hold_a_stopped_gateway_keeps_its_intent_and_finishes_it_late(sandbox):
    upstream, first, second, client = stopped_in_flight(sandbox, "hold")
    is_equal(charge(second, "k", amount=1).status, 409)
    is_equal(sandbox.state(), "in_doubt")
    upstream.let_go()
    first.signal(signal.SIGCONT)
    # It was not superseded, so its outcome settles the doubt.
    late = outcome(client)
    is_equal(late.status, 200)
    is_equal(sandbox.state(), "done")
    is_equal(charge(second, "k", amount=1).body, late.body)
    is_equal(len(upstream.requests), 1, "requests")


def under_hold_a_gateway_that_goes_on_before_its_answer_keeps_its_intent(sandbox):
    upstream, first, second, client = stopped_in_flight(sandbox, "hold")
    is_equal(charge(second, "k", amount=1).status, 409)
    first.signal(signal.SIGCONT)
    # It renews its lease as soon as it can, and other callers wait for it again.
    until(lambda: sandbox.state() == "running", "the lease of the owner that is back")
    is_equal(charge(second, "k", amount=1).status, 409)
    upstream.let_go()
    is_equal(outcome(client).status, 200)
    is_equal((sandbox.state(), len(upstream.requests)), ("done", 1))


def under_retry_the_second_attempt_has_the_same_key_and_the_late_owner_changes_nothing(sandbox):
    upstream, first, second, client = stopped_in_flight(sandbox, "retry", honours=True)
    retry = sandbox.later(charge, second, "k", amount=1)
    until(lambda: len(upstream.requests) == 2, "the second attempt")
    upstream.let_go()
    is_equal(outcome(retry).json()["number"], 2)
    is_equal(sandbox.state(), "done")
    first.signal(signal.SIGCONT)
    late = outcome(client)
    is_equal(upstream.requests, ["k", "k"])
    is_equal(upstream.effects, ["k"])
    for gateway in (first, second):
        is_equal(charge(gateway, "k", amount=1).json()["number"], 2, "the number of the kept answer")
    # The late owner either learns that it lost its claim and gives its client the kept outcome; or it has its own response
    # first and returns that. Then its report goes to the audit trail, because it differs from the record.
    if late.status == 502:
        is_equal((late.problem(), late.headers["X-Should-Retry"]), ("no-answer", "true"))
        return
    is_equal(late.json()["number"], 1)
    _, said, _ = sandbox.ask("get", "--tenant", "acme", "--operation", "POST /v1/charges", "--key", "k", "--json")
    trail = json.loads(said)["trail"]
    assert [entry["what"] for entry in trail] == ["contradiction"], trail


def stopped_agent(sandbox, in_doubt):
    """Two MCP gateways on one ledger; the first is stopped in the middle of a call. Its server continues."""
    sandbox.configure(MCP.format(in_doubt=in_doubt))
    first, second = sandbox.agent(session="s"), sandbox.agent(session="s")
    arguments = {"to": "ada@example.org", "delay_ms": 1000}
    identity = first.start_call("send_email", arguments)
    until(sandbox.effects, "the effect")
    stop(sandbox, first.process.send_signal)
    lapse()
    return first, second, identity, arguments


def under_hold_a_stopped_mcp_gateway_keeps_its_call_and_finishes_it_late(sandbox):
    first, second, identity, arguments = stopped_agent(sandbox, "hold")
    is_state(second.call("send_email", arguments), "in_doubt")
    is_equal(sandbox.state(), "in_doubt")
    first.process.send_signal(signal.SIGCONT)
    result = first.wait(identity)["result"]
    is_fresh(result)
    is_equal(sandbox.state(), "done")
    is_replay(second.call("send_email", arguments), result)
    is_equal(len(sandbox.effects()), 1, "effects")


def under_retry_a_stopped_mcp_gateway_is_superseded_and_changes_nothing(sandbox):
    first, second, identity, arguments = stopped_agent(sandbox, "retry")
    result = second.call("send_email", arguments)
    is_fresh(result)
    is_equal(sandbox.state(), "done")
    first.process.send_signal(signal.SIGCONT)
    first.wait(identity)
    is_replay(first.call("send_email", arguments), result)
    is_replay(second.call("send_email", arguments), result)
    is_equal(len(sandbox.effects()), 2, "effects: at least once is what the policy says")


KEYED = MCP + 'key_argument = "key"\n'


def under_retry_both_attempts_of_a_tool_have_the_same_key(sandbox):
    sandbox.configure(KEYED.format(in_doubt="retry"))
    server = sandbox.remote()
    first, second = sandbox.mcp_over_http(server), sandbox.mcp_over_http(server)
    arguments = {"to": "ada@example.org", "delay_ms": 1000}
    client = sandbox.later(call, first, **arguments)
    until(sandbox.effects, "the effect")
    stop(sandbox, first.signal)
    lapse()
    result = call(second, **arguments)
    is_fresh(result)
    first.signal(signal.SIGCONT)
    outcome(client)
    keys = [one["arguments"].get("key") for one in sandbox.effects()]
    assert len(keys) == 2 and keys[0] and keys[0] == keys[1], keys
    is_equal(sandbox.state(), "done")


def under_hold_a_stopped_mcp_gateway_over_http_keeps_its_call(sandbox):
    sandbox.configure(MCP.format(in_doubt="hold"))
    server = sandbox.remote()
    first, second = sandbox.mcp_over_http(server), sandbox.mcp_over_http(server)
    arguments = {"to": "ada@example.org", "delay_ms": 1000}
    client = sandbox.later(call, first, **arguments)
    until(sandbox.effects, "the effect")
    stop(sandbox, first.signal)
    lapse()
    result = call(second, **arguments)
    is_state(result, "in_doubt")
    assert about(result).get("since"), result
    first.signal(signal.SIGCONT)
    is_fresh(outcome(client))
    is_replay(call(second, **arguments))
    is_equal((sandbox.state(), len(sandbox.effects())), ("done", 1))
