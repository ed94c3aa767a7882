#!/usr/bin/env python3
"""A server that plays its part of a conversation, and keeps what it hears as it came.

tests/mcp/player.py NAME
"""

import json
import os
import sys

import lossless
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
            say(b'{"jsonrpc":"2.0","id":' + json.dumps(message["id"]).encode() + b',"result":' + tools + b"}\n")
            continue
        heard.write(line)
        if line.strip() or not line:
            return


def tools_in(conversation):
    """A whole list of the tools that the conversation lists, as they are written there."""
    results = [lossless.read(line).get("result") for _, line in conversation if b'"tools":[' in line]
    tools = [tool for result in results for tool in result.get("tools")]
    return lossless.written(lossless.Members([("tools", tools)])).encode()


def say(line):
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
