"""A folder in which the example agent works: its ledger, its outbox, and what it says."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

from checks import until

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "agent"

# Settings of the machine that would reach the agent: its user's own, ours, and proxies between it and the fake model.
OTHERS = ("ANTHROPIC", "CLAUDE", "MCP", "ONCEWARD")

# A gateway that is none: what comes behind `--` is started as it is.
NO_GATEWAY = '#!/bin/sh\nwhile [ "$1" != "--" ]; do shift; done\nshift\nexec "$@"\n'


# A gateway before a server that has something before it.
TYPED = """#!{python}
import os, sys
at = sys.argv.index("--") + 1
os.execv("{binary}", ["{binary}", *sys.argv[1:at], sys.executable, "{typed}", *sys.argv[at:]])
"""


class Office:
    def __init__(self, binary, python, clock):
        self.binary, self.python, self.clock = binary, python, clock
        self.own = tempfile.TemporaryDirectory(prefix="onceward-agent-", ignore_cleanup_errors=True)
        self.folder = pathlib.Path(self.own.name)
        self.agents = []
        self.config = None

    def without_gateway(self):
        self.binary = self.folder / "no-gateway"
        self.binary.write_text(NO_GATEWAY)
        self.binary.chmod(0o700)

    def with_typed_mail(self):
        """The mail server promises structured results."""
        typed = pathlib.Path(__file__).resolve().parent / "typed_mail.py"
        before = self.folder / "typed-gateway"
        before.write_text(TYPED.format(python=sys.executable, binary=str(self.binary), typed=str(typed)))
        before.chmod(0o700)
        self.binary = before

    def configure(self, text):
        """What the agent names to its gateway, instead of the example's own."""
        self.config = self.folder / "own.toml"
        self.config.write_text(text)

    def start(self, model, run, delay=0):
        """The agent, as the leader of a group of processes."""
        with (self.folder / "said").open("w") as said, (self.folder / "errors").open("a") as errors:
            agent = subprocess.Popen(
                [self.python, EXAMPLE / "agent.py", run],
                env=self.environment(model, delay),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=errors,
                start_new_session=True,
            )
        self.agents.append(agent)
        return agent

    def work(self, model, run):
        """The agent from its start to its end. What it says."""
        agent = self.start(model, run)
        code = agent.wait(self.clock.left())
        assert code == 0, f"the agent ended with {code}"
        return (self.folder / "said").read_text().strip()

    def environment(self, model, delay):
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(OTHERS) and not name.lower().endswith("_proxy")
        }
        named = {"ONCEWARD_CONFIG": str(self.config)} if self.config else {}
        return inherited | named | {
            "ANTHROPIC_API_KEY": "not-a-key",
            "ANTHROPIC_BASE_URL": model.url,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CONFIG_DIR": str(self.folder / "claude"),
            "DELAY": str(delay),
            "DISABLE_AUTOUPDATER": "1",
            # Otherwise the model has to search for tools before it sees any.
            "ENABLE_TOOL_SEARCH": "false",
            "HOME": str(self.folder),
            "MCP_TIMEOUT": "60000",
            "ONCEWARD": str(self.binary),
            "ONCEWARD_STORE": str(self.folder / "ledger.db"),
            "OUTBOX": str(self.folder / "outbox"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def sent(self):
        """What has gone out."""
        try:
            return [json.loads(line) for line in (self.folder / "outbox").read_text().splitlines()]
        except OSError:
            return []

    def begun(self, model, run):
        """An agent whose mail has gone out, and who will not hear of it for a while."""
        agent = self.start(model, run, delay=4)
        until(self.sent, "the mail", self.clock.left())
        return agent

    def kill_agent(self, agent):
        """The agent and its loop are gone at once. What they have started is not asked."""
        loops = children_of(agent.pid)
        assert loops, "the loop is a process of its own"
        for loop in loops:
            os.kill(loop, signal.SIGKILL)
        agent.kill()
        agent.wait(self.clock.left())

    def kill_all(self, agent):
        """The whole group is gone at once, and the gateway with it."""
        os.killpg(agent.pid, signal.SIGKILL)
        agent.wait(self.clock.left())

    def errors(self):
        try:
            return (self.folder / "errors").read_text(errors="replace")[-4000:]
        except OSError:
            return ""

    def leave(self):
        for agent in self.agents:
            try:
                os.killpg(agent.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass  # all of them have ended
            agent.wait()
        self.own.cleanup()


def children_of(process):
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [line.split() for line in listed.splitlines()]
    return [int(pid) for pid, parent in pairs if int(parent) == process]
