#!/usr/bin/env python3
"""Several servers behind one gateway: to the client they are one, and every call happens once.

tests/mcp/several.py --binary target/debug/onceward
"""

import json
import sys
import time

import checks
import install
from checks import Skipped, all_of, is_equal, until
from client import ENVELOPE, MODERN
from clients import call, play
from judge import is_fresh, is_replay, is_state
from place import HERE, SERVER

MAIL = {"to": "ada@example.org", "subject": "Hello"}
SAMPLED = {"role": "assistant", "content": {"type": "text", "text": "yes"}, "model": "m"}


def gateway(place, mail=None, chat=None, more="", servers=(SERVER, SERVER)):
    """How two servers are started, each with an environment of its own. They share the file that counts."""
    text = ""
    for name, command, own in zip(("mail", "chat"), servers, (mail, chat), strict=True):
        own = ", ".join(f"{name} = {json.dumps(value)}" for name, value in (own or {}).items())
        text += f"[mcp.server.{name}]\ncommand = {json.dumps([str(part) for part in command])}\nenv = {{ {own} }}\n"
    place.configure(text + more)
    folder = place.folder
    return [place.binary, "mcp", "--store", folder / "ledger.db", "--config", folder / "settings.toml"]


def both(place, more="", answers=None, mail=None, chat=None, **client):
    """A client of two servers."""
    return place.open(gateway(place, mail, chat, more), answers=answers, **client)


# The slowest comes first, so that the others run beside it.
def one_that_does_not_list_its_tools_holds_nobody_up_for_long(place):
    agent = both(place, chat={"SILENT_ON": "tools/list"})
    began, listing = time.monotonic(), agent.start("tools/list")
    is_fresh(agent.call("mail__send_email", MAIL, patience=3))
    names = [tool["name"] for tool in agent.wait(listing, 15)["result"]["tools"]]
    assert "mail__send_email" in names and "chat__send_email" not in names, names
    assert time.monotonic() - began < 13, "longer than it may be waited for"
    agent.request("tools/list", patience=3)
    assert "chat has not answered tools/list" in place.errors(), place.errors()


# A server with one tool, which only reads.
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


def a_tool_of_our_own_is_listed_only_where_something_is_guarded(place):
    reads = [sys.executable, "-c", READS]
    for servers, expected in (((reads, reads), 0), ((SERVER, reads), 1), ((reads, SERVER), 1)):
        agent = place.open(gateway(place, servers=servers))
        tools = [tool["name"] for tool in agent.request("tools/list")["result"]["tools"]]
        assert "mail__look" in tools or "chat__look" in tools, tools
        is_equal(tools.count("onceward_status"), expected, str(tools))
    alone = place.agent(behind=reads).request("tools/list")["result"]["tools"]
    is_equal([tool["name"] for tool in alone], ["look"], "one server")
    guarded = place.agent().request("tools/list")["result"]["tools"]
    is_equal(guarded[-1]["name"], "onceward_status", "one server that acts")


def names_say_whose_tools_and_prompts_they_are(place):
    agent = both(place)
    tools = [tool["name"] for tool in agent.request("tools/list")["result"]["tools"]]
    assert {"mail__send_email", "chat__send_email", "mail__read_inbox", "onceward_status"} <= set(tools), tools
    is_equal(len(tools), len(set(tools)), "names")
    is_equal(tools.count("onceward_status"), 1, "tools of our own")
    prompts = agent.request("prompts/list")["result"]["prompts"]
    is_equal(sorted(prompt["name"] for prompt in prompts), ["chat__greet", "mail__greet"])
    assert agent.request("prompts/get", {"name": "chat__greet"})["result"]["messages"]


def calls_of_different_servers_do_not_meet_and_repeats_do(place):
    agent = both(place)
    first = agent.call("mail__send_email", MAIL)
    is_fresh(first)
    is_fresh(agent.call("chat__send_email", MAIL))
    again = agent.call("mail__send_email", MAIL)
    is_replay(again, first)
    assert "call mail__send_email with" in again["content"][-1]["text"], again
    is_fresh(agent.call("mail__send_email", MAIL | {"onceward_repeat": 2}))
    is_equal(len(place.effects()), 3, "effects")


