"""A scripted model, and a bank that counts what it charges."""

import asyncio
import itertools
import logging
from dataclasses import dataclass, field

import pytest
from agents import Agent, RunConfig, Runner, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call

import onceward

set_tracing_disabled(True)
# The SDK logs the errors that the tests make.
logging.getLogger("openai.agents").setLevel(logging.CRITICAL)

CHARGE = {"invoice": "inv-7", "cents": 1999, "memo": "thanks"}
PAYMENT = {"operation": "charge", "key": ["invoice"], "match": ["cents"], "tier": "payment"}
numbers = itertools.count(1)


def call(name="charge", id=None, **arguments):
    given = (CHARGE if name == "charge" else {}) | arguments
    return function_call(name, given, call_id=id or f"call-{next(numbers)}")


def agent(script, tools=(), **options):
    steps = [*([one] if not isinstance(one, list) else one for one in script), [assistant_message("done")]]
    return Agent("billing", model=ScriptedModel(steps), tools=list(tools), **options)


def outputs(result):
    """What the model was told, in order."""
    return [item.output for item in result.new_items if item.type == "tool_call_output_item"]


def run(script, *tools, group=None, context=None, **options):
    """Runs an agent, and returns what the model was told."""
    made, config = agent(script, tools, **options), RunConfig(group_id=group)
    return outputs(asyncio.run(Runner.run(made, "Pay it.", context=context, run_config=config)))


@dataclass
class Bank:
    """A provider that counts what it charges."""

    charged: list = field(default_factory=list)
    keys: list = field(default_factory=list)
    delay: float = 0.0
    # Raised after the effect, so that the answer is lost.
    fails: list = field(default_factory=list)

    async def charge(self, invoice: str, cents: int, memo: str) -> str:
        """Charges an invoice."""
        self.charged.append((invoice, cents))
        try:
            self.keys.append(onceward.claim().downstream_key)
        except onceward.InvalidCall:
            self.keys.append(None)
        await asyncio.sleep(self.delay)
        if self.fails:
            raise self.fails.pop(0)
        return f"receipt {len(self.charged)}"


@pytest.fixture
def bank():
    return Bank()


@pytest.fixture
def ledger(tmp_path):
    with onceward.Ledger(tmp_path / "ledger.db") as opened:
        yield opened
