"""Which tools are guarded, what failures mean, questions of a server during a call, and the gateway's own tool."""

import json
import time

from checks import all_of, is_equal, until
from client import MODERN
from results import about, is_fresh, is_replay, is_state
from sandbox import OUTWARD

MAIL = {"to": "ada@example.org", "subject": "Hello"}
STATUS = "onceward_status"
SURE = {"sure": {"action": "accept", "content": {"sure": True}}}


def reads_are_never_stale(sandbox):
    agent = sandbox.agent()
    for number in range(3):
        for tool in ("read_inbox", "list_things"):
            result = agent.call(tool)
            is_equal(result["content"], [{"type": "text", "text": f"{number} so far"}], tool)
            is_equal(about(result), {}, tool)
        agent.call("send_email", MAIL | {"subject": str(number)})


def the_configuration_decides_over_annotations_and_names(sandbox):
    sandbox.configure("""
[mcp.server.fixture.tool.misnamed]
guard = true
repeats = "outward"
[mcp.server.fixture.tool.get_nothing]
guard = true
repeats = "outward"
[mcp.server.fixture.tool.send_email]
guard = false
""")
    agent = sandbox.agent()
    for tool, effects in (("misnamed", 1), ("get_nothing", 1), ("send_email", 2)):
        agent.call(tool, MAIL)
        agent.call(tool, MAIL)
        is_equal(len(sandbox.effects(tool)), effects, tool)


def without_a_list_asked_for_first_reads_pass_and_the_rest_is_guarded(sandbox):
    agent = sandbox.agent(version=MODERN, begun=False)
    first = agent.call("send_email", MAIL)
    is_replay(agent.call("send_email", MAIL), first)
    agent.call("read_inbox")
    is_equal(about(agent.call("read_inbox")), {}, "of a tool that says that it reads")
    is_equal(len(sandbox.effects()), 1, "effects")


def an_unlisted_tool_is_guarded_or_refused_by_the_server(sandbox):
    agent = sandbox.agent()
    answer = agent.wait(agent.start_call("no_such_tool", MAIL))
    assert "error" in answer and answer["error"]["code"] == -32602, answer
    again = agent.wait(agent.start_call("no_such_tool", MAIL))
    is_equal(again["error"], answer["error"], "the same question again")


def a_tool_error_is_released(sandbox):
    sandbox.configure(OUTWARD)
    agent = sandbox.agent()
    first = agent.call("fail", {"times": 1})
    is_equal((first["isError"], about(first).get("replayed")), (True, None), "the first")
    second = agent.call("fail", {"times": 1})
    is_fresh(second)
    is_replay(agent.call("fail", {"times": 1}), second)
    is_equal(len(sandbox.effects()), 2, "effects")


def a_tool_error_may_be_final(sandbox):
    sandbox.configure('[mcp.server.fixture.tool.fail]\nrepeats = "outward"\non_error = "keep"\n')
    agent = sandbox.agent()
    first = agent.call("fail", {"times": 1})
    second = agent.call("fail", {"times": 1})
    is_equal(first["content"][0]["text"], "attempt 1", "the first")
    is_equal((second["isError"], second["content"][0]), (True, first["content"][0]), "the second")
    is_equal(about(second).get("replayed"), True, "replayed")
    is_equal(len(sandbox.effects()), 1, "effects")


def a_failed_payment_is_a_doubt(sandbox):
    sandbox.configure('[mcp.server.fixture.tool.fail]\ntier = "payment"\n')
    agent = sandbox.agent()
    first = agent.call("fail", {"times": 1})
    is_equal(first["isError"], True, "the first")
    is_state(agent.call("fail", {"times": 1}), "in_doubt")
    is_equal(len(sandbox.effects()), 1, "effects")


def without_a_ledger_nothing_that_acts_is_called_and_reads_pass(sandbox):
    (sandbox.folder / "ledger.db").write_bytes(b"no ledger at all")
    agent = sandbox.agent()
    is_state(agent.call("send_email", {"to": "x"}), "ledger_down")
    assert not agent.call("read_inbox").get("isError")
    is_equal(sandbox.effects(), [], "effects")


