"""An agent of pydantic-ai that charges each invoice once, however often its model calls the tool.

    pip install onceward pydantic-ai-slim
    python3 pydantic_ai_agent.py

It needs no network: a function plays the model. It calls the tool twice in one response, again with a reworded memo,
and once with another amount.
"""

import pathlib
import tempfile

from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

import onceward
from onceward.pydantic_ai import OnceToolset, once

charged = []


def charge(invoice: str, cents: int, memo: str) -> str:
    """Charges an invoice."""
    # A real provider would get this key too: onceward.claim().downstream_key
    charged.append((invoice, cents))
    return f"receipt {len(charged)}"


def forgetful(messages, info):
    """Plays a model that loses track of what it did."""
    turn = sum(message.kind == "response" for message in messages)
    script = [
        [{"cents": 1999, "memo": "Thanks"}, {"cents": 1999, "memo": "Thanks"}],
        [{"cents": 1999, "memo": "Thank you!"}],
        [{"cents": 999, "memo": "Thanks"}],
    ]
    if turn == len(script):
        return ModelResponse(parts=[TextPart("Done.")])
    return ModelResponse(parts=[ToolCallPart("charge", {"invoice": "inv-7", **args}) for args in script[turn]])


def main():
    with tempfile.TemporaryDirectory() as folder, onceward.Ledger(pathlib.Path(folder) / "onceward.db") as ledger:
        guarded = {"charge": once(key=["invoice"], match=["cents"], tier="payment")}
        toolset = OnceToolset(FunctionToolset([charge]), ledger, guarded)
        result = Agent(FunctionModel(forgetful), toolsets=[toolset]).run_sync("Charge invoice inv-7.")
        for message in result.all_messages():
            for part in message.parts:
                if part.part_kind == "tool-return":
                    print(f"{part.outcome}: {part.content}")
    print("charged:", charged)


if __name__ == "__main__":
    main()
