"""Which calls are equal, and the result of the second one."""

import threading
import time

from checks import all_of, is_equal
from client import parsed
from results import about, is_fresh, is_replay, is_state

MAIL = {"to": "ada@example.org", "subject": "Hello"}
RECIPE = """
[mcp.server.fixture.tool.charge]
key = ["/customer", "/invoice"]
match = ["/amount"]
"""
INVOICE = {"customer": "c-1", "invoice": "i-1", "amount": 10, "memo": "for the boat"}


def two_identical_calls_2_ms_apart_with_different_ids_act_once(sandbox):
    agent = sandbox.agent()
    arguments = MAIL | {"delay_ms": 300}
    first = agent.start_call("send_email", arguments)
    time.sleep(0.002)
    second = agent.start_call("send_email", arguments)
    one, other = agent.wait(first)["result"], agent.wait(second)["result"]
    is_equal(len(sandbox.effects()), 1, "effects")
    # On a busy machine the second one may come first.
    if about(one).get("replayed"):
        one, other = other, one
    is_fresh(one)
    is_replay(other, one)


def ten_identical_calls_at_once_act_once(sandbox):
    agent = sandbox.agent()
    calls = [agent.start_call("send_email", MAIL | {"delay_ms": 200}, identity=f"call {n}") for n in range(10)]
    results = [agent.wait(call)["result"] for call in calls]
    is_equal(len(sandbox.effects()), 1, "effects")
    is_equal(sum(about(result).get("replayed") is True for result in results), 9, "replays")


def the_same_call_a_moment_later_is_a_replay(sandbox):
    agent = sandbox.agent()
    first = agent.call("send_email", MAIL)
    is_fresh(first)
    is_replay(agent.call("send_email", MAIL), first)
    is_replay(agent.call("send_email", dict(reversed(MAIL.items()))), first)
    is_equal(len(sandbox.effects()), 1, "effects")


def other_arguments_or_another_tool_are_another_call(sandbox):
    agent = sandbox.agent()
    for arguments in (MAIL, MAIL | {"subject": "hello"}, {"to": MAIL["to"]}):
        is_fresh(agent.call("send_email", arguments))
    is_fresh(agent.call("charge", INVOICE))
    is_fresh(agent.call("big", INVOICE))
    is_equal(len(sandbox.effects()), 5, "effects")


def identifiers_of_one_emission_do_not_identify_the_call(sandbox):
    agent = sandbox.agent()
    first = agent.call("send_email", MAIL, meta={"claudecode/toolUseId": "toolu_1", "progressToken": 1})
    again = agent.call("send_email", MAIL, meta={"claudecode/toolUseId": "toolu_2", "progressToken": 2})
    is_replay(again, first)
    is_equal(len(sandbox.effects()), 1, "effects")


def a_reworded_memo_is_the_same_intent_and_another_amount_is_a_mismatch(sandbox):
    sandbox.configure(RECIPE)
    agent = sandbox.agent()
    first = agent.call("charge", INVOICE)
    is_fresh(first)
    is_replay(agent.call("charge", INVOICE | {"memo": "the boat, as agreed"}), first)
    is_replay(agent.call("charge", {name: INVOICE[name] for name in ("amount", "invoice", "customer")}), first)
    is_state(agent.call("charge", INVOICE | {"amount": 11}), "mismatch")
    is_fresh(agent.call("charge", INVOICE | {"invoice": "i-2", "amount": 11}))
    is_equal([one["arguments"]["amount"] for one in sandbox.effects()], [10, 11], "amounts")


def a_reworded_call_while_the_first_one_runs_waits_for_it(sandbox):
    sandbox.configure(RECIPE)
    agent = sandbox.agent()
    first = agent.start_call("charge", INVOICE | {"delay_ms": 2000})
    # Long enough for the first claim on a busy machine.
    time.sleep(0.5)
    second = agent.call("charge", INVOICE | {"memo": "other words"})
    is_replay(second, agent.wait(first)["result"])
    is_equal(len(sandbox.effects()), 1, "effects")


