"""What attackers of the gateway have found, each mended."""

import signal

from checks import is_equal
from meant_ends import opened, say
from meant_lost import VALUE, is_repeated_once
from meant_place import OLD, PIPES, STDIO, on, ran

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


@on([(STDIO, OLD)], CHECKS)
def what_is_set_to_a_and_b_and_a_without_waiting_is_a(scene):
    agent = scene.agent()
    values = [{"name": "x", "value": value, "delay_ms": 50} for value in "aba"]
    for call in [agent.start_call("set_value", value) for value in values]:
        ran(agent.result(call))
    is_equal((scene.state("values"), scene.effects()), ({"x": "a"}, 3))


@on([(STDIO, OLD)], CHECKS)
def the_status_says_what_the_same_call_will_do(scene):
    agent = scene.agent()
    ran(agent.call("set_value", VALUE))
    ran(agent.call("send_email", {"to": "ada"}))
    for tool, arguments, words in (
        ("set_value", VALUE, "if you have its answer, the same call does it once more"),
        ("send_email", {"to": "ada"}, "gets its stored result, and does it once more from 1m"),
    ):
        said = agent.call("onceward_status", {"tool": tool, "arguments": arguments})
        assert words in said["content"][0]["text"], said
