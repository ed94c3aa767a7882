#!/usr/bin/env python3
"""Queued tools: real gateways record calls, and real couriers call the tools of a server that counts.

tests/mcp/queued_tools.py --binary target/debug/onceward
"""

import json
import os
import re
import signal
import subprocess
import sys

import checks
from checks import all_of, is_equal, until
from client import IDENTITY
from results import about, is_fresh, is_state
from sandbox import HERE, SERVER, without_settings

MAIL = {"to": "ada@example.org", "subject": "Hello"}
INVOICE = {"customer": "c-1", "invoice": "i-1", "amount": 10}
STATUS = "onceward_status"
COMMAND = f"[mcp.server.fixture]\ncommand = {json.dumps(SERVER)}\n"


def queued(*tools, command=COMMAND, **more):
    """A configuration with these queued tools; further settings apply to each of them."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in more.items()]
    settings = "\n".join(['deliver = "queue"', *lines])
    return command + "".join(f"[mcp.server.fixture.tool.{tool}]\n{settings}\n" for tool in tools)


class Courier:
    """A courier, or a server, with the same ledger and configuration as the gateways of a sandbox."""

    def __init__(self, sandbox, *words, environment=None):
        self.received = sandbox.folder / f"received-courier-{os.urandom(4).hex()}"
        command = [sandbox.binary, *words, "--store", sandbox.folder / "ledger.db"]
        command += ["--config", sandbox.folder / "settings.toml"]
        whole = without_settings() | sandbox.environment() | {"RECEIVED_FILE": str(self.received)} | (environment or {})
        self.process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=open(sandbox.folder / "errors", "ab"),
            env=whole,
            cwd=sandbox.folder,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(checks.TIMEOUT)

    def kill(self):
        self.process.kill()
        self.process.wait(checks.TIMEOUT)

    def heard(self):
        """The messages that the courier's server has got."""
        return [json.loads(line) for line in self.received.read_bytes().splitlines()]


def courier(sandbox, **more):
    return Courier(sandbox, "courier", **more)


def deliver_now(sandbox, **more):
    """Delivers what is due, and waits for that."""
    with Courier(sandbox, "courier", "--until-idle", **more) as once:
        is_equal(once.process.wait(3 * checks.TIMEOUT), 0, "exit code of the courier")
    return once


def command(sandbox, *words):
    words = [sandbox.binary, *words, "--store", sandbox.folder / "ledger.db"]
    done = run(sandbox, words)
    assert done.returncode == 0, done
    return done.stdout


def run(sandbox, words):
    """Runs a command that ends by itself."""
    environment = without_settings() | sandbox.environment()
    options = {"env": environment, "cwd": sandbox.folder, "stdin": subprocess.DEVNULL, "timeout": checks.TIMEOUT}
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)


def is_answer(result, answer, state):
    """An answer of the gateway about a queued call: a sentence, the same as JSON, and a value."""
    own, value = about(result), result["structuredContent"]
    is_equal((own.get("result"), own.get("state")), (answer, state), f"of {result}")
    is_equal((value["result"], value["state"], value["key"]), (answer, state, own["key"]), "the value")
    sentence, as_json = (block["text"] for block in result["content"][:2])
    assert len(sentence.split()) > 8, sentence
    is_equal(json.loads(as_json), {name: member for name, member in value.items() if name != "outcome"}, "the JSON")
    return value


def status(agent, tool, arguments):
    return agent.call(STATUS, {"tool": tool, "arguments": arguments})


def state(agent, tool, arguments):
    return status(agent, tool, arguments)["structuredContent"]["state"]


def until_state(agent, tool, arguments, wanted):
    return until(lambda: state(agent, tool, arguments) == wanted, f"{tool} is {wanted}")


