"""The tasks extension of protocol version 2026-07-28, in memory: the SDK has hooks for extensions but no tasks."""

import asyncio
import datetime
import uuid

import conformance_rounds as rounds
import mcp_types as types
from conformance_offers import form, text
from mcp.shared.exceptions import MCPError

EXTENSION = "io.modelcontextprotocol/tasks"
INVALID_PARAMS = -32602
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
INTERNAL_ERROR = -32603
TIME_TO_LIVE_MILLISECONDS = 600_000
POLL_MILLISECONDS = 100

tasks = {}


class Task:
    """A call that continues after its response."""

    def __init__(self, work):
        self.identity = str(uuid.uuid4())
        self.created = self.updated = now()
        self.status = "working"
        self.outcome = {}
        self.asked = {}
        self.answers = {}
        self.answered = asyncio.Event()
        self.running = asyncio.create_task(self.run(work))

    async def run(self, work):
        try:
            self.settle("completed", {"result": await work(self)})
        except asyncio.CancelledError:
            self.settle("cancelled", {})
        except MCPError as error:
            self.settle("failed", {"error": {"code": error.code, "message": error.message}})

    def settle(self, status, outcome):
        self.status, self.outcome, self.asked, self.updated = status, outcome, {}, now()

    async def ask(self, requests):
        """Waits until a client has answered all questions."""
        self.asked, self.status, self.updated = dict(requests), "input_required", now()
        await self.answered.wait()
        return self.answers

    def answer(self, responses):
        for key in [key for key in responses if key in self.asked]:
            self.answers[key] = responses[key]
            del self.asked[key]
        if self.status == "input_required" and not self.asked:
            self.status = "working"
            self.answered.set()
        self.updated = now()

    def brief(self):
        return {
            "taskId": self.identity,
            "status": self.status,
            "createdAt": self.created,
            "lastUpdatedAt": self.updated,
            "ttlMs": TIME_TO_LIVE_MILLISECONDS,
            "pollIntervalMs": POLL_MILLISECONDS,
        }

    def whole(self):
        asked = {"inputRequests": self.asked} if self.asked else {}
        return {"resultType": "complete", **self.brief(), **self.outcome, **asked}


def now():
    return datetime.datetime.now(datetime.UTC).isoformat()


def understood(ctx):
    return EXTENSION in (rounds.capabilities(ctx).get("extensions") or {})


def refuse():
    required = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
    raise MCPError(MISSING_CAPABILITY, "The tasks extension is needed", required)


def created(work):
    task = Task(work)
    tasks[task.identity] = task
    return {"resultType": "task", **task.brief()}


def result(words, **more):
    return {"resultType": "complete", "content": [text(words)], **more}


def task_tool(work, required=False):
    """A tool that becomes a task for clients that support tasks."""

    async def tool(ctx, given):
        if understood(ctx):
            return created(lambda task: work(task, given))
        if required:
            refuse()
        return await work(None, given)

    return tool


async def compute(task, given):
    await asyncio.sleep(given.get("seconds", 0))
    return result(f"Computed {given.get('label')}")


async def fail(task, given):
    await asyncio.sleep(0.5)
    return result("The job failed", isError=True)


async def break_down(task, given):
    await asyncio.sleep(0.1)
    raise MCPError(INTERNAL_ERROR, "The job broke down")


async def confirm(task, given):
    answers = await task.ask({"confirm": form(f"Delete {given.get('filename')}?", "confirm", "boolean")})
    return result(f"The user chose {answers['confirm']['action']}")


async def ask_twice(task, given):
    answers = await task.ask({"first": form("First?", "name"), "second": form("Second?", "name")})
    return result(f"{len(answers)} answers")


async def greet(ctx, given):
    return result(f"Hello, {given.get('name')}!")


async def ask_then_work(ctx, given):
    """Asks for input first and becomes a task when it has the answers."""
    answers, _ = rounds.round_of(ctx)
    if "user_name" not in answers:
        return rounds.asks(rounds.NAME, rounds.sealed())
    if not understood(ctx):
        refuse()

    async def work(task):
        await asyncio.sleep(0.1)
        return result(f"Worked for {answers['user_name']['content']['name']}")

    return created(work)


def takes(**properties):
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in properties.items()}}


TOOLS = {
    "greet": (takes(name="string"), greet),
    "slow_compute": (takes(seconds="number", label="string"), task_tool(compute)),
    "failing_job": (takes(), task_tool(fail, required=True)),
    "protocol_error_job": (takes(), task_tool(break_down, required=True)),
    "confirm_delete": (takes(filename="string"), task_tool(confirm, required=True)),
    "multi_input": (takes(), task_tool(ask_twice, required=True)),
    "test_tool_with_task": (takes(), ask_then_work),
}


class TaskParams(types.RequestParams):
    task_id: str
    input_responses: dict | None = None


def task_of(ctx, params):
    """The task that a request names, if the client may see it and its header agrees."""
    if not understood(ctx):
        refuse()
    named = ctx.request.headers.get("mcp-name") if ctx.request else params.task_id
    if named != params.task_id:
        raise MCPError(HEADER_MISMATCH, "mcp-name header does not match the request body's 'taskId' parameter")
    if params.task_id not in tasks:
        raise MCPError(INVALID_PARAMS, "No such task")
    return tasks[params.task_id]


async def get(ctx, params):
    return task_of(ctx, params).whole()


async def update(ctx, params):
    task_of(ctx, params).answer(params.input_responses or {})
    return {"resultType": "complete"}


async def cancel(ctx, params):
    task_of(ctx, params).running.cancel()
    return {"resultType": "complete"}


def serve_on(server):
    server.extensions[EXTENSION] = {}
    for method, handler in {"tasks/get": get, "tasks/update": update, "tasks/cancel": cancel}.items():
        server.add_request_handler(method, TaskParams, handler)
