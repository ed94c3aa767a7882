#!/usr/bin/env python3
"""Forwards everything between a client and a server and records it as a conversation.

tests/mcp/record_conversation.py tests/mcp/conversations/NAME.jsonl -- COMMAND …
"""

import json
import subprocess
import sys
import threading


def main():
    split = sys.argv.index("--")
    file = open(sys.argv[split - 1], "w")
    server = subprocess.Popen(sys.argv[split + 1 :], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    writing = threading.Lock()

    def pass_on(who, reads, writes):
        for line in reads:
            with writing:
                file.write(json.dumps({"from": who, "line": line.decode().rstrip("\n")}, ensure_ascii=False) + "\n")
                file.flush()
            writes.write(line)
            writes.flush()

    threading.Thread(target=pass_on, args=("server", server.stdout, sys.stdout.buffer), daemon=True).start()
    pass_on("client", sys.stdin.buffer, server.stdin)
    server.stdin.close()
    server.wait()


if __name__ == "__main__":
    main()