def a_queued_call_is_answered_at_once_and_made_once_by_a_courier(sandbox):
    sandbox.configure(queued("send_email"))
    agent = sandbox.agent()
    first = agent.call("send_email", MAIL)
    is_answer(first, "enqueued", "queued")
    assert first["isError"] is False and STATUS in first["content"][0]["text"], first
    is_equal((sandbox.effects(), state(agent, "send_email", MAIL)), ([], "queued"), "while no courier runs")
    is_answer(agent.call("send_email", MAIL), "already_enqueued", "queued")
    deliver_now(sandbox)
    is_equal(sandbox.effects(), [{"tool": "send_email", "arguments": MAIL}], "effects")
    after = status(agent, "send_email", MAIL)
    is_equal(after["structuredContent"]["state"], "done", "the state")
    is_equal(after["structuredContent"]["outcome"]["content"][0]["text"], "send_email: done, 1 in all", "the result")
    is_equal(after["content"][1]["text"], "send_email: done, 1 in all", "the result as text")
    again = agent.call("send_email", MAIL)
    value = is_answer(again, "already_enqueued", "done")
    is_equal(value["outcome"]["content"], [{"type": "text", "text": "send_email: done, 1 in all"}], "the stored result")
    is_equal(again["content"][2:], value["outcome"]["content"], "the stored result as content")
    assert about(again)["replayed"] is True and again["isError"] is False, again
    deliver_now(sandbox)
    is_equal(len(sandbox.effects()), 1, "effects")


def ten_equal_calls_are_one_entry(sandbox):
    sandbox.configure(queued("send_email"))
    agents = [sandbox.agent() for _ in range(2)]
    with courier(sandbox), courier(sandbox):
        calls = [(agent, agent.start_call("send_email", MAIL)) for _ in range(5) for agent in agents]
        results = [agent.wait(call)["result"] for agent, call in calls]
        answers = sorted(about(result)["result"] for result in results)
        is_equal(answers, ["already_enqueued"] * 9 + ["enqueued"], "answers")
        is_equal(len({about(result)["key"] for result in results}), 1, "keys")
        until_state(agents[0], "send_email", MAIL, "done")
    is_equal(len(sandbox.effects()), 1, "effects")


def the_listed_tool_says_that_it_is_queued_and_promises_no_result(sandbox):
    sandbox.configure(queued("typed", "send_email", "task"))
    listed = {tool["name"]: tool for tool in sandbox.agent().request("tools/list")["result"]["tools"]}
    direct = {tool["name"]: tool for tool in sandbox.direct().request("tools/list")["result"]["tools"]}
    for name in ("typed", "send_email", "task"):
        tool = listed[name]
        assert "outputSchema" not in tool and "execution" not in tool, tool
        assert tool["description"].startswith(direct[name]["description"]) and "queued" in tool["description"], tool
        assert "onceward_repeat" in tool["inputSchema"]["properties"], tool
    assert "outputSchema" in direct["typed"] and "execution" in direct["task"], "the server's own list"
    is_equal(listed["charge"]["description"], direct["charge"]["description"], "a tool that is not queued")


def the_same_key_with_other_values_is_refused(sandbox):
    sandbox.configure(queued("charge", key=["/customer", "/invoice"], match=["/amount"]))
    agent = sandbox.agent()
    is_answer(agent.call("charge", INVOICE), "enqueued", "queued")
    is_answer(agent.call("charge", INVOICE | {"memo": "reworded"}), "already_enqueued", "queued")
    is_state(agent.call("charge", INVOICE | {"amount": 11}), "mismatch")
    deliver_now(sandbox)
    is_state(agent.call("charge", INVOICE | {"amount": 11}), "mismatch")
    is_equal([one["arguments"] for one in sandbox.effects()], [INVOICE], "effects")


def sessions_are_separate_and_a_repeat_on_purpose_is_a_call_of_its_own(sandbox):
    sandbox.configure(queued("send_email"))
    first, second = sandbox.agent("a"), sandbox.agent("b")
    for agent in (first, second):
        is_answer(agent.call("send_email", MAIL), "enqueued", "queued")
    again = MAIL | {"onceward_repeat": 2}
    is_state(first.call("send_email", again), "refused")
    deliver_now(sandbox)
    is_equal(len(sandbox.effects()), 2, "effects")
    is_answer(first.call("send_email", again), "enqueued", "queued")
    is_answer(first.call("send_email", again), "already_enqueued", "queued")
    deliver_now(sandbox)
    is_equal([one["arguments"] for one in sandbox.effects()], [MAIL] * 3, "effects")


