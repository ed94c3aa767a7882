#!/usr/bin/env python3
"""A short run of the release build, which is what users get: the demo, a command, the HTTP gateway and the MCP gateway.

tests/release/smoke.py --binary target/release/onceward
"""

import http.server
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import traceback
import urllib.request

TESTS = pathlib.Path(__file__).resolve().parents[1]
# The gateway's driver is that of the HTTP tests, everything else that of the MCP tests.
sys.path += [str(TESTS / "mcp"), str(TESTS / "http")]

import checks  # noqa: E402
from checks import is_equal  # noqa: E402
from client import Client  # noqa: E402
from gateway import Gateway  # noqa: E402
from sandbox import without_settings  # noqa: E402

# The demo takes 15 seconds on an idle machine.
DEMO_SECONDS = 120


def the_version_is_printed(binary, folder):
    printed = run([binary, "--version"], folder)
    assert printed.startswith("onceward "), printed


def no_planted_bug_is_compiled_in(binary, folder):
    # The text is that of `MARKER` in crates/onceward/src/plant.rs, where it marks binaries with planted bugs.
    source = (TESTS.parent / "crates/onceward/src/plant.rs").read_text()
    marker = "onceward: planted bugs compiled"
    assert f'b"{marker}"' in source, "the marker has changed"
    assert marker.encode() not in pathlib.Path(binary).read_bytes(), "the release build contains planted bugs"


def the_demo_shows_one_effect(binary, folder):
    printed = run([binary, "demo"], folder)
    assert "once" in printed.lower(), printed


def a_command_runs_once_and_its_output_is_replayed(binary, folder):
    command = [binary, "run", "--store", "ledger.db", "--operation", "digest", "--key", "today", "--"]
    command += ["sh", "-c", "echo x >>effects; echo sent"]
    is_equal([run(command, folder) for _ in range(2)], ["sent\n", "sent\n"])
    is_equal((folder / "effects").read_text(), "x\n")


def a_retry_through_the_gateway_gets_the_first_response(binary, folder):
    upstream = Upstream()
    with Gateway(binary, upstream.url, folder=folder) as gateway:
        first, again = (post(f"{gateway.url}/charges", "order-1") for _ in range(2))
    upstream.shutdown()
    is_equal(first, again)
    is_equal(upstream.effects, 1)


def a_repeated_tool_call_has_one_effect(binary, folder):
    server = [sys.executable, str(TESTS / "mcp" / "server.py")]
    (folder / "settings.toml").write_text('[mcp.server.fixture]\nrepeats = "outward"\n')
    command = [binary, "mcp", "--store", "ledger.db", "--server", "fixture", "--config", "settings.toml", "--", *server]
    environment = without_settings() | {"COUNT_FILE": str(folder / "effects")}
    client = Client(command, environment, folder, folder / "errors")
    client.begin()
    arguments = {"to": "ada@example.com", "subject": "Hello"}
    results = [client.call("send_email", arguments) for _ in range(2)]
    is_equal(client.close(), 0)
    is_equal(results[0]["content"], results[1]["content"][:1])
    is_equal(len((folder / "effects").read_text().splitlines()), 1)


class Upstream(http.server.ThreadingHTTPServer):
    """An API that counts how often it was called."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.effects, self.url = 0, f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.effects += 1
        body = json.dumps({"id": self.server.effects}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def post(url, key):
    headers = {"Idempotency-Key": key, "Authorization": "Bearer smoke", "Content-Type": "application/json"}
    request = urllib.request.Request(url, b'{"amount": 1}', headers)
    with urllib.request.urlopen(request, timeout=20) as response:
        return response.read()


def run(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=DEMO_SECONDS, check=False)
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


CHECKS = (
    the_version_is_printed,
    no_planted_bug_is_compiled_in,
    the_demo_shows_one_effect,
    a_command_runs_once_and_its_output_is_replayed,
    a_retry_through_the_gateway_gets_the_first_response,
    a_repeated_tool_call_has_one_effect,
)


def main():
    binary, failed = checks.arguments_of(__doc__).binary, 0
    for check in CHECKS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(binary, pathlib.Path(folder))
            except Exception:  # an exception of any kind is a failure
                failed += 1
                print(f"FAILED: {checks.name_of(check)}\n{traceback.format_exc()}")
    print(f"{len(CHECKS) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