def a_gateway_before_one_of_them_meets_the_same_calls(place):
    first = both(place).call("mail__send_email", MAIL)
    one = place.open(place.command(server="mail"))
    is_replay(one.call("send_email", MAIL), first)


def reads_pass_by(place):
    agent = both(place)
    agent.request("tools/list")
    for _ in range(2):
        is_fresh(agent.call("mail__read_inbox"))
    assert agent.request("resources/read", {"uri": "memo://1"})["result"]["contents"]
    assert agent.request("ping")["result"] == {}


def questions_of_several_servers_find_their_answers(place):
    agent = both(place, answers={"sampling/createMessage": SAMPLED})
    calls = [agent.start_call(f"{server}__sample", {"n": number}) for server in ("mail", "chat") for number in range(3)]
    for call in calls:
        is_fresh(agent.wait(call)["result"])
    asked = [message["id"] for message in agent.messages("sampling/createMessage")]
    is_equal(len(set(asked)), 6, "questions")


def one_that_dies_takes_nobody_along(place):
    agent = both(place)
    is_state(agent.call("chat__crash_after", {"n": 1}), "in_doubt")
    is_fresh(agent.call("mail__send_email", MAIL))
    until(lambda: agent.call("chat__send_email", {"to": "x", "n": time.monotonic()}).get("isError"), "its end")
    is_equal(agent.close(), 0, "exit code")


def who_waits_for_a_server_that_ends_is_told(place):
    agent = both(place)
    agent.request("tools/list")
    reading = agent.start_call("chat__read_inbox", {"delay_ms": 3000})
    agent.call("chat__crash_after", {"n": 1})
    # It was not answered before the end, and nothing can answer it any more.
    is_equal(agent.wait(reading).get("error", {}).get("code"), -32000, "the call that was under way")
    answer = agent.wait(agent.start_call("chat__read_inbox"))
    is_equal(answer.get("error", {}).get("code"), -32000, "a call after the end")


def one_that_cannot_be_started_is_left_out(place):
    agent = both(place, '[mcp.server.none]\ncommand = ["/no/such/server"]\n')
    is_fresh(agent.call("mail__send_email", MAIL))
    assert "none" in place.errors()


def an_unknown_name_is_an_error(place):
    agent = both(place)
    for name in ("send_email", "post__send_email", "mail_send_email", ""):
        answer = agent.wait(agent.start_call(name, MAIL))
        is_equal(answer.get("error", {}).get("code"), -32602, name)
    is_equal(agent.wait(agent.start("no/such/method")).get("error", {}).get("code"), -32601)
    is_equal(place.effects(), [])


def a_cancellation_reaches_the_one_that_is_meant(place):
    agent = both(place)
    call = agent.start_call("mail__stopped", {"delay_ms": 5000})
    until(lambda: place.effects(), "the effect")
    agent.notify("notifications/cancelled", {"requestId": call, "reason": "the user pressed stop"})
    is_fresh(agent.call("chat__send_email", MAIL))
    is_state(agent.call("mail__stopped", {"delay_ms": 5000}, patience=40), "in_doubt")


def the_status_tool_knows_all_of_them(place):
    agent = both(place)
    agent.call("mail__send_email", MAIL)
    agent.call("chat__send_email", MAIL)
    said = json.dumps(agent.call("onceward_status"))
    assert "mail:" in said and "chat:" in said, said
    one = agent.call("onceward_status", {"tool": "mail__send_email", "arguments": MAIL})
    is_equal(one["structuredContent"]["state"], "done")
    other = agent.call("onceward_status", {"tool": "mail__send_email", "arguments": {"to": "nobody"}})
    is_equal(other["structuredContent"]["state"], "unknown_call")


def is_complete(result):
    """What the newest generation wants of every result."""
    is_equal(result.get("resultType"), "complete", str(result))
    return result


def is_listed(result):
    assert "ttlMs" in result and "cacheScope" in result, result
    return is_complete(result)


