#!/usr/bin/env python3
"""A crew whose model drifts: it charges, "forgets", and charges again with another memo (crewAI#5802). One charge.

crewAI installs a gigabyte, so this is not a part of the test command: `just crewai`.
"""

import os
import pathlib
import tempfile

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}
folder = tempfile.mkdtemp()
os.environ["CREWAI_STORAGE_DIR"] = folder
os.chdir(folder)

from crewai import Agent, Crew, Task  # noqa: E402
from crewai.llms.base_llm import BaseLLM  # noqa: E402
from crewai.tools import tool  # noqa: E402

import onceward  # noqa: E402

ledger = onceward.Ledger("crew.db")
charges: list[tuple[str, int, str]] = []


@ledger.once(operation="charge", key=["invoice"], match=["cents"], tier="payment")
def charge_once(invoice: str, cents: int, memo: str) -> str:
    charges.append((invoice, cents, memo))
    return f"receipt {len(charges)} for {invoice}"


@tool("charge")
def charge(invoice: str, cents: int, memo: str) -> str:
    """Charges an invoice."""
    try:
        return charge_once(invoice, cents, memo)
    except onceward.Error as error:
        return error.for_model()


class Scripted(BaseLLM):
    """A model that says what it is told, one line for each call."""

    lines: list[str] = []
    heard: list[str] = []

    def call(self, messages, *_args, **_more):
        self.heard.append(str(messages))
        return self.lines.pop(0)

    def supports_function_calling(self):
        return False

    def get_context_window_size(self):
        return 100_000


def action(memo: str, cents: int = 1999) -> str:
    arguments = f'{{"invoice": "i-7", "cents": {cents}, "memo": "{memo}"}}'
    return f"Thought: charge\nAction: charge\nAction Input: {arguments}"


def main() -> None:
    said = [action("Thanks!"), action("Thank you."), action("Thanks again", 2999), "Thought: done\nFinal Answer: charged"]
    model = Scripted(model="scripted", lines=said)
    agent = Agent(role="clerk", goal="charge", backstory="careful", llm=model, tools=[charge], cache=False)
    task = Task(description="Charge invoice i-7", expected_output="a word", agent=agent)
    Crew(agents=[agent], tasks=[task]).kickoff()
    assert [charge[:2] for charge in charges] == [("i-7", 1999)], charges
    assert model.heard[-1].count("receipt 1 for i-7") >= 2, "the repeat got the receipt"
    assert "other details" in model.heard[-1], "the other amount was refused"
    print(f"1 charge, {ledger.stats()['replayed']} replayed, 1 refused, in {pathlib.Path(folder).name}")


if __name__ == "__main__":
    main()
