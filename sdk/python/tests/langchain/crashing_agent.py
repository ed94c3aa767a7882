"""An agent in a process of its own, with its checkpoints and its ledger in files. Each charge is a line of a file.

    crashing_agent.py FOLDER (start|resume) (guarded|unguarded) (inside|after|never)

The last word says where the process kills itself: inside the tool, after the charge; or after the tool, before its
result is in a checkpoint. Prints what the model was told.
"""

import json
import os
import pathlib
import signal
import sys

from conftest import RULES, THREAD, agent, answers, ask, call, turn
from langchain.agents.middleware import AgentMiddleware
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver

import onceward
from onceward.langchain import OnceMiddleware

FOLDER, STEP, GUARDED, DIES = pathlib.Path(sys.argv[1]), *sys.argv[2:]


@tool
def charge(customer: str, invoice: int, amount: int, memo: str) -> str:
    """Charges a customer."""
    with open(FOLDER / "charges", "a") as charges:
        charges.write(f"{customer} {invoice} {amount}\n")
    if DIES == "inside":
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"


class DiesAfterTheTool(AgentMiddleware):
    def wrap_tool_call(self, request, handler):
        result = handler(request)
        if DIES == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return result


def main():
    ledger = onceward.Ledger(FOLDER / "ledger.db")
    middleware = [DiesAfterTheTool(), *([OnceMiddleware(ledger, RULES)] if GUARDED == "guarded" else [])]
    with SqliteSaver.from_conn_string(str(FOLDER / "checkpoints.db")) as saver:
        # The resumed process gets the model's first turn from the checkpoint.
        script = [turn(call())] if STEP == "start" else []
        made = agent(script, [charge], *middleware, checkpointer=saver)
        state, config = ask(THREAD)
        told = answers(made.invoke(state if STEP == "start" else None, config, durability="sync"))
    print(json.dumps([(one.content, one.status, one.tool_call_id) for one in told]))


main()
