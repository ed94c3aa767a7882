#!/usr/bin/env python3
"""A server that plays its part of a conversation, and keeps what it hears as it came.

tests/mcp/player.py NAME
"""

import json
import os
import sys

from client import parsed
from conversations import C, all_of_them

# What a gateway may ask by itself, and is answered without it being part of the conversation.
OWN = "tools/list"


def main():
    conversation = all_of_them()[sys.argv[1]]
    heard = open(os.environ["RECEIVED_FILE"], "ab", buffering=0)
    tools = tools_in(conversation)
    for who, line in conversation:
        if who == C:
            hear(line, heard, tools)
        else:
            say(line)
    while line := sys.stdin.buffer.readline():
        heard.write(line)


def hear(expected, heard, tools):
    """Waits for a line. Blank ones are kept but not waited for, as they are no messages."""
    while expected.strip():
        line = sys.stdin.buffer.readline()
        message = parsed(line) or {}
        if message.get("method") == OWN and message.get("id") != (parsed(expected) or {}).get("id"):
            say(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"tools": tools}}).encode() + b"\n")
            continue
        heard.write(line)
        if line.strip() or not line:
            return


def tools_in(conversation):
    """The tools that the conversation lists."""
    results = [(parsed(line) or {}).get("result") for _, line in conversation]
    lists = [result["tools"] for result in results if isinstance(result, dict) and "tools" in result]
    return [tool for tools in lists for tool in tools]


def say(line):
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
