#!/usr/bin/env python3
"""Plays steps with a real client that times out on slow calls, as `real_client.py` does, with more clients.

openai-agents times out after its default of 5 s and, with `again`, retries by itself; langchain-mcp-adapters starts a process
for every call; pydantic-ai has a time-out of 5 s.
"""

import asyncio
import contextlib

import real_client
from real_client import address, dumped


class Agents:
    """openai-agents with its default time-out."""

    attempts = 0

    def __init__(self, command, environment):
        from agents.mcp import MCPServerStdio, MCPServerStreamableHttp

        url = address(command)
        params = {"command": command[0], "args": command[1:], "env": environment}
        kind, params = (MCPServerStreamableHttp, {"url": url}) if url else (MCPServerStdio, params)
        self.client = kind(params, max_retry_attempts=self.attempts, retry_backoff_seconds_base=0.1)

    def open(self):
        return self.client

    async def call(self, name, arguments, timeout, progress):
        return dumped(await self.client.call_tool(name, arguments))


class AgentsAgain(Agents):
    attempts = 3


class Langchain:
    """langchain-mcp-adapters, used as its guide shows: every call has its own process or session."""

    def __init__(self, command, environment):
        from langchain_mcp_adapters.client import MultiServerMCPClient

        url = address(command)
        stdio = {"transport": "stdio", "command": command[0], "args": command[1:], "env": environment}
        connection = {"transport": "streamable_http", "url": url} if url else stdio
        self.client = MultiServerMCPClient({"fixture": connection})

    @contextlib.asynccontextmanager
    async def open(self):
        self.tools = {tool.name: tool for tool in await self.client.get_tools()}
        yield

    async def call(self, name, arguments, timeout, progress):
        said = await self.tools[name].ainvoke(arguments)
        return {"content": said if isinstance(said, list) else [{"type": "text", "text": said}]}


class Pydantic:
    """pydantic-ai, whose default time-out is 5 minutes."""

    def __init__(self, command, environment):
        from fastmcp.client.transports import StdioTransport
        from pydantic_ai.mcp import MCPToolset

        server = address(command) or StdioTransport(command[0], command[1:], env=environment, keep_alive=False)
        self.client = MCPToolset(server, read_timeout=5)

    def open(self):
        return self.client

    async def call(self, name, arguments, timeout, progress):
        said = await self.client.direct_call_tool(name, arguments)
        return {"content": [{"type": "text", "text": str(said)}]}


real_client.KINDS |= {
    "agents": Agents,
    "agents1": Agents,
    "agents-again": AgentsAgain,
    "agents1-again": AgentsAgain,
    "langchain": Langchain,
    "pydantic": Pydantic,
}

if __name__ == "__main__":
    asyncio.run(real_client.main())
