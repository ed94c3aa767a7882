"""A tool of the OpenAI Agents SDK that charges each invoice once, however often the model calls it.

    pip install onceward openai-agents
    python3 openai_agents_tool.py

It needs no network: a script plays the model. It calls the tool twice in one response, again with a reworded memo, and
once with another amount. Then the bank's answer to a second invoice is lost, and the model tries again.
"""

import asyncio
import itertools
import logging
import pathlib
import tempfile

from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call

import onceward
from onceward.openai_agents import once

charged = []
number = itertools.count(1)


def tool_of(ledger):
    @function_tool
    @once(ledger, operation="charge", key=["invoice"], match=["cents"], tier="payment")
    async def charge(invoice: str, cents: int, memo: str) -> str:
        """Charges an invoice."""
        # A real bank would get this key too: onceward.claim().downstream_key
        charged.append((invoice, cents))
        if invoice == "inv-8":
            raise TimeoutError("the bank did not answer")
        return f"receipt {len(charged)}"

    return charge


def calls(*arguments):
    common = {"invoice": "inv-7", "cents": 1999, "memo": "Thanks"}
    return [function_call("charge", common | one, call_id=f"call-{next(number)}") for one in arguments]


SCRIPT = [
    calls({}, {}),
    calls({"memo": "Thank you!"}),
    calls({"cents": 999}),
    calls({"invoice": "inv-8"}),
    calls({"invoice": "inv-8"}),
    [assistant_message("Done.")],
]


def main():
    set_tracing_disabled(True)
    # The adapter logs what it tells the model; here it is printed.
    logging.getLogger("onceward").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder, onceward.Ledger(pathlib.Path(folder) / "onceward.db") as ledger:
        agent = Agent("billing", model=ScriptedModel(SCRIPT), tools=[tool_of(ledger)])
        result = asyncio.run(Runner.run(agent, "Pay invoices 7 and 8."))
        for item in result.new_items:
            if item.type == "tool_call_output_item":
                print(item.output)
    print("charged:", charged)


if __name__ == "__main__":
    main()
