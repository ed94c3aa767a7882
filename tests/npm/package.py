#!/usr/bin/env python3
"""The npm packages: built, installed into an empty folder without Rust, and used through npx as users do.

tests/npm/package.py --binary target/debug/onceward
"""

import fcntl
import json
import os
import pathlib
import pty
import signal
import subprocess
import sys
import tarfile
import tempfile
import termios
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
# The client, the server and the sandbox are those of the MCP tests.
sys.path += [str(HERE), str(HERE.parent / "mcp")]

import checks  # noqa: E402
from checks import Skipped, is_equal, until  # noqa: E402
from installation import ROOT, Once  # noqa: E402
from sandbox import OUTWARD, SERVER  # noqa: E402

# The exit codes of `onceward` for wrong usage, another command under the same key, and a configuration error.
USAGE, MISMATCH, CONFIGURATION_ERROR = 64, 65, 78

# The whole demo takes 15 seconds on an idle machine, and six payments take less.
DEMO_SECONDS = 120

# Long enough for a second signal, which must not come.
QUIET_SECONDS = 1.0

MAIL = {"to": "ada@example.com", "subject": "Hello"}

installed = None


def the_packages_have_version_licences_and_readme(sandbox):
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    for package in installed(sandbox.binary).packages:
        with tarfile.open(package) as files:
            names = set(files.getnames())
            manifest = json.load(files.extractfile("package/package.json"))
            program = next(one for one in files.getmembers() if one.name.startswith("package/bin/onceward"))
        assert names >= {f"package/{name}" for name in ("LICENSE-APACHE", "LICENSE-MIT", "README.md")}, names
        is_equal(len(names), 5, "files in the package")
        is_equal(manifest["version"], version)
        is_equal(set(manifest.get("optionalDependencies", {}).values()) - {version}, set())
        is_equal(oct(program.mode & 0o777), oct(0o755))
        assert "scripts" not in manifest, "a package that runs scripts when it is installed"


def a_binary_of_another_version_is_not_packed(sandbox):
    other = script(sandbox, "echo onceward 0.0.1")
    command = [sys.executable, ROOT / "sdk" / "npm" / "build.py", "--out", sandbox.folder / "packages", "--binary"]
    done = installed(sandbox.binary).run([*command, other], sandbox.folder)
    assert done.returncode == 1 and "0.0.1" in done.stderr, done
    done = installed(sandbox.binary).run([*command, sandbox.binary, "--tag", "v0.0.1"], sandbox.folder)
    assert done.returncode == 1 and "the tag is v0.0.1" in done.stderr, done


def a_platform_without_a_package_in_the_release_can_be_omitted(sandbox):
    command = [sys.executable, ROOT / "sdk" / "npm" / "build.py", "--out", sandbox.folder / "packages"]
    command += ["--binary", sandbox.binary, "--omit"]
    done = installed(sandbox.binary).run([*command, "win32-x64"], sandbox.folder)
    is_equal(done.returncode, 0, done.stderr)
    with tarfile.open(done.stdout.splitlines()[1]) as files:
        listed = json.load(files.extractfile("package/package.json"))["optionalDependencies"]
    is_equal(sorted(listed), [f"@onceward/{one}" for one in ("darwin-arm64", "darwin-x64", "linux-arm64", "linux-x64")])
    done = installed(sandbox.binary).run([*command, "win32-x46"], sandbox.folder)
    assert done.returncode == 1 and "win32-x46" in done.stderr, done


def npx_prints_the_version_without_rust(sandbox):
    rust = installed(sandbox.binary).run(["sh", "-c", "command -v cargo rustc"], sandbox.folder)
    is_equal(rust.stdout, "")
    done = npx(sandbox, "--version")
    is_equal((done.returncode, done.stdout.split()[0], done.stderr), (0, "onceward", ""))


