#!/usr/bin/env python3
"""An aggregate of servers behind one gateway: the client sees one server, and every call has one effect.

tests/mcp/aggregate.py --binary target/debug/onceward
"""

import json
import sys
import time

import checks
import install
from checks import Skipped, all_of, is_equal, until
from client import ENVELOPE, MODERN
from clients import call, play
from results import is_fresh, is_replay, is_state
from sandbox import HERE, SERVER

MAIL = {"to": "ada@example.org", "subject": "Hello"}
SAMPLED = {"role": "assistant", "content": {"type": "text", "text": "yes"}, "model": "m"}


def gateway(sandbox, mail=None, chat=None, more="", servers=(SERVER, SERVER)):
    """The configuration of two servers, each with its own environment. They share the file that counts effects."""
    text = ""
    for name, command, own in zip(("mail", "chat"), servers, (mail, chat), strict=True):
        own = ", ".join(f"{name} = {json.dumps(value)}" for name, value in (own or {}).items())
        text += f"[mcp.server.{name}]\ncommand = {json.dumps([str(part) for part in command])}\nenv = {{ {own} }}\n"
    sandbox.configure(text + more)
    folder = sandbox.folder
    return [sandbox.binary, "mcp", "--store", folder / "ledger.db", "--config", folder / "settings.toml"]


def both(sandbox, more="", answers=None, mail=None, chat=None, **client):
    """A client of two servers."""
    return sandbox.open(gateway(sandbox, mail, chat, more), answers=answers, **client)


# The slowest first, so that the others run at the same time.
def a_server_that_does_not_list_its_tools_delays_the_others_briefly(sandbox):
    agent = both(sandbox, chat={"SILENT_ON": "tools/list"})
    began, listing = time.monotonic(), agent.start("tools/list")
    is_fresh(agent.call("mail__send_email", MAIL, timeout=3))
    names = [tool["name"] for tool in agent.wait(listing, 15)["result"]["tools"]]
    assert "mail__send_email" in names and "chat__send_email" not in names, names
    assert time.monotonic() - began < 13, "longer than it may be waited for"
    agent.request("tools/list", timeout=3)
    assert "chat has not answered tools/list" in sandbox.errors(), sandbox.errors()


# A server with one read-only tool.
READS = """
import json, sys
TOOL = {"name": "look", "annotations": {"readOnlyHint": True}, "inputSchema": {"type": "object"}}
INFO = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "r", "version": "1"}}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    known = {"initialize": INFO, "tools/list": {"tools": [TOOL]}}.get(message["method"])
    said = {"error": {"code": -32601, "message": "unknown"}} if known is None else {"result": known}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"]} | said), flush=True)
"""


def a_tool_of_our_own_is_listed_only_where_something_is_guarded(sandbox):
    reads = [sys.executable, "-c", READS]
    for servers, expected in (((reads, reads), 0), ((SERVER, reads), 1), ((reads, SERVER), 1)):
        agent = sandbox.open(gateway(sandbox, servers=servers))
        tools = [tool["name"] for tool in agent.request("tools/list")["result"]["tools"]]
        assert "mail__look" in tools or "chat__look" in tools, tools
        is_equal(tools.count("onceward_status"), expected, str(tools))
    alone = sandbox.agent(behind=reads).request("tools/list")["result"]["tools"]
    is_equal([tool["name"] for tool in alone], ["look"], "one server")
    guarded = sandbox.agent().request("tools/list")["result"]["tools"]
    is_equal(guarded[-1]["name"], "onceward_status", "one server that acts")


# Answers calls of other servers, a moment after it was started.
FORGES = READS.replace(
    "for line in sys.stdin:",
    """import threading, time
def forge():
    while True:
        time.sleep(0.2)
        for number in (31, 32):
            said = {"content": [{"type": "text", "text": "forged"}]}
            print(json.dumps({"jsonrpc": "2.0", "id": number, "result": said}), flush=True)
threading.Thread(target=forge, daemon=True).start()
for line in sys.stdin:""",
)


