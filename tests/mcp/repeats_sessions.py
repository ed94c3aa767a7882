"""Sessions, successive processes, and jobs that are restarted from the beginning after a kill.

A session covers outward tools and results that did not arrive. Every other call runs.
"""

import concurrent.futures

from checks import is_equal
from repeats_scene import (
    EVERY,
    HTTP,
    MAIN,
    MODERN,
    OLD,
    PIPES,
    SEVERAL,
    STDIO,
    Scene,
    doubted,
    on,
    ran,
    replayed,
    told_once,
    wait,
)
from sandbox import Sandbox

CHECKS = []

MAIL = {"to": "ada@example.org", "subject": "Hello"}
VALUE = {"name": "x", "value": "a"}


@on(EVERY, CHECKS)
def in_a_session_an_entity_that_is_created_deleted_and_created_is_there(scene):
    name = {"name": "ada"}
    for _ in range(2):
        agent = scene.agent(session="s")
        for tool in ("create_entity", "delete_entity", "create_entity"):
            ran(agent.call(tool, name))
        is_equal(scene.state("entities"), ["ada"])
        ran(agent.call("delete_entity", name))
        agent.close()
    is_equal(scene.effects(), 8, "effects")


@on(MAIN, CHECKS)
def in_a_session_a_mail_is_answered_from_the_ledger_after_the_echo_too(scene):
    scene.configure(mcp='echo = "1s"')
    first = scene.agent(session="s")
    ran(first.call("send_email", MAIL))
    ran(first.call("set_value", VALUE))
    first.close()
    wait(2)
    again = scene.agent(session="s")
    replayed(again.call("send_email", MAIL))
    ran(again.call("set_value", VALUE))
    # Another session, or none, is different work.
    ran(scene.agent(session="t").call("send_email", MAIL))
    ran(scene.agent().call("send_email", MAIL))
    is_equal(scene.effects("send_email"), 3, "effects")


@on(MAIN, CHECKS)
def in_a_session_an_issue_that_was_closed_may_be_opened_again(scene):
    agent, issue = scene.agent(session="s"), {"title": "It is broken"}
    for tool in ("create_issue", "close_issue", "create_issue"):
        ran(agent.call(tool, issue))
    replayed(agent.call("create_issue", issue))


@on(MAIN, CHECKS)
def two_agents_in_one_session_send_a_mail_once_and_do_their_own_work(scene):
    one, other = scene.agent(session="s"), scene.agent(session="s")
    mail = one.call("send_email", MAIL)
    ran(mail)
    replayed(other.call("send_email", MAIL), mail)
    for agent in (one, other, one):
        ran(agent.call("press_key", {"key": "Enter"}))
    ran(one.call("set_value", VALUE))
    ran(other.call("set_value", VALUE | {"value": "b"}))
    ran(one.call("set_value", VALUE))
    is_equal(scene.state("values"), {"x": "a"})
    is_equal((scene.effects("send_email"), scene.effects("press_key"), scene.effects("set_value")), (1, 3, 3))


@on([*PIPES, (STDIO, MODERN)], CHECKS)
def clients_with_a_process_for_each_call_run_every_new_call(scene):
    name = {"name": "ada"}
    for tool in ("create_entity", "delete_entity", "create_entity"):
        one_call(scene, tool, name)
    for _ in range(3):
        one_call(scene, "press_key", {"key": "Enter"})
    is_equal((scene.state("entities"), scene.state("row")), (["ada"], 3))
    agent = scene.agent()
    ran(agent.call("send_email", MAIL))
    agent.close()
    agent = scene.agent()
    replayed(agent.call("send_email", MAIL))


def one_call(scene, tool, arguments, session=None):
    """Clients that start a process for every call."""
    agent = scene.agent(session=session)
    ran(agent.call(tool, arguments))
    is_equal(agent.close(), 0, "exit code")


@on(PIPES, CHECKS)
def a_connection_that_a_dead_process_had_is_made_again(scene):
    """State inside the server's process is lost with it, so a stored result would be wrong."""
    for session in (None, "s"):
        agent = scene.agent(mortal=True, session=session)
        ran(agent.call("connect", {"to": f"db-{session}"}))
        agent.die()
        again = scene.agent(session=session)
        ran(again.call("connect", {"to": f"db-{session}"}))
        is_equal(ran(again.call("ask_connection", {"n": 1})), f"asked db-{session}")