def tools_that_are_not_queued_stay_as_they_are(sandbox):
    sandbox.configure(queued("send_email"))
    agent = sandbox.agent()
    is_fresh(agent.call("charge", INVOICE))
    is_equal(agent.call("read_inbox")["content"][0]["text"], "1 so far", "a tool that reads")


def a_tool_behind_a_gateway_in_front_of_several_servers_can_be_queued(sandbox):
    other = f"[mcp.server.other]\ncommand = {json.dumps(SERVER)}\n"
    sandbox.configure(queued("send_email") + other)
    words = [sandbox.binary, "mcp", "--store", sandbox.folder / "ledger.db", "--config", sandbox.folder / "settings.toml"]
    agent = sandbox.open([str(word) for word in words])
    is_answer(agent.call("fixture__send_email", MAIL), "enqueued", "queued")
    is_fresh(agent.call("other__send_email", MAIL | {"subject": "At once"}))
    deliver_now(sandbox)
    until_state(agent, "fixture__send_email", MAIL, "done")
    is_equal(sorted(one["arguments"]["subject"] for one in sandbox.effects()), ["At once", "Hello"], "effects")


def a_courier_that_is_killed_in_mid_call_leaves_a_doubt_and_no_second_effect(sandbox):
    sandbox.configure(queued("send_email"))
    agent, arguments = sandbox.agent(), MAIL | {"delay_ms": 60000}
    agent.call("send_email", arguments)
    with courier(sandbox) as first:
        until(sandbox.effects, "the effect")
        is_answer(agent.call("send_email", arguments), "already_enqueued", "running")
        first.kill()
    with courier(sandbox):
        until_state(agent, "send_email", arguments, "in_doubt")
        told = agent.call("send_email", arguments)
        is_answer(told, "already_enqueued", "in_doubt")
        assert told["isError"] is True and "onceward resolve" in told["content"][0]["text"], told
        other = MAIL | {"subject": "Another"}
        agent.call("send_email", other)
        until_state(agent, "send_email", other, "done")
    is_equal([one["arguments"] for one in sandbox.effects()], [arguments, other], "effects")
    key = about(told)["key"]
    command(sandbox, "resolve", "--operation", "mcp:fixture/send_email", "--key", key, "--happened")
    settled = agent.call("send_email", arguments)
    is_answer(settled, "already_enqueued", "done")
    assert "a person" in settled["content"][0]["text"], settled


def couriers_that_are_killed_again_and_again_call_nothing_twice(sandbox):
    sandbox.configure(queued("send_email"))
    agent = sandbox.agent()
    letters = [MAIL | {"subject": str(number), "delay_ms": 100} for number in range(40)]
    for letter in letters:
        agent.call("send_email", letter)
    for _ in range(5):
        before = len(sandbox.effects())
        with courier(sandbox) as one:
            until(lambda seen=before: len(sandbox.effects()) > seen + 2, "further effects")
            one.kill()
    deliver_now(sandbox)
    sent = [one["arguments"]["subject"] for one in sandbox.effects()]
    is_equal(len(sent), len(set(sent)), "effects")
    states = {letter["subject"]: state(agent, "send_email", letter) for letter in letters}
    is_equal(set(states.values()), {"done", "in_doubt"}, "states")
    is_equal({subject for subject, state in states.items() if state == "done"} - set(sent), set(), "done without an effect")
    # A courier that is killed has at most four calls of a tool under way.
    assert sum(state == "in_doubt" for state in states.values()) <= 5 * 4, states


def a_gateway_that_is_killed_loses_no_call(sandbox):
    sandbox.configure(queued("send_email"))
    first = sandbox.agent()
    is_answer(first.call("send_email", MAIL), "enqueued", "queued")
    first.kill()
    is_answer(sandbox.agent().call("send_email", MAIL), "already_enqueued", "queued")
    deliver_now(sandbox)
    is_equal(len(sandbox.effects()), 1, "effects")


