"""Attacks on the rules for equal calls. Each one worked once and is fixed."""

import signal

from checks import is_equal
from repeats_endings import opened, say
from repeats_lost import VALUE, is_repeated_once
from repeats_scene import EVERY, OLD, PIPES, STDIO, on, ran

CHECKS = []


@on([(STDIO, OLD)], CHECKS)
def an_answer_after_the_end_that_is_not_read_has_not_arrived(scene):
    for number, way in enumerate(("eof", signal.SIGTERM)):
        held = VALUE | {"value": str(way), "delay_ms": 700}
        process = opened(scene)
        say(process, {"id": 3, "method": "tools/call", "params": {"name": "set_value", "arguments": held}})
        scene.acted(2 * number + 1)
        if way == "eof":
            process.stdin.close()
        else:
            process.send_signal(way)
        process.wait(30)
        process.stdout.close()
        is_repeated_once(scene.agent(), held, 2 * number + 1, scene)


@on([(STDIO, OLD)], CHECKS)
def an_answer_after_the_end_that_is_read_has_arrived(scene):
    held = VALUE | {"delay_ms": 700}
    process = opened(scene)
    say(process, {"id": 3, "method": "tools/call", "params": {"name": "set_value", "arguments": held}})
    scene.acted(1)
    process.stdin.close()
    assert b'"id":3' in process.stdout.readline().replace(b" ", b"")
    process.wait(30)
    ran(scene.agent().call("set_value", held))
    is_equal(scene.effects(), 2, "effects")


@on(PIPES, CHECKS)
def every_one_of_many_steps_is_taken(scene):
    agent = scene.agent()
    calls = [agent.start_call("press_key", {"key": "Down"}) for _ in range(130)]
    for call in calls:
        ran(agent.result(call))
    is_equal(scene.effects("press_key"), 130, "presses")


@on(EVERY, CHECKS)
def a_batch_that_is_sent_twice_at_once_acts_once(scene):
    agent = scene.agent()
    batch = [{"name": name, "value": "a", "delay_ms": 300} for name in "xy"]
    calls = [agent.start_call("set_value", value) for value in batch * 2]
    for call in calls:
        agent.result(call)
    is_equal(scene.effects(), 2, "effects")


@on([(STDIO, OLD)], CHECKS)
def the_status_says_what_the_same_call_will_do(scene):
    agent = scene.agent()
    ran(agent.call("set_value", VALUE))
    ran(agent.call("send_email", {"to": "ada"}))
    for tool, arguments, words in (
        ("set_value", VALUE, "if you received the response, the same call does it once more"),
        ("send_email", {"to": "ada"}, "returns the stored result until 1m after the response"),
    ):
        said = agent.call("onceward_status", {"tool": tool, "arguments": arguments})
        assert words in said["content"][0]["text"], said