def a_client_of_the_newest_generation_works_with_all_of_them(place):
    agent = both(place, begun=False, version=MODERN)
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
    is_equal(len(place.effects()), 2, "effects")
    is_equal(agent.close(), 0, "exit code")


def a_client_of_the_newest_generation_need_not_ask_who_they_are(place):
    agent = both(place, begun=False, version=MODERN, chat={"SPEAKS": "legacy"})
    calls = [agent.start_call(f"{server}__{tool}", MAIL) for server in ("mail", "chat") for tool in ("charge", "read_inbox")]
    for one in calls:
        is_fresh(is_complete(agent.wait(one)["result"]))
    is_equal(len(place.effects()), 2, "effects")


def a_client_of_either_generation_works_with_servers_of_both(place):
    for version in (MODERN, "2025-11-25"):
        agent = both(place, mail={"SPEAKS": "modern"}, chat={"SPEAKS": "legacy"}, version=version)
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
    is_equal(len(place.effects("send_email")), 4, "effects")
    assert "mail does not speak the client's" in place.errors(), place.errors()
    assert "chat does not speak the client's" in place.errors(), place.errors()


def what_one_generation_kept_is_told_in_the_other(place):
    first = both(place).call("mail__send_email", MAIL)
    again = both(place, version=MODERN).call("mail__send_email", MAIL)
    is_replay(is_complete(again))
    is_equal(again["content"][0], first["content"][0])
    is_equal(len(place.effects()), 1, "effects")


def a_connection_stays_with_its_generation(place):
    agent = both(place, version=MODERN)
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    agent.say({"jsonrpc": "2.0", "id": "late", "method": "initialize", "params": about})
    error = agent.wait("late").get("error", {})
    is_equal((error.get("code"), error.get("data", {}).get("supported")), (-32022, [MODERN]))
    assert agent.request("server/discover")["result"]
    other = both(place)
    is_equal(other.wait(other.start("tools/list", {"_meta": ENVELOPE})).get("error", {}).get("code"), -32600)
    newer = {"io.modelcontextprotocol/protocolVersion": "2027-01-01"}
    is_equal(agent.wait(agent.start("tools/list", {"_meta": newer})).get("error", {}).get("code"), -32022)


def who_listens_hears_news_of_all_of_them(place):
    agent = both(place, version=MODERN, chat={"SPEAKS": "legacy"})
    wants = {"toolsListChanged": True, "promptsListChanged": True}
    agent.start("subscriptions/listen", {"notifications": wants}, identity="listen:0")
    begun = agent.wait_until(lambda: agent.messages("notifications/subscriptions/acknowledged"), "the beginning")
    # Nobody here says that prompts change.
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


def a_client_with_initialize_hears_news_of_the_other_generation(place):
    agent = both(place, mail={"SPEAKS": "modern"}, chat={"SPEAKS": "modern"})
    until(lambda: agent.request("fixture/change") and agent.messages("notifications/tools/list_changed"), "the news")
    is_equal(agent.messages("notifications/tools/list_changed")[0].get("params", {}).get("_meta"), None)
    is_equal(agent.messages("notifications/subscriptions/acknowledged"), [])


def a_server_asks_in_its_own_generation_only(place):
    agent = both(place, version=MODERN, chat={"SPEAKS": "legacy"})
    asked = agent.call("mail__ask", {"what": "go"})
    is_equal(asked["resultType"], "input_required")
    more = {"inputResponses": {"sure": {"action": "accept"}}, "requestState": asked["requestState"]}
    is_fresh(is_complete(agent.call("mail__ask", {"what": "go"}, **more)))
    refused = is_complete(agent.call("chat__sample", {"prompt": "?"}))
    assert "null" in refused["content"][0]["text"], refused
    is_equal(agent.messages("sampling/createMessage"), [])
    older = both(place, mail={"SPEAKS": "modern"})
    is_equal(older.wait(older.start_call("mail__ask", {"what": "else"})).get("error", {}).get("code"), -32021)
    is_equal(len(place.effects("ask")), 1, "effects")


# Answers a call, after the effect, with a kind of result that only the newest generation knows.
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


