#!/usr/bin/env python3
"""Equal calls: new calls run, and retries get the stored result. Scripted agents, with what their users expect.

tests/mcp/repeats.py --binary target/debug/onceward
"""

import sys
import time

import checks
import repeats_attacks
import repeats_doubt
import repeats_endings
import repeats_lost
import repeats_outward
import repeats_sessions
from checks import is_equal
from repeats_scene import EVERY, MAIN, on, ran, replayed

CHECKS = []


def calls(agent, tool, *every):
    """Makes calls one after the other, each of which has to run. Returns their texts."""
    return [ran(agent.call(tool, arguments)) for arguments in every]


@on(EVERY, CHECKS)
def a_value_set_to_a_and_b_and_a_is_a(scene):
    a, b = {"name": "x", "value": "a"}, {"name": "x", "value": "b"}
    calls(scene.agent(), "set_value", a, b, a)
    is_equal((scene.state("values"), scene.effects()), ({"x": "a"}, 3))


@on(EVERY, CHECKS)
def an_entity_that_is_created_deleted_and_created_is_there(scene):
    agent, name = scene.agent(), {"name": "ada"}
    for tool in ("create_entity", "delete_entity", "create_entity"):
        ran(agent.call(tool, name))
    is_equal((scene.state("entities"), scene.effects()), (["ada"], 3))


@on(EVERY, CHECKS)
def a_key_pressed_three_times_is_pressed_three_times(scene):
    said = calls(scene.agent(), "press_key", *[{"key": "ArrowDown"}] * 3)
    is_equal(said, ["row 1", "row 2", "row 3"])


@on(EVERY, CHECKS)
def two_items_are_popped_one_after_the_other(scene):
    agent = scene.agent()
    calls(agent, "push_item", {"item": "a"}, {"item": "b"})
    is_equal(calls(agent, "pop", {"list": "l"}, {"list": "l"}), ["a", "b"])


@on(EVERY, CHECKS)
def two_commits_with_one_message_are_two(scene):
    agent = scene.agent()
    for content in ("first", "second"):
        ran(agent.call("stage", {"content": content}))
        ran(agent.call("commit", {"message": "wip"}))
    is_equal(scene.state("commits"), [["wip", "first"], ["wip", "second"]])


@on(EVERY, CHECKS)
def what_is_read_before_and_after_a_write_differs(scene):
    agent = scene.agent()
    name, cat = {"name": "x"}, {"command": "cat x"}
    ran(agent.call("set_value", {"name": "x", "value": "old"}))
    is_equal((ran(agent.call("get_value", name)), ran(agent.call("run_command", cat))), ("old", "old"))
    ran(agent.call("run_command", {"command": "write x new"}))
    is_equal((ran(agent.call("get_value", name)), ran(agent.call("run_command", cat))), ("new", "new"))


@on(MAIN, CHECKS)
def equal_calls_without_a_pause_run_every_time(scene):
    agent = scene.agent()
    for _ in range(25):
        ran(agent.call("set_value", {"name": "x", "value": "a"}))
    is_equal(scene.effects(), 25, "effects")


@on(EVERY, CHECKS)
def equal_calls_that_overlap_are_one_and_the_next_one_runs(scene):
    agent, value = scene.agent(), {"name": "x", "value": "a", "hold": "go"}
    first = agent.start_call("set_value", value)
    scene.acted(1)
    others = [agent.start_call("set_value", value) for _ in range(2)]
    time.sleep(0.3)
    is_equal(scene.effects(), 1, "effects while it runs")
    scene.let_go("go")
    done = agent.result(first)
    ran(done)
    for other in others:
        replayed(agent.result(other), done)
    is_equal(scene.effects(), 1, "effects")
    ran(agent.call("set_value", value))
    is_equal(scene.effects(), 2, "effects in the end")


@on(MAIN, CHECKS)
def equal_calls_of_two_agents_that_overlap_are_one(scene):
    one, other = scene.agent(), scene.agent()
    value = {"name": "x", "value": "a", "hold": "go"}
    first = one.start_call("set_value", value)
    scene.acted(1)
    second = other.start_call("set_value", value)
    time.sleep(0.3)
    scene.let_go("go")
    replayed(other.result(second), one.result(first))
    is_equal(scene.effects(), 1, "effects")
    ran(other.call("set_value", value))
    ran(one.call("set_value", value))


@on(EVERY, CHECKS)
def overlapping_steps_are_taken_one_after_the_other(scene):
    agent, key = scene.agent(), {"key": "ArrowDown", "hold": "go"}
    presses = [agent.start_call("press_key", key)]
    scene.acted(1)
    presses += [agent.start_call("press_key", key) for _ in range(2)]
    time.sleep(0.3)
    is_equal(scene.effects(), 1, "effects while the first step is taken")
    scene.let_go("go")
    said = [ran(agent.result(press)) for press in presses]
    is_equal(sorted(said), ["row 1", "row 2", "row 3"])
    is_equal(scene.effects(), 3, "effects")


@on(MAIN, CHECKS)
def steps_of_two_agents_are_all_taken(scene):
    one, other = scene.agent(), scene.agent()
    key = {"key": "ArrowDown", "hold": "go"}
    first = one.start_call("press_key", key)
    scene.acted(1)
    second = other.start_call("press_key", key)
    time.sleep(0.3)
    scene.let_go("go")
    is_equal(sorted([ran(one.result(first)), ran(other.result(second))]), ["row 1", "row 2"])


@on(MAIN, CHECKS)
def a_tool_that_may_be_called_again_is_shared_while_it_runs_and_passed_on_otherwise(scene):
    agent = scene.agent()
    a, b = {"name": "x", "value": "a"}, {"name": "x", "value": "b"}
    calls(agent, "put_value", a, b, a, a)
    is_equal((scene.state("values"), scene.effects()), ({"x": "a"}, 4))
    held = a | {"hold": "go"}
    first = agent.start_call("put_value", held)
    scene.acted(5)
    second = agent.start_call("put_value", held)
    time.sleep(0.3)
    scene.let_go("go")
    ran(agent.result(first))
    assert not agent.result(second).get("isError")
    is_equal(scene.effects(), 5, "effects")
    ran(agent.call("put_value", held))
    is_equal(scene.effects(), 6, "effects")


@on(MAIN, CHECKS)
def a_call_that_failed_runs_again(scene):
    agent = scene.agent()
    failed = agent.call("commit", {"message": "wip"})
    assert failed["isError"], failed
    ran(agent.call("stage", {"content": "first"}))
    ran(agent.call("commit", {"message": "wip"}))
    is_equal(scene.state("commits"), [["wip", "first"]])


if __name__ == "__main__":
    # The slowest first, so that the others run at the same time.
    # They mostly wait for clocks.
    checks.THREADS = 9
    parts = (repeats_lost, repeats_sessions, repeats_endings, repeats_attacks, repeats_doubt, repeats_outward)
    every = [check for part in parts for check in part.CHECKS] + CHECKS
    sys.exit(checks.run(every, checks.arguments_of(__doc__)))
