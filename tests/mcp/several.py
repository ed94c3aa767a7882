#!/usr/bin/env python3
"""Several servers behind one gateway: to the client they are one, and every call happens once.

tests/mcp/several.py --binary target/debug/onceward
"""

import json
import sys
import time

import checks
from checks import all_of, is_equal, until
from judge import is_fresh, is_replay, is_state
from place import SERVER

MAIL = {"to": "ada@example.org", "subject": "Hello"}
SAMPLED = {"role": "assistant", "content": {"type": "text", "text": "yes"}, "model": "m"}


def both(place, more="", answers=None):
    """A client of two servers. They share the file that counts."""
    command = json.dumps(SERVER)
    place.configure(f"[mcp.server.mail]\ncommand = {command}\n[mcp.server.chat]\ncommand = {command}\n{more}")
    folder = place.folder
    gateway = [place.binary, "mcp", "--store", folder / "ledger.db", "--config", folder / "settings.toml"]
    return place.open(gateway, answers=answers)


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
    assert "error" in agent.wait(reading) or "result" in agent.wait(reading)
    answer = agent.wait(agent.start_call("chat__read_inbox"))
    is_equal(answer.get("error", {}).get("code"), -32000)


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


CHECKS = all_of(globals())

if __name__ == "__main__":
    sys.exit(checks.run(CHECKS, checks.arguments_of(__doc__)))
