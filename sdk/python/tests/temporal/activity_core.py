"""A stand-in for Temporal: it hands attempts of activities to the real activity worker of Temporal's SDK, in place of
its Rust core, and takes their completions."""

import asyncio
import concurrent.futures
import itertools
import threading
import time

import temporalio.bridge.proto.activity_task
import temporalio.worker._activity
from temporalio import activity
from temporalio.bridge.proto import ActivityTaskCompletion
from temporalio.common import MetricMeter
from temporalio.converter import DataConverter

import onceward
from onceward.temporal import OnceInterceptor, once

tasks = temporalio.bridge.proto.activity_task

LIMIT = 30


class Core:
    """Plays Temporal: gives attempts of activities to the worker, and takes their completions."""

    namespace = "billing"

    def __init__(self, ledger, activities, guarded):
        self.tokens = itertools.count(1)
        self.queue, self.waiting = asyncio.Queue(), {}
        self.heartbeats = []
        self.executor = concurrent.futures.ThreadPoolExecutor(4)
        self.worker = temporalio.worker._activity._ActivityWorker(
            bridge_worker=lambda: self,
            task_queue="billing",
            activities=activities,
            activity_executor=self.executor,
            shared_state_manager=None,
            data_converter=DataConverter.default,
            interceptors=[OnceInterceptor(ledger, guarded)],
            metric_meter=MetricMeter.noop,
            client=self,
            encode_headers=False,
        )

    async def __aenter__(self):
        self.running = asyncio.ensure_future(self.worker.run())
        return self

    async def __aexit__(self, *_):
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        self.executor.shutdown(wait=False)

    async def poll_activity_task(self):
        return await self.queue.get()

    async def complete_activity_task(self, completion: ActivityTaskCompletion):
        self.waiting.pop(completion.task_token).set_result(completion.result)

    def record_activity_heartbeat(self, heartbeat):
        self.heartbeats.append(heartbeat)

    async def start(self, name, *args, attempt=1, activity_id="1", workflow_id="order-1", run_id="run-1"):
        """Starts an attempt. Returns its token and a future of its end."""
        token = f"token-{next(self.tokens)}".encode()
        start = tasks.Start(
            workflow_namespace=self.namespace,
            workflow_type="Order",
            activity_id=activity_id,
            activity_type=name,
            attempt=attempt,
            input=await DataConverter.default.encode(args),
        )
        start.workflow_execution.workflow_id, start.workflow_execution.run_id = workflow_id, run_id
        start.heartbeat_timeout.FromSeconds(10)
        self.waiting[token] = asyncio.get_running_loop().create_future()
        self.queue.put_nowait(tasks.ActivityTask(task_token=token, start=start))
        return token, self.waiting[token]

    def cancel(self, token):
        cancelled = tasks.Cancel(reason=tasks.ActivityCancelReason.CANCELLED)
        cancelled.details.is_cancelled = True
        self.queue.put_nowait(tasks.ActivityTask(task_token=token, cancel=cancelled))

    async def attempt(self, name, *args, **options):
        """The end of one attempt: its result, or how it failed."""
        _, ended = await self.start(name, *args, **options)
        return await outcome(ended)


async def outcome(ended):
    result = await asyncio.wait_for(ended, LIMIT)
    if result.HasField("completed"):
        return (await DataConverter.default.decode([result.completed.result]))[0]
    return result.cancelled.failure if result.HasField("cancelled") else result.failed.failure


def refusal(failure):
    """The type of a failure, and whether Temporal tries again."""
    return failure.application_failure_info.type, not failure.application_failure_info.non_retryable


class Bank:
    """A provider that counts what it charges."""

    def __init__(self):
        self.charged, self.keys = [], []
        self.fails, self.delay = None, 0.0
        self.is_released = threading.Event()

    def begin(self, invoice):
        self.charged.append(invoice)
        self.keys.append(onceward.claim().downstream_key)

    @activity.defn
    async def charge(self, invoice: str, cents: int) -> str:
        self.begin(invoice)
        activity.heartbeat("begun")
        await asyncio.sleep(self.delay)
        if self.fails:
            raise self.fails
        return f"receipt {len(self.charged)}"

    @activity.defn
    def charge_in_thread(self, invoice: str, cents: int) -> str:
        assert threading.current_thread() is not threading.main_thread()
        self.begin(invoice)
        activity.heartbeat("begun")
        end = time.monotonic() + self.delay
        while time.monotonic() < end:
            time.sleep(0.01)
        if self.fails:
            raise self.fails
        return f"receipt {len(self.charged)}"


def play(ledger, bank, scenario, guard=None):
    """Runs a scenario on a worker whose activities are all guarded."""
    guarded = {one: guard or once() for one in (bank.charge, bank.charge_in_thread)}

    async def main():
        async with Core(ledger, [bank.charge, bank.charge_in_thread], guarded) as core:
            return await scenario(core)

    return asyncio.run(asyncio.wait_for(main(), 2 * LIMIT))


def attempts(ledger, bank, name, count, guard=None, **options):
    async def scenario(core):
        return [await core.attempt(name, "inv-7", 1999, attempt=1 + number, **options) for number in range(count)]

    return play(ledger, bank, scenario, guard)
