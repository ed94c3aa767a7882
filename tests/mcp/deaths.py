"""Somebody dies or gives up in mid-call: the client, the server, or the gateway."""

import json
import signal
import sys
import threading
import time

from checks import all_of, is_equal, until
from judge import about, is_fresh, is_replay, is_state
from place import HERE, OUTWARD

MAIL = {"to": "ada@example.org", "subject": "Hello"}
INVOICE = {"customer": "c-1", "invoice": "i-1", "amount": 10}
PROBE = """
[mcp.server.fixture.tool.charge]
in_doubt = "probe"
probe = { tool = "find_charge", arguments = { invoice = "$/invoice" }, found = "/found", after = "500ms" }
"""


def policy(tool, in_doubt):
    return f'[mcp.server.fixture.tool.{tool}]\nin_doubt = "{in_doubt}"\n'


def a_client_that_gave_up_gets_the_late_answer_when_it_tries_again(place):
    agent = place.agent()
    arguments = {"note": "once", "delay_ms": 700}
    first = agent.start_call("slow", arguments)
    time.sleep(0.2)
    # The client's time-out: it no longer waits, and goes on.
    second = agent.start_call("slow", arguments)
    is_replay(agent.wait(second)["result"], agent.wait(first)["result"])
    is_equal(len(place.effects()), 1, "effects")


def a_client_that_gave_up_and_said_so_gets_the_late_answer_too(place):
    agent = place.agent()
    arguments = {"note": "once", "delay_ms": 700}
    first = agent.start_call("slow", arguments)
    time.sleep(0.2)
    agent.notify("notifications/cancelled", {"requestId": first, "reason": "time-out"})
    is_replay(agent.call("slow", arguments))
    is_equal(len(place.effects()), 1, "effects")


def a_client_that_ran_out_of_time_does_not_stop_its_call(place):
    # SDKs say so when their time is over. Whoever only ran out of time comes back for the answer.
    agent = place.agent()
    reasons = ("timed out after 0.5s", "McpError: MCP error -32001: Request timed out", "context deadline exceeded")
    for number, reason in enumerate(reasons):
        arguments = {"delay_ms": 800, "note": reason}
        first = agent.start_call("cancellable", arguments)
        until(lambda calls=number + 1: called(place, agent) == calls, "the call")
        time.sleep(0.1)
        agent.notify("notifications/cancelled", {"requestId": first, "reason": reason})
        is_replay(agent.call("cancellable", arguments))
        is_equal(len(place.effects()), number + 1, "effects")


def a_cancellation_for_another_reason_reaches_the_server(place):
    agent = place.agent()
    first = agent.start_call("cancellable", {"delay_ms": 3000})
    until(lambda: called(place, agent), "the call")
    line = '{"method":"notifications/cancelled", "params":{"reason":"the user said stop","requestId":ID },"jsonrpc":"2.0"}\n'
    line = line.replace("ID", str(first))
    agent.send(line.encode())
    until(lambda: line.encode() in place.received(agent), "the cancellation, as it was written")
    is_equal(place.effects(), [], "effects")


def a_late_answer_is_kept_for_a_retry_that_comes_after_it(place):
    agent = place.agent()
    arguments = {"note": "once", "delay_ms": 300}
    first = agent.start_call("slow", arguments)
    until(lambda: called(place, agent), "the call")
    agent.notify("notifications/cancelled", {"requestId": first})
    until(place.effects, "the effect")
    time.sleep(0.3)
    is_replay(agent.call("slow", arguments))
    is_equal(len(place.effects()), 1, "effects")


def a_call_that_is_given_up_at_once_can_be_made_again_and_acts_once(place):
    agent = place.agent()
    for number in range(10):
        arguments = {"note": f"round {number}", "delay_ms": 50}
        first = agent.start_call("slow", arguments)
        agent.notify("notifications/cancelled", {"requestId": first})
        # It may have been stopped before it reached the server, or be answered late.
        result = agent.call("slow", arguments)
        assert not result.get("isError"), result
        is_equal(len(place.effects()), number + 1, "effects")


