"""Moves every ledger of this process to stores of the scenario, and logs what each call writes and reads there. The
process can be stopped before and after each write, without a hook in the ledger itself."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any, cast

from .. import _errors, _ledger
from .._claim import settled
from .._native import NativeClaim, NativeLedger, NativeOperation, Stored
from ._bench import SETTLE_SECONDS, Bench
from ._errors import InvalidCheck

_POLL_SECONDS = 0.005


class Stores:
    """The stores of the scenario, as this process has them open."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._opened: list[TracedLedger] = []
        self._in_memory = itertools.count(1)
        # From the first call on, a ledger in memory is a new one, as it would be without the kit.
        self.is_calling = False

    def open(self, url: str, *_access: Any, **_more: Any) -> TracedLedger:
        """The store of the scenario that takes the place of another one, on this machine or a server."""
        name = hashlib.sha256(url.encode()).hexdigest()[:8]
        if url == "memory:" and self.is_calling:
            name = f"{os.getpid()}-{next(self._in_memory)}"
        ledger = TracedLedger(self._bench, os.path.join(self._bench.plan.folder, f"ledger-{name}.db"))
        self._opened.append(ledger)
        return ledger

    def settle(self) -> None:
        """Waits until claims of disturbed calls have ended, and until repeats may run."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline and any(ledger.is_busy() for ledger in self._opened):
            time.sleep(_POLL_SECONDS)


def move_ledgers(bench: Bench) -> Stores:
    """Moves every ledger that is open, and every one that is opened later."""
    stores = Stores(bench)
    setattr(_ledger, "NativeLedger", stores.open)
    for ledger in list(_ledger._ledgers):
        ledger._move_to(cast(NativeLedger, stores.open(ledger.store)))
    for method in ("run", "run_async", "begin"):
        setattr(_ledger.Call, method, _checked(getattr(_ledger.Call, method)))
    return stores


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def checked(call: _ledger.Call, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(call._operation.native, TracedOperation):
            raise InvalidCheck(
                f"this call of {call._operation.name} was made before the check began, so it would write to its real "
                "ledger: call ledger.call(...) inside the tool"
            )
        return method(call, *args, **kwargs)

    return checked


class TracedLedger:
    """A ledger on a store of the scenario. It is opened when it is first used."""

    def __init__(self, bench: Bench, path: str) -> None:
        self._bench, self.path = bench, path
        self._lock = threading.Lock()
        self._native: NativeLedger | None = None

    @property
    def native(self) -> NativeLedger:
        with self._lock:
            if self._native is None:
                self._native = NativeLedger(self.path)
            return self._native

    def operation(self, name: str, settings: str, marks_sent: bool = False, probes: bool = False) -> TracedOperation:
        return TracedOperation(self._bench, self, (name, settings, marks_sent, probes))

    def is_busy(self) -> bool:
        """Whether a call runs here, or repeats may not run yet."""
        if self._native is None and not os.path.exists(self.path):
            return False
        for state in ("running", "open"):
            for listed in json.loads(self.native.list(None, state, 200)):
                seen = listed["intent"]
                not_before = seen["record"]["state"].get("open", {}).get("not_before")
                is_running = not_before is None and not seen["owner_gone"]
                if is_running or (not_before is not None and not_before > seen["now"]):
                    return True
        return False

    def wait_for_claim(self) -> None:
        """Blocks until a claim is written. An event loop that is blocked cannot deliver the claim."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline and not json.loads(self.native.list(None, "running", 1)):
            time.sleep(_POLL_SECONDS)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.native, name)


class _Traced:
    """Takes the place of the future of a native call. What a caller leaves behind is left to the native future
    inside."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._work.__await__()

    def done(self) -> bool:
        return True

    def cancelled(self) -> bool:
        return True


class _Arrived:
    """Takes the place of an answer that is there at once: its caller has to wait for it once, and may be cancelled
    then."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def __await__(self) -> Generator[Any, Any, Any]:
        yield
        return self._answer

    def done(self) -> bool:
        return True

    def cancelled(self) -> bool:
        return False

    def exception(self) -> None:
        return None

    def result(self) -> Any:
        return self._answer


