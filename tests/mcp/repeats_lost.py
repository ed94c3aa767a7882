"""Results that a client did not get: time-outs, cancellations, and broken connections.

In each case the next equal call gets the stored result with a notice, and the one after that runs. Where the result did
arrive, the next equal call runs.
"""

import http.client
import sqlite3
import time

from checks import is_equal
from repeats_scene import (
    BOTH,
    DISCOVERED,
    HTTP,
    INITIALIZED,
    MAIN,
    MODERN,
    OLD,
    STDIO,
    on,
    ran,
    replayed,
    wait,
)

CHECKS = []

VALUE = {"name": "x", "value": "a"}
# Longer than the gateway assumes that a silent client waits.
SLOW = VALUE | {"delay_ms": 4500}
# The same, as a setting.
PATIENCE = 'patience = "1s"'
SLOWISH = VALUE | {"delay_ms": 1500}
QUICK = VALUE | {"delay_ms": 10}


def is_repeated_once(agent, arguments, effects, scene):
    """The next equal call is answered from the ledger, and the one after that runs."""
    replayed(agent.call("set_value", arguments))
    is_equal(scene.effects(), effects, "effects before a call that is meant")
    ran(agent.call("set_value", arguments))
    is_equal(scene.effects(), effects + 1, "effects")


@on(INITIALIZED, CHECKS)
def a_silent_client_may_have_given_up_after_four_seconds(scene):
    agent = scene.agent()
    ran(agent.call("set_value", SLOW))
    replayed(agent.call("set_value", SLOW))
    is_equal(scene.effects(), 1, "effects before a call that is meant")
    # The replay came quickly, so it counts as delivered.
    ran(agent.call("set_value", SLOW))
    is_equal(scene.effects(), 2, "effects")


@on(DISCOVERED, CHECKS)
def a_client_of_the_newest_generation_says_when_it_gives_up(scene):
    scene.configure(mcp=PATIENCE)
    agent = scene.agent()
    for _ in range(2):
        ran(agent.call("set_value", SLOWISH))
    is_equal(scene.effects(), 2, "effects")


@on([(STDIO, OLD), (HTTP, OLD)], CHECKS)
def claude_code_says_when_it_gives_up(scene):
    agent = scene.agent(info={"name": "claude-code", "version": "2.1.0"})
    for _ in range(2):
        ran(agent.call("set_value", SLOW))
    is_equal(scene.effects(), 2, "effects")


@on(INITIALIZED, CHECKS)
def a_client_that_has_ever_cancelled_says_when_it_gives_up(scene):
    scene.configure(mcp=PATIENCE)
    agent, held = scene.agent(), {"name": "y", "value": "b", "hold": "go"}
    given_up = agent.start_call("set_value", held)
    scene.acted(1)
    agent.cancel(given_up, "Request timed out")
    scene.let_go("go")
    replayed(agent.call("set_value", held))
    for number in (2, 3):
        ran(agent.call("set_value", SLOWISH))
        is_equal(scene.effects(), number, "effects")
    agent.close()
    # The name and version identify another process of the same client; another client is a different one.
    ran(scene.agent().call("set_value", SLOWISH))
    other = scene.agent(info={"name": "another-client", "version": "1"})
    slow = SLOWISH | {"value": "c"}
    ran(other.call("set_value", slow))
    replayed(other.call("set_value", slow))


@on(MAIN, CHECKS)
def a_quick_answer_to_a_silent_client_has_arrived(scene):
    scene.configure(mcp='patience = "60s"')
    agent = scene.agent()
    for _ in range(2):
        ran(agent.call("set_value", SLOWISH))


@on(INITIALIZED, CHECKS)
def a_call_that_is_cancelled_for_time_is_a_repeat_next_time(scene):
    agent, held = scene.agent(), VALUE | {"hold": "go"}
    call = agent.start_call("set_value", held)
    scene.acted(1)
    agent.cancel(call, "Request timed out")
    scene.let_go("go")
    is_repeated_once(agent, held, 1, scene)


@on([(STDIO, OLD), (STDIO, MODERN), (HTTP, OLD)], CHECKS)
def a_call_that_is_cancelled_and_ends_all_the_same_is_a_repeat_next_time(scene):
    agent, held = scene.agent(), VALUE | {"hold": "go"}
    call = agent.start_call("set_value", held)
    scene.acted(1)
    agent.cancel(call, "the user pressed stop")
    wait(0.2)
    scene.let_go("go")
    wait(0.5)
    is_repeated_once(agent, held, 1, scene)


@on(INITIALIZED, CHECKS)
def a_repeat_that_comes_while_the_cancelled_call_runs_shares_it(scene):
    agent, held = scene.agent(), VALUE | {"hold": "go"}
    call = agent.start_call("set_value", held)
    scene.acted(1)
    agent.cancel(call, "Request timed out")
    again = agent.start_call("set_value", held)
    wait(0.3)
    scene.let_go("go")
    replayed(agent.result(again))
    is_equal(scene.effects(), 1, "effects")
    ran(agent.call("set_value", held))


@on(INITIALIZED, CHECKS)
def a_step_that_is_cancelled_for_time_and_made_again_is_taken_once(scene):
    agent, held = scene.agent(), {"list": "l", "hold": "go"}
    for item in ("a", "b"):
        ran(agent.call("push_item", {"item": item}))
    call = agent.start_call("pop", held)
    scene.acted(3)
    agent.cancel(call, "Request timed out")
    again = agent.start_call("pop", held)
    wait(0.5)
    scene.let_go("go")
    result = agent.result(again)
    replayed(result)
    is_equal(result["content"][0]["text"], "a", "what was popped")
    is_equal(ran(agent.call("pop", held)), "b")


