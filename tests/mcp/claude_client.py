#!/usr/bin/env python3
"""One prompt for the Claude Agent SDK, with one MCP server; what it is given stands as JSON on standard input.

It runs in the environment `claude` of install.py, and talks to a model that is not one.
"""

import asyncio
import json
import sys


async def main():
    from claude_agent_sdk import ClaudeAgentOptions, query

    plan = json.load(sys.stdin)
    command, *arguments = plan["command"]
    server = {"type": "stdio", "command": command, "args": arguments, "env": plan["environment"]}
    options = ClaudeAgentOptions(
        mcp_servers={"mail": server},
        strict_mcp_config=True,
        allowed_tools=["mcp__mail__*", *(f"mcp__mail__{name}" for name in plan["tools"])],
        max_turns=10,
        setting_sources=[],
        cwd=plan["folder"],
        env={
            "ANTHROPIC_BASE_URL": plan["model"],
            "ANTHROPIC_API_KEY": "local-fake",
            "CLAUDE_CONFIG_DIR": f"{plan['folder']}/claude",
            "ENABLE_TOOL_SEARCH": "false",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "IS_SANDBOX": "1",
        },
    )
    said = [str(message) async for message in query(prompt="Send it.", options=options)]
    print(json.dumps(said))


if __name__ == "__main__":
    asyncio.run(main())