def giving_up_a_call_that_waits_for_another_does_not_stop_the_other(place):
    agent = place.agent()
    arguments = {"delay_ms": 800}
    first = agent.start_call("cancellable", arguments)
    time.sleep(0.1)
    second = agent.start_call("cancellable", arguments)
    time.sleep(0.1)
    agent.notify("notifications/cancelled", {"requestId": second})
    is_fresh(agent.wait(first)["result"])
    is_equal(len(place.effects()), 1, "effects")


def a_call_that_stopped_without_an_answer_is_not_made_again(place):
    agent = place.agent()
    arguments = {"delay_ms": 3000}
    first = agent.start_call("cancellable", arguments)
    time.sleep(0.1)
    agent.notify("notifications/cancelled", {"requestId": first})
    time.sleep(0.2)
    result = agent.call("cancellable", arguments, patience=60)
    is_state(result, "in_doubt", "running", "attempt_unknown")
    is_equal(place.effects(), [], "effects")


def a_client_that_closed_in_mid_call_is_met_by_the_next_one(place):
    agent = place.agent()
    agent.start_call("send_email", MAIL | {"delay_ms": 800})
    until(place.effects, "the effect")
    agent.process.stdin.close()
    is_replay(place.agent().call("send_email", MAIL | {"delay_ms": 800}))
    is_equal(len(place.effects()), 1, "effects")
    agent.end()


def an_agent_killed_after_the_effect_and_before_the_answer_meets_its_call(place):
    command = [sys.executable, HERE / "client.py", "--", *place.command(session="s")]
    agent = place.open(command, begun=False)
    pid = agent.wait_until(lambda: agent.lines, "the gateway's pid")
    gateway = json.loads(pid[0])["pid"]
    agent.begin()
    arguments = MAIL | {"delay_ms": 1000}
    agent.start_call("send_email", arguments)
    until(place.effects, "the effect")
    agent.kill()
    result = place.agent(session="s").call("send_email", arguments)
    is_replay(result)
    is_equal(len(place.effects()), 1, "effects")
    until(lambda: not is_running(gateway), "the end of a gateway whose client is gone")


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def a_server_that_died_after_the_effect_leaves_a_doubt_that_holds(place):
    place.configure(OUTWARD)
    agent = place.agent()
    is_state(agent.call("crash_after", MAIL), "in_doubt")
    is_equal(agent.end(), 9, "the gateway's exit code, which is the server's")
    again = place.agent()
    result = again.call("crash_after", MAIL)
    is_state(result, "in_doubt")
    assert about(result).get("since"), result
    is_state(again.call("crash_after", MAIL | {"onceward_repeat": 2}), "in_doubt", "refused")
    is_equal(len(place.effects()), 1, "effects")


def a_server_that_died_before_the_effect_leaves_the_same_doubt(place):
    is_state(place.agent().call("crash_before", MAIL), "in_doubt")
    is_state(place.agent().call("crash_before", MAIL), "in_doubt")
    is_equal(place.effects(), [], "effects")


def a_server_that_is_killed_takes_down_every_running_call_into_doubt(place):
    agent = place.agent()
    calls = [agent.start_call("send_email", MAIL | {"subject": str(n), "delay_ms": 5000}) for n in range(5)]
    until(lambda: len(place.effects()) == 5, "five effects")
    other = agent.start_call("crash_before", {})
    for call in [*calls, other]:
        is_state(agent.wait(call)["result"], "in_doubt")
    is_equal(len(place.effects()), 5, "effects")


def a_doubt_lasts_longer_than_the_echo(place):
    place.configure('[mcp]\necho = "1s"\n' + OUTWARD)
    is_state(place.agent().call("crash_after", MAIL), "in_doubt")
    time.sleep(1.5)
    is_state(place.agent().call("crash_after", MAIL), "in_doubt")
    is_equal(len(place.effects()), 1, "effects")


def a_tool_that_may_be_retried_is_tried_again_after_the_server_died(place):
    place.configure(policy("crash_after", "retry"))
    first = place.agent().call("crash_after", {"once": True})
    is_state(first, "in_doubt", "attempt_unknown")
    is_fresh(place.agent().call("crash_after", {"once": True}))
    is_equal(len(place.effects()), 2, "effects: at least once is what the policy says")