def over_the_quota_nothing_new_is_called_and_repeats_are_answered(sandbox):
    sandbox.configure("[limits]\nrecords_per_tenant = 1\n")
    agent = sandbox.agent()
    is_fresh(agent.call("send_email", MAIL))
    refused = agent.call("send_email", MAIL | {"subject": "Another"})
    is_state(refused, "quota")
    assert "nothing was done" in refused["content"][0]["text"], refused
    is_replay(agent.call("send_email", MAIL))
    assert not agent.call("read_inbox").get("isError")
    is_equal(len(sandbox.effects()), 1, "effects")


def an_error_of_the_protocol_is_passed_on_and_says_nothing_of_the_effect(sandbox):
    sandbox.configure(OUTWARD)
    agent = sandbox.agent()
    first = agent.wait(agent.start_call("refuse", {}))
    error = first["error"]
    is_equal((error["code"], error["data"].pop("onceward")["state"]), (-32000, "in_doubt"), "the error, and what it leaves")
    is_equal(error["data"], {"why": "closed"}, "what the server says besides")
    # Models see only the message.
    assert error["message"].startswith("not today [onceward] ") and "may have taken effect" in error["message"], error
    again = agent.call("refuse", {})
    is_state(again, "in_doubt")
    assert "returned an error" in again["content"][0]["text"], again
    is_equal(len(sandbox.effects()), 1, "effects")


def an_error_of_the_protocol_means_what_the_configuration_says(sandbox):
    sandbox.configure('[mcp.server.fixture.tool.refuse]\non_error = "retry"\n')
    agent = sandbox.agent()
    first = agent.wait(agent.start_call("refuse", {}))
    is_equal(agent.wait(agent.start_call("refuse", {})).get("error"), first["error"], "released, so tried again")
    is_equal(len(sandbox.effects()), 2, "effects")


def input_that_is_required_and_its_answer_are_one_call(sandbox):
    sandbox.configure(OUTWARD)
    agent = sandbox.agent(version=MODERN)
    first = agent.call("ask", {"what": "go"})
    is_equal(first["resultType"], "input_required", "the first answer")
    is_equal(about(first).get("state"), None, "the first answer is the server's")
    second = agent.call("ask", {"what": "go"}, inputResponses=SURE, requestState=first["requestState"])
    is_fresh(second)
    assert "state-1" in second["content"][0]["text"], second
    is_equal(len(sandbox.effects()), 1, "effects")
    is_replay(agent.call("ask", {"what": "go"}, inputResponses=SURE, requestState="state-1"), second)
    is_replay(agent.call("ask", {"what": "go"}), second)
    is_equal(len(sandbox.effects()), 1, "effects")


def input_that_is_required_twice_is_not_a_doubt(sandbox):
    agent = sandbox.agent(version=MODERN)
    for _ in range(2):
        is_equal(agent.call("ask", {"what": "go"})["resultType"], "input_required", "while nothing was answered")
    is_fresh(agent.call("ask", {"what": "go"}, inputResponses=SURE, requestState="state-1"))
    is_equal(len(sandbox.effects()), 1, "effects")


def an_answer_to_an_input_sent_twice_at_once_acts_once(sandbox):
    agent = sandbox.agent(version=MODERN)
    agent.call("ask", {"delay_ms": 200})
    more = {"inputResponses": SURE, "requestState": "state-1"}
    calls = [agent.start_call("ask", {"delay_ms": 200}, **more) for _ in range(2)]
    results = [agent.wait(call)["result"] for call in calls]
    is_equal(sum(about(result).get("replayed") is True for result in results), 1, "replays")
    is_equal(len(sandbox.effects()), 1, "effects")


def answers_of_ours_are_whole_in_the_newest_generation(sandbox):
    sandbox.configure('[mcp.server.fixture.tool.fail]\ntier = "payment"\n')
    agent = sandbox.agent(version=MODERN)
    first = agent.call("send_email", MAIL)
    again = agent.call("send_email", MAIL)
    is_replay(again, first)
    agent.call("fail", {})
    doubt = agent.call("fail", {})
    is_state(doubt, "in_doubt")
    for result in (again, doubt, agent.call(STATUS)):
        is_equal(result.get("resultType"), "complete", str(result))


