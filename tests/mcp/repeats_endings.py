"""Clients and gateways that exit or are killed: which results had arrived before."""

import array
import fcntl
import json
import os
import signal
import subprocess
import termios
import time

from checks import is_equal, until
from client import IDENTITY
from repeats_lost import PATIENCE, SLOWISH, VALUE, is_repeated_once
from repeats_scene import HTTP, MAIN, MODERN, OLD, PIPES, STDIO, on, ran, replayed, wait
from sandbox import without_settings

CHECKS = []


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
def a_gateway_that_is_terminated_has_delivered_what_was_read(scene):
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
    """A client whose result is in its pipe, unread."""
    process = opened(scene)
    say(process, {"id": 3, "method": "tools/call", "params": {"name": "set_value", "arguments": VALUE}})
    until(lambda: unread_bytes(process), "the answer in the pipe")
    return process


def opened(scene):
    """A client that reads only on demand."""
    process = subprocess.Popen(
        [str(part) for part in scene.command()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=without_settings() | scene.sandbox.environment(),
        cwd=scene.sandbox.folder,
        bufsize=0,
    )
    scene.processes.append(process)
    about = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": IDENTITY}
    say(process, {"id": 1, "method": "initialize", "params": about})
    assert b'"id":1' in process.stdout.readline().replace(b" ", b"")
    say(process, {"method": "notifications/initialized"})
    say(process, {"id": 2, "method": "tools/list"})
    assert process.stdout.readline()
    return process


def say(process, message):
    process.stdin.write(json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n")


def unread_bytes(process):
    count = array.array("i", [0])
    fcntl.ioctl(process.stdout.fileno(), termios.FIONREAD, count)
    return count[0]


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
    # The next call writes the delivery with its claim.
    ran(agent.call("set_value", VALUE | {"value": "b"}))
    scene.kill_gateway(agent)
    agent = scene.agent()
    ran(agent.call("set_value", VALUE))
    # Without another call it takes a second.
    wait(3)
    scene.kill_gateway(agent)
    ran(scene.agent().call("set_value", VALUE))
    is_equal(scene.effects(), 4, "effects")


@on([(HTTP, OLD), (HTTP, MODERN)], CHECKS)
def a_gateway_that_ends_in_order_has_recorded_what_it_delivered(scene):
    for sign in (signal.SIGTERM, signal.SIGINT):
        ran(scene.agent().call("set_value", VALUE))
        scene.gateway.send_signal(sign)
        scene.gateway.wait(30)
    ran(scene.agent().call("set_value", VALUE))
    is_equal(scene.effects(), 3, "effects")


@on([(STDIO, OLD)], CHECKS)
def a_client_that_is_killed_in_the_middle_of_a_long_answer_did_not_get_it(scene):
    """The result does not fit into the pipe, and its reader stops."""
    long = {"command": "echo " + "x" * 200_000}
    process = opened(scene)
    say(process, {"id": 3, "method": "tools/call", "params": {"name": "run_command", "arguments": long}})
    until(lambda: unread_bytes(process) > 60_000, "a full pipe")
    process.stdout.close()
    process.stdin.close()
    process.wait(30)
    agent = scene.agent()
    replayed(agent.call("run_command", long))
    ran(agent.call("run_command", long))
    is_equal(scene.effects(), 2, "effects")
