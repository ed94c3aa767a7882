"""The guide, the example, and what is said where a framework is missing."""

import pathlib
import re
import subprocess
import sys
import types
from typing import TypedDict

import pytest
from conftest import ScriptedModel, answers, ask, turn
from langchain_core.messages import AIMessage

import onceward

ROOT = pathlib.Path(__file__).resolve().parents[4]
EXAMPLE = ROOT / "examples" / "python" / "langchain_agent.py"
GUIDE = ROOT / "docs" / "guides" / "langchain.md"
SECONDS = 60

NOT_INSTALLED = """
import importlib.metadata, sys
sys.modules["langgraph"] = None
def version(name):
    raise importlib.metadata.PackageNotFoundError(name)
importlib.metadata.version = version
import onceward.langchain
"""
TOO_OLD = """
import sys, types
import langgraph.prebuilt
old = types.ModuleType("langgraph.prebuilt.tool_node")
sys.modules["langgraph.prebuilt.tool_node"] = old
import onceward.langchain
"""
# ToolNode needs no langchain.
WITHOUT_LANGCHAIN = """
import sys
sys.modules["langchain"] = None
import onceward
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from onceward.langchain import OnceMiddleware
ran = []
@tool
def charge(invoice: int) -> str:
    "Charges."
    ran.append(invoice)
    return "paid"
guard = OnceMiddleware(onceward.Ledger("memory:"), {"charge": {"key": ["invoice"]}})
node = ToolNode([charge], wrap_tool_call=guard.wrap_tool_call)
graph = StateGraph(MessagesState).add_node("tools", node).add_edge(START, "tools").compile()
for id in ("a", "b"):
    call = {"name": "charge", "args": {"invoice": 1}, "id": id}
    print(graph.invoke({"messages": [AIMessage("", tool_calls=[call])]})["messages"][-1].content, ran)
"""


def python(*words):
    command = [sys.executable, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def test_the_example_charges_each_invoice_once():
    done = python(EXAMPLE)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == ["success: receipt 1"] * 3
    assert lines[3] == f"error: {onceward.Mismatch(operation='charge').for_model()}"
    assert lines[4] == "The run failed: the bank did not answer. It starts again."
    assert lines[5] == f"error: {onceward.InDoubt(operation='charge').for_model()}"
    assert lines[6:] == ["charged: [('inv-7', 1999), ('inv-8', 1999)]"]


class Provider:
    """The bank and the warehouse of the guide."""

    def __init__(self):
        self.done = []

    def charge(self, customer, amount, idempotency_key):
        self.done.append((customer, amount, idempotency_key))
        return "receipt 1"

    def ship(self, order):
        self.done.append(order)
        return f"parcel {len(self.done)}"


class Order(TypedDict, total=False):
    order: str
    parcel: str


def test_every_block_of_the_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(blocks) == 3
    guide = types.ModuleType("guide")
    guide.bank, guide.warehouse, guide.Order = Provider(), Provider(), Order
    given = {"customer": "c7", "invoice": "inv-7", "amount": 1999, "memo": "Thanks"}
    calls = [turn({"name": "charge", "args": given, "id": id}) for id in ("a", "b")]
    guide.model = ScriptedModel(messages=iter([*calls, AIMessage("done")]))
    for number, block in enumerate(blocks):
        exec(compile(block, f"block {number} of {GUIDE.name}", "exec"), guide.__dict__)
    assert [one.content for one in answers(guide.agent.invoke(*ask()))] == ["receipt 1"] * 2
    assert len(guide.bank.done) == 1 and guide.bank.done[0][2]
    assert len(guide.warehouse.done) == 1
    again = guide.graph.invoke({"order": "o-1"}, {"configurable": {"thread_id": "1"}}, durability="sync")
    assert again["parcel"] == "parcel 2"
    guide.ledger.close()


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (NOT_INSTALLED, "needs langgraph 1.0.4 or newer, and it is not installed: pip install 'langgraph>=1.0.4'"),
        (TOO_OLD, "needs langgraph 1.0.4 or newer, and 1."),
    ],
)
def test_a_missing_framework_is_named(program, text):
    done = python("-c", program)
    assert done.returncode == 1
    assert f"ImportError: onceward.langchain {text}" in done.stderr


def test_a_tool_node_needs_no_langchain():
    done = python("-c", WITHOUT_LANGCHAIN)
    assert done.stdout.splitlines() == ["paid [1]", "paid [1]"], done.stderr


def test_the_package_itself_imports_no_framework():
    done = python("-c", "import sys, onceward; print([n for n in sys.modules if n.startswith('lang')])")
    assert done.stdout.strip() == "[]", done.stderr