class TracedOperation:
    """An operation that logs its calls."""

    def __init__(self, bench: Bench, ledger: TracedLedger, made_of: tuple[str, str, bool, bool]) -> None:
        self._bench, self._ledger, self._made_of = bench, ledger, made_of
        self.name, settings, self.marks_sent, probes = made_of
        chosen = json.loads(settings)
        # As the configuration has it: a window of deduplication retries.
        default = "probe" if probes else "retry" if chosen.get("dedup") else "hold"
        self.in_doubt: str = chosen.get("in_doubt") or default

    @functools.cached_property
    def native(self) -> NativeOperation:
        return self._ledger.native.operation(*self._made_of)

    def key(self, *parts: Any) -> str:
        return self.native.key(*parts)

    def start(self, event_loop: asyncio.AbstractEventLoop | None, *parts: Any, **named: Any) -> Any:
        self._bench.note("called")
        if event_loop is not None:
            return False, _Traced(self._start_async(event_loop, parts, named))
        self._bench.passes("before", "claim", self.name)
        try:
            started = self._started(self.native.start(None, *parts, **named))
        except _errors.Error as error:
            self._refused(error)
            raise
        if isinstance(started, TracedClaim):
            self._bench.passes("after", "claim", self.name)
        return started

    async def _start_async(
        self, event_loop: asyncio.AbstractEventLoop, parts: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        # A caller gives up while the claim is being written, or when it is written and has not arrived yet.
        is_given_up = self._bench.passes("before", "claim", self.name)
        try:
            starting = self.native.start(event_loop, *parts, **named)
            if self._bench.gives_up_next():
                self._ledger.wait_for_claim()
                is_given_up = self._bench.passes("after", "claim", self.name)
            if is_given_up and starting[0]:
                starting = False, _Arrived(starting[1])
            started = self._started(await settled(starting))
        except _errors.Error as error:
            self._refused(error)
            raise
        if isinstance(started, TracedClaim):
            self._bench.passes("after", "claim", self.name)
        return started

    def _started(self, started: Any) -> Any:
        if type(started) is Stored:
            self._bench.note("seen", status="done" if started.is_success else "failed")
            return started
        claim = TracedClaim(self._bench, started, self.name)
        self._bench.note(
            "claimed",
            ledger=os.path.basename(self._ledger.path),
            intent=started.intent,
            key=started.key,
            marks_sent=self.marks_sent,
            in_doubt=self.in_doubt,
        )
        return claim

    def _refused(self, error: _errors.Error) -> None:
        if not isinstance(error, _errors.InvalidCall):
            known = {_errors.InFlight: "in_flight", _errors.InDoubt: "in_doubt"}
            self._bench.note("seen", status=known.get(type(error), "other"))


# What is logged for the answer of `fail`.
_ENDINGS = {"released": "released", "kept": "kept", "in_doubt": "doubted"}


class TracedClaim:
    """A claim that logs how it ends."""

    def __init__(self, bench: Bench, native: NativeClaim, operation: str) -> None:
        self._bench, self._native, self._operation = bench, native, operation

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def sent(self, event_loop: asyncio.AbstractEventLoop | None) -> Any:
        return self._write(event_loop, "sent", "marked", self._native.sent)

    def not_found(self, event_loop: asyncio.AbstractEventLoop | None) -> Any:
        return self._write(event_loop, "not_found", "not_found", self._native.not_found)

    def finish(self, event_loop: asyncio.AbstractEventLoop | None, body: bytes | None) -> Any:
        return self._write(event_loop, "outcome", "recorded", self._native.finish, body)

    def fail(self, event_loop: asyncio.AbstractEventLoop | None, *failure: Any) -> Any:
        return self._write(event_loop, "failure", None, self._native.fail, *failure)

    def withdraw(self, event_loop: asyncio.AbstractEventLoop | None, why: str) -> Any:
        return self._write(event_loop, "release", "released", self._native.withdraw, why)

    def _write(
        self,
        event_loop: asyncio.AbstractEventLoop | None,
        step: str,
        event: str | None,
        write: Callable[..., Any],
        *arguments: Any,
    ) -> Any:
        if event_loop is not None:
            return False, _Traced(self._write_async(event_loop, step, event, write, arguments))
        self._bench.passes("before", step, self._operation)
        try:
            result = write(None, *arguments)
        except _errors.Error:
            self._bench.note(f"{step}_lost")
            raise
        self._bench.note(event or _ENDINGS[result], intent=self._native.intent)
        self._bench.passes("after", step, self._operation)
        return result

    async def _write_async(
        self,
        event_loop: asyncio.AbstractEventLoop,
        step: str,
        event: str | None,
        write: Callable[..., Any],
        arguments: tuple[Any, ...],
    ) -> Any:
        # As for the start: a caller gives up while the write is under way.
        self._bench.passes("before", step, self._operation)
        try:
            result = await settled(write(event_loop, *arguments))
        except _errors.Error:
            self._bench.note(f"{step}_lost")
            raise
        self._bench.note(event or _ENDINGS[result], intent=self._native.intent)
        await self._bench.passes_async("after", step, self._operation)
        return result
