"""Wraps the example's mail server and gives its sending tool an output schema.

tests/mcp/typed_mail.py COMMAND...
"""

import json
import subprocess
import sys
import threading

RECEIPT = {"type": "object", "properties": {"receipt": {"type": "string"}}, "required": ["receipt"], "additionalProperties": False}


def typed(message):
    result = message.get("result") or {}
    for tool in result.get("tools", []):
        if tool["name"] == "send_email":
            tool["outputSchema"] = RECEIPT
    if any(one["text"].startswith("Sent to") for one in result.get("content", [])):
        result["structuredContent"] = {"receipt": "r-1"}
    return message


def pass_on(server):
    for line in sys.stdin.buffer:
        server.stdin.write(line)
        server.stdin.flush()
    server.stdin.close()


with subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
    threading.Thread(target=pass_on, args=(server,), daemon=True).start()
    for line in server.stdout:
        print(json.dumps(typed(json.loads(line))), flush=True)
