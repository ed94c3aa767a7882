#!/usr/bin/env python3
"""A server over stdio whose tools have output schemas, made with the SDK of its environment: fastmcp, or one of the two
generations of the official SDK. All its tools have effects that reach other people."""

import pydantic
import tools

try:
    from fastmcp import FastMCP as MCPServer
except ImportError:
    try:
        from mcp.server.mcpserver import MCPServer
    except ImportError:
        from mcp.server.fastmcp import FastMCP as MCPServer

server = MCPServer("structured")


class Receipt(pydantic.BaseModel):
    """An object without further members."""

    model_config = pydantic.ConfigDict(extra="forbid")
    number: int
    note: str | None = None


@server.tool()
def send_receipt(to: str) -> Receipt:
    """Sends a receipt: an object."""
    tools.act("send_receipt", {"to": to})
    return Receipt(number=len(tools.acts()))


@server.tool()
def send_count(to: str) -> int:
    """Sends a count: a plain value, which SDKs put into an object."""
    tools.act("send_count", {"to": to})
    return len(tools.acts())


@server.tool()
def send_counts(to: str) -> dict[str, int]:
    """Sends counts: a map, whose members are not in the schema."""
    tools.act("send_counts", {"to": to})
    return {to: len(tools.acts())}


if __name__ == "__main__":
    server.run("stdio")
