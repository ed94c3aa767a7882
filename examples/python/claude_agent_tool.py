"""A tool of the Claude Agent SDK that sends each email once, however often the model calls it.

    pip install onceward claude-agent-sdk
    python3 claude_agent_tool.py                 # plays the model: needs no network and no API key
    python3 claude_agent_tool.py --agent run-7   # the real agent

Started again under the same name of the run, the agent sends nothing twice.

Environment: ONCEWARD_STORE, the ledger; OUTBOX, the file that mail is written to.
"""

import asyncio
import json
import os
import pathlib
import sys
import tempfile

from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, TextBlock, create_sdk_mcp_server, query, tool

import onceward
from onceward.claude_agent import once

TASK = """Send one email to bob@example.com, with the subject "Invoice 17" and the body "Please pay invoice 17 by
Friday.". Then say in one sentence whether it was sent."""


def mail_tool(ledger, outbox, run):
    """The tool for one run. The name of the run is the session: the tool itself does not learn it from the SDK."""

    @once(ledger, key=["to", "subject"], session=run, tier="email")
    @tool("send_email", "Sends an email.", {"to": str, "subject": str, "body": str})
    async def send_email(args):
        # A real mail server would get this key too: onceward.claim().downstream_key
        with outbox.open("a") as mails:
            mails.write(json.dumps(args) + "\n")
        return {"content": [{"type": "text", "text": f"Sent to {args['to']}."}]}

    return send_email


async def play(ledger, outbox):
    """Calls the tool as a model does that loses track of what it did."""
    send_email = mail_tool(ledger, outbox, "run-1")
    mail = {"to": "bob@example.com", "subject": "Invoice 17", "body": "Please pay by Friday."}
    for title, args in [
        ("the first call", mail),
        ("the same call again", mail),
        ("the same email, reworded", mail | {"body": "Kindly pay by Friday."}),
    ]:
        result = await send_email.handler(args)
        print(f"{title}:", *(block["text"] for block in result["content"]))
    print("sent:", len(outbox.read_text().splitlines()))


async def work(ledger, outbox, run):
    """Gives the tool to the real agent."""
    options = ClaudeAgentOptions(
        mcp_servers={"mail": create_sdk_mcp_server("mail", tools=[mail_tool(ledger, outbox, run)])},
        strict_mcp_config=True,
        setting_sources=[],
        tools=[],
        allowed_tools=["mcp__mail"],
        max_turns=10,
    )
    async for message in query(prompt=TASK, options=options):
        if isinstance(message, AssistantMessage):
            for block in message.content:
                if isinstance(block, TextBlock):
                    print(block.text, flush=True)


def main(arguments):
    with tempfile.TemporaryDirectory() as folder:
        outbox = pathlib.Path(os.environ.get("OUTBOX", f"{folder}/outbox"))
        ledger = onceward.Ledger(os.environ.get("ONCEWARD_STORE", f"{folder}/onceward.db"))
        if arguments[:1] == ["--agent"] and len(arguments) == 2:
            asyncio.run(work(ledger, outbox, arguments[1]))
        elif not arguments:
            asyncio.run(play(ledger, outbox))
        else:
            sys.exit("usage: claude_agent_tool.py [--agent RUN], where RUN names this piece of work")
        ledger.close()


if __name__ == "__main__":
    main(sys.argv[1:])