@on(INITIALIZED, CHECKS)
def a_step_that_a_silent_client_makes_again_after_its_patience_is_taken_once(scene):
    scene.configure(mcp=PATIENCE)
    agent, held = scene.agent(), {"key": "Enter", "hold": "go"}
    first = agent.start_call("press_key", held)
    scene.acted(1)
    wait(1.5)
    second = agent.start_call("press_key", held)
    wait(0.5)
    is_equal(scene.effects(), 1, "effects while it runs")
    scene.let_go("go")
    replayed(agent.result(second), agent.result(first))
    is_equal(scene.effects(), 1, "effects")
    is_equal(ran(agent.call("press_key", held)), "row 2")


@on(INITIALIZED + DISCOVERED[:1], CHECKS)
def a_late_cancellation_takes_the_delivery_back(scene):
    agent = scene.agent()
    call = agent.start_call("set_value", VALUE)
    ran(agent.result(call))
    # The client timed out just before the result came.
    agent.cancel(call, "Request timed out")
    is_repeated_once(agent, VALUE, 1, scene)
    # The same when the delivery is already in the ledger.
    call = agent.start_call("set_value", QUICK)
    ran(agent.result(call))
    wait(2)
    agent.cancel(call, "Request timed out")
    is_repeated_once(agent, QUICK, 3, scene)


@on(INITIALIZED, CHECKS)
def a_late_cancellation_of_an_earlier_call_says_nothing_of_a_later_one(scene):
    agent = scene.agent()
    first = agent.start_call("set_value", VALUE)
    ran(agent.result(first))
    ran(agent.call("set_value", VALUE))
    agent.cancel(first, "Request timed out")
    # The result of the later equal call was delivered, and the later call counts.
    ran(agent.call("set_value", VALUE))
    is_equal(scene.effects(), 3, "effects")


@on([(HTTP, OLD), (HTTP, MODERN)], CHECKS)
def a_connection_that_breaks_before_the_answer_has_not_brought_it(scene):
    agent, held = scene.agent(), VALUE | {"hold": "go"}
    call = agent.start_call("set_value", held)
    scene.acted(1)
    call.drop()
    wait(0.3)
    scene.let_go("go")
    wait(0.5)
    is_repeated_once(agent, held, 1, scene)
    # The same if the equal call comes while the first one still runs.
    other = VALUE | {"hold": "on"}
    call = agent.start_call("set_value", other)
    scene.acted(3)
    call.drop()
    again = agent.start_call("set_value", other)
    wait(0.3)
    scene.let_go("on")
    replayed(agent.result(again))
    ran(agent.call("set_value", other))
    is_equal(scene.effects(), 4, "effects")


@on([(HTTP, OLD), (HTTP, MODERN)], CHECKS)
def a_connection_that_breaks_after_the_answer_has_brought_it(scene):
    agent = scene.agent()
    for arguments in (VALUE, VALUE | {"sse": True}):
        call = agent.start_call("set_value", arguments)
        ran(agent.result(call))
        call.drop()
        ran(agent.call("set_value", arguments))
    is_equal(scene.effects(), 4, "effects")


@on([(HTTP, OLD)], CHECKS)
def a_client_that_comes_back_for_an_earlier_event_did_not_get_the_answer(scene):
    agent, arguments = scene.agent(), VALUE | {"sse": True}
    call = agent.start_call("set_value", arguments)
    (event, _), (_, answer) = call.messages()
    ran(answer["result"])
    connection = http.client.HTTPConnection("127.0.0.1", scene.port, timeout=20)
    connection.request("GET", "/mcp", headers={"Accept": BOTH, "Last-Event-ID": event} | agent.header)
    # It disconnects before the server resumes its stream.
    wait(0.5)
    connection.sock.close()
    wait(0.3)
    is_repeated_once(agent, arguments, 1, scene)


@on(INITIALIZED, CHECKS)
def who_gave_up_on_a_shared_call_gets_its_answer_by_asking_again(scene):
    """Two parts of one client make the same call. One gets the result; the other times out and retries."""
    agent, held = scene.agent(), VALUE | {"hold": "go"}
    first = agent.start_call("set_value", held)
    scene.acted(1)
    second = agent.start_call("set_value", held)
    wait(0.3)
    agent.cancel(second, "Request timed out")
    wait(0.3)
    scene.let_go("go")
    ran(agent.result(first))
    again = agent.call("set_value", held)
    # The gateway cannot tell which of the two is asking. It replays the stored result at most once.
    if scene.effects() == 1:
        replayed(again)
        again = agent.call("set_value", held)
    ran(again)
    is_equal(scene.effects(), 2, "effects")


@on(INITIALIZED, CHECKS)
def a_busy_ledger_holds_back_nothing_but_the_retry_after_a_late_cancellation(scene):
    agent = scene.agent()
    call = agent.start_call("set_value", VALUE)
    ran(agent.result(call))
    other = sqlite3.connect(scene.sandbox.folder / "ledger.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    begun = time.monotonic()
    agent.cancel(call, "Request timed out")
    agent.call("get_value", {"name": "x"})
    took = time.monotonic() - begun
    assert took < 5, f"a call that reads waited {took:.0f} s for the ledger"
    retry = agent.start_call("set_value", VALUE)
    wait(0.5)
    other.rollback()
    replayed(agent.result(retry))
    is_equal(scene.effects(), 1, "effects")