def the_server_asks_the_model_in_mid_call(sandbox):
    sandbox.configure(OUTWARD)
    answers = {
        "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "42"}, "model": "m"},
        "elicitation/create": {"action": "accept", "content": {"name": "Ada"}},
        "roots/list": {"roots": [{"uri": "file:///home/ada", "name": "home"}]},
    }
    agent = sandbox.agent(answers=answers)
    for tool, said in (("sample", '"42"'), ("elicit", '"Ada"'), ("roots", "file:///home/ada")):
        first = agent.call(tool)
        assert said in first["content"][0]["text"], first
        is_replay(agent.call(tool), first)
    is_equal(len(agent.messages("sampling/createMessage")), 1, "questions to the model")
    is_equal(len(sandbox.effects()), 3, "effects")


def progress_reaches_the_caller(sandbox):
    agent = sandbox.agent()
    agent.call("progress", {"steps": 4}, meta={"progressToken": "mine"})
    told = [message["params"] for message in agent.messages("notifications/progress")]
    is_equal([(one["progressToken"], one["progress"]) for one in told], [("mine", n) for n in range(1, 5)], "progress")


def outward_tools_take_the_repeat_and_others_do_not(sandbox):
    agent = sandbox.agent()
    tools = {tool["name"]: tool for tool in agent.request("tools/list")["result"]["tools"]}
    for name in ("send_email", "charge"):
        repeat = tools[name]["inputSchema"]["properties"].get("onceward_repeat")
        assert repeat and repeat["type"] == "integer", f"{name}: {repeat}"
        assert "onceward_repeat" not in tools[name]["inputSchema"].get("required", []), name
    for name in ("slow", "ask", "read_inbox", "list_things", "find_charge", "read_odd"):
        assert "onceward_repeat" not in tools[name]["inputSchema"]["properties"], name
    assert tools[STATUS]["inputSchema"]["type"] == "object", tools[STATUS]
    assert (tools[STATUS].get("annotations") or {}).get("readOnlyHint") is True, tools[STATUS]


def tools_in_pages_are_all_there_and_the_gateways_own_is_there_once(sandbox):
    agent, direct = sandbox.agent(), sandbox.direct()
    pages = {}
    for who, client in (("gateway", agent), ("direct", direct)):
        names, cursor = [], "pages"
        while cursor:
            result = client.request("tools/list", {"cursor": cursor})["result"]
            names += [tool["name"] for tool in result["tools"]]
            cursor = result.get("nextCursor")
        pages[who] = names
    is_equal([name for name in pages["gateway"] if name != STATUS], pages["direct"], "names")
    is_equal(pages["gateway"].count(STATUS), 1, "times that the gateway's own tool is listed")


def the_status_of_a_call_can_be_asked(sandbox):
    agent = sandbox.agent(session="s")
    agent.call("send_email", MAIL)
    text = said(agent.call(STATUS, {"tool": "send_email", "arguments": MAIL}))
    assert "done" in text, text
    key = about(agent.call("send_email", MAIL))["key"]
    assert "done" in said(agent.call(STATUS, {"tool": "send_email", "key": key}))
    unknown = said(agent.call(STATUS, {"tool": "send_email", "arguments": MAIL | {"subject": "never"}}))
    assert "done" not in unknown.replace("not done", ""), unknown
    assert "send_email" in said(agent.call(STATUS)), "recent calls of this session"
    is_equal(len(sandbox.effects()), 1, "effects: asking does nothing")
    assert all(b"onceward_status" not in line for line in sandbox.received(agent)), "the server saw our tool's call"


def the_status_of_a_call_that_runs_or_is_in_doubt_can_be_asked(sandbox):
    agent = sandbox.agent()
    arguments = MAIL | {"delay_ms": 1500}
    call = agent.start_call("send_email", arguments)
    until(sandbox.effects, "the effect")
    text = said(agent.call(STATUS, {"tool": "send_email", "arguments": arguments}, timeout=1.2))
    assert "running" in text, text
    agent.wait(call)
    agent.call("crash_after", MAIL)
    text = said(sandbox.agent().call(STATUS, {"tool": "crash_after", "arguments": MAIL}))
    assert "doubt" in text or "unknown" in text, text