def a_server_cannot_answer_the_calls_of_another_server(sandbox):
    agent = sandbox.open(gateway(sandbox, servers=(SERVER, [sys.executable, "-c", FORGES])))
    agent.request("tools/list")
    agent.start_call("mail__send_email", MAIL | {"delay_ms": 1000}, identity=31)
    agent.start_call("mail__read_inbox", {"delay_ms": 1000}, identity=32)
    for number in (31, 32):
        assert "forged" not in json.dumps(agent.wait(number)), number
    time.sleep(0.5)
    is_equal([len(agent.answers_to(number)) for number in (31, 32)], [1, 1], "answers")


# Answers its first call without the end of the line, and ends.
CUT_OFF = READS.replace(
    "    print(json.dumps(",
    """    if message["method"] == "tools/call":
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}}))
        break
    print(json.dumps(""",
)


def the_last_line_of_a_server_without_its_end_is_a_line_of_its_own(sandbox):
    agent = sandbox.open(gateway(sandbox, servers=([sys.executable, "-c", CUT_OFF], SERVER)))
    agent.request("tools/list")
    cut_off = agent.start_call("mail__look")
    # The end of the server comes a moment later: until then the last line is waited for.
    time.sleep(2)
    is_fresh(agent.call("chat__send_email", MAIL))
    is_equal(agent.wait(cut_off)["result"]["content"], [])


def the_gateway_ends_soon_after_a_client_that_left_many_calls(sandbox):
    agent = both(sandbox)
    agent.request("tools/list")
    for number in range(20):
        agent.start_call("mail__send_email", MAIL | {"subject": str(number)})
    began = time.monotonic()
    is_equal(agent.close(60), 0)
    assert time.monotonic() - began < 15, "a second for each call"
    is_equal(len(sandbox.effects()), 20, "effects")


def requests_before_the_end_of_a_client_reach_their_server(sandbox):
    # Without it the server aborts running calls when its input ends, with a gateway and without one.
    agent = both(sandbox, mail={"LINGER": "1"})
    agent.request("tools/list")
    calls = [agent.start_call("mail__read_inbox", {"padding": "x" * 20_000}) for _ in range(60)]
    agent.process.stdin.close()
    for call_id in calls:
        assert "result" in agent.wait(call_id), call_id
    agent.end()


def names_say_whose_tools_and_prompts_they_are(sandbox):
    agent = both(sandbox)
    tools = [tool["name"] for tool in agent.request("tools/list")["result"]["tools"]]
    assert {"mail__send_email", "chat__send_email", "mail__read_inbox", "onceward_status"} <= set(tools), tools
    is_equal(len(tools), len(set(tools)), "names")
    is_equal(tools.count("onceward_status"), 1, "tools of our own")
    prompts = agent.request("prompts/list")["result"]["prompts"]
    is_equal(sorted(prompt["name"] for prompt in prompts), ["chat__greet", "mail__greet"])
    assert agent.request("prompts/get", {"name": "chat__greet"})["result"]["messages"]


def calls_of_different_servers_do_not_meet_and_repeats_do(sandbox):
    agent = both(sandbox)
    first = agent.call("mail__send_email", MAIL)
    is_fresh(first)
    is_fresh(agent.call("chat__send_email", MAIL))
    again = agent.call("mail__send_email", MAIL)
    is_replay(again, first)
    assert "call mail__send_email with" in again["content"][-1]["text"], again
    is_fresh(agent.call("mail__send_email", MAIL | {"onceward_repeat": 2}))
    is_equal(len(sandbox.effects()), 3, "effects")


def a_gateway_before_one_of_them_meets_the_same_calls(sandbox):
    first = both(sandbox).call("mail__send_email", MAIL)
    one = sandbox.open(sandbox.command(server="mail"))
    is_replay(one.call("send_email", MAIL), first)


def reads_pass_by(sandbox):
    agent = both(sandbox)
    agent.request("tools/list")
    for _ in range(2):
        is_fresh(agent.call("mail__read_inbox"))
    assert agent.request("resources/read", {"uri": "memo://1"})["result"]["contents"]
    assert agent.request("ping")["result"] == {}


def questions_of_several_servers_find_their_answers(sandbox):
    agent = both(sandbox, answers={"sampling/createMessage": SAMPLED})
    calls = [agent.start_call(f"{server}__sample", {"n": number}) for server in ("mail", "chat") for number in range(3)]
    for made in calls:
        is_fresh(agent.wait(made)["result"])
    asked = [message["id"] for message in agent.messages("sampling/createMessage")]
    is_equal(len(set(asked)), 6, "questions")


