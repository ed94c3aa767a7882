#!/usr/bin/env python3
"""Tests the API against its OpenAPI document. Schemathesis sends requests that the document allows and requests that it does
not; the document has to describe every response, and no request may cause a server error.

tests/http/schemathesis.py --binary target/debug/onceward [--seconds 60]
"""

import argparse
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import environment

TOKEN = "schemathesis-token-0123456789"

# One operation can be taken over, so that requests reach more than one path through begin.
CONFIG = """
store = "ledger.db"

[operation.again]
in_doubt = "retry"

[[api.token]]
tenant = "acme"
secret = "file:token"
scopes = ["use", "read", "operate"]
"""

CHECKS = ",".join([
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "positive_data_acceptance",
    "negative_data_rejection",
    "missing_required_header",
    "unsupported_method",
    "allow_header_conformance",
    "ignored_auth",
])


def send_requests(program, url, seconds, folder):
    """Runs schemathesis. Returns its exit code."""
    command = [
        program, "run", f"{url}/v1/openapi.json", "--header", f"Authorization: Bearer {TOKEN}",
        "--checks", CHECKS, "--max-time", seconds, "--seed", "7", "--generation-database", "none",
        "--suppress-health-check", "all", "--request-timeout", "90", "--no-color",
    ]  # fmt: skip
    # A folder of its own: in this one, this program would be taken for the package schemathesis.
    hooks = {"SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": str(pathlib.Path(__file__).resolve().parent / "hooks")}
    return subprocess.run(command, cwd=folder, env=environment.without_proxies() | hooks, check=False).returncode


def faults_in_log(text, code):
    """What the server's exit code and log show that must not be there."""
    lines = [line for line in text.splitlines() if "onceward::access" not in line]
    if TOKEN in text or code != 0 or any("panicked" in line for line in lines):
        return [f"the server ended with {code}, or its log has a secret or a panic in it:", *lines[-20:]]
    return []


def test(binary, program, seconds):
    """Starts a server, tests it and stops it. Returns what is wrong."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "onceward.toml").write_text(CONFIG)
        (folder / "token").write_text(TOKEN)
        with (folder / "log").open("w") as log:
            command = [binary, "serve", "--listen", "127.0.0.1:0"]
            server = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True)
            try:
                line = server.stdout.readline()
                url = re.search(r"http://\S+", line)
                code = send_requests(program, url[0], seconds, folder) if url else None
            finally:
                server.send_signal(signal.SIGTERM)
                ended = server.wait(timeout=30)
        text = (folder / "log").read_text()
    if not url:
        return [f"the server did not start: {line}{text}"]
    print(f"{text.count('onceward::access')} requests answered")
    return faults_in_log(text, ended) + ([f"schemathesis ended with {code}"] if code else [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, type=lambda path: pathlib.Path(path).resolve(), help="the onceward binary")
    parser.add_argument("--seconds", default="60", help="how long to send requests")
    arguments = parser.parse_args()
    python, missing = environment.python("schemathesis")
    if missing:
        print(f"skipped: {missing}", "0 passed, 0 failed, 1 skipped", sep="\n")
        return 0
    faults = test(arguments.binary, python.parent / "schemathesis", arguments.seconds)
    print(*faults, f"{0 if faults else 1} passed, {1 if faults else 0} failed, 0 skipped", sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