def a_courier_that_is_killed_asks_the_probe_before_it_calls_again(sandbox):
    probe = """
[mcp.server.fixture.tool.charge.probe]
tool = "find_charge"
arguments = { invoice = "$/invoice" }
found = "/found"
after = "200ms"
"""
    sandbox.configure(queued("charge", in_doubt="probe") + probe)
    agent = sandbox.agent()
    happened, other = INVOICE | {"delay_ms": 60000}, INVOICE | {"invoice": "i-2", "before_ms": 3000}
    for arguments in (happened, other):
        agent.call("charge", arguments)
    with courier(sandbox) as first:
        until(sandbox.effects, "the effect of one")
        until(lambda: state(agent, "charge", other) == "running", "the other one runs")
        first.kill()
    with courier(sandbox):
        until_state(agent, "charge", happened, "done")
        until_state(agent, "charge", other, "done")
    is_equal(sorted(one["arguments"]["invoice"] for one in sandbox.effects()), ["i-1", "i-2"], "effects")
    found = status(agent, "charge", happened)
    assert "find_charge found it" in found["content"][1]["text"], found


def a_server_that_dies_after_the_call_was_written_leaves_a_doubt(sandbox):
    sandbox.configure(queued("crash_after", "crash_before"))
    agent = sandbox.agent()
    for tool in ("crash_after", "crash_before"):
        agent.call(tool)
        for _ in range(2):
            deliver_now(sandbox)
        told = agent.call(tool)
        is_answer(told, "already_enqueued", "in_doubt")
        assert "the server ended before it answered" in told["content"][0]["text"], told
    is_equal(len(sandbox.effects()), 1, "effects")


def a_server_that_is_gone_is_started_again_for_the_next_call(sandbox):
    sandbox.configure(queued("crash_after", "send_email"))
    agent = sandbox.agent()
    with courier(sandbox):
        agent.call("crash_after")
        until_state(agent, "crash_after", {}, "in_doubt")
        agent.call("send_email", MAIL)
        until_state(agent, "send_email", MAIL, "done")
    is_equal([one["tool"] for one in sandbox.effects()], ["crash_after", "send_email"], "effects")


def a_server_that_cannot_be_started_has_done_nothing(sandbox):
    for broken in (["/nonexistent/server"], [sys.executable, "-c", "raise SystemExit(3)"]):
        sandbox.configure(queued("send_email", command=f"[mcp.server.fixture]\ncommand = {json.dumps(broken)}\n"))
        agent, arguments = sandbox.agent(), MAIL | {"subject": broken[0]}
        agent.call("send_email", arguments)
        deliver_now(sandbox)
        told = status(agent, "send_email", arguments)["structuredContent"]
        is_equal(told["state"], "queued", "the state")
        assert "the server cannot be started" in told["means"], told
        is_equal(sandbox.effects("send_email"), [], "effects")
    sandbox.configure(queued("send_email"))
    # After several failures in a row, the courier leaves the server alone for a while.
    command(sandbox, "breakers", "--reset", "mcp:fixture")
    with courier(sandbox):
        until(lambda: len(sandbox.effects()) == 2, "both, once the server can be started")


def a_server_that_cannot_be_started_in_all_attempts_leaves_a_dead_entry(sandbox):
    sandbox.configure(queued("send_email", command='[mcp.server.fixture]\ncommand = ["/nonexistent/server"]\n'))
    agent = sandbox.agent()
    agent.call("send_email", MAIL)
    command(sandbox, "breakers", "--close", "mcp:fixture")
    with courier(sandbox):
        until(lambda: state(agent, "send_email", MAIL) == "dead", "the entry is dead", 3 * checks.TIMEOUT)
    told = agent.call("send_email", MAIL)
    is_answer(told, "already_enqueued", "dead")
    assert told["isError"] is True and "onceward requeue" in told["content"][0]["text"], told
    is_equal(sandbox.effects(), [], "effects")


