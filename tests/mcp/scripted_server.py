#!/usr/bin/env python3
"""A server that plays its part of a conversation and records its input unchanged.

tests/mcp/scripted_server.py NAME
"""

import json
import os
import sys

import lossless_json
from client import parsed
from conversations import C, all_of_them

# Requests of the gateway itself, answered although they are not part of the conversation.
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
    """Waits for a line. Blank lines are recorded but not waited for, because they are not messages."""
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
    """All tools of the conversation in one list, written as in the conversation."""
    results = [lossless_json.read(line).get("result") for _, line in conversation if b'"tools":[' in line]
    tools = [tool for result in results for tool in result.get("tools")]
    return lossless_json.written(lossless_json.Members([("tools", tools)])).encode()


def say(line):
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
