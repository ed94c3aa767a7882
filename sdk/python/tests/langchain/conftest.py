"""A scripted model, and a bank that counts what it charges."""

import asyncio
import threading
import time
from dataclasses import dataclass, field

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph

import onceward

THREAD = {"configurable": {"thread_id": "conversation-1"}}
CHARGE = {"customer": "c7", "invoice": 42, "amount": 1999, "memo": "thanks"}
RULES = {"charge": {"key": ["customer", "invoice"], "match": ["amount"], "tier": "payment"}}


class ScriptedModel(GenericFakeChatModel):
    """Says what the test wrote down, whatever it is asked."""

    def bind_tools(self, tools, **options):
        return self


def call(name="charge", id="call-1", **arguments):
    return {"name": name, "args": (CHARGE if name == "charge" else {}) | arguments, "id": id}


def turn(*calls):
    return AIMessage("", tool_calls=list(calls))


def agent(script, tools, *middleware, **options):
    model = ScriptedModel(messages=iter([*script, AIMessage("done")]))
    return create_agent(model, tools, middleware=middleware, **options)


def ask(config=THREAD):
    return {"messages": [HumanMessage("Pay invoice 42.")]}, config


def answers(state):
    """What the model was told, in order."""
    return [message for message in state["messages"] if isinstance(message, ToolMessage)]


def run(made, config=THREAD, is_async=False):
    """Asks an agent, and returns what the model was told."""
    state, config = ask(config)
    return answers(asyncio.run(made.ainvoke(state, config)) if is_async else made.invoke(state, config))


def graph_of(node):
    """A graph with a ToolNode and nothing else."""
    made = StateGraph(MessagesState).add_node("tools", node)
    return made.add_edge(START, "tools").add_edge("tools", END).compile()


@dataclass
class Bank:
    """A provider that counts what it charges."""

    charged: list = field(default_factory=list)
    keys: list = field(default_factory=list)
    delay: float = 0.0
    # Raised after the effect, so that the answer is lost.
    fails: list = field(default_factory=list)
    has_charged: threading.Event = field(default_factory=threading.Event)

    def charge(self, customer: str, invoice: int, amount: int, memo: str = "") -> dict:
        """Charges a customer."""
        self.charged.append((customer, invoice, amount))
        self.has_charged.set()
        try:
            self.keys.append(onceward.claim().downstream_key)
        except onceward.InvalidCall:
            self.keys.append(None)
        time.sleep(self.delay)
        if self.fails:
            raise self.fails.pop(0)
        return {"receipt": len(self.charged)}


@pytest.fixture
def bank():
    return Bank()


@pytest.fixture
def ledger(tmp_path):
    with onceward.Ledger(tmp_path / "ledger.db") as opened:
        yield opened