def nothing_is_offered_to_the_server_and_its_questions_are_refused(sandbox):
    sandbox.configure(queued("elicit", "sample", "roots"))
    agent = sandbox.agent(answers={"elicitation/create": {"action": "accept", "content": {"name": "Ada"}}})
    for tool in ("elicit", "sample", "roots"):
        agent.call(tool, meta={"secret/token": "of the caller"})
    once = deliver_now(sandbox)
    for tool in ("elicit", "sample", "roots"):
        is_equal(state(agent, tool, {}), "done", tool)
        assert "null" in agent.call(tool)["content"][2]["text"], "the server got no answer"
    is_equal(agent.messages("elicitation/create"), [], "questions to the user")
    heard = once.heard()
    started = next(message for message in heard if message.get("method") == "initialize")
    is_equal(started["params"]["capabilities"], {}, "capabilities")
    assert started["params"]["clientInfo"] != IDENTITY, started
    refusals = [message["error"]["code"] for message in heard if "error" in message]
    is_equal(refusals, [-32601] * 3, "refusals")
    assert "of the caller" not in json.dumps(heard), "what the caller said about itself"


def a_tool_that_asks_for_input_waits_for_a_person(sandbox):
    sandbox.configure(queued("ask", in_doubt="retry"))
    agent = sandbox.agent()
    agent.call("ask", {"what": "go"})
    for _ in range(2):
        once = deliver_now(sandbox)
    assert not once.received.exists(), "the second courier had no reason to start the server"
    told = agent.call("ask", {"what": "go"})
    is_answer(told, "already_enqueued", "in_doubt")
    assert "asked for input" in told["content"][0]["text"], told
    is_equal(sandbox.effects(), [], "effects")


def a_failed_call_is_tried_again_kept_or_doubted_as_configured(sandbox):
    cases = ({}, "done", 2), ({"on_error": "keep"}, "done", 1), ({"tier": "payment"}, "in_doubt", 1)
    for settings, wanted, effects in cases:
        (sandbox.folder / "effects").unlink(missing_ok=True)
        sandbox.configure(queued("fail", **settings))
        agent, arguments = sandbox.agent(str(settings)), {"times": 1}
        agent.call("fail", arguments)
        with courier(sandbox):
            until_state(agent, "fail", arguments, wanted)
        told = agent.call("fail", arguments)
        is_answer(told, "already_enqueued", wanted)
        is_equal((len(sandbox.effects()), told["isError"]), (effects, settings != {}), f"with {settings}")


def the_key_argument_is_filled_by_the_courier(sandbox):
    properties = {"amount": {"type": "number"}, "idempotency_key": {"type": "string"}}
    sandbox.offer(pay={"description": "Pays.", "inputSchema": {"type": "object", "properties": properties}})
    sandbox.configure(queued("pay"))
    agent = sandbox.agent()
    is_answer(agent.call("pay", {"amount": 1, "idempotency_key": "made up"}), "enqueued", "queued")
    is_answer(agent.call("pay", {"amount": 1, "idempotency_key": "made up again"}), "already_enqueued", "queued")
    deliver_now(sandbox)
    [effect] = sandbox.effects()
    assert effect["arguments"]["idempotency_key"].startswith("once_"), effect


def a_retry_has_the_same_key(sandbox):
    properties = {"idempotency_key": {"type": "string"}}
    sandbox.offer(pay={"description": "Pays.", "inputSchema": {"type": "object", "properties": properties}})
    sandbox.configure(queued("pay", in_doubt="retry"))
    agent = sandbox.agent()
    arguments = {"delay_ms": 2000}
    agent.call("pay", arguments)
    with courier(sandbox) as first:
        until(sandbox.effects, "the effect")
        first.kill()
    with courier(sandbox):
        until_state(agent, "pay", arguments, "done")
    keys = [one["arguments"]["idempotency_key"] for one in sandbox.effects()]
    is_equal((len(keys), len(set(keys))), (2, 1), f"keys {keys}")


def a_server_without_a_handshake_is_called_too(sandbox):
    sandbox.more["SPEAKS"] = "modern"
    sandbox.configure(queued("send_email"))
    agent = sandbox.agent(version="2026-07-28")
    result = agent.call("send_email", MAIL)
    is_answer(result, "enqueued", "queued")
    is_equal(result["resultType"], "complete", "the kind of result")
    deliver_now(sandbox)
    is_equal(len(sandbox.effects()), 1, "effects")