def said(result):
    assert not result.get("isError"), result
    return json.dumps(result)


def a_result_of_a_megabyte_is_kept_or_its_loss_is_reported(sandbox):
    sandbox.configure(OUTWARD)
    agent = sandbox.agent()
    arguments = {"bytes": 1_000_000}
    first = agent.call("big", arguments)
    is_equal(len(first["content"][0]["text"]), 1_000_000, "bytes")
    again = agent.call("big", arguments)
    kept = about(again).get("replayed") is True and again["content"][0] == first["content"][0]
    assert kept or about(again).get("state") == "done_not_kept", str(again)[:500]
    is_equal(len(sandbox.effects()), 1, "effects")


def a_result_of_twenty_megabytes_passes_and_is_not_made_again(sandbox):
    sandbox.configure(OUTWARD)
    agent = sandbox.agent()
    arguments = {"bytes": 20_000_000}
    first = agent.call("big", arguments, timeout=60)
    is_equal(len(first["content"][0]["text"]), 20_000_000, "bytes")
    agent.call("big", arguments, timeout=60)
    is_equal(len(sandbox.effects()), 1, "effects")


def no_notice_is_given_where_none_is_wanted(sandbox):
    sandbox.configure("[mcp]\nnotice = false\n")
    agent = sandbox.agent()
    first = agent.call("send_email", MAIL)
    again = agent.call("send_email", MAIL)
    is_equal(again["content"], first["content"], "content")
    is_equal(about(again).get("replayed"), True, "replayed")


def a_waiting_second_call_gets_a_result_when_it_takes_too_long(sandbox):
    sandbox.configure('[mcp.server.fixture.tool.send_email]\nwait = "300ms"\n')
    agent = sandbox.agent()
    arguments = MAIL | {"delay_ms": 2500}
    first = agent.start_call("send_email", arguments)
    until(sandbox.effects, "the effect")
    start = time.monotonic()
    is_state(agent.call("send_email", arguments), "running")
    assert time.monotonic() - start < 2, "it waited for longer than it was told to"
    is_fresh(agent.wait(first)["result"])
    is_equal(len(sandbox.effects()), 1, "effects")


def a_task_acts_once_and_its_final_result_is_what_is_kept(sandbox):
    sandbox.configure(OUTWARD)
    agent = sandbox.agent()
    first = agent.wait(agent.start_call("task", {"what": "a", "delay_ms": 300}, task={"ttl": 60000}))["result"]
    task = first["task"]["taskId"]
    second = agent.wait(agent.start_call("task", {"what": "a", "delay_ms": 300}, task={"ttl": 60000}))
    result = agent.request("tasks/result", {"taskId": task})["result"]
    is_equal(result["content"][0]["text"], "done as a task", "the task's result")
    third = agent.wait(agent.start_call("task", {"what": "a", "delay_ms": 300}, task={"ttl": 60000}))
    for answer in (second, third):
        assert "result" in answer, answer
    is_equal(len(sandbox.effects()), 1, "effects")


def another_call_for_the_same_thing_is_not_given_the_task_that_is_under_way(sandbox):
    sandbox.configure('[mcp.server.fixture.tool.task]\nkey = ["/what"]\nmatch = ["/amount"]\n')
    agent = sandbox.agent()
    started = {"what": "a", "amount": 1, "delay_ms": 1500}
    first = agent.call("task", started, task={"ttl": 60000})
    is_equal(agent.call("task", started, task={"ttl": 60000})["task"]["taskId"], first["task"]["taskId"], "the same task")
    is_state(agent.call("task", started | {"amount": 2}, task={"ttl": 60000}), "mismatch")
    until(sandbox.effects, "the effect")
    is_equal(len(sandbox.effects()), 1, "effects")


CHECKS = all_of(globals())
