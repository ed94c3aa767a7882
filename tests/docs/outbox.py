#!/usr/bin/env python3
"""Checks that the guides to the outbox show what the binary really does.

    python3 tests/docs/outbox.py --binary target/debug/onceward

- Every configuration in the guides to couriers, sinks and webhooks is accepted.
- The commands of the guide to couriers print what the guide shows.
- After each answer of a sink, the entry is in the state that the guide says.
"""

import argparse
import http.server
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ROOT / "docs/guides"
# Nothing here takes half of this on a busy machine.
TIMEOUT_S = 60
SECRETS = ("STRIPE_KEY", "SMTP_PASSWORD", "STRIPE_WEBHOOK_SECRET", "SHOP_WEBHOOK_SECRET")
ADDRESS = "127.0.0.1:9000"

# The first cell of a row in the table of the guide, what it says about the entry, the state in which the entry is, and answers.
ANSWERS = (
    ("2xx", "is done", "done", ("200", "201", "204")),
    ("no connection: refused, unknown host, TLS", "is tried again", "queued", ("refused",)),
    (
        "429; 503 and 529 with `Retry-After`; a status in `refusals`", "is tried again", "queued",
        ("429", "503~90", "529~90", "418"),
    ),
    ("401, 403, 407, 409, 425", "is dead", "dead", ("401", "403", "407", "409", "425")),
    ("a template fails, the address is not permitted", "is dead", "dead", ("template", "address")),
    ("any other 4xx", "is done, as a failure", "done", ("400", "402", "404", "410", "422")),
    (
        "408, 499, 500, 502, 504 and every other 5xx; 503 and 529 without `Retry-After`; a redirect", "is in doubt", "in_doubt",
        ("408", "499", "500", "501", "502", "504", "505", "520", "599", "503", "529", "302", "307"),
    ),
    ("none: a time-out, a lost connection", "is in doubt", "in_doubt", ("silent", "lost")),
)  # fmt: skip


