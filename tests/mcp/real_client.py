#!/usr/bin/env python3
"""Plays steps with a real client, in the environment that has it, and prints their results as JSON.

tests/mcp/real_client.py KIND, with {"command", "environment", "steps"} as JSON on standard input. A command that is a URL
means a server over streamable HTTP. A step is a list of tools, a call, several calls at once, or any other request that the
client has a method for.
"""

import asyncio
import contextlib
import dataclasses
import datetime
import json
import sys

ANSWER = "42, says the model"
NAME = "Ada"


def dumped(result):
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)


def address(command):
    """The URL of the server, if the command is one."""
    return command[0] if command[0].startswith("http://") else None


class Mcp2:
    """The official SDK, second generation. It negotiates the protocol version, unless one is set."""

    mode = "auto"

    def __init__(self, command, environment):
        import mcp_types as types
        from mcp import Client
        from mcp.client.stdio import StdioServerParameters

        async def sample(context, params):
            content = types.TextContent(type="text", text=ANSWER)
            return types.CreateMessageResult(role="assistant", model="m", content=content)

        async def elicit(context, params):
            return types.ElicitResult(action="accept", content={"name": NAME})

        server = StdioServerParameters(command=command[0], args=command[1:], env=environment)
        server = address(command) or server
        self.client = Client(server, mode=self.mode, sampling_callback=sample, elicitation_callback=elicit)

    def open(self):
        return self.client

    async def tools(self):
        return dumped(await self.client.list_tools())["tools"]

    async def call(self, name, arguments, timeout, progress):
        return dumped(await self.client.call_tool(name, arguments, timeout, progress))


class Mcp2Legacy(Mcp2):
    mode = "legacy"


class Mcp1:
    """The official SDK, first generation."""

    def __init__(self, command, environment):
        self.command, self.environment = command, environment

    @contextlib.asynccontextmanager
    async def open(self):
        from mcp import ClientSession, StdioServerParameters, types
        from mcp.client.stdio import stdio_client
        from mcp.client.streamable_http import streamablehttp_client

        async def sample(context, params):
            content = types.TextContent(type="text", text=ANSWER)
            return types.CreateMessageResult(role="assistant", model="m", content=content)

        async def elicit(context, params):
            return types.ElicitResult(action="accept", content={"name": NAME})

        server = StdioServerParameters(command=self.command[0], args=self.command[1:], env=self.environment)
        url = address(self.command)
        async with streamablehttp_client(url) if url else stdio_client(server) as (reads, writes, *_):
            session = ClientSession(reads, writes, sampling_callback=sample, elicitation_callback=elicit)
            async with session as self.client:
                await self.client.initialize()
                yield

    async def tools(self):
        return dumped(await self.client.list_tools())["tools"]

    async def call(self, name, arguments, timeout, progress):
        timeout = datetime.timedelta(seconds=timeout) if timeout else None
        return dumped(await self.client.call_tool(name, arguments, timeout, progress))


class Fastmcp:
    def __init__(self, command, environment):
        from fastmcp import Client
        from fastmcp.client.transports import StdioTransport

        async def sample(messages, params, context):
            return ANSWER

        async def elicit(message, kind, params, context):
            return {"name": NAME}

        server = address(command) or StdioTransport(command[0], command[1:], env=environment, keep_alive=False)
        self.client = Client(server, sampling_handler=sample, elicitation_handler=elicit)

    def open(self):
        return self.client

    async def tools(self):
        return [dumped(tool) for tool in await self.client.list_tools()]

    async def call(self, name, arguments, timeout, progress):
        return dumped(await self.client.call_tool_mcp(name, arguments, timeout=timeout, progress_handler=progress))

    async def value(self, name, arguments):
        """The Python value that users of the client get."""
        value = (await self.client.call_tool(name, arguments)).data
        return dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value


class Agents:
    """openai-agents, which retries by itself."""

    def __init__(self, command, environment):
        from agents.mcp import MCPServerStdio, MCPServerStreamableHttp

        url = address(command)
        params = {"command": command[0], "args": command[1:], "env": environment}
        kind, params = (MCPServerStreamableHttp, {"url": url}) if url else (MCPServerStdio, params)
        self.client = kind(
            params, client_session_timeout_seconds=1.0, max_retry_attempts=3, retry_backoff_seconds_base=0.1
        )

    def open(self):
        return self.client

    async def tools(self):
        return [dumped(tool) for tool in await self.client.list_tools()]

    async def call(self, name, arguments, timeout, progress):
        return dumped(await self.client.call_tool(name, arguments))


KINDS = {"mcp2": Mcp2, "mcp2-legacy": Mcp2Legacy, "mcp1": Mcp1, "fastmcp": Fastmcp, "agents": Agents}


async def take(client, step):
    """The result of a step."""
    if "together" in step:
        return await asyncio.gather(*(take(client, one) for one in step["together"]))
    if "tools" in step:
        return await client.tools()
    if "value" in step:
        return await client.value(step["value"], step["arguments"])
    if "version" in step:
        return client.client.protocol_version
    if "question" in step:
        return dumped(await getattr(client.client, step["question"])(*step.get("with", [])))
    if "sleep" in step:
        return await asyncio.sleep(step["sleep"])
    told = []

    async def progress(done, total, message):
        told.append(done)

    call = client.call(step["call"], step.get("arguments") or {}, step.get("timeout"), progress)
    try:
        async with asyncio.timeout(step.get("give_up")):
            return {"result": await call, "progress": told}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "progress": told}


async def main():
    plan = json.load(sys.stdin)
    client = KINDS[sys.argv[1]](plan["command"], plan["environment"])
    async with client.open():
        outcomes = [await take(client, step) for step in plan["steps"]]
    print(json.dumps(outcomes))


if __name__ == "__main__":
    asyncio.run(main())
