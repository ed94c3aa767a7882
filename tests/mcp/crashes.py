"""The client, the server or the gateway dies or gives up during a call."""

import json
import signal
import sys
import threading
import time

from checks import all_of, is_equal, until
from results import about, is_fresh, is_replay, is_state
from sandbox import HERE, OUTWARD

MAIL = {"to": "ada@example.org", "subject": "Hello"}
INVOICE = {"customer": "c-1", "invoice": "i-1", "amount": 10}
PROBE = """
[mcp.server.fixture.tool.charge]
in_doubt = "probe"
probe = { tool = "find_charge", arguments = { invoice = "$/invoice" }, found = "/found", after = "500ms" }
"""


def policy(tool, in_doubt):
    return f'[mcp.server.fixture.tool.{tool}]\nin_doubt = "{in_doubt}"\n'


def a_client_that_gave_up_gets_the_late_answer_when_it_tries_again(sandbox):
    agent = sandbox.agent()
    arguments = {"note": "once", "delay_ms": 700}
    first = agent.start_call("slow", arguments)
    time.sleep(0.2)
    # The client times out: it no longer waits and continues.
    second = agent.start_call("slow", arguments)
    is_replay(agent.wait(second)["result"], agent.wait(first)["result"])
    is_equal(len(sandbox.effects()), 1, "effects")


def a_client_that_gave_up_and_said_so_gets_the_late_answer_too(sandbox):
    agent = sandbox.agent()
    arguments = {"note": "once", "delay_ms": 700}
    first = agent.start_call("slow", arguments)
    time.sleep(0.2)
    agent.notify("notifications/cancelled", {"requestId": first, "reason": "time-out"})
    is_replay(agent.call("slow", arguments))
    is_equal(len(sandbox.effects()), 1, "effects")


def a_client_that_ran_out_of_time_does_not_stop_its_call(sandbox):
    # SDKs send this reason on a time-out. A client that timed out will ask again for the result.
    agent = sandbox.agent()
    reasons = ("timed out after 0.5s", "McpError: MCP error -32001: Request timed out", "context deadline exceeded")
    for number, reason in enumerate(reasons):
        arguments = {"delay_ms": 800, "note": reason}
        first = agent.start_call("cancellable", arguments)
        until(lambda calls=number + 1: called(sandbox, agent) == calls, "the call")
        time.sleep(0.1)
        agent.notify("notifications/cancelled", {"requestId": first, "reason": reason})
        is_replay(agent.call("cancellable", arguments))
        is_equal(len(sandbox.effects()), number + 1, "effects")


def a_cancellation_for_another_reason_reaches_the_server(sandbox):
    agent = sandbox.agent()
    first = agent.start_call("cancellable", {"delay_ms": 3000})
    until(lambda: called(sandbox, agent), "the call")
    line = '{"method":"notifications/cancelled", "params":{"reason":"the user said stop","requestId":ID },"jsonrpc":"2.0"}\n'
    line = line.replace("ID", str(first))
    agent.send(line.encode())
    until(lambda: line.encode() in sandbox.received(agent), "the cancellation, as it was written")
    is_equal(sandbox.effects(), [], "effects")


def a_late_answer_is_kept_for_a_retry_that_comes_after_it(sandbox):
    agent = sandbox.agent()
    arguments = {"note": "once", "delay_ms": 300}
    first = agent.start_call("slow", arguments)
    until(lambda: called(sandbox, agent), "the call")
    agent.notify("notifications/cancelled", {"requestId": first})
    until(sandbox.effects, "the effect")
    time.sleep(0.3)
    is_replay(agent.call("slow", arguments))
    is_equal(len(sandbox.effects()), 1, "effects")


def a_call_that_times_out_at_once_can_be_retried_and_has_one_effect(sandbox):
    agent = sandbox.agent()
    for number in range(10):
        arguments = {"note": f"round {number}", "delay_ms": 50}
        first = agent.start_call("slow", arguments)
        agent.notify("notifications/cancelled", {"requestId": first})
        # Either it never reached the server, or its response comes late.
        result = agent.call("slow", arguments)
        assert not result.get("isError"), result
        is_equal(len(sandbox.effects()), number + 1, "effects")


