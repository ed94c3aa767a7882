"""Answers that a client did not get: time-outs, cancellations, connections that break, and clients that are killed.

For each: the equal call gets the stored answer and is told so, and the one after that runs. Where the answer did arrive,
the equal call runs.
"""

import array
import fcntl
import http.client
import json
import os
import signal
import subprocess
import termios
import time

from checks import is_equal, until
from client import IDENTITY
from meant_place import (
    BOTH,
    DISCOVERED,
    HTTP,
    INITIALIZED,
    MAIN,
    MODERN,
    OLD,
    PIPES,
    STDIO,
    on,
    ran,
    replayed,
    wait,
)
from place import without_settings

CHECKS = []

VALUE = {"name": "x", "value": "a"}
# Longer than a silent client is believed to wait.
SLOW = VALUE | {"delay_ms": 4500}
# The same, where the configuration says so.
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
    # The replay was quick, so it has arrived.
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
    # Another process of the same client is known by its name and version; another client is not.
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


@on(INITIALIZED + DISCOVERED[:1], CHECKS)
def a_late_cancellation_takes_the_delivery_back(scene):
    agent = scene.agent()
    call = agent.start_call("set_value", VALUE)
    ran(agent.result(call))
    # Client and gateway crossed: the client gave up just before the answer came.
    agent.cancel(call, "Request timed out")
    is_repeated_once(agent, VALUE, 1, scene)
    # Also when the delivery is in the ledger already.
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
    # The later equal call was delivered: it is that one that counts.
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
    # The same where the equal call comes while the first one still runs.
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
    # It leaves before the server, which holds its stream back, tells it anything again.
    wait(0.5)
    connection.sock.close()
    wait(0.3)
    is_repeated_once(agent, arguments, 1, scene)


@on(PIPES, CHECKS)
def a_client_that_was_killed_after_the_answer_may_not_have_read_it(scene):
    for number, pause in enumerate((0, 2)):
        value = VALUE | {"value": str(pause)}
        agent = scene.agent(mortal=True)
        ran(agent.call("set_value", value))
        wait(pause)
        agent.die()
        is_repeated_once(scene.agent(), value, 2 * number + 1, scene)


@on(PIPES, CHECKS)
def a_client_that_was_killed_later_had_read_what_came_before_its_last_message(scene):
    agent = scene.agent(mortal=True)
    ran(agent.call("set_value", VALUE))
    ran(agent.call("get_value", {"name": "x"}))
    agent.die()
    ran(scene.agent().call("set_value", VALUE))
    is_equal(scene.effects(), 2, "effects")


@on(PIPES, CHECKS)
def a_client_that_was_killed_before_the_answer_did_not_get_it(scene):
    agent, held = scene.agent(mortal=True), VALUE | {"hold": "go"}
    agent.start_call("set_value", held)
    scene.acted(1)
    agent.kill()
    scene.let_go("go")
    until(lambda: not os.path.exists(f"/proc/{agent.gateway}"), "the end of the gateway", 60)
    is_repeated_once(scene.agent(), held, 1, scene)


@on([*PIPES, (STDIO, MODERN)], CHECKS)
def a_client_that_ended_in_order_had_its_answer(scene):
    for number in range(3):
        agent = scene.agent()
        ran(agent.call("set_value", VALUE))
        is_equal(agent.close(), 0, "exit code")
    is_equal(scene.effects(), number + 1, "effects")


@on(PIPES, CHECKS)
def a_gateway_that_is_told_to_end_has_delivered_what_was_read(scene):
    for sign in (signal.SIGTERM, signal.SIGINT):
        agent = scene.agent()
        ran(agent.call("set_value", VALUE))
        agent.kill(sign)
    ran(scene.agent().call("set_value", VALUE))
    is_equal(scene.effects(), 3, "effects")


@on([(STDIO, OLD)], CHECKS)
def a_silent_client_that_ends_in_order_at_once_had_its_late_answer(scene):
    scene.configure(mcp=PATIENCE)
    agent = scene.agent()
    ran(agent.call("set_value", SLOWISH))
    agent.close()
    ran(scene.agent().call("set_value", SLOWISH))
    is_equal(scene.effects(), 2, "effects")


@on([(STDIO, OLD)], CHECKS)
def a_silent_client_that_ends_much_later_may_have_given_up(scene):
    scene.configure(mcp=PATIENCE)
    agent = scene.agent()
    ran(agent.call("set_value", SLOWISH))
    wait(3)
    agent.close()
    is_repeated_once(scene.agent(), SLOWISH, 1, scene)


@on([(STDIO, OLD)], CHECKS)
def a_client_that_closes_with_its_answer_unread_did_not_get_it(scene):
    process = unread(scene)
    process.stdin.close()
    is_equal(process.wait(30), 0, "exit code")
    process.stdout.close()
    is_repeated_once(scene.agent(), VALUE, 1, scene)


def unread(scene):
    """A client whose answer lies in its pipe."""
    process = subprocess.Popen(
        [str(part) for part in scene.command()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=without_settings() | scene.place.environment(),
        cwd=scene.place.folder,
        bufsize=0,
    )
    scene.processes.append(process)

    def say(message):
        process.stdin.write(json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n")

    about = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": IDENTITY}
    say({"id": 1, "method": "initialize", "params": about})
    assert b'"id":1' in process.stdout.readline().replace(b" ", b"")
    say({"method": "notifications/initialized"})
    say({"id": 2, "method": "tools/list"})
    assert process.stdout.readline()
    say({"id": 3, "method": "tools/call", "params": {"name": "set_value", "arguments": VALUE}})

    def lies_there():
        count = array.array("i", [0])
        fcntl.ioctl(process.stdout.fileno(), termios.FIONREAD, count)
        return count[0]

    until(lies_there, "the answer in the pipe")
    return process


@on(MAIN, CHECKS)
def a_gateway_that_is_killed_at_once_has_not_recorded_the_delivery(scene):
    for attempt in range(5):
        value = VALUE | {"value": str(attempt)}
        agent = scene.agent()
        effects = scene.effects() + 1
        ran(agent.call("set_value", value))
        answered = time.monotonic()
        scene.kill_gateway(agent)
        if time.monotonic() - answered < 0.8:
            return is_repeated_once(scene.agent(), value, effects, scene)
    raise AssertionError("this machine was too slow to kill it in time")


@on(MAIN, CHECKS)
def a_gateway_that_is_killed_later_has_recorded_the_delivery(scene):
    agent = scene.agent()
    ran(agent.call("set_value", VALUE))
    # The next call that begins takes the record along.
    ran(agent.call("set_value", VALUE | {"value": "b"}))
    scene.kill_gateway(agent)
    agent = scene.agent()
    ran(agent.call("set_value", VALUE))
    # And without one it takes a second.
    wait(3)
    scene.kill_gateway(agent)
    ran(scene.agent().call("set_value", VALUE))
    is_equal(scene.effects(), 4, "effects")