def npx_runs_a_command_once_and_replays_it(sandbox):
    command = run_arguments(sandbox, "sh", "-c", f"echo x >>{sandbox.folder}/effects; echo sent; exit 0")
    first, again = (npx(sandbox, *command) for _ in range(2))
    is_equal([(one.returncode, one.stdout) for one in (first, again)], [(0, "sent\n")] * 2)
    assert "not run again" in again.stderr, again.stderr
    is_equal((sandbox.folder / "effects").read_text(), "x\n")


def npx_runs_the_demo(sandbox):
    installation = installed(sandbox.binary)
    command = ["npx", "onceward", "demo", "--payments", "6", "--store", str(sandbox.folder / "demo.db")]
    done = subprocess.run(command, cwd=installation.complete, env=installation.environment(), capture_output=True,
                          stdin=subprocess.DEVNULL, text=True, timeout=DEMO_SECONDS, check=False)
    assert done.returncode == 0 and "charged once" in done.stdout, done


def exit_codes_are_passed_on(sandbox):
    for way in ways(sandbox.binary):
        key = f"key-{len(way)}"
        for code in (0, 7, 255):
            failing = run_arguments(sandbox, "sh", "-c", f"exit {code}", key=f"{key}-{code}")
            is_equal(launch(sandbox, failing, way).returncode, code)
        other = run_arguments(sandbox, "true", key=f"{key}-0")
        is_equal(launch(sandbox, other, way).returncode, MISMATCH)
        is_equal(launch(sandbox, ["run", "--no-such-option"], way).returncode, USAGE)
    is_equal(npx(sandbox, *run_arguments(sandbox, "sh", "-c", "exit 7", key="npx")).returncode, 7)


def stdin_and_arguments_reach_the_command_unchanged(sandbox):
    given = bytes(range(256)) * 4096
    words = ["", "a b", "$HOME", "'\"\\", "Zürich \U0001f600", "line\nbreak"]
    for number, way in enumerate(ways(sandbox.binary)):
        shell = 'for word in "$@"; do printf "%s|" "$word"; done; cat'
        command = run_arguments(sandbox, "sh", "-c", shell, "sh", *words, key=f"stdin-{number}")
        done = launch(sandbox, command, way, given=given)
        is_equal(done.stdout == "".join(f"{word}|" for word in words).encode() + given, True, done.stderr[-500:])


def a_tool_call_through_npx_happens_once(sandbox):
    sandbox.configure(OUTWARD)
    client = serve(sandbox, ["npx", "onceward"])
    results = [client.call("send_email", MAIL) for _ in range(2)]
    is_equal(results[0]["content"], results[1]["content"][:1])
    assert results[1]["_meta"]["onceward"]["replayed"], results[1]
    is_equal(client.close(), 0)
    is_equal(len(sandbox.effects()), 1)
    # An agent that starts again, because it did not get the answer.
    client = serve(sandbox, ["npx", "onceward"], session="s")
    client.start_call("send_email", MAIL | {"subject": "Again"})
    until(lambda: len(sandbox.effects()) == 2, "the effect")
    client.kill()
    client.sweep()
    client = serve(sandbox, ["npx", "onceward"], session="s")
    client.call("send_email", MAIL | {"subject": "Again"}, timeout=60)
    client.close()
    is_equal(len(sandbox.effects()), 2)


def messages_pass_byte_for_byte(sandbox):
    long = b'{"jsonrpc":"2.0","id":2,"method":"ping","params":{"x":"' + "ü".encode() * 400_000 + b'"}}\n'
    spaced = b'{"jsonrpc" : "2.0","id":\t"a\\u00fc",  "method":"ping"}\n'
    unusual = '{"jsonrpc":"2.0","id":"\u2028","method":"resources/read","params":{"uri":"memo://1","t":"\U0001f600"}}\n'
    lines, direct = [spaced, long, unusual.encode()], None
    for program, way in [([sandbox.binary], {}), *((None, way) for way in ways(sandbox.binary))]:
        client = serve(sandbox, program, way)
        for number, line in enumerate(lines):
            client.send(line)
            client.wait_until(lambda: len(client.lines) > number + 1, f"an answer to line {number}")
        is_equal(client.close(), 0)
        assert [line for line in sandbox.received(client) if line in lines] == lines, "the server received other lines"
        direct = direct or client.lines
        assert client.lines == direct, "the client received other lines than without the launcher"