def giving_up_a_call_that_waits_for_another_does_not_stop_the_other(sandbox):
    agent = sandbox.agent()
    arguments = {"delay_ms": 800}
    first = agent.start_call("cancellable", arguments)
    time.sleep(0.1)
    second = agent.start_call("cancellable", arguments)
    time.sleep(0.1)
    agent.notify("notifications/cancelled", {"requestId": second})
    is_fresh(agent.wait(first)["result"])
    is_equal(len(sandbox.effects()), 1, "effects")


def a_call_that_stopped_without_an_answer_is_not_made_again(sandbox):
    agent = sandbox.agent()
    arguments = {"delay_ms": 3000}
    first = agent.start_call("cancellable", arguments)
    time.sleep(0.1)
    agent.notify("notifications/cancelled", {"requestId": first})
    time.sleep(0.2)
    result = agent.call("cancellable", arguments, timeout=60)
    is_state(result, "in_doubt", "running", "attempt_unknown")
    is_equal(sandbox.effects(), [], "effects")


def a_client_that_closed_in_mid_call_is_met_by_the_next_one(sandbox):
    agent = sandbox.agent()
    agent.start_call("send_email", MAIL | {"delay_ms": 800})
    until(sandbox.effects, "the effect")
    agent.process.stdin.close()
    is_replay(sandbox.agent().call("send_email", MAIL | {"delay_ms": 800}))
    is_equal(len(sandbox.effects()), 1, "effects")
    agent.end()


def an_agent_killed_after_the_effect_and_before_the_answer_meets_its_call(sandbox):
    command = [sys.executable, HERE / "client.py", "--", *sandbox.command(session="s")]
    agent = sandbox.open(command, begun=False)
    pid = agent.wait_until(lambda: agent.lines, "the gateway's pid")
    gateway = json.loads(pid[0])["pid"]
    agent.begin()
    arguments = MAIL | {"delay_ms": 1000}
    agent.start_call("send_email", arguments)
    until(sandbox.effects, "the effect")
    agent.kill()
    result = sandbox.agent(session="s").call("send_email", arguments)
    is_replay(result)
    is_equal(len(sandbox.effects()), 1, "effects")
    until(lambda: not is_running(gateway), "the end of a gateway whose client is gone")


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def a_server_that_died_after_the_effect_leaves_a_doubt_that_holds(sandbox):
    sandbox.configure(OUTWARD)
    agent = sandbox.agent()
    is_state(agent.call("crash_after", MAIL), "in_doubt")
    is_equal(agent.end(), 9, "the gateway's exit code, which is the server's")
    again = sandbox.agent()
    result = again.call("crash_after", MAIL)
    is_state(result, "in_doubt")
    assert about(result).get("since"), result
    is_state(again.call("crash_after", MAIL | {"onceward_repeat": 2}), "in_doubt", "refused")
    is_equal(len(sandbox.effects()), 1, "effects")


def a_server_that_died_before_the_effect_leaves_the_same_doubt(sandbox):
    is_state(sandbox.agent().call("crash_before", MAIL), "in_doubt")
    is_state(sandbox.agent().call("crash_before", MAIL), "in_doubt")
    is_equal(sandbox.effects(), [], "effects")


def a_server_that_is_killed_takes_down_every_running_call_into_doubt(sandbox):
    agent = sandbox.agent()
    calls = [agent.start_call("send_email", MAIL | {"subject": str(n), "delay_ms": 5000}) for n in range(5)]
    until(lambda: len(sandbox.effects()) == 5, "five effects")
    other = agent.start_call("crash_before", {})
    for call in [*calls, other]:
        is_state(agent.wait(call)["result"], "in_doubt")
    is_equal(len(sandbox.effects()), 5, "effects")


def a_doubt_lasts_longer_than_the_echo(sandbox):
    sandbox.configure('[mcp]\necho = "1s"\n' + OUTWARD)
    is_state(sandbox.agent().call("crash_after", MAIL), "in_doubt")
    time.sleep(1.5)
    is_state(sandbox.agent().call("crash_after", MAIL), "in_doubt")
    is_equal(len(sandbox.effects()), 1, "effects")


def a_tool_that_may_be_retried_is_tried_again_after_the_server_died(sandbox):
    sandbox.configure(policy("crash_after", "retry"))
    first = sandbox.agent().call("crash_after", {"once": True})
    is_state(first, "in_doubt", "attempt_unknown")
    is_fresh(sandbox.agent().call("crash_after", {"once": True}))
    is_equal(len(sandbox.effects()), 2, "effects: at least once is what the policy says")