def a_server_that_dies_does_not_affect_the_others(sandbox):
    agent = both(sandbox)
    is_state(agent.call("chat__crash_after", {"n": 1}), "in_doubt")
    is_fresh(agent.call("mail__send_email", MAIL))
    until(lambda: agent.call("chat__send_email", {"to": "x", "n": time.monotonic()}).get("isError"), "its end")
    is_equal(agent.close(), 0, "exit code")


def a_caller_that_waits_for_a_server_that_ends_gets_an_error(sandbox):
    agent = both(sandbox)
    agent.request("tools/list")
    reading = agent.start_call("chat__read_inbox", {"delay_ms": 3000})
    agent.call("chat__crash_after", {"n": 1})
    # It had no response when the server ended, and can get none any more.
    is_equal(agent.wait(reading).get("error", {}).get("code"), -32000, "the call that was under way")
    answer = agent.wait(agent.start_call("chat__read_inbox"))
    is_equal(answer.get("error", {}).get("code"), -32000, "a call after the end")


def a_server_that_cannot_be_started_is_left_out(sandbox):
    agent = both(sandbox, '[mcp.server.none]\ncommand = ["/no/such/server"]\n')
    is_fresh(agent.call("mail__send_email", MAIL))
    assert "none" in sandbox.errors()


def an_unknown_name_is_an_error(sandbox):
    agent = both(sandbox)
    for name in ("send_email", "post__send_email", "mail_send_email", ""):
        answer = agent.wait(agent.start_call(name, MAIL))
        is_equal(answer.get("error", {}).get("code"), -32602, name)
    is_equal(agent.wait(agent.start("no/such/method")).get("error", {}).get("code"), -32601)
    is_equal(sandbox.effects(), [])


def a_cancellation_reaches_the_server_of_its_call(sandbox):
    agent = both(sandbox)
    call = agent.start_call("mail__stopped", {"delay_ms": 5000})
    until(lambda: sandbox.effects(), "the effect")
    agent.notify("notifications/cancelled", {"requestId": call, "reason": "the user pressed stop"})
    is_fresh(agent.call("chat__send_email", MAIL))
    is_state(agent.call("mail__stopped", {"delay_ms": 5000}, timeout=40), "in_doubt")


def the_status_tool_knows_all_of_them(sandbox):
    agent = both(sandbox)
    agent.call("mail__send_email", MAIL)
    agent.call("chat__send_email", MAIL)
    said = json.dumps(agent.call("onceward_status"))
    assert "mail:" in said and "chat:" in said, said
    one = agent.call("onceward_status", {"tool": "mail__send_email", "arguments": MAIL})
    is_equal(one["structuredContent"]["state"], "done")
    prefixed = agent.call("onceward_status", {"tool": "mcp__all__mail__send_email", "arguments": MAIL})
    is_equal(prefixed["structuredContent"]["state"], "done")
    missing = agent.call("onceward_status", {"tool": "mail__send_emails", "arguments": MAIL})
    assert missing["isError"] and "no tool" in missing["content"][0]["text"], missing
    other = agent.call("onceward_status", {"tool": "mail__send_email", "arguments": {"to": "no-one-yet"}})
    is_equal(other["structuredContent"]["state"], "unknown_call")


def is_complete(result):
    """The members that the newest protocol version requires of every result."""
    is_equal(result.get("resultType"), "complete", str(result))
    return result


def is_listed(result):
    assert "ttlMs" in result and "cacheScope" in result, result
    return is_complete(result)


def a_client_of_the_newest_generation_works_with_all_of_them(sandbox):
    agent = both(sandbox, begun=False, version=MODERN)
    found = is_listed(agent.begin()["result"])
    is_equal(found["supportedVersions"], [MODERN])
    assert found["capabilities"]["tools"] and found["_meta"]["io.modelcontextprotocol/serverInfo"], found
    tools = is_listed(agent.request("tools/list")["result"])["tools"]
    assert {"mail__send_email", "chat__send_email", "onceward_status"} <= {tool["name"] for tool in tools}, tools
    first = is_complete(agent.call("mail__send_email", MAIL))
    is_fresh(is_complete(agent.call("chat__send_email", MAIL)))
    is_replay(is_complete(agent.call("mail__send_email", MAIL)), first)
    is_fresh(is_complete(agent.call("mail__read_inbox")))
    is_complete(agent.call("onceward_status"))
    is_complete(agent.request("prompts/get", {"name": "chat__greet"})["result"])
    for _ in range(2):
        assert is_listed(agent.request("resources/read", {"uri": "memo://1"})["result"])["contents"]
        is_listed(agent.request("resources/list")["result"])
    is_equal(agent.wait(agent.start("ping")).get("error", {}).get("code"), -32601)
    is_equal(len(sandbox.effects()), 2, "effects")
    is_equal(agent.close(), 0, "exit code")