def a_key_in_meta_says_which_call_it_is(sandbox):
    agent = sandbox.agent()
    key = {"onceward/key": "order-7"}
    first = agent.call("send_email", MAIL, meta=key)
    is_replay(agent.call("send_email", MAIL, meta=key), first)
    is_state(agent.call("send_email", MAIL | {"subject": "other"}, meta=key), "mismatch")
    is_fresh(agent.call("send_email", MAIL, meta={"onceward/key": "order-8"}))
    is_equal(len(sandbox.effects()), 2, "effects")


def an_invalid_key_is_refused_and_nothing_happens(sandbox):
    agent = sandbox.agent()
    for key in ("", "x" * 256, 7, None, ["a"], "tab\there"):
        answer = agent.wait(agent.start_call("send_email", MAIL, meta={"onceward/key": key}))
        refused = "error" in answer or answer["result"].get("isError") is True
        assert refused, f"{key!r}: {answer}"
    is_equal(sandbox.effects(), [], "effects")


def a_deliberate_repeat_is_itself_once(sandbox):
    agent = sandbox.agent()
    first = agent.call("send_email", MAIL)
    is_fresh(first)
    second = agent.call("send_email", MAIL | {"onceward_repeat": 2})
    is_fresh(second)
    is_replay(agent.call("send_email", MAIL | {"onceward_repeat": 2}), second)
    is_equal(len(sandbox.effects()), 2, "effects")
    is_fresh(agent.call("send_email", MAIL | {"onceward_repeat": 3}))
    is_replay(agent.call("send_email", MAIL), first)
    is_equal(len(sandbox.effects()), 3, "effects")


def the_server_never_sees_the_argument_that_asks_for_a_repeat(sandbox):
    agent = sandbox.agent()
    agent.call("send_email", MAIL)
    agent.call("send_email", MAIL | {"onceward_repeat": 2})
    is_equal([one["arguments"] for one in sandbox.effects()], [MAIL, MAIL], "arguments")


def a_repeat_before_its_turn_is_refused(sandbox):
    agent = sandbox.agent()
    for number in (2, 3):
        result = agent.call("send_email", MAIL | {"onceward_repeat": number})
        assert result.get("isError") is True, result
    is_equal(sandbox.effects(), [], "effects")
    agent.call("send_email", MAIL)
    assert agent.call("send_email", MAIL | {"onceward_repeat": 3}).get("isError") is True
    is_equal(len(sandbox.effects()), 1, "effects")


def a_repeat_that_is_not_a_number_is_refused(sandbox):
    agent = sandbox.agent()
    agent.call("send_email", MAIL)
    for number in (0, 1, -2, 2.5, "2", None, True, [2], 10**30):
        answer = agent.wait(agent.start_call("send_email", MAIL | {"onceward_repeat": number}))
        result = answer.get("result", {"isError": True})
        # A variant of the first call may get its result; none may have an effect.
        assert result.get("isError") is True or about(result).get("replayed") is True, f"{number!r}: {answer}"
    is_equal(len(sandbox.effects()), 1, "effects")


def two_equal_repeats_at_once_act_once_more(sandbox):
    agent = sandbox.agent()
    arguments = MAIL | {"delay_ms": 200}
    agent.call("send_email", arguments)
    calls = [agent.start_call("send_email", arguments | {"onceward_repeat": 2}) for _ in range(4)]
    results = [agent.wait(call)["result"] for call in calls]
    is_equal(len(sandbox.effects()), 2, "effects")
    is_equal(sum(about(result).get("replayed") is True for result in results), 3, "replays")


def without_a_session_an_equal_call_after_the_echo_is_a_new_one(sandbox):
    sandbox.configure('[mcp]\necho = "1s"\n')
    agent = sandbox.agent()
    first = agent.call("send_email", MAIL)
    is_replay(agent.call("send_email", MAIL), first)
    time.sleep(1.3)
    is_fresh(agent.call("send_email", MAIL))
    is_equal(len(sandbox.effects()), 2, "effects")