def called(sandbox, agent):
    """The number of calls that have reached the server."""
    return sum(b"tools/call" in line for line in sandbox.received(agent))


def killed(sandbox, tool, arguments, after_effect=True):
    """A gateway that is killed with -9 while a call runs."""
    agent = sandbox.agent()
    agent.start_call(tool, arguments)
    if after_effect:
        until(sandbox.effects, "the effect")
    else:
        until(lambda: called(sandbox, agent), "the call")
    agent.kill(signal.SIGKILL)


def a_gateway_killed_in_mid_call_leaves_a_doubt_that_holds(sandbox):
    sandbox.configure(policy("send_email", "hold"))
    arguments = MAIL | {"delay_ms": 3000}
    killed(sandbox, "send_email", arguments)
    again = sandbox.agent()
    for _ in range(3):
        is_state(again.call("send_email", arguments), "in_doubt")
    is_state(again.call("send_email", arguments | {"onceward_repeat": 2}), "in_doubt", "refused")
    is_state(sandbox.agent().call("send_email", arguments), "in_doubt")
    is_equal(len(sandbox.effects()), 1, "effects")


def holding_is_the_default(sandbox):
    arguments = MAIL | {"delay_ms": 3000}
    killed(sandbox, "send_email", arguments)
    is_state(sandbox.agent().call("send_email", arguments), "in_doubt")
    is_equal(len(sandbox.effects()), 1, "effects")


def a_session_does_not_forget_a_doubt(sandbox):
    agent = sandbox.agent(session="s")
    arguments = MAIL | {"delay_ms": 3000}
    agent.start_call("send_email", arguments)
    until(sandbox.effects, "the effect")
    agent.kill()
    is_state(sandbox.agent(session="s").call("send_email", arguments), "in_doubt")
    is_equal(len(sandbox.effects()), 1, "effects")


def a_gateway_killed_in_mid_call_retries_where_the_policy_says_so(sandbox):
    sandbox.configure(policy("send_email", "retry"))
    arguments = MAIL | {"delay_ms": 500}
    killed(sandbox, "send_email", arguments)
    again = sandbox.agent()
    second = again.call("send_email", arguments)
    is_fresh(second)
    is_replay(again.call("send_email", arguments), second)
    is_equal(len(sandbox.effects()), 2, "effects: at least once is what the policy says")


def a_gateway_killed_after_the_effect_finds_it_by_probing(sandbox):
    sandbox.configure(PROBE)
    killed(sandbox, "charge", INVOICE | {"delay_ms": 3000})
    again = sandbox.agent()
    result = again.call("charge", INVOICE | {"delay_ms": 3000})
    assert not result.get("isError"), result
    assert about(result).get("replayed") is True or about(result).get("state"), result
    again.call("charge", INVOICE | {"delay_ms": 3000})
    is_equal(len(sandbox.effects()), 1, "effects")


def a_gateway_killed_before_the_effect_acts_after_probing(sandbox):
    sandbox.configure(PROBE)
    arguments = INVOICE | {"before_ms": 1500}
    killed(sandbox, "charge", arguments, after_effect=False)
    is_equal(sandbox.effects(), [], "effects so far")
    again = sandbox.agent()

    def settled():
        result = again.call("charge", arguments)
        # "Not found" counts only after the settle time.
        return None if about(result).get("state") in ("in_doubt", "running", "not_yet") else result

    is_fresh(until(settled, "an answer that is settled", 60))
    is_equal(len(sandbox.effects()), 1, "effects")


def two_agents_that_probe_at_once_act_once(sandbox):
    sandbox.configure(PROBE)
    arguments = INVOICE | {"before_ms": 800}
    killed(sandbox, "charge", arguments, after_effect=False)
    agents = [sandbox.agent(), sandbox.agent()]

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
    is_equal(len(sandbox.effects()), 1, "effects")


def a_probe_that_cannot_be_asked_settles_nothing(sandbox):
    sandbox.configure(PROBE.replace("find_charge", "no_such_tool"))
    arguments = INVOICE | {"delay_ms": 3000}
    killed(sandbox, "charge", arguments)
    is_state(sandbox.agent().call("charge", arguments), "in_doubt")
    is_equal(len(sandbox.effects()), 1, "effects")


CHECKS = all_of(globals())
