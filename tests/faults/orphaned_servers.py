"""A server that outlives its gateway: its effect can come after the next gateway's probe has found nothing."""

import json
import time

from checks import is_equal, until
from results import about, is_fresh, is_replay, is_state
from fault_sandbox import call

PROBE = """
[mcp.server.fixture.tool.charge]
in_doubt = "probe"
{more}
probe = {{ tool = "find_charge", arguments = {{ invoice = "$/invoice" }}, found = "/found"{after} }}
"""
INVOICE = {"customer": "c-1", "invoice": "i-1", "amount": 10}


def killed_before_the_effect(sandbox, server, **arguments):
    """A gateway that is killed while its server still works on a call, and the next gateway."""
    gateway = sandbox.mcp_over_http(server)
    sandbox.later(call, gateway, "charge", **arguments)
    until(lambda: "tools/call" in received(sandbox), "the call")
    assert not sandbox.effects()
    gateway.kill()
    return sandbox.mcp_over_http(server)


def received(sandbox):
    return "".join(file.read_text(errors="replace") for file in sandbox.folder.glob("received*"))


def an_effect_that_comes_after_a_probe_is_found_before_the_settle_time_is_over(sandbox):
    sandbox.configure(PROBE.format(more='max_runtime = "1s"', after=', after = "15s"'))
    arguments = INVOICE | {"before_ms": 4000}
    gateway = killed_before_the_effect(sandbox, sandbox.remote(), **arguments)
    early = call(gateway, "charge", **arguments)
    # The probe found nothing, which proves nothing yet.
    is_state(early, "in_doubt")
    assert about(early).get("may_try_again") and "too early" in early["content"][0]["text"], early
    is_equal(sandbox.effects("charge"), [], "effects at the time of the probe")
    until(lambda: sandbox.effects("charge"), "the late effect")
    late = call(gateway, "charge", **arguments)
    is_replay(late)
    assert "took effect" in late["content"][0]["text"], late
    is_equal((sandbox.state(), len(sandbox.effects("charge"))), ("done", 1))


def without_a_settle_time_a_probe_is_believed_only_after_the_longest_runtime(sandbox):
    sandbox.configure(PROBE.format(more='max_runtime = "10s"', after=""))
    arguments = INVOICE | {"before_ms": 2500}
    gateway = killed_before_the_effect(sandbox, sandbox.remote(), **arguments)

    def found():
        result = call(gateway, "charge", **arguments)
        if not about(result).get("replayed"):
            is_state(result, "in_doubt")
        return about(result).get("replayed")

    until(found, "the effect")
    is_equal((sandbox.state(), len(sandbox.effects("charge"))), ("done", 1))


def an_effect_that_comes_after_the_settle_time_happens_twice_and_the_trail_says_why(sandbox):
    # No gateway can prevent this: with `after` the operator promises that no effect comes later.
    sandbox.configure(PROBE.format(more='max_runtime = "200ms"', after=', after = "300ms"'))
    arguments = INVOICE | {"before_ms": 8000}
    gateway = killed_before_the_effect(sandbox, sandbox.remote(), **arguments)
    is_state(call(gateway, "charge", **arguments), "in_doubt")
    time.sleep(0.5)
    is_fresh(call(gateway, "charge", **arguments))
    until(lambda: len(sandbox.effects("charge")) == 2, "the late effect")
    intent = sandbox.intent()
    is_equal((intent["state"], intent["attempts"] >= 3), ("done", True))
    trail = trail_of(sandbox, intent)
    assert any(entry["what"] == "probe_found_nothing" for entry in trail), trail


def trail_of(sandbox, intent):
    code, said, errors = sandbox.ask("get", "--operation", intent["operation"], "--key", intent["key"], "--json")
    assert code == 0, errors
    return json.loads(said)["trail"]


STDIO = PROBE.format(more='max_runtime = "1s"', after=', after = "300ms"')


def a_server_that_its_gateway_started_keeps_the_call_running_while_it_lives(sandbox):
    # The server is in another session and survives its gateway. It has inherited the file lock of the claim.
    sandbox.configure(STDIO)
    agent = sandbox.agent(session="s", behind=["setsid", "--wait", *sandbox.command(session="s")[-2:]], environment={"LINGER": "1"})
    arguments = INVOICE | {"before_ms": 1500}
    agent.start_call("charge", arguments)
    until(lambda: "tools/call" in received(sandbox), "the call")
    agent.kill()
    again = sandbox.agent(session="s", environment={"LINGER": "1"})
    first = again.call("charge", arguments)
    # Either it waits until the server has ended and then probes, or it answers that the call is in flight.
    assert about(first).get("replayed") or about(first).get("state") in ("running", "in_doubt", "attempt_unknown"), first
    until(lambda: sandbox.effects("charge"), "the late effect")
    until(lambda: about(again.call("charge", arguments)).get("replayed"), "the effect that was found")
    is_equal((sandbox.state(), len(sandbox.effects("charge"))), ("done", 1))
