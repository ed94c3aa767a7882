"""A Temporal activity that charges each invoice once, although Temporal tries it again.

    pip install onceward temporalio
    python3 temporal_activity.py

It needs no Temporal server: Temporal's ActivityEnvironment gives the activity its context, and `attempt` plays the
server, which starts the same activity again after a time-out and after an error.
"""

import asyncio
import dataclasses
import pathlib
import tempfile

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

import onceward
from onceward.temporal import OnceInterceptor, once

charged = []


@activity.defn
async def charge(invoice: str, cents: int) -> str:
    # A real provider would get this key too: onceward.claim().downstream_key
    charged.append(invoice)
    if invoice == "inv-8":
        raise ConnectionResetError("connection reset by peer")
    return f"receipt for {invoice}"


class LastInterceptor(ActivityInboundInterceptor):
    """Calls the activity, as the worker does at the end of its chain of interceptors."""

    def __init__(self):
        pass

    async def execute_activity(self, input):
        return await input.fn(*input.args)


async def attempt(interceptor, number, *args):
    """One attempt of an activity. In a program, `Worker(..., interceptors=[interceptor])` does this."""
    environment = ActivityEnvironment()
    known = {"activity_type": "charge", "workflow_id": "order-1", "workflow_run_id": "run-1", "activity_id": args[0]}
    environment.info = dataclasses.replace(environment.info, attempt=number, **known)
    chain = interceptor.intercept_activity(LastInterceptor())
    try:
        result = await environment.run(chain.execute_activity, ExecuteActivityInput(charge, args, None, {}))
        print(f"{args[0]}, attempt {number}: {result}")
    except ApplicationError as error:
        again = "no further attempt" if error.non_retryable else "try again"
        print(f"{args[0]}, attempt {number}: {error.type}, {again}")


async def main(ledger):
    # In a program: Worker(client, task_queue="billing", activities=[charge], interceptors=[interceptor])
    interceptor = OnceInterceptor(ledger, {charge: once(tier="payment")})
    for number in (1, 2):
        await attempt(interceptor, number, "inv-7", 1999)
    for number in (1, 2):
        await attempt(interceptor, number, "inv-8", 500)
    print("charged:", charged)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, onceward.Ledger(pathlib.Path(folder) / "onceward.db") as opened:
        asyncio.run(main(opened))
