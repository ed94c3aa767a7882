"""Tools whose effects reach other people, and settings that the configuration or a client gives a tool."""

import subprocess

from checks import is_equal
from repeats_scene import EVERY, INITIALIZED, MAIN, SEVERAL, on, ran, replayed, wait

CHECKS = []

MAIL = {"to": "ada@example.org", "subject": "Hello"}
ISSUE = {"title": "It is broken"}
A, B = {"name": "x", "value": "a"}, {"name": "x", "value": "b"}


@on(EVERY, CHECKS)
def an_equal_mail_soon_afterwards_is_answered_from_the_ledger(scene):
    agent = scene.agent()
    first = agent.call("send_email", MAIL)
    ran(first)
    again = agent.call("send_email", MAIL)
    replayed(again, first)
    assert "onceward_repeat" in again["content"][-1]["text"], again
    replayed(scene.agent().call("send_email", MAIL), first)
    ran(agent.call("send_email", MAIL | {"to": "bob@example.org"}))
    is_equal(scene.effects(), 2, "effects")


@on(MAIN, CHECKS)
def mails_that_overlap_are_one(scene):
    agent, mail = scene.agent(), MAIL | {"hold": "go"}
    first = agent.start_call("send_email", mail)
    scene.acted(1)
    second = agent.start_call("send_email", mail)
    wait(0.3)
    scene.let_go("go")
    replayed(agent.result(second), agent.result(first))
    replayed(agent.call("send_email", mail), agent.result(first))
    is_equal(scene.effects(), 1, "effects")


@on(MAIN, CHECKS)
def an_equal_mail_after_the_echo_is_a_new_one(scene):
    scene.configure(mcp='echo = "2s"')
    agent = scene.agent()
    first = agent.call("send_email", MAIL)
    replayed(agent.call("send_email", MAIL), first)
    wait(3)
    ran(agent.call("send_email", MAIL))
    is_equal(scene.effects(), 2, "effects")


@on(MAIN, CHECKS)
def a_mail_whose_answer_was_lost_is_a_repeat_after_the_echo_too(scene):
    scene.configure(mcp='echo = "1s"')
    agent, mail = scene.agent(), MAIL | {"hold": "go"}
    if hasattr(agent, "scene"):
        lost = agent.start_call("send_email", mail)
        scene.acted(1)
        lost.drop()
    else:
        lost = agent.start_call("send_email", mail)
        scene.acted(1)
        agent.cancel(lost, "Request timed out")
    scene.let_go("go")
    wait(2.5)
    replayed(agent.call("send_email", mail))
    is_equal(scene.effects(), 1, "effects")


@on(EVERY, CHECKS)
def an_issue_that_was_closed_may_be_opened_again(scene):
    agent = scene.agent()
    ran(agent.call("create_issue", ISSUE))
    replayed(agent.call("create_issue", ISSUE))
    ran(agent.call("close_issue", ISSUE))
    second = agent.call("create_issue", ISSUE)
    ran(second)
    replayed(agent.call("create_issue", ISSUE), second)
    is_equal(scene.effects("create_issue"), 2, "effects")


@on(MAIN, CHECKS)
def a_close_whose_answer_is_lost_does_not_open_the_way(scene):
    agent = scene.agent()
    if hasattr(agent, "scene"):
        ran(agent.call("create_issue", ISSUE))
        assert agent.call("close_issue", ISSUE | {"lost": "close"}).get("isError")
    else:
        ran(agent.call("create_issue", ISSUE))
        closing = agent.start_call("close_issue", ISSUE | {"lost": "close"})
        assert agent.wait(closing)
        agent = scene.agent()
    replayed(agent.call("create_issue", ISSUE))
    is_equal(scene.effects("create_issue"), 1, "effects")


