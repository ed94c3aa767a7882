"""Delivers the entries of the outbox to functions of this process. The courier itself, with its retries and its breakers, is that
of the library; this calls the functions, each on a thread or in the event loop, and says what became of the effect."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from . import _ctrl_c, _failures
from ._claim import Claim, settled
from ._context import running
from ._errors import InvalidCall
from ._failures import OnError
from ._lazy import refuse_lazy
from ._native import NativeCourier, NativeDelivery
from ._once import refuse_generators
from ._operation import NOT_FOUND, Duration, NotFound, duration_text, log_not_kept
from ._payload import PayloadType
from ._results import Codec

if TYPE_CHECKING:
    from ._ledger import Ledger

# How many calls of a function run at the same time unless it says otherwise: each has a thread, and an async one only a task.
_SYNC_CONCURRENCY, _ASYNC_CONCURRENCY = 8, 32
_MOST_CONCURRENCY = 10_000

# As for a guarded call.
_MAX_RUNTIME: Duration = "60s"


@dataclass
class Sink:
    """A function that delivers the entries of one operation."""

    operation: str
    function: Callable[..., Any]
    name: str
    probe: Callable[..., Any] | None
    concurrency: int
    options: dict[str, Any]
    on_error: str
    classes: dict[type[BaseException], str]
    payload: PayloadType
    codec: Codec

    @classmethod
    def make(
        cls,
        operation: str,
        function: Callable[..., Any],
        *,
        sink: str | None = None,
        probe: Callable[..., Any] | None = None,
        on_error: OnError = "classify",
        concurrency: int | None = None,
        max_runtime: Duration = _MAX_RUNTIME,
        settle: Duration | None = None,
        passes_key: bool = False,
    ) -> Sink:
        if not isinstance(operation, str):
            raise InvalidCall(f"the name of an operation is a str, not {type(operation).__name__}")
        if not callable(function):
            raise InvalidCall(f"{operation}: a courier delivers to a function", operation=operation)
        for called in (function, probe):
            if called is not None:
                refuse_generators(called)
        is_async = _is_async(function)
        if probe is not None and _is_async(probe) != is_async:
            raise InvalidCall(f"{operation}: the function and its probe are both async, or neither is", operation=operation)
        chosen = concurrency or (_ASYNC_CONCURRENCY if is_async else _SYNC_CONCURRENCY)
        if type(chosen) is not int or not 0 < chosen <= _MOST_CONCURRENCY or concurrency == 0:
            raise InvalidCall(f"{operation}: concurrency is a number from 1 to {_MOST_CONCURRENCY:,}", operation=operation)
        word, classes = _failures.check(on_error)
        options = {
            "max_runtime": duration_text(max_runtime),
            "settle": None if settle is None else duration_text(settle),
            "passes_key": bool(passes_key),
        }
        payload, codec = PayloadType(function, operation), Codec(function)
        return cls(operation, function, sink or operation, probe, chosen, options, word, classes, payload, codec)

    @property
    def is_async(self) -> bool:
        return _is_async(self.function)

    def route(self, begin: Callable[[NativeDelivery], None]) -> dict[str, Any]:
        """The route of the native courier."""
        return {
            "operation": self.operation, "sink": self.name, "begin": begin, "looks_up": self.probe is not None,
            "on_error": self.on_error, "concurrency": self.concurrency, **self.options,
        }  # fmt: skip

    # One attempt.

    def deliver(self, delivery: NativeDelivery) -> None:
        """Makes one attempt on this thread."""
        if not delivery.begin():
            return
        claim = Claim(cast(Any, delivery))
        with self._ended(delivery, claim) as called, running(claim):
            result = called.function(called.payload)
            refuse_lazy(self.operation, result, called.function)
            called.finish(result)

    async def deliver_async(self, delivery: NativeDelivery) -> None:
        """Makes one attempt in this event loop."""
        if not delivery.begin():
            return
        claim = Claim(cast(Any, delivery))
        with self._ended(delivery, claim) as called, running(claim):
            result = called.function(called.payload)
            if inspect.isawaitable(result):
                result = await result
            refuse_lazy(self.operation, result, called.function)
            called.finish(result)

    @contextlib.contextmanager
    def _ended(self, delivery: NativeDelivery, claim: Claim) -> Iterator[_Called]:
        """Reads the payload before the work, and says how the work ended."""
        called = _Called(self, delivery)
        try:
            called.payload = self.payload.read(delivery.payload)
        except Exception as error:
            # Validators show the value that they refuse.
            why = str(error) if type(error) is TypeError else type(error).__name__
            called.refused = f"the payload is not what the function expects: {why}"
        if called.refused is not None:
            delivery.refuse(called.refused)
            called.function = _nothing
        try:
            yield called
        except BaseException as error:
            _failures.forget_earlier(error, claim._number)
            delivery.fail(*_failures.classify(error, self.classes))
            _failures.spoken(error, claim._number)
            if not isinstance(error, Exception):
                raise

    def finish(self, delivery: NativeDelivery, result: Any) -> None:
        """Says what the function, or its probe, returned."""
        if delivery.looks_up:
            if result is NOT_FOUND or result is NotFound:
                return delivery.is_unknown_there()
            if not self.codec.promises(result):
                raise TypeError("the probe returned neither onceward.NOT_FOUND nor a result of the function")
        body = self.codec.write(result)
        if body is None:
            log_not_kept(delivery.intent, result)
        delivery.finish(body)


class _Called:
    """A function that is called with a payload."""

    def __init__(self, sink: Sink, delivery: NativeDelivery) -> None:
        self._sink, self._delivery = sink, delivery
        asked = sink.probe if delivery.looks_up else sink.function
        self.function: Callable[..., Any] = asked or sink.function
        self.payload: Any = None
        self.refused: str | None = None

    def finish(self, result: Any) -> None:
        if self.refused is None:
            self._sink.finish(self._delivery, result)


def _nothing(_payload: Any) -> None:
    """Runs instead of a function that cannot be called."""


def _is_async(function: Callable[..., Any]) -> bool:
    called = function if inspect.isroutine(function) else getattr(function, "func", getattr(function, "__call__", function))
    return inspect.iscoroutinefunction(inspect.unwrap(function)) or inspect.iscoroutinefunction(called)


class Courier:
    """Delivers entries until it is stopped. Any number of couriers work on one store.

    `run()` and `run_async()` deliver until `stop()`, Ctrl-C or a cancelled task; `with courier:` and `async with courier:` deliver
    in the background meanwhile. A courier that stops takes no further entries and waits for the attempts that are under way, for 30
    seconds at the most; those that have not ended by then are in doubt.
    """

    def __init__(self, ledger: Ledger, sinks: Sequence[Sink]) -> None:
        if not sinks:
            raise InvalidCall("a courier needs functions: @ledger.deliver(\"operation\"), or ledger.courier({\"operation\": function})")
        self._ledger, self._sinks = ledger, tuple(sinks)
        self._run: _Run | None = None

    def run(self, *, until_idle: bool = False) -> None:
        """Delivers until it is stopped; with `until_idle`, until nothing is left that is due."""
        if any(sink.is_async for sink in self._sinks):
            return _ctrl_c.run(self.run_async(until_idle=until_idle))
        with self._started(None, until_idle) as run:
            try:
                run.native.wait(None)
            finally:
                # Ctrl-C: a second one ends this wait too.
                run.native.stop()
                run.native.wait(None)

    async def run_async(self, *, until_idle: bool = False) -> None:
        """`run` in this event loop. Functions that are not async run on threads."""
        loop = asyncio.get_running_loop()
        with self._started(loop, until_idle) as run:
            try:
                await settled(run.native.wait(loop))
            except GeneratorExit:
                # The coroutine was closed, and cannot wait for anything any more.
                raise
            except BaseException:
                await run.stopped(loop)
                raise

    def stop(self) -> None:
        """Ends `run` soon. May be called from other threads and from signal handlers."""
        if (run := self._run) is not None:
            run.native.stop()

    @contextlib.contextmanager
    def _started(self, loop: asyncio.AbstractEventLoop | None, until_idle: bool) -> Iterator[_Run]:
        run = self._begin(loop, until_idle)
        try:
            yield run
        finally:
            self._end(run)

    def _begin(self, loop: asyncio.AbstractEventLoop | None, until_idle: bool) -> _Run:
        if self._run is not None and not self._run.is_over:
            raise InvalidCall("this courier is running already")
        self._run = _Run.begin(self._ledger, self._sinks, loop, until_idle)
        return self._run

    def _end(self, run: _Run) -> None:
        run.end()
        if self._run is run:
            self._run = None

    def __enter__(self) -> Courier:
        if any(sink.is_async for sink in self._sinks):
            raise InvalidCall("a courier with async functions needs an event loop: use `async with`")
        self._begin(None, False)
        return self

    def __exit__(self, *_error: object) -> None:
        if (run := self._run) is not None:
            try:
                run.native.stop()
                run.native.wait(None)
            finally:
                self._end(run)

    async def __aenter__(self) -> Courier:
        self._begin(asyncio.get_running_loop(), False)
        return self

    async def __aexit__(self, *_error: object) -> None:
        if (run := self._run) is not None:
            try:
                await run.stopped(asyncio.get_running_loop())
            finally:
                self._end(run)


@dataclass
class _Run:
    """A courier that was started: its threads and tasks."""

    loop: asyncio.AbstractEventLoop | None
    native: NativeCourier = field(init=False)
    is_over: bool = False
    # One `None` for each thread ends them.
    queues: list[tuple[queue.SimpleQueue[NativeDelivery | None], int]] = field(default_factory=list)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @classmethod
    def begin(cls, ledger: Ledger, sinks: Sequence[Sink], loop: asyncio.AbstractEventLoop | None, until_idle: bool) -> _Run:
        run = cls(loop)
        try:
            routes = [sink.route(run._to_loop(sink) if sink.is_async else run._to_threads(sink)) for sink in sinks]
            run.native = ledger._native.courier(routes, until_idle)
        except BaseException:
            run.end()
            raise
        return run

    def _to_threads(self, sink: Sink) -> Callable[[NativeDelivery], None]:
        waiting: queue.SimpleQueue[NativeDelivery | None] = queue.SimpleQueue()
        self.queues.append((waiting, sink.concurrency))

        def work() -> None:
            while (delivery := waiting.get()) is not None:
                # SystemExit ends a program, and not one of its threads: the attempt was recorded as unknown.
                with contextlib.suppress(BaseException):
                    sink.deliver(delivery)

        for number in range(sink.concurrency):
            # Daemons, because a program that forgets to stop its courier must end too.
            threading.Thread(target=work, name=f"onceward {sink.operation} {number}", daemon=True).start()
        return waiting.put

    def _to_loop(self, sink: Sink) -> Callable[[NativeDelivery], None]:
        loop = self.loop
        assert loop is not None

        def start(delivery: NativeDelivery) -> None:
            task = loop.create_task(sink.deliver_async(delivery))
            self.tasks.add(task)
            task.add_done_callback(self._done)
            delivery.on_given_up(lambda: loop.call_soon_threadsafe(task.cancel))

        def wake(delivery: NativeDelivery) -> None:
            loop.call_soon_threadsafe(start, delivery)

        return wake

    def _done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled():
            # What it raised was recorded.
            task.exception()

    async def stopped(self, loop: asyncio.AbstractEventLoop) -> None:
        """Stops the courier and waits for the attempts that are under way."""
        self.native.stop()
        await settled(self.native.wait(loop))

    def end(self) -> None:
        """Lets the threads end, and forgets the tasks that have not ended."""
        self.is_over = True
        for waiting, threads in self.queues:
            for _ in range(threads):
                waiting.put(None)
        for task in self.tasks:
            task.cancel()


def sinks_of(functions: Mapping[str, Callable[..., Any]]) -> list[Sink]:
    """The sinks of a courier, from functions by their operations."""
    return [Sink.make(operation, function) for operation, function in functions.items()]
