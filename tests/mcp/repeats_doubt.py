"""Calls whose outcome is unknown: the server died, the gateway was killed, or the user pressed stop."""

import time

from checks import is_equal, until
from repeats_scene import EVERY, HTTP, INITIALIZED, MAIN, OLD, SEVERAL, STDIO, doubted, on, ran, told_once, wait

CHECKS = []

MAIL = {"to": "ada@example.org", "subject": "Hello"}
VALUE = {"name": "x", "value": "a"}
HELD = VALUE | {"hold": "never"}

# How long a user who pressed stop and tries again may wait for a result.
SOON = 15


def killed_in_mid_call(scene, tool, arguments):
    """A gateway that is killed with -9 after the effect and before the answer."""
    agent, before = scene.agent(), scene.effects()
    agent.start_call(tool, arguments)
    scene.acted(before + 1)
    scene.kill_gateway(agent)
    scene.let_go(arguments["hold"])


@on(EVERY, CHECKS)
def a_call_of_a_killed_gateway_is_reported_in_doubt_once_and_then_runs(scene):
    killed_in_mid_call(scene, "set_value", HELD)
    agent = scene.agent()
    told_once(agent.call("set_value", HELD))
    is_equal(scene.effects(), 1, "effects before a call that is meant")
    ran(agent.call("set_value", HELD))
    ran(agent.call("set_value", HELD))
    is_equal(scene.effects(), 3, "effects")


@on(MAIN, CHECKS)
def a_doubt_that_was_reported_to_one_process_is_not_reported_to_the_next(scene):
    killed_in_mid_call(scene, "set_value", HELD)
    first = scene.agent()
    told_once(first.call("set_value", HELD))
    first.close()
    ran(scene.agent().call("set_value", HELD))
    is_equal(scene.effects(), 2, "effects")


@on(EVERY, CHECKS)
def a_mail_that_a_killed_gateway_left_is_held(scene):
    mail = MAIL | {"hold": "never"}
    killed_in_mid_call(scene, "send_email", mail)
    agent = scene.agent()
    for _ in range(3):
        doubted(agent.call("send_email", mail))
    refused = agent.call("send_email", mail | {"onceward_repeat": 2})
    assert refused.get("isError"), refused
    is_equal(scene.effects(), 1, "effects")


@on(MAIN, CHECKS)
def a_declared_tier_and_a_policy_are_held(scene):
    scene.configure(tools={"set_value": 'tier = "payment"', "stage": 'in_doubt = "hold"'})
    stage = {"content": "a", "hold": "never-2"}
    killed_in_mid_call(scene, "set_value", HELD)
    killed_in_mid_call(scene, "stage", stage)
    agent = scene.agent()
    for _ in range(2):
        doubted(agent.call("set_value", HELD))
        doubted(agent.call("stage", stage))
    is_equal(scene.effects(), 2, "effects")


@on(MAIN, CHECKS)
def a_session_tells_of_a_doubt_once_too(scene):
    agent = scene.agent(session="s")
    agent.start_call("set_value", HELD)
    scene.acted(1)
    scene.kill_gateway(agent)
    scene.let_go("never")
    again = scene.agent(session="s")
    told_once(again.call("set_value", HELD))
    ran(again.call("set_value", HELD))
    is_equal(scene.effects(), 2, "effects")


@on(EVERY, CHECKS)
def the_caller_whose_server_died_gets_an_error_and_may_retry(scene):
    agent, value = scene.agent(), VALUE | {"lost": "once"}
    told_once(agent.call("set_value", value))
    if scene.kind != HTTP:
        agent.close()
        agent = scene.agent()
    ran(agent.call("set_value", value))
    is_equal(scene.effects(), 2, "effects")


@on(MAIN, CHECKS)
def a_mail_whose_server_died_is_held(scene):
    agent, mail = scene.agent(), MAIL | {"lost": "once"}
    for _ in range(2):
        doubted(agent.call("send_email", mail))
        if scene.kind != HTTP:
            agent = scene.agent()
    is_equal(scene.effects(), 1, "effects")


@on([(HTTP, OLD)], CHECKS)
def a_doubt_that_was_reported_to_a_broken_connection_is_reported_again(scene):
    agent, held = scene.agent(), HELD
    call = agent.start_call("set_value", held)
    scene.acted(1)
    call.drop()
    scene.kill_gateway(agent)
    scene.let_go("never")
    agent = scene.agent()
    told_once(agent.call("set_value", held))
    ran(agent.call("set_value", held))


@on([(STDIO, OLD), (SEVERAL, OLD), (HTTP, OLD)], CHECKS)
def a_command_that_a_person_stopped_can_be_run_again(scene):
    agent, test = scene.agent(), {"command": "npm test", "hold": "never", "stops": True}
    call = agent.start_call("run_command", test)
    scene.acted(1)
    agent.cancel(call, "the user pressed Esc")
    wait(1)
    scene.let_go("never")
    begun = time.monotonic()
    again = agent.call("run_command", test)
    took = time.monotonic() - begun
    assert took < SOON, f"a person waited {took:.0f} s for a word: {again}"
    if again.get("isError"):
        told_once(again)
        again = agent.call("run_command", test)
    ran(again)
    is_equal(scene.effects(), 2, "effects")


@on(INITIALIZED[:2], CHECKS)
def a_command_that_was_stopped_without_a_reason_can_be_run_again(scene):
    agent, test = scene.agent(), {"command": "npm test", "hold": "never", "stops": True}
    call = agent.start_call("run_command", test)
    scene.acted(1)
    agent.cancel(call)
    wait(1)
    scene.let_go("never")
    again = agent.call("run_command", test)
    if again.get("isError"):
        told_once(again)
        again = agent.call("run_command", test)
    ran(again)


@on(INITIALIZED, CHECKS)
def a_mail_that_a_person_stopped_is_not_sent_again(scene):
    agent, mail = scene.agent(), MAIL | {"hold": "never", "stops": True}
    call = agent.start_call("send_email", mail)
    scene.acted(1)
    agent.cancel(call, "the user pressed Esc")
    wait(1)
    scene.let_go("never")
    for _ in range(2):
        doubted(agent.call("send_email", mail))
    is_equal(scene.effects(), 1, "effects")


@on(INITIALIZED, CHECKS)
def a_late_answer_settles_its_own_call_and_no_later_one(scene):
    agent, value = scene.agent(), VALUE | {"hold_each": "v"}
    stopped_by_person(scene, agent, value)
    told_once(agent.call("set_value", value))
    scene.let_go("v-2")
    ran(agent.call("set_value", value))
    stopped_by_person(scene, agent, value)
    scene.let_go("v-1")
    wait(1)
    told_once(agent.call("set_value", value))
    is_equal(scene.effects(), 3, "effects")


def stopped_by_person(scene, agent, value):
    """A call that a person stopped, and whose outcome is unknown."""
    effects = scene.effects()
    call = agent.start_call("set_value", value)
    scene.acted(effects + 1)
    agent.cancel(call, "the user pressed Esc")
    until(lambda: '"in_doubt"' in scene.listed(), "the doubt")