@on([(SEVERAL, version) for _, version in EVERY[:2]], CHECKS)
def a_close_on_another_server_does_not_count(scene):
    agent = scene.agent()
    ran(agent.call("create_issue", ISSUE))
    agent.prefix = "other__"
    ran(agent.call("close_issue", ISSUE))
    ran(agent.call("create_issue", ISSUE))
    agent.prefix = "fixture__"
    replayed(agent.call("create_issue", ISSUE))
    is_equal(scene.effects("create_issue"), 2, "effects")


@on(EVERY, CHECKS)
def an_intended_repeat_is_offered_for_outward_tools_only(scene):
    agent = scene.agent()
    offered = {name for name, tool in agent.tools().items() if "onceward_repeat" in tool["inputSchema"]["properties"]}
    names = {"send_email", "create_issue"}
    is_equal({name for name in offered if not name.startswith("other__")}, names, "tools that offer it")
    ran(agent.call("send_email", MAIL))
    second = agent.call("send_email", MAIL | {"onceward_repeat": 2})
    ran(second)
    replayed(agent.call("send_email", MAIL | {"onceward_repeat": 2}), second)
    is_equal(scene.effects(), 2, "effects")


@on(MAIN, CHECKS)
def the_configuration_decides_for_a_tool(scene):
    scene.configure(tools={"set_value": 'repeats = "outward"', "send_email": 'repeats = "causal"'})
    agent = scene.agent()
    ran(agent.call("set_value", A))
    ran(agent.call("set_value", B))
    replayed(agent.call("set_value", A))
    for _ in range(3):
        ran(agent.call("send_email", MAIL))
    is_equal((scene.effects("set_value"), scene.effects("send_email")), (2, 3))
    tools = agent.tools()
    assert "onceward_repeat" in tools["set_value"]["inputSchema"]["properties"], tools["set_value"]
    assert "onceward_repeat" not in tools["send_email"]["inputSchema"]["properties"], tools["send_email"]


@on(MAIN, CHECKS)
def the_configuration_decides_for_a_server_that_all_is_outward(scene):
    scene.configure(server='repeats = "outward"', tools={"stage": 'repeats = "causal"'})
    agent = scene.agent()
    ran(agent.call("set_value", A))
    replayed(agent.call("set_value", A))
    for _ in range(2):
        ran(agent.call("stage", {"content": "a"}))


@on(MAIN, CHECKS)
def the_configuration_decides_for_a_server_that_nothing_is_outward(scene):
    scene.configure(server='repeats = "causal"')
    agent = scene.agent()
    for _ in range(2):
        ran(agent.call("send_email", MAIL))
        ran(agent.call("create_issue", ISSUE))
    is_equal(scene.effects(), 4, "effects")


@on(MAIN, CHECKS)
def a_key_of_the_client_and_a_recipe_and_a_tier_stay_what_they_were(scene):
    scene.configure(mcp='echo = "2s"', tools={"create_entity": 'key = ["/name"]', "commit": 'tier = "payment"'})
    agent = scene.agent()
    key = {"onceward/key": "order-1"}
    ran(agent.call("set_value", A, key))
    ran(agent.call("create_entity", {"name": "ada"}))
    ran(agent.call("stage", {"content": "first"}))
    ran(agent.call("commit", {"message": "wip"}))
    # A tier has the echo; with a key or a recipe, equal calls are one for as long as the ledger keeps the record.
    replayed(agent.call("commit", {"message": "wip"}))
    wait(2.5)
    replayed(agent.call("set_value", A, key))
    replayed(agent.call("create_entity", {"name": "ada"}))
    ran(agent.call("stage", {"content": "second"}))
    ran(agent.call("commit", {"message": "wip"}))
    is_equal(scene.effects(), 6, "effects")


@on(INITIALIZED[:1], CHECKS)
def a_setting_that_makes_no_sense_is_an_error(scene):
    scene.configure(tools={"set_value": 'repeats = "sometimes"'})
    command = [str(part) for part in scene.command()]
    ended = subprocess.run(command, input=b"", capture_output=True, timeout=20, check=False)
    said = ended.stderr.decode()
    assert ended.returncode != 0 and "repeats" in said and "sometimes" in said, (ended.returncode, said)