def called(place, agent):
    """How many calls have reached the server."""
    return sum(b"tools/call" in line for line in place.received(agent))


def killed(place, tool, arguments, after_effect=True):
    """A gateway that is killed with -9 while a call runs."""
    agent = place.agent()
    agent.start_call(tool, arguments)
    if after_effect:
        until(place.effects, "the effect")
    else:
        until(lambda: called(place, agent), "the call")
    agent.kill(signal.SIGKILL)


def a_gateway_killed_in_mid_call_leaves_a_doubt_that_holds(place):
    place.configure(policy("send_email", "hold"))
    arguments = MAIL | {"delay_ms": 3000}
    killed(place, "send_email", arguments)
    again = place.agent()
    for _ in range(3):
        is_state(again.call("send_email", arguments), "in_doubt")
    is_state(again.call("send_email", arguments | {"onceward_repeat": 2}), "in_doubt", "refused")
    is_state(place.agent().call("send_email", arguments), "in_doubt")
    is_equal(len(place.effects()), 1, "effects")


def holding_is_what_happens_when_nothing_is_said(place):
    arguments = MAIL | {"delay_ms": 3000}
    killed(place, "send_email", arguments)
    is_state(place.agent().call("send_email", arguments), "in_doubt")
    is_equal(len(place.effects()), 1, "effects")


def a_session_does_not_forget_a_doubt(place):
    agent = place.agent(session="s")
    arguments = MAIL | {"delay_ms": 3000}
    agent.start_call("send_email", arguments)
    until(place.effects, "the effect")
    agent.kill()
    is_state(place.agent(session="s").call("send_email", arguments), "in_doubt")
    is_equal(len(place.effects()), 1, "effects")


def a_gateway_killed_in_mid_call_retries_where_the_policy_says_so(place):
    place.configure(policy("send_email", "retry"))
    arguments = MAIL | {"delay_ms": 500}
    killed(place, "send_email", arguments)
    again = place.agent()
    second = again.call("send_email", arguments)
    is_fresh(second)
    is_replay(again.call("send_email", arguments), second)
    is_equal(len(place.effects()), 2, "effects: at least once is what the policy says")


def a_gateway_killed_after_the_effect_finds_it_by_probing(place):
    place.configure(PROBE)
    killed(place, "charge", INVOICE | {"delay_ms": 3000})
    again = place.agent()
    result = again.call("charge", INVOICE | {"delay_ms": 3000})
    assert not result.get("isError"), result
    assert about(result).get("replayed") is True or about(result).get("state"), result
    again.call("charge", INVOICE | {"delay_ms": 3000})
    is_equal(len(place.effects()), 1, "effects")


def a_gateway_killed_before_the_effect_acts_after_probing(place):
    place.configure(PROBE)
    arguments = INVOICE | {"before_ms": 1500}
    killed(place, "charge", arguments, after_effect=False)
    is_equal(place.effects(), [], "effects so far")
    again = place.agent()

    def settled():
        result = again.call("charge", arguments)
        # "Not found" counts once it is old enough to be believed.
        return None if about(result).get("state") in ("in_doubt", "running", "not_yet") else result

    is_fresh(until(settled, "an answer that is settled", 60))
    is_equal(len(place.effects()), 1, "effects")


def two_agents_that_probe_at_once_act_once(place):
    place.configure(PROBE)
    arguments = INVOICE | {"before_ms": 800}
    killed(place, "charge", arguments, after_effect=False)
    agents = [place.agent(), place.agent()]

    def settle(agent):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            result = agent.call("charge", arguments)
            if not result.get("isError"):
                return
            time.sleep(0.1)

    threads = [threading.Thread(target=settle, args=(agent,)) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    is_equal(len(place.effects()), 1, "effects")


def a_probe_that_cannot_be_asked_settles_nothing(place):
    place.configure(PROBE.replace("find_charge", "no_such_tool"))
    arguments = INVOICE | {"delay_ms": 3000}
    killed(place, "charge", arguments)
    is_state(place.agent().call("charge", arguments), "in_doubt")
    is_equal(len(place.effects()), 1, "effects")


CHECKS = all_of(globals())
