#!/usr/bin/env python3
"""A server over stdio that counts its effects, made with the official SDK: with the first generation, which only supports
protocol versions with `initialize`, or with the second, which supports both kinds and stays with the first one that it sees.

It runs in the environments `mcp1` and `mcp2` of install.py.
"""

import tools

try:
    from mcp.server.mcpserver import MCPServer
except ImportError:
    from mcp.server.fastmcp import FastMCP as MCPServer

server = MCPServer("fixture")


@server.tool()
def send_email(to: str, subject: str = "") -> str:
    """Sends an email."""
    tools.act("send_email", {"to": to, "subject": subject})
    return f"sent, {len(tools.acts())} in all"


@server.tool()
def list_sent() -> str:
    """Counts what was sent."""
    return f"{len(tools.acts())} so far"


@server.prompt()
def greet() -> str:
    """How to greet."""
    return "Greet them."


@server.resource("memo://{number}")
def memo(number: str) -> str:
    """A memo."""
    return f"memo {number}"


server.run("stdio")