def closing_stdin_ends_everything(sandbox):
    for way in ways(sandbox.binary):
        client = serve(sandbox, None, way)
        client.call("send_email", MAIL | {"subject": str(way)})
        is_equal(client.close(), 0)
        ends(client)
    client = serve(sandbox, ["npx", "onceward"])
    is_equal(client.close(), 0)
    ends(client)


def a_killed_launcher_leaves_nothing_running(sandbox):
    for way in ways(sandbox.binary):
        client = serve(sandbox, None, way)
        assert len(of_session(client)) >= 2, "a gateway and a server run"
        # The client does not close its end of the pipe.
        client.kill(signal.SIGKILL)
        assert not client.process.stdin.closed
        ends(client)


def an_ended_npx_leaves_nothing_running_after_its_client(sandbox):
    # npm does not pass these signals on.
    for sign in (signal.SIGKILL, signal.SIGTERM):
        client = serve(sandbox, ["npx", "onceward"])
        client.kill(sign)
        client.process.stdin.close()
        ends(client)


def a_signal_that_ends_a_gateway_leaves_nothing_running(sandbox):
    for way in ways(sandbox.binary):
        for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            client = serve(sandbox, None, way)
            client.process.send_signal(sign)
            client.end()
            ends(client)


def signals_reach_the_command(sandbox):
    for number, way in enumerate(ways(sandbox.binary)):
        for name in ("INT", "TERM", "HUP"):
            ready = sandbox.folder / f"ready-{number}-{name}"
            shell = f"trap 'exit 3' {name}; touch {ready}; while :; do sleep 0.05; done"
            command = run_arguments(sandbox, "sh", "-c", shell, key=f"{number}-{name}")
            process = start(sandbox, command, way)
            until(ready.exists, "the command")
            process.send_signal(getattr(signal, f"SIG{name}"))
            is_equal(process.wait(checks.TIMEOUT), 3, name)


def a_binary_that_a_signal_kills_ends_the_launcher_likewise(sandbox):
    for way in ways(sandbox.binary):
        for name in ("KILL", "TERM", "INT", "ABRT"):
            binary = script(sandbox, f"kill -{name} $$")
            is_equal(launch(sandbox, [], way | {"ONCEWARD_BINARY": binary}).returncode, -getattr(signal, f"SIG{name}"))


def one_ctrl_c_on_a_terminal_is_one_signal(sandbox):
    for number, way in enumerate(ways(sandbox.binary)):
        counted = sandbox.folder / f"interrupts-{number}"
        shell = f"trap 'echo >>{counted}' INT; trap 'exit 4' TERM; touch {counted}; while :; do sleep 0.05; done"
        process, terminal = start_on_terminal(sandbox, way | {"ONCEWARD_BINARY": script(sandbox, shell)})
        until(counted.exists, "the binary")
        os.write(terminal, b"\x03")
        until(counted.read_text, "an interrupt")
        time.sleep(QUIET_SECONDS)
        is_equal(len(counted.read_text().splitlines()), 1)
        process.send_signal(signal.SIGTERM)
        is_equal(process.wait(checks.TIMEOUT), 4)
        os.close(terminal)


def a_missing_platform_package_is_explained(sandbox):
    installation = installed(sandbox.binary)
    done = installation.run(["npx", "onceward", "demo"], installation.incomplete)
    is_equal((done.returncode, done.stdout), (CONFIGURATION_ERROR, ""))
    for text in ("is not installed", "npm install --include=optional onceward", "ONCEWARD_BINARY"):
        assert text in done.stderr, done.stderr
    done = installation.run(["npx", "onceward", "--version"], installation.incomplete, ONCEWARD_BINARY=sandbox.binary)
    is_equal((done.returncode, done.stdout.split()[0]), (0, "onceward"))


