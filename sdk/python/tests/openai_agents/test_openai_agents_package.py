"""The guide, the example, and what is said where the framework is missing."""

import pathlib
import re
import subprocess
import sys
import types

import pytest
from conftest import call, run

import onceward

ROOT = pathlib.Path(__file__).resolve().parents[4]
EXAMPLE = ROOT / "examples" / "python" / "openai_agents_tool.py"
GUIDE = ROOT / "docs" / "guides" / "openai-agents.md"
SECONDS = 60

NOT_INSTALLED = """
import importlib.metadata, sys
sys.modules["agents"] = None
def version(name):
    raise importlib.metadata.PackageNotFoundError(name)
importlib.metadata.version = version
import onceward.openai_agents
"""
TOO_OLD = """
import agents.mcp
del agents.mcp.MCPToolMetaContext
import onceward.openai_agents
"""


def python(*words):
    command = [sys.executable, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def test_the_example_charges_each_invoice_once():
    done = python(EXAMPLE)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == ["receipt 1"] * 3
    assert lines[3] == onceward.Mismatch(operation="charge").for_model()
    assert lines[4].startswith("It is unknown whether charge took effect.")
    assert lines[5] == onceward.InDoubt(operation="charge").for_model()
    assert lines[6:] == ["charged: [('inv-7', 1999), ('inv-8', 1999)]"]


class Bank:
    def __init__(self):
        self.done = []

    async def charge(self, invoice, cents, idempotency_key):
        self.done.append((invoice, cents, idempotency_key))
        return "receipt 1"

    async def refund(self, invoice):
        self.done.append(invoice)
        raise TimeoutError("no answer")


def test_every_block_of_the_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(blocks) == 3
    # `function_tool` looks up annotations in the module of the function.
    guide = types.ModuleType("guide")
    monkeypatch.setitem(sys.modules, "guide", guide)
    guide.bank = Bank()
    for number, block in enumerate(blocks):
        exec(compile(block, f"block {number} of {GUIDE.name}", "exec"), guide.__dict__)
    assert run([call(), call(memo="again")], guide.charge) == ["receipt 1"] * 2
    assert len(guide.bank.done) == 1 and guide.bank.done[0][2]
    told = run([call("refund", invoice="inv-7"), call("refund", invoice="inv-7")], guide.refund)
    assert "try again" not in told[0]
    assert told[1] == onceward.InDoubt(operation="refund").for_model()
    assert len(guide.bank.done) == 2
    assert guide.server.tool_meta_resolver is not None
    guide.ledger.close()


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (NOT_INSTALLED, "needs openai-agents 0.8 or newer, and it is not installed: pip install 'openai-agents>=0.8'"),
        (TOO_OLD, "needs openai-agents 0.8 or newer, and 0."),
    ],
)
def test_a_missing_framework_is_named(program, text):
    done = python("-c", program)
    assert done.returncode == 1
    assert f"ImportError: onceward.openai_agents {text}" in done.stderr


def test_the_package_itself_imports_no_framework():
    done = python("-c", "import sys, onceward; print([name for name in sys.modules if name.startswith('agents')])")
    assert done.stdout.strip() == "[]", done.stderr
