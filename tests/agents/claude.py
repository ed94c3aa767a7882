"""Claude Code, the program that comes with the Claude Agent SDK, in a folder of its own and with a scripted model."""

import os
import pathlib
import shutil
import subprocess
import sys
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "mcp"))

import install  # noqa: E402
from checks import Skipped  # noqa: E402
from fake_model import FakeModel, blocks_of, say  # noqa: E402

AGENTS = ROOT / "agents"
PLUGIN = AGENTS / "plugin"
MAIL_SERVER = ROOT / "examples" / "agent" / "mail_server.py"

# Environment variables that must not reach the program: settings of Claude and Onceward.
OTHERS = ("ANTHROPIC", "CLAUDE", "MCP", "ONCEWARD")

# The program takes two seconds of processor time; the rest is for busy machines.
TIMEOUT = 120

# Each process needs several hundred megabytes.
AT_ONCE = threading.Semaphore(3)

# What a scripted model asks of its subagent.
SUBAGENT_TASK = "Say that you have started."


class Model(FakeModel):
    """Follows its script in every conversation, whatever tools the conversation has."""

    def turn(self, request):
        if not request.get("tools"):
            # Claude Code also sends requests of its own, for example for a title.
            return [say("A conversation")]
        messages = request["messages"]
        with self.lock:
            self.asked.append(request)
            spoken = sum(message["role"] == "assistant" for message in messages)
            # A subagent only answers; otherwise it would start a subagent itself.
            is_subagent = SUBAGENT_TASK in text_of(messages[0])
            parts = self.script[spoken] if spoken < len(self.script) and not is_subagent else [say("That is all.")]
            return [self.numbered(part) for part in parts]

    def numbered(self, part):
        return part if part["type"] == "text" else part | {"id": f"toolu_{next(self.numbers):024}"}

    def tools(self):
        """The names of the tools in the last request."""
        return [tool["name"] for tool in self.asked[-1]["tools"]]

    def seen(self):
        """Every text that the model got, in any conversation, without its own turns."""
        messages = [message for request in self.asked for message in request["messages"]]
        return "\n".join(text_of(message) for message in messages if message["role"] != "assistant")


class Claude:
    """Claude Code in a project folder below a sandbox, with its own settings and its own outbox."""

    def __init__(self, sandbox):
        self.program = program()
        self.folder = sandbox.folder
        # A space in a path shows missing quotes in the plugin.
        self.project = self.folder / "the project"
        self.project.mkdir()
        programs = self.folder / "programs"
        programs.mkdir()
        (programs / "onceward").symlink_to(sandbox.binary)
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(OTHERS) and not name.lower().endswith("_proxy")
        }
        self.environment = inherited | {
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CONFIG_DIR": str(self.folder / "settings"),
            "DISABLE_AUTOUPDATER": "1",
            # Otherwise the model has to search for tools before it sees any.
            "ENABLE_TOOL_SEARCH": "false",
            "HOME": str(self.folder),
            "MCP_TIMEOUT": "60000",
            "OUTBOX": str(self.folder / "outbox"),
            "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
            "XDG_STATE_HOME": str(self.folder / "state"),
        }

    def run(self, *arguments, **more):
        """Runs the program. Returns its exit code and everything that it printed."""
        with AT_ONCE:
            done = subprocess.run(
                [self.program, *map(str, arguments)],
                env=self.environment | more,
                cwd=self.project,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                check=False,
            )
        return done.returncode, done.stdout + done.stderr

    def works(self, *arguments, **more):
        """Runs the program, which has to succeed. Returns what it printed."""
        code, printed = self.run(*arguments, **more)
        assert code == 0, f"{' '.join(map(str, arguments))} ended with {code}: {printed[-3000:]}"
        return printed

    def converse(self, prompt, script, *options):
        """Gives a prompt to a model that follows a script. Returns the model, with everything that it was sent."""
        with Model(script) as model:
            own = {"ANTHROPIC_API_KEY": "not-a-key", "ANTHROPIC_BASE_URL": model.url}
            self.works("--print", prompt, *options, **own)
        assert model.asked, "the model was not asked"
        return model

    def with_plugin(self, prompt, script, *options):
        return self.converse(prompt, script, "--plugin-dir", PLUGIN, *options)

    def outbox(self):
        """How many mails went out."""
        try:
            return len((self.folder / "outbox").read_text().splitlines())
        except OSError:
            return 0


def text_of(message):
    """The texts of a message, including those of results."""
    return "\n".join(text for block in blocks_of(message) for text in texts_of(block))


def texts_of(block):
    if block["type"] == "text":
        return [block["text"]]
    content = block.get("content") or ""
    return [content] if isinstance(content, str) else [part.get("text", "") for part in content]


def program():
    """The path of the program."""
    python, missing = install.python("claude")
    if missing:
        raise Skipped(missing)
    bundled = list(python.parent.parent.glob("lib/*/site-packages/claude_agent_sdk/_bundled/claude"))
    found = bundled[0] if bundled else shutil.which("claude")
    if not found:
        raise Skipped("the SDK came without its program")
    return str(found)