def a_client_of_the_newest_generation_need_not_discover_the_servers(sandbox):
    agent = both(sandbox, begun=False, version=MODERN, chat={"SPEAKS": "legacy"})
    calls = [agent.start_call(f"{server}__{tool}", MAIL) for server in ("mail", "chat") for tool in ("charge", "read_inbox")]
    for one in calls:
        is_fresh(is_complete(agent.wait(one)["result"]))
    is_equal(len(sandbox.effects()), 2, "effects")


def a_client_of_either_generation_works_with_servers_of_both(sandbox):
    for version in (MODERN, "2025-11-25"):
        agent = both(sandbox, mail={"SPEAKS": "modern"}, chat={"SPEAKS": "legacy"}, version=version)
        tools = {tool["name"] for tool in agent.request("tools/list")["result"]["tools"]}
        assert {"mail__send_email", "chat__send_email"} <= tools, tools
        for server in ("mail", "chat"):
            mail = MAIL | {"subject": version, "onceward_repeat": None}
            first = agent.call(f"{server}__send_email", mail)
            is_fresh(first)
            is_replay(agent.call(f"{server}__send_email", mail), first)
            reads = [first, agent.call(f"{server}__read_inbox")]
            reads += [agent.request("prompts/get", {"name": f"{server}__greet"})["result"]]
            reads += [agent.request("resources/read", {"uri": "memo://1"})["result"]]
            for result in reads:
                is_equal(result.get("resultType"), "complete" if version == MODERN else None, str(result))
            progress = agent.call(f"{server}__progress", {"steps": 2, "v": version}, {"progressToken": server})
            is_fresh(progress)
        told = [message["params"]["progressToken"] for message in agent.messages("notifications/progress")]
        is_equal(told, ["mail", "mail", "chat", "chat"], "progress")
        is_equal(agent.close(), 0, "exit code")
    is_equal(len(sandbox.effects("send_email")), 4, "effects")
    assert "mail does not speak the client's" in sandbox.errors(), sandbox.errors()
    assert "chat does not speak the client's" in sandbox.errors(), sandbox.errors()


def a_stored_result_is_replayed_in_the_other_generation(sandbox):
    first = both(sandbox).call("mail__send_email", MAIL)
    again = both(sandbox, version=MODERN).call("mail__send_email", MAIL)
    is_replay(is_complete(again))
    is_equal(again["content"][0], first["content"][0])
    is_equal(len(sandbox.effects()), 1, "effects")


def a_connection_stays_with_its_generation(sandbox):
    agent = both(sandbox, version=MODERN)
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    agent.say({"jsonrpc": "2.0", "id": "late", "method": "initialize", "params": about})
    error = agent.wait("late").get("error", {})
    is_equal((error.get("code"), error.get("data", {}).get("supported")), (-32022, [MODERN]))
    assert agent.request("server/discover")["result"]
    other = both(sandbox)
    is_equal(other.wait(other.start("tools/list", {"_meta": ENVELOPE})).get("error", {}).get("code"), -32600)
    newer = {"io.modelcontextprotocol/protocolVersion": "2027-01-01"}
    is_equal(agent.wait(agent.start("tools/list", {"_meta": newer})).get("error", {}).get("code"), -32022)


