"""A LangChain agent that charges each invoice once, however often its model calls the tool.

    pip install onceward langchain
    python3 langchain_agent.py

It needs no network: a script plays the model. It calls the tool twice in one turn, again with a reworded memo, and once
with another amount. Then the bank's answer to a second invoice is lost, and the agent tries again.
"""

import itertools
import pathlib
import tempfile

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool

import onceward
from onceward.langchain import OnceMiddleware, ToolRule

charged = []
number = itertools.count(1)


@tool
def charge(customer: str, invoice: str, amount: int, memo: str) -> str:
    """Charges a customer."""
    # A real bank would get this key too: onceward.claim().downstream_key
    charged.append((invoice, amount))
    if invoice == "inv-8":
        raise TimeoutError("the bank did not answer")
    return f"receipt {len(charged)}"


class ScriptedModel(GenericFakeChatModel):
    """Plays a model that loses track of what it did."""

    def bind_tools(self, tools, **options):
        return self


def calls(*arguments):
    common = {"customer": "c7", "invoice": "inv-7", "amount": 1999, "memo": "Thanks"}
    made = [{"name": "charge", "args": common | one, "id": f"call-{next(number)}"} for one in arguments]
    return AIMessage("", tool_calls=made)


SCRIPT = [
    calls({}, {}),
    calls({"memo": "Thank you!"}),
    calls({"amount": 999}),
    calls({"invoice": "inv-8"}),
    calls({"invoice": "inv-8"}),
    AIMessage("Done."),
]


def main():
    with tempfile.TemporaryDirectory() as folder, onceward.Ledger(pathlib.Path(folder) / "onceward.db") as ledger:
        rules: dict[str, ToolRule] = {
            "charge": {"key": ["customer", "invoice"], "match": ["amount"], "tier": "payment"}
        }
        guard = OnceMiddleware(ledger, rules, tools=[charge])
        model = ScriptedModel(messages=iter(SCRIPT))
        agent = create_agent(model, [charge], middleware=[guard])
        conversation = {"messages": [{"role": "user", "content": "Pay invoices 7 and 8."}]}
        while True:
            try:
                for step in agent.stream(conversation, stream_mode="updates"):
                    for update in step.values():
                        report(update["messages"])
                break
            except TimeoutError as error:
                print(f"The run failed: {error}. It starts again.")
    print("charged:", charged)


def report(messages):
    for message in messages:
        if isinstance(message, ToolMessage):
            print(f"{message.status}: {message.content}")


if __name__ == "__main__":
    main()
