"""An agent whose mail goes out once, however often the agent is started.

    pip install claude-agent-sdk
    python3 agent.py run-2026-11-16

Its mail server runs behind `onceward mcp`. The name of the run is the session: started again under the same name, after a
crash or by a scheduler, the agent gets the results of its earlier calls from the ledger.

Environment: ONCEWARD, the binary, if it is not on the path; ONCEWARD_CONFIG, another configuration than the one beside this
file; ONCEWARD_STORE, the ledger; OUTBOX, the file that mail is written to.
"""

import asyncio
import os
import pathlib
import sys

from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ResultMessage, TextBlock, query

HERE = pathlib.Path(__file__).resolve().parent

TASK = """Send one email to bob@example.com, with the subject "Invoice 17" and the body "Please pay invoice 17 by Friday.".
Then say in one sentence whether it was sent."""


def mail_server(run):
    """The command of the mail server, with the gateway in front of it."""
    config = os.environ.get("ONCEWARD_CONFIG", str(HERE / "onceward.toml"))
    gateway = [os.environ.get("ONCEWARD", "onceward"), "mcp", "--config", config, "--session", run, "--server", "mail"]
    server = [sys.executable, str(HERE / "mail_server.py")]
    command, *arguments = [*gateway, "--", *server]
    return {"type": "stdio", "command": command, "args": arguments}


async def main(run):
    options = ClaudeAgentOptions(
        mcp_servers={"mail": mail_server(run)},
        strict_mcp_config=True,
        setting_sources=[],
        tools=[],
        # All tools of the server, and `onceward_status`, which says what became of a call.
        allowed_tools=["mcp__mail"],
        max_turns=10,
    )
    fault = None
    async for message in query(prompt=TASK, options=options):
        if isinstance(message, AssistantMessage):
            for block in message.content:
                if isinstance(block, TextBlock):
                    print(block.text, flush=True)
        elif isinstance(message, ResultMessage) and message.is_error:
            fault = f"the agent gave up: {message.result or message.subtype}"
    return fault


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: agent.py RUN, where RUN names this piece of work")
    sys.exit(asyncio.run(main(sys.argv[1])))