def an_unknown_platform_is_explained(sandbox):
    other = sandbox.folder / "other_platform.js"
    other.write_text("Object.defineProperty(process, 'platform', { value: 'sunos' });\n")
    done = launch(sandbox, ["demo"], {"NODE_OPTIONS": f"--require {other}"})
    is_equal(done.returncode, CONFIGURATION_ERROR)
    for text in (b"for sunos-", b"linux-arm64", b"cargo build", b"ONCEWARD_BINARY"):
        assert text in done.stderr, done.stderr


def a_wrong_override_is_explained(sandbox):
    launcher = installed(sandbox.binary).launcher
    text = sandbox.folder / "text"
    text.write_text("not a program")
    wrong = {sandbox.folder / "missing": b"does not exist", sandbox.folder: b"is not a file",
             text: b"is not executable", launcher: b"is the launcher itself"}
    for file, why in wrong.items():
        done = launch(sandbox, ["--version"], {"ONCEWARD_BINARY": str(file)})
        assert done.returncode == CONFIGURATION_ERROR and why in done.stderr, (file, done)


def ways(binary):
    return list(installed(binary).ways.values())


def npx(sandbox, *arguments):
    installation = installed(sandbox.binary)
    return installation.run(["npx", "onceward", *arguments], installation.complete)


def run_arguments(sandbox, *command, key="today"):
    return ["run", "--store", str(sandbox.folder / "ledger.db"), "--operation", "job", "--key", key, "--", *command]


def start(sandbox, arguments, way, **streams):
    """Starts the launcher without npx."""
    installation = installed(sandbox.binary)
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    options = {"env": installation.environment(**way), "cwd": sandbox.folder, "start_new_session": True}
    process = subprocess.Popen([installation.launcher, *arguments], **options, **(quiet | streams))
    sandbox.clients.append(Started(process))
    return process


class Started:
    """A process that the sandbox ends with all of its children, whether or not the check has failed."""

    def __init__(self, process):
        self.process = process

    def sweep(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(checks.TIMEOUT)


def launch(sandbox, arguments, way, given=b""):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = start(sandbox, arguments, way, **pipes)
    out, errors = process.communicate(given, checks.TIMEOUT)
    return subprocess.CompletedProcess(arguments, process.returncode, out, errors)


def start_on_terminal(sandbox, way):
    """Starts the launcher in the foreground of a new terminal. Returns the process and the end that types."""
    controlling, terminal = pty.openpty()
    become_foreground = lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # noqa: E731
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal)
    process = start(sandbox, [], way, preexec_fn=become_foreground, **streams)
    os.close(terminal)
    return process, controlling


def serve(sandbox, program=None, way=None, session=None):
    """A client of the gateway in front of the fixture server; `program` is the launcher unless another one is named."""
    installation = installed(sandbox.binary)
    command = [*(program or [installation.launcher]), *sandbox.command(session=session, behind=SERVER)[1:]]
    return sandbox.open(command, environment=installation.environment(**(way or {})), folder=installation.complete)


def of_session(client):
    """The processes of a client's session: the launcher, the gateway and the server, which start no sessions."""
    if not pathlib.Path("/proc/self/stat").exists():
        raise Skipped("processes are counted in /proc")
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(session) == client.process.pid and state != "Z":
            found.append(stat.parent.name)
    return found


def ends(client):
    until(lambda: not of_session(client), f"the end of {of_session(client)}")


def script(sandbox, text):
    file = sandbox.folder / f"script-{len(list(sandbox.folder.iterdir()))}"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return str(file)


def main():
    global installed
    arguments = checks.arguments_of(__doc__)
    with tempfile.TemporaryDirectory(prefix="onceward-npm-") as folder:
        installed = Once(folder)
        return checks.run(checks.all_of(globals()), arguments)


if __name__ == "__main__":
    sys.exit(main())
