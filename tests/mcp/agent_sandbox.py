"""A folder in which the example agent works: its ledger, its outbox and its output."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

from checks import until

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "agent"

# Environment variables that must not reach the agent: settings of Claude and Onceward, and proxies.
OTHERS = ("ANTHROPIC", "CLAUDE", "MCP", "ONCEWARD")

# Stands in for the gateway and only runs the command after `--`.
NO_GATEWAY = '#!/bin/sh\nwhile [ "$1" != "--" ]; do shift; done\nshift\nexec "$@"\n'


# Starts the gateway in front of a server with a wrapper.
TYPED = """#!{python}
import os, sys
at = sys.argv.index("--") + 1
os.execv("{binary}", ["{binary}", *sys.argv[1:at], sys.executable, "{typed}", *sys.argv[at:]])
"""


class AgentSandbox:
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
        """Replaces the gateway's command line of the example."""
        self.config = self.folder / "own.toml"
        self.config.write_text(text)

    def start(self, model, run, delay=0):
        """Starts the agent as the leader of a process group."""
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
        """Runs the agent to its end. Returns its output."""
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
        }

    def sent(self):
        """The mails that were sent."""
        try:
            return [json.loads(line) for line in (self.folder / "outbox").read_text().splitlines()]
        except OSError:
            return []

    def begun(self, model, run):
        """An agent whose mail was sent and whose result is delayed."""
        agent = self.start(model, run, delay=4)
        until(self.sent, "the mail", self.clock.left())
        return agent

    def kill_agent(self, agent):
        """Kills the agent and its loop, but not the processes that they started."""
        loops = children_of(agent.pid)
        assert loops, "the loop is a process of its own"
        for loop in loops:
            os.kill(loop, signal.SIGKILL)
        agent.kill()
        agent.wait(self.clock.left())

    def kill_all(self, agent):
        """Kills the whole process group, including the gateway."""
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
