#!/usr/bin/env python3
"""Checks that docs/guides/n8n.md shows what the binary really does.

    python3 tests/docs/n8n.py --binary target/debug/onceward

It starts every server of the guide, runs every console example in one shell, and compares the output. The ports differ
from those in the guide.
"""

import argparse
import difflib
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "n8n.md"
# The ports in the guide.
PORTS = ("9000", "8080", "8787")
# Servers start within a second, and the slowest example takes three; a busy machine may take many times longer.
START_S = 30
TIMEOUT_S = 60
# The first version with --json.
CURL = (7, 82)
# Separates the outputs of the examples in the output of the shell.
END = "--- end of the example ---"


class Guide:
    """The blocks of the guide, with other ports."""

    def __init__(self, text):
        self.ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self.text = re.sub(rf":({'|'.join(PORTS)})\b|(?<=upstream.py )9000", self.replaced, text)

    def replaced(self, match):
        port = match.group().lstrip(":")
        return match.group().replace(port, str(self.ports[port]))

    def blocks(self, language):
        """The blocks in one language. Those in lists are indented."""
        found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", self.text, re.MULTILINE | re.DOTALL)
        return [textwrap.dedent(block) for _, block in found]

    def commands(self):
        """The commands that start servers."""
        return [shlex.split(line) for block in self.blocks("sh") for line in block.splitlines()]

    def examples(self):
        """The commands of the console blocks, each with the output that follows it."""
        found = []
        for line in "".join(self.blocks("console")).splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
        return found


class Servers:
    """The running servers of the guide."""

    def __init__(self, folder, environment):
        self.folder, self.environment, self.running = folder, environment, []

    def start(self, command, ports):
        """Starts a server, and returns what is wrong if it does not listen on its ports."""
        with open(self.folder / f"log-{len(self.running)}", "w+") as log:
            options = {"cwd": self.folder, "env": self.environment, "stdin": subprocess.DEVNULL}
            process = subprocess.Popen(command, stdout=log, stderr=log, **options)
            self.running.append(process)
            deadline = time.monotonic() + START_S
            while not all(listens(port) for port in ports):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    return f"it does not listen on {ports}\n{log.read()}"
                time.sleep(0.05)
        return None

    def stop(self):
        for process in self.running:
            process.terminate()
        for process in self.running:
            try:
                process.wait(START_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.running = []


def has_curl():
    try:
        said = subprocess.run(["curl", "--version"], capture_output=True, text=True, timeout=START_S).stdout
    except OSError:
        return False
    found = re.match(r"curl (\d+)\.(\d+)", said)
    return bool(found) and tuple(map(int, found.groups())) >= CURL


def free_ports(count):
    """Ports that were free a moment ago."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def listens(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def environment(folder):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ONCEWARD_")}
    # A proxy in the environment must not come between curl and this machine.
    return {**clean, "PATH": f"{folder}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8", "NO_PROXY": "*", "no_proxy": "*"}


def outputs(commands, folder):
    """Runs commands in one shell and returns the lines that each of them prints."""
    script = "".join(f"{command}\necho; echo '{END}'\n" for command in commands)
    run = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment(folder), stdin=subprocess.DEVNULL, timeout=TIMEOUT_S,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    parts = run.stdout.split(f"{END}\n")[: len(commands)]
    # An answer without a newline at its end is one line too.
    return [[line for line in part.splitlines() if line] for part in parts]


def check_examples(guide, servers, folder):
    commands = [command for command in guide.commands() if "--config" not in command]
    yield "the guide starts three servers", None if len(commands) == len(PORTS) else f"{commands}"
    for command, port in zip(commands, guide.ports.values(), strict=False):
        problem = servers.start(command, [port])
        yield " ".join(command), problem
        if problem:
            return
    examples = guide.examples()
    yield "the guide has console examples", None if len(examples) > 10 else f"{len(examples)} were found"
    found = outputs([command for command, _ in examples], folder)
    found += [["it was not run"]] * (len(examples) - len(found))
    for (command, expected), lines in zip(examples, found, strict=True):
        difference = "\n".join(difflib.unified_diff(expected, lines, GUIDE.name, "output", lineterm=""))
        yield f"$ {command}", difference or None


def check_configuration(guide, servers, folder):
    """The file of the guide serves the gateway and the API together."""
    (file,) = guide.blocks("toml")
    (folder / "onceward.toml").write_text(file)
    (command,) = [command for command in guide.commands() if "--config" in command]
    upstream = next(command for command in guide.commands() if command[0] == "python3")
    api, gateway, http_api = guide.ports.values()
    for server, ports in ((upstream, [api]), (command, [gateway, http_api])):
        problem = servers.start(server, ports)
        yield " ".join(server), problem
        if problem:
            return
    retried = f"curl -s localhost:{gateway}/v1/charges -H 'Idempotency-Key: charge-1' --json '{{\"amount\": 1}}'"
    begun = f"curl -s localhost:{http_api}/v1/begin --json '{{\"operation\": \"welcome_mail\", \"key\": \"k\"}}'"
    first, again, begin = outputs([retried, retried, begun], folder)
    same = first == again == ['{"id": "ch_1", "amount": 1}']
    yield "the configured gateway replays a charge", None if same else f"{first} {again}"
    yield "the configured API grants a claim", None if '"decision":"acquired"' in begin[0] else f"{begin}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, required=True)
    binary = parser.parse_args().binary.resolve()
    if not has_curl():
        print(f"SKIPPED: curl {'.'.join(map(str, CURL))} or newer is not installed\n0 passed, 0 failed, 1 skipped")
        return 0
    passed = failed = 0
    for check in (check_examples, check_configuration):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "onceward").symlink_to(binary)
            (folder / "examples").symlink_to(ROOT / "examples")
            servers = Servers(folder, environment(folder))
            try:
                for example, problem in check(Guide(GUIDE.read_text(encoding="utf-8")), servers, folder):
                    passed += problem is None
                    failed += problem is not None
                    if problem is not None:
                        print(f"FAILED: {example}\n{problem}")
            finally:
                servers.stop()
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
