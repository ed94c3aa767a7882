"""MCP servers of the OpenAI Agents SDK behind a real `onceward mcp`, which reads the keys that the adapter sends."""

import asyncio
import json
import os
import pathlib
import shutil
import sys

import pytest
from agents import RunConfig, RunContextWrapper, Runner
from agents.mcp import MCPServerStdio, MCPToolMetaContext
from agents.tool_context import ToolContext
from conftest import agent, call, outputs

import onceward
from onceward.openai_agents import once_meta

ROOT = pathlib.Path(__file__).resolve().parents[4]
MAIL_SERVER = ROOT / "examples" / "agent" / "mail_server.py"
BUILT = ROOT / "target" / "debug" / "onceward"
BINARY = os.environ.get("ONCEWARD") or shutil.which("onceward") or (str(BUILT) if BUILT.exists() else None)
MAIL = {"to": "bob@example.com", "subject": "Invoice 17"}
KEYS = {"send_email": ["to", "subject"]}

# A server with a tool that acts and does not reach other people: a call after the answer is a new call to the gateway.
COUNTER = """
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        server, version = {"name": "counter", "version": "1"}, message["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
    elif method == "tools/list":
        schema = {"type": "object", "properties": {"by": {"type": "integer"}}}
        result = {"tools": [{"name": "increase", "description": "", "inputSchema": schema}]}
    elif method == "tools/call":
        with open(os.environ["OUTBOX"], "a") as outbox:
            outbox.write(json.dumps(message["params"]["arguments"]) + "\\n")
        result = {"content": [{"type": "text", "text": "increased"}]}
    elif id is None:
        continue
    else:
        result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)
"""

needs_binary = pytest.mark.skipif(BINARY is None, reason="the onceward binary is not there: set ONCEWARD")


def run(folder, server, meta, *calls, group=None):
    """Runs an agent with a server behind a new gateway."""
    gateway = [BINARY, "mcp", "--store", str(folder / "ledger.db"), "--server", "test", "--", sys.executable, *server]
    variables = os.environ | {"OUTBOX": str(folder / "outbox")}
    parameters = {"command": gateway[0], "args": gateway[1:], "env": variables}

    async def connected():
        async with MCPServerStdio(parameters, tool_meta_resolver=meta, client_session_timeout_seconds=60) as connected:
            made = agent(calls, mcp_servers=[connected])
            return outputs(await Runner.run(made, "Go.", run_config=RunConfig(group_id=group)))

    told = asyncio.run(connected())
    return [one["text"] if isinstance(one, dict) else json.dumps(one) for one in told]


def group_of(call):
    return call.run_context.run_config.group_id


def effects(folder):
    return len((folder / "outbox").read_text().splitlines())


@needs_binary
@pytest.mark.parametrize(("meta", "mails"), [(None, 2), (once_meta(KEYS), 1)])
def test_a_mail_in_other_words_is_sent_once(tmp_path, meta, mails):
    for body in ("Please pay.", "Please pay soon."):
        told = run(tmp_path, [str(MAIL_SERVER)], meta, call("send_email", **MAIL, body=body))
        assert len(told) == 1
    assert effects(tmp_path) == mails


@needs_binary
def test_another_mail_is_another_key(tmp_path):
    for subject in ("Invoice 17", "Invoice 18"):
        run(tmp_path, [str(MAIL_SERVER)], once_meta(KEYS), call("send_email", **(MAIL | {"subject": subject})))
    assert effects(tmp_path) == 2


@needs_binary
@pytest.mark.parametrize(("meta", "increases"), [(None, 2), (once_meta(session=group_of, every_call=True), 1)])
def test_a_call_of_a_resumed_run_is_not_repeated(tmp_path, meta, increases):
    for _ in range(2):
        told = run(tmp_path, ["-c", COUNTER], meta, call("increase", id="call-a", by=1), group="run-7")
        assert "increased" in told[0]
    assert effects(tmp_path) == increases


@needs_binary
def test_the_next_call_of_the_same_run_is_made(tmp_path):
    meta = once_meta(session="run-7", every_call=True)
    run(tmp_path, ["-c", COUNTER], meta, call("increase", id="call-a", by=1), call("increase", id="call-b", by=1))
    assert effects(tmp_path) == 2


# What the resolver sends.


def context(tool="send_email", arguments=MAIL, id="call-1"):
    run = RunContextWrapper(None)
    if id is not None:
        run = ToolContext(context=None, tool_name=tool, tool_call_id=id, tool_arguments="{}")
    return MCPToolMetaContext(run_context=run, server_name="mail", tool_name=tool, arguments=arguments)


def test_a_key_depends_on_the_named_arguments_only():
    resolve = once_meta(KEYS)
    first = resolve(context())
    assert list(first) == ["onceward/key"]
    assert resolve(context(arguments=MAIL | {"body": "x"}, id="call-2")) == first
    assert resolve(context(arguments=MAIL | {"to": "eve@example.com"})) != first
    assert once_meta({"send_email": [f"/{name}" for name in KEYS["send_email"]]})(context()) != {}
    assert resolve(context("list_sent")) is None


@pytest.mark.parametrize("field", ["recipient", "/recipient", "/to/name", "/extra/id"])
def test_a_field_that_a_call_does_not_have_never_makes_a_key(field):
    """It would be one key for every call of the tool: all mails but the first would never be sent."""
    with pytest.raises(onceward.InvalidCall, match="was called without"):
        once_meta({"send_email": [field]})(context())


def test_a_pointer_leads_into_an_argument():
    resolve = once_meta({"send_email": ["/order/id"]})
    one, two = ({"order": {"id": number, "at": 1}} for number in (1, 2))
    assert resolve(context(arguments=one)) != resolve(context(arguments=two))
    assert resolve(context(arguments=one)) == resolve(context(arguments={"order": {"id": 1, "at": 2}}))


def test_a_key_may_be_a_function_and_a_session_too():
    keys = {"send_email": lambda call: f"mail-{call.arguments['to']}"}
    resolve = once_meta(keys, session=lambda call: call.server_name)
    assert resolve(context()) == {"onceward/session": "mail", "onceward/key": "mail-bob@example.com"}
    assert resolve(context("list_sent")) == {"onceward/session": "mail"}
    assert once_meta({"send_email": lambda call: None})(context()) is None


def test_every_call_is_named_by_its_id_in_its_session():
    one, two = once_meta(session="one", every_call=True), once_meta(session="two", every_call=True)
    assert one(context()) == one(context())
    assert one(context())["onceward/key"] != one(context(id="call-2"))["onceward/key"]
    assert one(context())["onceward/key"] != two(context())["onceward/key"]
    assert "onceward/key" not in one(context(id=None))


@pytest.mark.parametrize("arguments", [{"every_call": True}, {"keys": {"x": "to"}}, {"keys": {"x": []}}])
def test_wrong_settings_are_refused(arguments):
    with pytest.raises(onceward.InvalidCall):
        once_meta(**arguments)
