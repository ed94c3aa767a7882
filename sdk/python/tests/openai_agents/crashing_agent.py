"""An agent in a process of its own, with its state and its ledger in files. Each charge is a line of a file.

    crashing_agent.py FOLDER (start|resume) (guarded|unguarded) (inside|after|never)

`start` runs until a person has to approve the charge, and writes the state of the run. `resume` approves it and goes
on. The last word says where the process kills itself: inside the tool, after the charge; or after the tool, before the
run goes on. Prints what the model was told.
"""

import asyncio
import json
import os
import pathlib
import signal
import sys

from agents import RunHooks, Runner, RunState, function_tool
from conftest import PAYMENT, agent, call, outputs

import onceward
from onceward.openai_agents import once

FOLDER, STEP, GUARDED, DIES = pathlib.Path(sys.argv[1]), *sys.argv[2:]


async def charge(invoice: str, cents: int, memo: str) -> str:
    """Charges an invoice."""
    with open(FOLDER / "charges", "a") as charges:
        charges.write(f"{invoice} {cents}\n")
    if DIES == "inside":
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"


class DiesAfterTheTool(RunHooks):
    async def on_tool_end(self, context, agent, tool, result):
        if DIES == "after":
            os.kill(os.getpid(), signal.SIGKILL)


async def main():
    ledger = onceward.Ledger(FOLDER / "ledger.db")
    function = once(ledger, **PAYMENT)(charge) if GUARDED == "guarded" else charge
    tool = function_tool(function, needs_approval=True)
    if STEP == "start":
        result = await Runner.run(agent([call(id="call-a")], [tool]), "Pay it.")
        (FOLDER / "state.json").write_text(json.dumps(result.to_state().to_json()))
        return
    # The resumed process gets the model's call from the state.
    made = agent([], [tool])
    state = await RunState.from_json(made, json.loads((FOLDER / "state.json").read_text()))
    for waiting in state.get_interruptions():
        state.approve(waiting)
    print(json.dumps(outputs(await Runner.run(made, state, hooks=DiesAfterTheTool()))))


asyncio.run(main())
