#!/usr/bin/env python3
"""A server over streamable HTTP that counts its effects, made with the official SDK. It prints its address.

It runs in the environment `mcp2` of install.py. Every effect is a line in COUNT_FILE, written before the response.
"""

import asyncio
import socket

import tools
import uvicorn
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("fixture")


@server.tool()
async def send_email(to: str, subject: str = "", delay_ms: int = 0) -> str:
    """Sends an email."""
    tools.act("send_email", {"to": to, "subject": subject})
    await asyncio.sleep(delay_ms / 1000)
    return f"sent, {len(tools.acts())} in all"


@server.tool()
async def slow(delay_ms: int = 0, note: str = "") -> str:
    """Acts late."""
    await asyncio.shield(asyncio.create_task(late(delay_ms, note)))
    return "late, but done"


async def late(delay_ms, note):
    await asyncio.sleep(delay_ms / 1000)
    tools.act("slow", {"note": note})


@server.tool(annotations={"readOnlyHint": True})
def read_inbox() -> str:
    """Counts what was sent."""
    return f"{len(tools.acts())} so far"


@server.tool()
async def progress(context: Context, steps: int = 3) -> str:
    """Tells how far it is, and acts."""
    for step in range(1, steps + 1):
        await context.report_progress(step, steps)
        await asyncio.sleep(0.02)
    tools.act("progress", {})
    return f"{steps} steps"


def main():
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    settings = uvicorn.Config(server.streamable_http_app(), log_level="warning")
    asyncio.run(uvicorn.Server(settings).serve(sockets=[listener]))


if __name__ == "__main__":
    main()
