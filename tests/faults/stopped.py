"""A gateway that is stopped (SIGSTOP) until its lease is over, and continued when another gateway has dealt with its intent."""

import contextlib
import json
import signal
import sqlite3
import time

from checks import is_equal, until
from judge import about, is_fresh, is_replay, is_state
from upstream import Upstream
from world import call, charge, outcome

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


def stop(place, send):
    """Stops a process while it does not write: it would hold the ledger's lock, and keep every other process out."""
    for _ in range(100):
        send(signal.SIGSTOP)
        if is_free(place.ledger):
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
    """Waits until the lease of the stopped process is over. No event shows that."""
    time.sleep(LEASE + 0.4)


def stopped_in_flight(place, in_doubt, honours=False):
    """Two gateways on one ledger, and the first is stopped in the middle of a request."""
    upstream = Upstream(place, honours=honours, holding=True)
    configuration = GATEWAY.format(in_doubt=in_doubt, url=upstream.url)
    first, second = place.serve(configuration), place.serve(configuration)
    client = place.later(charge, first, "k", amount=1)
    until(lambda: upstream.has(1), "the effect")
    stop(place, first.signal)
    lapse()
    return upstream, first, second, client


def under_hold_a_stopped_gateway_keeps_its_intent_and_finishes_it_late(place):
    upstream, first, second, client = stopped_in_flight(place, "hold")
    is_equal(charge(second, "k", amount=1).status, 409)
    is_equal(place.state(), "in_doubt")
    upstream.let_go()
    first.signal(signal.SIGCONT)
    # It was not superseded, so its answer settles the doubt.
    late = outcome(client)
    is_equal(late.status, 200)
    is_equal(place.state(), "done")
    is_equal(charge(second, "k", amount=1).body, late.body)
    is_equal(len(upstream.requests), 1, "requests")


def under_hold_a_gateway_that_goes_on_before_its_answer_keeps_its_intent(place):
    upstream, first, second, client = stopped_in_flight(place, "hold")
    is_equal(charge(second, "k", amount=1).status, 409)
    first.signal(signal.SIGCONT)
    # It renews its lease as soon as it can, and others wait for it again.
    until(lambda: place.state() == "running", "the lease of the owner that is back")
    is_equal(charge(second, "k", amount=1).status, 409)
    upstream.let_go()
    is_equal(outcome(client).status, 200)
    is_equal((place.state(), len(upstream.requests)), ("done", 1))


def under_retry_the_second_attempt_has_the_same_key_and_the_late_owner_changes_nothing(place):
    upstream, first, second, client = stopped_in_flight(place, "retry", honours=True)
    retry = place.later(charge, second, "k", amount=1)
    until(lambda: len(upstream.requests) == 2, "the second attempt")
    upstream.let_go()
    is_equal(outcome(retry).json()["number"], 2)
    is_equal(place.state(), "done")
    first.signal(signal.SIGCONT)
    late = outcome(client)
    is_equal(upstream.requests, ["k", "k"])
    is_equal(upstream.effects, ["k"])
    for gateway in (first, second):
        is_equal(charge(gateway, "k", amount=1).json()["number"], 2, "the number of the kept answer")
    # The late owner either learns that it lost its claim, and sends its client to the kept answer; or it has its own answer
    # first, and hands that over. Then its report is kept beside the record, because it is another one.
    if late.status == 502:
        is_equal((late.problem(), late.headers["X-Should-Retry"]), ("no-answer", "true"))
        return
    is_equal(late.json()["number"], 1)
    _, said, _ = place.ask("get", "--tenant", "acme", "--operation", "POST /v1/charges", "--key", "k", "--json")
    trail = json.loads(said)["trail"]
    assert [entry["what"] for entry in trail] == ["contradiction"], trail


def stopped_agent(place, in_doubt):
    """Two MCP gateways on one ledger, and the first is stopped in the middle of a call. Its server goes on."""
    place.configure(MCP.format(in_doubt=in_doubt))
    first, second = place.agent(session="s"), place.agent(session="s")
    arguments = {"to": "ada@example.org", "delay_ms": 1000}
    identity = first.start_call("send_email", arguments)
    until(place.effects, "the effect")
    stop(place, first.process.send_signal)
    lapse()
    return first, second, identity, arguments


def under_hold_a_stopped_mcp_gateway_keeps_its_call_and_finishes_it_late(place):
    first, second, identity, arguments = stopped_agent(place, "hold")
    is_state(second.call("send_email", arguments), "in_doubt")
    is_equal(place.state(), "in_doubt")
    first.process.send_signal(signal.SIGCONT)
    result = first.wait(identity)["result"]
    is_fresh(result)
    is_equal(place.state(), "done")
    is_replay(second.call("send_email", arguments), result)
    is_equal(len(place.effects()), 1, "effects")


def under_retry_a_stopped_mcp_gateway_is_superseded_and_changes_nothing(place):
    first, second, identity, arguments = stopped_agent(place, "retry")
    result = second.call("send_email", arguments)
    is_fresh(result)
    is_equal(place.state(), "done")
    first.process.send_signal(signal.SIGCONT)
    first.wait(identity)
    is_replay(first.call("send_email", arguments), result)
    is_replay(second.call("send_email", arguments), result)
    is_equal(len(place.effects()), 2, "effects: at least once is what the policy says")


KEYED = MCP + 'key_argument = "key"\n'


def under_retry_both_attempts_of_a_tool_have_the_same_key(place):
    place.configure(KEYED.format(in_doubt="retry"))
    server = place.remote()
    first, second = place.mcp_over_http(server), place.mcp_over_http(server)
    arguments = {"to": "ada@example.org", "delay_ms": 1000}
    client = place.later(call, first, **arguments)
    until(place.effects, "the effect")
    stop(place, first.signal)
    lapse()
    result = call(second, **arguments)
    is_fresh(result)
    first.signal(signal.SIGCONT)
    outcome(client)
    keys = [one["arguments"].get("key") for one in place.effects()]
    assert len(keys) == 2 and keys[0] and keys[0] == keys[1], keys
    is_equal(place.state(), "done")


def under_hold_a_stopped_mcp_gateway_over_http_keeps_its_call(place):
    place.configure(MCP.format(in_doubt="hold"))
    server = place.remote()
    first, second = place.mcp_over_http(server), place.mcp_over_http(server)
    arguments = {"to": "ada@example.org", "delay_ms": 1000}
    client = place.later(call, first, **arguments)
    until(place.effects, "the effect")
    stop(place, first.signal)
    lapse()
    result = call(second, **arguments)
    is_state(result, "in_doubt")
    assert about(result).get("since"), result
    first.signal(signal.SIGCONT)
    is_fresh(outcome(client))
    is_replay(call(second, **arguments))
    is_equal((place.state(), len(place.effects())), ("done", 1))