def acting(place, kind):
    """A client with initialize before such a server, and the file that says how often it has acted."""
    acted = place.folder / kind
    own = {"KIND": kind, "ACTED": str(acted)}
    return place.open(gateway(place, mail=own, servers=([sys.executable, "-c", KINDS], SERVER))), acted


def work_that_goes_on_as_a_task_is_followed_for_a_client_that_cannot(place):
    agent, acted = acting(place, "task")
    for _ in range(3):
        error = agent.wait(agent.start_call("mail__act", {"x": 1})).get("error", {})
        assert error.get("code") == -32603 and "make exactly the same call again later" in error["message"], error
    (place.folder / "task.over").write_text("")
    again = until(lambda: agent.wait(agent.start_call("mail__act", {"x": 1})).get("result"), "the end of the task")
    is_replay(again)
    is_equal(again["content"][0]["text"], "done")
    is_equal(acted.read_text(), "act\n", "effects")


def a_kind_of_result_that_nobody_knows_leaves_a_doubt(place):
    agent, acted = acting(place, "partial")
    first = agent.wait(agent.start_call("mail__act", {"x": 1})).get("error", {})
    assert first.get("code") == -32603 and "may have taken effect all the same" in first["message"], first
    assert "make the same call again, and it runs" in first["message"], first
    # Told of it, the client may have it done once more.
    assert "error" in agent.wait(agent.start_call("mail__act", {"x": 1}))
    is_equal(acted.read_text(), "act\n" * 2, "effects")


def one_that_does_not_read_holds_nobody_up(place):
    agent = both(place)
    agent.request("tools/list")
    # Servers are asked in the order of their names, so this one hears it.
    agent.start("fixture/deaf")
    until(lambda: any(b"fixture/deaf" in line for line in place.received(agent)), "one that does not read")
    for _ in range(40):
        agent.start_call("chat__read_inbox", {"much": "x" * 10000})
    is_fresh(agent.call("mail__send_email", MAIL, patience=5))
    is_fresh(agent.call("mail__read_inbox", patience=5))


def sdk(name):
    """A server made with an official SDK."""
    python, missing = install.python(name)
    if missing:
        raise Skipped(missing)
    return [str(python), str(HERE / "sdk_server.py")]


def a_real_client_works_with_real_servers(place, client):
    """One of the servers knows both generations, and stays with the one that it hears first; the other knows only one."""
    command = gateway(place, servers=[sdk("mcp2"), sdk("mcp1")])
    calls = [call(f"{server}__send_email", MAIL) for server in ("mail", "chat")]
    steps = [{"version": True}, {"tools": True}, *calls, *calls, call("mail__list_sent"), call("onceward_status")]
    steps += [{"question": "list_prompts"}, {"question": "get_prompt", "with": ["chat__greet"]}]
    steps += [{"question": "read_resource", "with": ["memo://7"]}]
    version, tools, *called, prompts, prompt, memo = play(place, client, steps, command)
    is_equal(version, MODERN if client == "mcp2" else "2025-11-25", "version")
    is_bridged = "chat does not speak the client's version" in place.errors()
    is_equal(is_bridged, version == MODERN, "a server that speaks another way")
    assert {"mail__send_email", "chat__send_email"} <= {tool["name"] for tool in tools}, tools
    results = [outcome.get("result") or outcome for outcome in called]
    for first, again in zip(results[:2], results[2:4], strict=True):
        is_fresh(first)
        is_replay(again, first)
    is_fresh(results[4])
    is_equal(sorted(one["name"] for one in prompts["prompts"]), ["chat__greet", "mail__greet"])
    assert "Greet them." in json.dumps(prompt) and "memo 7" in json.dumps(memo), (prompt, memo)
    is_equal(len(place.effects()), 2, "effects")


def the_newest_sdk_works_with_real_servers_of_both_generations(place):
    a_real_client_works_with_real_servers(place, "mcp2")


def the_newest_sdk_works_with_initialize_too(place):
    a_real_client_works_with_real_servers(place, "mcp2-legacy")


CHECKS = all_of(globals())

if __name__ == "__main__":
    sys.exit(checks.run(CHECKS, checks.arguments_of(__doc__)))