def within_the_echo_another_process_meets_the_call_too(sandbox):
    first = sandbox.agent().call("send_email", MAIL)
    is_replay(sandbox.agent().call("send_email", MAIL), first)
    is_equal(len(sandbox.effects()), 1, "effects")


def a_resumed_session_meets_its_calls_after_the_echo(sandbox):
    sandbox.configure('[mcp]\necho = "1s"\n')
    agent = sandbox.agent(session="trip")
    first = agent.call("send_email", MAIL)
    is_fresh(first)
    is_equal(agent.close(), 0, "exit code")
    time.sleep(1.3)
    is_replay(sandbox.agent(session="trip").call("send_email", MAIL), first)
    is_fresh(sandbox.agent(session="other").call("send_email", MAIL))
    is_equal(len(sandbox.effects()), 2, "effects")


def a_recipe_holds_after_the_echo(sandbox):
    sandbox.configure('[mcp]\necho = "1s"\n' + RECIPE)
    first = sandbox.agent().call("charge", INVOICE)
    time.sleep(1.3)
    is_replay(sandbox.agent().call("charge", INVOICE | {"memo": "again"}), first)
    is_equal(len(sandbox.effects()), 1, "effects")


def a_key_holds_after_the_echo(sandbox):
    sandbox.configure('[mcp]\necho = "1s"\n')
    key = {"onceward/key": "order-7"}
    first = sandbox.agent().call("send_email", MAIL, meta=key)
    time.sleep(1.3)
    is_replay(sandbox.agent().call("send_email", MAIL, meta=key), first)
    is_equal(len(sandbox.effects()), 1, "effects")


def two_agents_at_once_act_once_in_each_of_20_rounds(sandbox):
    agents = [sandbox.agent(), sandbox.agent()]
    for number in range(20):
        arguments = MAIL | {"subject": f"round {number}", "delay_ms": 10}
        gate = threading.Barrier(2)
        results = [None, None]

        def call(place_in_line, arguments=arguments, gate=gate, results=results):
            gate.wait()
            results[place_in_line] = agents[place_in_line].call("send_email", arguments)

        threads = [threading.Thread(target=call, args=(who,)) for who in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(result and not result.get("isError") for result in results), results
        is_equal(sum(about(result).get("replayed") is True for result in results), 1, f"replays in round {number}")
    is_equal(len(sandbox.effects()), 20, "effects")


def a_handed_over_session_is_one_intent_in_two_agents(sandbox):
    first = sandbox.agent(session="case-9").call("charge", INVOICE)
    is_replay(sandbox.agent(session="case-9").call("charge", INVOICE), first)
    is_equal(len(sandbox.effects()), 1, "effects")

def pipelined_messages_reach_the_server_in_order(sandbox):
    agent = sandbox.agent()
    agent.request("tools/list")
    before = len(sandbox.received(agent))
    identities = []
    for number in range(10):
        identities.append(agent.start_call("send_email", {"to": f"{number}@example.org"}))
        agent.notify("notifications/roots/list_changed")
        identities.append(agent.start_call("read_inbox", {"n": number}))
    for identity in identities:
        agent.wait(identity)
    kinds = [parsed(line).get("params", {}).get("arguments") for line in sandbox.received(agent)[before:]]
    expected = []
    for number in range(10):
        expected += [{"to": f"{number}@example.org"}, None, {"n": number}]
    is_equal(kinds, expected, "the lines that the server got")


def a_call_that_waits_for_another_does_not_block_other_calls(sandbox):
    one, other = sandbox.agent(), sandbox.agent()
    arguments = MAIL | {"delay_ms": 3000}
    first = one.start_call("send_email", arguments)
    while not sandbox.effects():
        time.sleep(0.01)
    waits = other.start_call("send_email", arguments)
    other.call("send_email", {"to": "bob@example.org"})
    is_equal(other.answers_to(waits), [], "answers to the one that waits")
    is_replay(other.wait(waits)["result"], one.wait(first)["result"])


CHECKS = all_of(globals())