def who_listens_hears_news_of_all_of_them(sandbox):
    agent = both(sandbox, version=MODERN, chat={"SPEAKS": "legacy"})
    wants = {"toolsListChanged": True, "promptsListChanged": True}
    agent.start("subscriptions/listen", {"notifications": wants}, identity="listen:0")
    begun = agent.wait_until(lambda: agent.messages("notifications/subscriptions/acknowledged"), "the beginning")
    # No server here announces changes of prompts.
    is_equal([one["params"]["notifications"] for one in begun], [{"toolsListChanged": True}])
    news = lambda: agent.messages("notifications/tools/list_changed")  # noqa: E731
    agent.request("tools/list")
    agent.request("fixture/change")
    agent.wait_until(lambda: len(news()) == 1, "the first news")
    agent.call("mail__crash_after", {"n": 1})
    until(lambda: agent.request("fixture/change") and len(news()) >= 2, "the news of the other")
    ids = {one["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] for one in news()}
    is_equal(ids, {"listen:0"})
    is_equal(agent.answers_to("listen:0"), [], "ends of the listening")
    is_equal(len(agent.messages("notifications/subscriptions/acknowledged")), 1, "beginnings")
    agent.notify("notifications/cancelled", {"requestId": "listen:0"})
    heard = len(news())
    agent.request("fixture/change")
    agent.request("tools/list")
    is_equal(len(news()), heard, "news after the end")


def a_client_with_initialize_hears_news_of_the_other_generation(sandbox):
    agent = both(sandbox, mail={"SPEAKS": "modern"}, chat={"SPEAKS": "modern"})
    until(lambda: agent.request("fixture/change") and agent.messages("notifications/tools/list_changed"), "the news")
    is_equal(agent.messages("notifications/tools/list_changed")[0].get("params", {}).get("_meta"), None)
    is_equal(agent.messages("notifications/subscriptions/acknowledged"), [])


def a_server_asks_in_its_own_generation_only(sandbox):
    agent = both(sandbox, version=MODERN, chat={"SPEAKS": "legacy"})
    asked = agent.call("mail__ask", {"what": "go"})
    is_equal(asked["resultType"], "input_required")
    more = {"inputResponses": {"sure": {"action": "accept"}}, "requestState": asked["requestState"]}
    is_fresh(is_complete(agent.call("mail__ask", {"what": "go"}, **more)))
    refused = is_complete(agent.call("chat__sample", {"prompt": "?"}))
    assert "null" in refused["content"][0]["text"], refused
    is_equal(agent.messages("sampling/createMessage"), [])
    older = both(sandbox, mail={"SPEAKS": "modern"})
    is_equal(older.wait(older.start_call("mail__ask", {"what": "else"})).get("error", {}).get("code"), -32021)
    is_equal(len(sandbox.effects("ask")), 1, "effects")


# Returns, after the effect, a kind of result that only the newest protocol version has.
KINDS = """
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    method, result = asked["method"], {"resultType": "complete"}
    if method == "server/discover":
        result |= {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    elif method == "tools/list":
        result |= {"tools": [{"name": "act", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        print("act", file=open(os.environ["ACTED"], "a"))
        result = {"resultType": os.environ["KIND"]}
        result |= {"taskId": "t", "status": "working"} if os.environ["KIND"] == "task" else {"content": []}
    elif method == "tasks/get":
        is_over = os.path.exists(os.environ["ACTED"] + ".over")
        result |= {"taskId": "t", "status": "completed" if is_over else "working", "pollIntervalMs": 100}
        result |= {"result": {"content": [{"type": "text", "text": "done"}]}} if is_over else {}
    else:
        result = None
    answer = {"result": result} if result else {"error": {"code": -32601, "message": "no such method"}}
    if "id" in asked and method != "subscriptions/listen":
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"]} | answer), flush=True)
"""


def acting(sandbox, kind):
    """A client of an older protocol version with such a server, and the file that counts its effects."""
    acted = sandbox.folder / kind
    own = {"KIND": kind, "ACTED": str(acted)}
    return sandbox.open(gateway(sandbox, mail=own, servers=([sys.executable, "-c", KINDS], SERVER))), acted


def work_that_goes_on_as_a_task_is_followed_for_a_client_that_cannot(sandbox):
    agent, acted = acting(sandbox, "task")
    for _ in range(3):
        error = agent.wait(agent.start_call("mail__act", {"x": 1})).get("error", {})
        assert error.get("code") == -32603 and "make exactly the same call again later" in error["message"], error
    (sandbox.folder / "task.over").write_text("")
    again = until(lambda: agent.wait(agent.start_call("mail__act", {"x": 1})).get("result"), "the end of the task")
    is_replay(again)
    is_equal(again["content"][0]["text"], "done")
    is_equal(acted.read_text(), "act\n", "effects")


def an_unknown_kind_of_result_leaves_a_doubt(sandbox):
    agent, acted = acting(sandbox, "partial")
    first = agent.wait(agent.start_call("mail__act", {"x": 1})).get("error", {})
    assert first.get("code") == -32603 and "failed, but it may have taken effect" in first["message"], first
    assert "make the same call again and it will run" in first["message"], first
    # After the notice, the client may run the call once more.
    assert "error" in agent.wait(agent.start_call("mail__act", {"x": 1}))
    is_equal(acted.read_text(), "act\n" * 2, "effects")


def a_server_that_does_not_read_does_not_block_the_others(sandbox):
    agent = both(sandbox)
    agent.request("tools/list")
    # The gateway asks servers in the order of their names, so this one gets the request.
    agent.start("fixture/deaf")
    until(lambda: any(b"fixture/deaf" in line for line in sandbox.received(agent)), "one that does not read")
    for _ in range(40):
        agent.start_call("chat__read_inbox", {"much": "x" * 10000})
    is_fresh(agent.call("mail__send_email", MAIL, timeout=5))
    is_fresh(agent.call("mail__read_inbox", timeout=5))


def guarded_calls_to_a_server_that_does_not_read_are_limited(sandbox):
    agent = both(sandbox)
    agent.request("tools/list")
    agent.start("fixture/deaf")
    until(lambda: any(b"fixture/deaf" in line for line in sandbox.received(agent)), "one that does not read")
    calls = [agent.start_call("chat__send_email", MAIL | {"n": n, "much": "x" * 100_000}) for n in range(120)]
    # 8 MiB may wait; the others are refused at once, and nothing of them is recorded or sent.
    refusal = agent.wait(calls[-1])["error"]["message"]
    assert "does not read; nothing was sent" in refusal, refusal
    assert not agent.answers_to(calls[0]), "it waits for the server"
    is_fresh(agent.call("mail__send_email", MAIL, timeout=5))


def sdk(name):
    """A server made with an official SDK."""
    python, missing = install.python(name)
    if missing:
        raise Skipped(missing)
    return [str(python), str(HERE / "sdk_server.py")]


def a_real_client_works_with_real_servers(sandbox, client):
    """One server supports both protocol generations and stays with the first one that it sees; the other supports one."""
    command = gateway(sandbox, servers=[sdk("mcp2"), sdk("mcp1")])
    calls = [call(f"{server}__send_email", MAIL) for server in ("mail", "chat")]
    steps = [{"version": True}, {"tools": True}, *calls, *calls, call("mail__list_sent"), call("onceward_status")]
    steps += [{"question": "list_prompts"}, {"question": "get_prompt", "with": ["chat__greet"]}]
    steps += [{"question": "read_resource", "with": ["memo://7"]}]
    version, tools, *called, prompts, prompt, memo = play(sandbox, client, steps, command)
    is_equal(version, MODERN if client == "mcp2" else "2025-11-25", "version")
    is_bridged = "chat does not speak the client's version" in sandbox.errors()
    is_equal(is_bridged, version == MODERN, "a server that speaks another way")
    assert {"mail__send_email", "chat__send_email"} <= {tool["name"] for tool in tools}, tools
    results = [outcome.get("result") or outcome for outcome in called]
    for first, again in zip(results[:2], results[2:4], strict=True):
        is_fresh(first)
        is_replay(again, first)
    is_fresh(results[4])
    is_equal(sorted(one["name"] for one in prompts["prompts"]), ["chat__greet", "mail__greet"])
    assert "Greet them." in json.dumps(prompt) and "memo 7" in json.dumps(memo), (prompt, memo)
    is_equal(len(sandbox.effects()), 2, "effects")


def the_newest_sdk_works_with_real_servers_of_both_generations(sandbox):
    a_real_client_works_with_real_servers(sandbox, "mcp2")


def the_newest_sdk_works_with_initialize_too(sandbox):
    a_real_client_works_with_real_servers(sandbox, "mcp2-legacy")


CHECKS = all_of(globals())

if __name__ == "__main__":
    sys.exit(checks.run(CHECKS, checks.arguments_of(__doc__)))