class Provider(http.server.BaseHTTPRequestHandler):
    """Answers as the last segment of the path says: a status, `503~90` with Retry-After, `silent`, or `lost`."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        status, _, retry_after = self.path.rpartition("/")[2].partition("~")
        if status == "silent":
            self.server.stopped.wait(TIMEOUT_S)
        if not status.isdigit():
            return
        self.send_response_only(int(status))
        self.send_header("Content-Length", "0")
        if retry_after:
            self.send_header("Retry-After", retry_after)
        if status.startswith("3"):
            self.send_header("Location", "/answers/200")
        self.end_headers()

    def log_message(self, *_):
        pass


class Provided:
    """A provider, as long as the block runs."""

    def __enter__(self):
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider)
        self._server.stopped = threading.Event()
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return f"127.0.0.1:{self._server.server_address[1]}"

    def __exit__(self, *_):
        self._server.stopped.set()
        self._server.shutdown()
        self._server.server_close()


class Onceward:
    """The binary, in a folder with a configuration."""

    def __init__(self, binary, folder, configuration):
        (folder / "onceward.toml").write_text(configuration, encoding="utf-8")
        self._binary, self.folder = binary, folder
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ONCEWARD_")}
        self.environment = {**clean, **{name: f"whsec_{name}" for name in SECRETS}}

    def run(self, *arguments, text=""):
        command = [self._binary, *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, input=text, capture_output=True, text=True, timeout=TIMEOUT_S,
        )

    def starts(self):
        """What is wrong when a server starts with this configuration; nothing if it listens."""
        command = [self._binary, "serve", "--listen", "127.0.0.1:0"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, cwd=self.folder, env=self.environment, text=True, **pipes) as server:
            line = server.stdout.readline()
            server.terminate()
            return None if "listens" in line else server.stderr.read()


def guide(name):
    return (GUIDES / f"{name}.md").read_text(encoding="utf-8")


def configurations(name):
    """The examples of a guide that are whole tables, and not a part of one."""
    blocks = re.findall(r"^```toml\n(.*?)^```", guide(name), re.MULTILINE | re.DOTALL)
    return [block for block in blocks if re.search(r"^\[operation\.", block, re.MULTILINE)]


def check_configurations(binary):
    for name in ("couriers", "sinks", "webhooks"):
        found = configurations(name)
        yield f"{name}.md has configurations", None if found else "none was found"
        for number, configuration in enumerate(found, 1):
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "pin").write_text("1234", encoding="utf-8")
                problem = Onceward(binary, Path(folder), configuration).starts()
                yield f"configuration {number} of {name}.md is accepted", problem


def masked(text):
    return [" ".join(line.split()) for line in re.sub(r"\bnow\b|\b\d+s ago\b", "<age>", text).splitlines()]


def check_commands(binary):
    """The first console example of the guide to couriers."""
    example = re.search(r"^```console\n(.*?)^```", guide("couriers"), re.MULTILINE | re.DOTALL).group(1)
    shown = re.split(r"^\$ ", example, flags=re.MULTILINE)[1:]
    yield "the guide to couriers has commands", None if len(shown) > 3 else example
    provider = [sys.executable, ROOT / "examples/downstream.py", "0", "0"]
    with tempfile.TemporaryDirectory() as folder, subprocess.Popen(provider, stdout=subprocess.PIPE, text=True) as downstream:
        address = downstream.stdout.readline().strip().removeprefix("http://")
        configuration = configurations("couriers")[0]
        assert ADDRESS in configuration, f"the configuration does not name {ADDRESS}"
        onceward = Onceward(binary, Path(folder), configuration.replace(ADDRESS, address))
        (Path(folder) / "onceward").symlink_to(binary)
        onceward.environment["PATH"] = f"{folder}:{onceward.environment['PATH']}"
        for command, _, expected in (one.partition("\n") for one in shown):
            run = subprocess.run(
                command, shell=True, cwd=folder, env=onceward.environment, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            yield f"$ {command}", None if masked(run.stdout) == masked(expected) else run.stdout
        downstream.terminate()


def configuration_of_answers(address):
    """One sink for all answers, and one each for what is not an answer."""
    sink = 'type = "http"\nretry = { base = "1h", cap = "1h" }\nbreaker = { failures = 1000 }\ntimeout = "2s"\n'
    url = f'url = "http://{address}/answers/{{{{ payload.answer }}}}"\nallow_private = true\n'
    return (
        f'[operation.answer]\nsink = "answer"\n[sink.answer]\n{sink}{url}refusals = [418]\n'
        f'[operation.refused]\nsink = "refused"\n[sink.refused]\n{sink}url = "http://127.0.0.1:9/"\nallow_private = true\n'
        f'[operation.address]\nsink = "address"\n[sink.address]\n{sink}url = "http://localhost:9/"\n'
    )


def check_answers(binary):
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in guide("couriers").splitlines() if line.startswith("|")]
    states = {}
    with Provided() as address, tempfile.TemporaryDirectory() as folder:
        onceward = Onceward(binary, Path(folder), configuration_of_answers(address))
        answers = [answer for *_, several in ANSWERS for answer in several]
        lines = []
        for answer in answers:
            operation = answer if answer in ("refused", "address") else "answer"
            payload = {} if answer == "template" else {"answer": answer}
            lines.append(json.dumps({"operation": operation, "key": answer, "payload": payload}))
        onceward.run("enqueue", "--batch", text="\n".join(lines))
        onceward.run("courier", "--until-idle")
        listed = json.loads(onceward.run("list", "--limit", "1000", "--json").stdout)["intents"]
        states = {one["key"]: one["state"] for one in listed}
    for first, says, state, several in ANSWERS:
        row = next((row for row in rows if row[0] == first), None)
        right = row is not None and row[2].startswith(says)
        yield f"the guide says of {first!r} that the entry {says}", None if right else str(row)
        for answer in several:
            yield f"after {answer}, the entry is {state}", None if states.get(answer) == state else str(states.get(answer))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, required=True)
    binary = parser.parse_args().binary.resolve()
    passed = failed = 0
    for check in (check_configurations, check_commands, check_answers):
        for name, problem in check(binary):
            if problem is None:
                passed += 1
                continue
            failed += 1
            print(f"FAILED: {name}\n{problem}")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