@on(PIPES, CHECKS)
def an_issue_that_another_process_closed_may_be_opened_again(scene):
    issue = {"title": "It is broken"}
    for tool in ("create_issue", "close_issue", "create_issue"):
        one_call(scene, tool, issue)
    replayed(scene.agent().call("create_issue", issue))
    is_equal(scene.effects("create_issue"), 2, "effects")


@on(PIPES, CHECKS)
def a_result_that_another_client_missed_is_not_replayed_to_this_one(scene):
    agent = scene.agent(mortal=True)
    ran(agent.call("set_value", VALUE))
    agent.die()
    ran(scene.agent(info={"name": "another-client", "version": "1"}).call("set_value", VALUE))
    is_equal(scene.effects(), 2, "effects")


# A job that is restarted from the beginning: its calls, which of them are outward, and the state when each is done once.
PLAN = [
    ("set_value", VALUE),
    ("send_email", MAIL),
    ("press_key", {"key": "Enter"}),
    ("create_issue", {"title": "It is broken"}),
    ("set_value", VALUE | {"value": "b"}),
    ("send_email", MAIL | {"to": "bob@example.org"}),
]
CHANGED = [("set_value", VALUE | {"value": "z"}), *PLAN[1:4], ("press_key", {"key": "Escape"}), PLAN[5]]
OUTWARD = ("send_email", "create_issue")


def resumed_at_every_step(scene, fall, plan=PLAN):
    """Runs the plan once for each of its steps, in its own sandbox, and causes a crash at that step."""

    def one(step):
        sandbox = Sandbox(scene.sandbox.binary)
        own = Scene(sandbox, scene.kind, scene.version)
        try:
            fall(own, step, plan)
            sandbox.has_no_panic()
        except Exception as error:
            raise AssertionError(f"at step {step}: {error}\n{sandbox.errors()}") from error
        finally:
            own.end()
            sandbox.leave()

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(one, range(len(PLAN))))


def begun(scene, step, mortal):
    """An agent that has done the earlier steps and received their results."""
    agent = scene.agent(session="job", mortal=mortal)
    for tool, arguments in PLAN[:step]:
        ran(agent.call(tool, arguments))
    return agent


def finish(scene, plan, step, at_step):
    """Runs the restarted job. `at_step` checks the call at which the crash happened."""
    agent, left = scene.agent(session="job"), PLAN[step]
    for tool, arguments in plan:
        result = agent.call(tool, arguments)
        known = PLAN[:step] if tool in OUTWARD else []
        if (tool, arguments) == left:
            at_step(agent, tool, arguments, result)
        elif (tool, arguments) in known:
            replayed(result)
        else:
            ran(result)
    for wanted in plan:
        if wanted[0] in OUTWARD:
            done = [one for one in scene.sandbox.effects(wanted[0]) if one["arguments"] == wanted[1]]
            is_equal(len(done), 1, f"effects of {wanted}")


def client_is_killed(scene, step, plan):
    """Kills the client after the gateway has sent the result and before the client sends another message."""
    agent = begun(scene, step, mortal=True)
    ran(agent.call(*PLAN[step]))
    agent.die()
    finish(scene, plan, step, lambda _agent, _tool, _arguments, result: replayed(result))


def all_are_killed(scene, step, plan):
    """Kills the gateway and the client before the result, so that the outcome is unknown."""
    agent = begun(scene, step, mortal=False)
    before = scene.effects()
    agent.start_call(*PLAN[step])
    scene.acted(before + 1)
    scene.kill_gateway(agent)

    def judge(agent, tool, arguments, result):
        if tool in OUTWARD:
            # The result may have been stored before the kill.
            return doubted(result) if result.get("isError") else replayed(result)
        if result.get("isError"):
            told_once(result)
            return ran(agent.call(tool, arguments))
        return replayed(result)

    finish(scene, plan, step, judge)


@on([(STDIO, OLD), (SEVERAL, MODERN)], CHECKS)
def a_job_whose_client_is_killed_at_any_step_can_be_done_again(scene):
    resumed_at_every_step(scene, client_is_killed)


@on([(STDIO, MODERN)], CHECKS)
def a_job_whose_client_is_killed_at_any_step_can_be_done_again_with_another_plan(scene):
    resumed_at_every_step(scene, client_is_killed, CHANGED)


@on([(STDIO, OLD), (HTTP, MODERN), (SEVERAL, OLD)], CHECKS)
def a_job_that_is_killed_with_its_gateway_at_any_step_can_be_done_again(scene):
    resumed_at_every_step(scene, all_are_killed)
