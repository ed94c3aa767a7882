"""The real loop of the Claude Agent SDK with its bundled program and a scripted model on this machine."""

import asyncio
import json
import os
import pathlib
import re
import subprocess
import sys
import types

import pytest
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, create_sdk_mcp_server, query, tool

import onceward
from onceward.claude_agent import once

ROOT = pathlib.Path(__file__).resolve().parents[4]
EXAMPLE = ROOT / "examples" / "python" / "claude_agent_tool.py"
GUIDE = ROOT / "docs" / "guides" / "claude-agent-sdk.md"
QUEUE_GUIDE = ROOT / "docs" / "guides" / "queued-tools.md"
sys.path.append(str(ROOT / "tests" / "mcp"))

from fake_model import FakeModel, call, say  # noqa: E402

# An agent needs three seconds of processor time; the rest is for busy machines.
LIMIT = 120

MAIL = {"to": "bob@example.com", "subject": "Invoice 17", "body": "Please pay invoice 17 by Friday."}
SEND = call("send_email", MAIL)
DONE = say("The email was sent.")
SENT = "Sent to bob@example.com."
SCHEMA = {"to": str, "subject": str, "body": str}
# Settings of Claude and Onceward, and proxies, must not reach the agent.
OTHERS = ("ANTHROPIC", "CLAUDE", "MCP", "ONCEWARD")


@pytest.fixture
def agent_environment(tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.startswith(OTHERS) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    settings = {
        "ANTHROPIC_API_KEY": "not-a-key",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CONFIG_DIR": str(tmp_path / "claude"),
        "DISABLE_AUTOUPDATER": "1",
        # Otherwise the model has to search for tools before it sees any.
        "ENABLE_TOOL_SEARCH": "false",
        "HOME": str(tmp_path),
        "MCP_TIMEOUT": "60000",
        "ONCEWARD_STORE": str(tmp_path / "ledger.db"),
        "OUTBOX": str(tmp_path / "outbox"),
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def options_with(model, send_email, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_BASE_URL", model.url)
    return ClaudeAgentOptions(
        mcp_servers={"mail": create_sdk_mcp_server("mail", tools=[send_email])},
        strict_mcp_config=True,
        setting_sources=[],
        tools=[],
        allowed_tools=["mcp__mail"],
        max_turns=10,
    )


def work(model, send_email, monkeypatch):
    """Runs the agent with one tool to its end."""
    options = options_with(model, send_email, monkeypatch)

    async def main():
        async for _ in query(prompt="Send the email.", options=options):
            pass

    asyncio.run(asyncio.wait_for(main(), LIMIT))


def mail_tool(sent, delay=0.0):
    @tool("send_email", "Sends an email.", SCHEMA)
    async def send_email(args):
        sent.append(args)
        await asyncio.sleep(delay)
        return {"content": [{"type": "text", "text": f"Sent to {args['to']}."}]}

    return send_email


def test_a_model_that_repeats_itself_sends_one_email(agent_environment, monkeypatch):
    sent = []
    reworded = call("send_email", MAIL | {"body": "Kindly pay."})
    with onceward.Ledger("memory:") as ledger, FakeModel([[SEND, SEND], [reworded], [DONE]]) as model:
        guard = once(ledger, key=["to", "subject"], session=True, tier="email")
        with onceward.session("run-1"):
            work(model, guard(mail_tool(sent, delay=0.2)), monkeypatch)
        told = model.told()
    assert len(sent) == 1
    assert [(text.splitlines()[0], is_error) for text, is_error in told] == [(SENT, False)] * 3
    assert sum("was not repeated" in text for text, _ in told) == 2


def test_without_the_guard_that_model_sends_three(agent_environment, monkeypatch):
    sent = []
    with FakeModel([[SEND, SEND], [SEND], [DONE]]) as model:
        work(model, mail_tool(sent), monkeypatch)
    assert len(sent) == 3


def test_a_model_whose_tool_call_times_out_learns_of_the_doubt(agent_environment, monkeypatch):
    sent = []
    monkeypatch.setenv("MCP_TOOL_TIMEOUT", "1000")
    with onceward.Ledger("memory:") as ledger, FakeModel([[SEND], [SEND], [DONE]]) as model:
        guard = once(ledger, key=["to", "subject"], wait=0.2)
        work(model, guard(mail_tool(sent, delay=30)), monkeypatch)
        (_, first), (text, second) = model.told()
    assert first and second, "both are errors"
    assert "unknown whether" in text or "already running" in text, text
    assert len(sent) == 1


def test_a_client_takes_the_session_of_its_connection(agent_environment, monkeypatch):
    sent = []
    with onceward.Ledger("memory:") as ledger, FakeModel([[SEND], [DONE], [SEND], [DONE]]) as model:
        send_email = once(ledger, key=["to", "subject"], session=True)(mail_tool(sent))

        async def converse(session, questions):
            with onceward.session(session):
                client = ClaudeSDKClient(options_with(model, send_email, monkeypatch))
                await client.connect()
            for _ in range(questions):
                await client.query("Send the email.")
                async for _ in client.receive_response():
                    pass
            await client.disconnect()

        asyncio.run(asyncio.wait_for(converse("run-1", 2), LIMIT))
        assert len(sent) == 1 and len(model.told()) == 2
        asyncio.run(asyncio.wait_for(converse("run-2", 1), LIMIT))
    assert len(sent) == 2


def test_the_example_started_again_under_the_same_name_sends_nothing(agent_environment, monkeypatch):
    with FakeModel([[SEND], [DONE]]) as model:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.url)
        for run in ("run-1", "run-1", "run-2"):
            done = subprocess.run(
                [sys.executable, EXAMPLE, "--agent", run], capture_output=True, text=True, check=False, timeout=LIMIT
            )
            assert (done.returncode, done.stdout.strip()) == (0, DONE["text"]), done.stderr
    mails = (agent_environment / "outbox").read_text().splitlines()
    assert [json.loads(line) for line in mails] == [MAIL] * 2, "one for each run"


def test_the_example_plays_the_model_offline(agent_environment):
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, check=False, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    first, again, reworded, sent = done.stdout.splitlines()
    assert first == f"the first call: {SENT}"
    assert "was not repeated" in again and "was not repeated" in reworded
    assert sent == "sent: 1"


class Mail:
    def __init__(self):
        self.sent = []

    async def send(self, args, idempotency_key):
        self.sent.append((args, idempotency_key))


def test_the_code_of_the_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    guide = types.ModuleType("guide")
    guide.mail = Mail()
    exec("\n".join(blocks), guide.__dict__)
    asyncio.run(guide.check())
    assert len(guide.mail.sent) == 1


class Provider(Mail):
    """Answers with the number of the email."""

    async def send(self, args, idempotency_key=None):
        await super().send(args, idempotency_key)
        return f"mail {len(self.sent)}"


def test_the_code_of_the_guide_to_queued_tools_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", QUEUE_GUIDE.read_text(), re.DOTALL)
    assert len(blocks) == 4
    guide = types.ModuleType("queue_guide")
    guide.mail = Provider()
    exec("\n".join(blocks), guide.__dict__)
    asyncio.run(guide.check())
    [(sent, key)] = guide.mail.sent
    assert sent["body"] == "Please pay." and key.startswith("once_")