def a_call_that_takes_too_long_is_in_doubt(sandbox):
    sandbox.configure(queued("send_email", deadline="500ms"))
    agent, arguments = sandbox.agent(), MAIL | {"delay_ms": 60000}
    agent.call("send_email", arguments)
    deliver_now(sandbox)
    told = status(agent, "send_email", arguments)["structuredContent"]
    is_equal(told["state"], "in_doubt", "the state")
    assert "did not answer within 500ms" in told["means"], told
    is_equal(len(sandbox.effects()), 1, "effects")


def a_server_process_of_onceward_delivers_too(sandbox):
    sandbox.configure(queued("send_email") + '[api]\nlisten = "127.0.0.1:0"\n')
    agent = sandbox.agent()
    agent.call("send_email", MAIL)
    with Courier(sandbox, "serve"):
        until_state(agent, "send_email", MAIL, "done")
    is_equal(len(sandbox.effects()), 1, "effects")


def without_a_ledger_nothing_is_queued(sandbox):
    sandbox.configure(queued("send_email"))
    (sandbox.folder / "ledger.db").write_bytes(b"no ledger at all")
    agent = sandbox.agent()
    is_state(agent.call("send_email", MAIL), "ledger_down")
    is_equal(sandbox.effects(), [], "effects")


def what_cannot_work_is_refused_at_the_start(sandbox):
    tool = '[mcp.server.fixture.tool.send_email]\ndeliver = "queue"\n'
    for text, words, reason in (
        (tool, (), "the courier calls the queued tool send_email"),
        (COMMAND + tool, ("unnamed",), "name the store"),
        ('store = "memory:"\n' + COMMAND + tool, ("unnamed",), "in memory"),
        (COMMAND + tool + 'store_down = "open"\n', (), "store_down"),
        (COMMAND + tool + "guard = false\n", (), "guard"),
        (COMMAND + tool + 'sink = "x"\n', (), "sink"),
    ):
        sandbox.configure(text)
        store = [] if words else ["--store", sandbox.folder / "ledger.db"]
        for start in (["mcp", "--server", "fixture"], ["courier", "--until-idle"]):
            done = run(sandbox, [sandbox.binary, *start, *store, "--config", sandbox.folder / "settings.toml"])
            assert done.returncode == 78 and reason in done.stderr, f"{start} with {text!r}: {done}"
    sandbox.configure(COMMAND + tool)
    here = [sandbox.binary, "mcp", "--server", "fixture", "--store", "x.db", "--config", "settings.toml"]
    for more, code, reason in (
        (("--upstream", "http://127.0.0.1:9/mcp"), 78, "over HTTP cannot have queued tools"),
        (("--here",), 64, "--here separates the calls of each folder"),
    ):
        done = run(sandbox, [*here, *more])
        assert done.returncode == code and reason in done.stderr, done


def the_guide_shows_what_the_gateway_says(sandbox):
    guide = (HERE.parents[1] / "docs/guides/queued-tools.md").read_text()
    blocks = {kind: re.findall(rf"^```{kind}\n(.*?)^```", guide, re.MULTILINE | re.DOTALL) for kind in ("toml", "text", "json")}
    before, after, recipe = blocks["toml"]
    assert 'deliver = "queue"' not in before, before
    # The courier starts no server while nothing is queued.
    sandbox.configure(after)
    deliver_now(sandbox)
    sandbox.configure(after.split("[mcp.server.mail.tool")[0] + recipe)
    deliver_now(sandbox)
    sandbox.configure(queued("send_email"))
    agent = sandbox.agent()
    said = agent.call("send_email", MAIL)["content"]
    is_equal(said[0]["text"], " ".join(blocks["text"][0].split()), "the sentence")
    deliver_now(sandbox)
    shown = [json.loads(block) for block in blocks["json"][1:]]
    is_equal(list(json.loads(said[1]["text"])), list(shown[0]), "members of the first answer")
    done = agent.call("send_email", MAIL)["structuredContent"]
    is_equal((list(done), list(done["outcome"])), (list(shown[2]), list(shown[2]["outcome"])), "members of the last answer")


CHECKS = all_of(globals())

if __name__ == "__main__":
    sys.exit(checks.run(CHECKS, checks.arguments_of(__doc__)))
