"""The bench: the state of one process of a scenario. It numbers the calls, counts effects, and stops the process at a
step."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from ._errors import InvalidCheck, KeyReused, NoAnswer, RequestRefused
from ._log import Log
from ._scenario import Step

# How long claims of a disturbed call may take to end, and how long repeats wait for a time that the tool named with
# `Refused(retry_after=...)`.
SETTLE_SECONDS = 5.0

# How long a call that was given up may take to notice it. Only code that its own task does not wait for takes that
# long.
_NOTICE_SECONDS = 0.05


@dataclass(frozen=True)
class ProcessPlan:
    """What one process of a scenario does."""

    # Of the scenario: the log and the stores are there.
    folder: str
    # The number of its first call, from 1.
    first: int = 1
    calls: int = 1
    at_once: bool = False
    # Seconds before the first repeat.
    pause: float = 0.0
    # Seconds that the provider takes to act.
    takes: float = 0.0
    # The request of the first call at which the provider loses its answer ("lost") or refuses ("refused").
    fault: tuple[int, str] | None = None
    # The step of the first call at which the process is killed, or the call given up.
    stop: tuple[int, str] | None = None
    # Whether earlier calls were disturbed, so that their claims may have to lapse first.
    is_repeat: bool = False
    session: str | None = None
    # Whether calls at once are tasks of an event loop; otherwise they are threads.
    is_async: bool = False

    @property
    def waits(self) -> float:
        """The longest time that the process waits between calls, in seconds."""
        is_disturbed = self.is_repeat or self.fault is not None or self.stop is not None
        return self.pause + (SETTLE_SECONDS if is_disturbed else 0.0)


@dataclass
class Faults:
    """The errors that the stand-in raises."""

    lost: BaseException = field(default_factory=NoAnswer)
    refusal: BaseException = field(default_factory=RequestRefused)

    def copy_of(self, name: str) -> BaseException:
        """An error that has not been raised before: it would keep the frames, and with them the claim, of that time."""
        error: BaseException = getattr(self, name)
        with contextlib.suppress(Exception):
            copied = copy.copy(error)
            return copied if type(copied) is type(error) else error
        return error


@dataclass(frozen=True)
class Acted:
    """What an effect leads to."""

    receipt: dict[str, Any]
    # Of the real effect.
    result: Any


class Bench:
    """The state of this process. There is one bench in each process of a scenario, and none in the process of the
    test."""

    def __init__(self, plan: ProcessPlan) -> None:
        self.plan = plan
        self.log = Log(plan.folder)
        self.loop: asyncio.AbstractEventLoop | None = None
        # The task of the call that may be given up.
        self.task: asyncio.Task[Any] | None = None
        self._lock = threading.Lock()
        self._steps = 0
        self._requests: Counter[int] = Counter()
        # Threads that the tool starts do not have the context of their call.
        self._last_call = plan.first

    @property
    def call(self) -> int:
        """The number of the running call."""
        return _call.get() or self._last_call

    def begin(self, call: int) -> None:
        """Begins a call, in its own context."""
        _call.set(call)
        self._last_call = call

    def note(self, event: str, **fields: Any) -> None:
        """Logs an event of the running call."""
        self.log.add(self.call, event, **fields)

    # Steps.

    def passes(self, side: str, kind: str, of: str) -> bool:
        """Passes a step. The process dies here if the scenario says so; if the call is given up here, the answer is
        True, and async code has to wait once for the cancellation to arrive."""
        with self._lock:
            number, self._steps = self._steps, self._steps + 1
            self.note("step", side=side, kind=kind, of=of)
        if self.plan.stop is None or self.plan.stop[0] != number:
            return False
        self.note("stopped")
        if self.plan.stop[1] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        self._give_up()
        return True

    def gives_up_next(self) -> bool:
        """Whether the call is given up at the next step."""
        return self.plan.stop == (self._steps, "given_up")

    async def passes_async(self, side: str, kind: str, of: str) -> None:
        """Passes a step in async code."""
        if self.passes(side, kind, of):
            await asyncio.sleep(_NOTICE_SECONDS)

    def _give_up(self) -> None:
        if self.task is None or self.loop is None:
            return
        try:
            is_here = asyncio.get_running_loop() is self.loop
        except RuntimeError:
            is_here = False
        if is_here:
            self.task.cancel()
        else:
            self.loop.call_soon_threadsafe(self.task.cancel)

    # Effects.

    def act(self, what: str, key: str | None, faults: Faults, work: Callable[[], Any] | None = None) -> Acted:
        """Performs an effect, or what the scenario makes of it. `work` is the real effect, if there is one."""
        fault = self._fault()
        self.passes("before", "effect", what)
        time.sleep(self.plan.takes)
        if fault == "refused":
            raise faults.copy_of("refusal")
        result = work() if work is not None else None
        receipt = self.perform(what, key)
        self.passes("after", "effect", what)
        if fault == "lost":
            raise faults.copy_of("lost")
        return Acted(receipt, result)

    async def act_async(
        self, what: str, key: str | None, faults: Faults, work: Callable[[], Awaitable[Any]] | None = None
    ) -> Acted:
        """`act` for async code."""
        fault = self._fault()
        await self.passes_async("before", "effect", what)
        await asyncio.sleep(self.plan.takes)
        if fault == "refused":
            raise faults.copy_of("refusal")
        result = await work() if work is not None else None
        receipt = self.perform(what, key)
        await self.passes_async("after", "effect", what)
        if fault == "lost":
            raise faults.copy_of("lost")
        return Acted(receipt, result)

    def perform(self, what: str, key: str | None) -> dict[str, Any]:
        """The effect happens, unless the provider knows the key."""
        effect = self.log.perform(self.call, what, key).fields
        if effect["what"] != what:
            raise KeyReused
        return {"id": f"effect-{effect['number']}", "what": what}

    def _fault(self) -> str | None:
        call = self.call
        with self._lock:
            number = self._requests[call]
            self._requests[call] += 1
        planned = self.plan.fault
        return planned[1] if planned is not None and (call, number) == (self.plan.first, planned[0]) else None


_call: ContextVar[int | None] = ContextVar("onceward_testing_call", default=None)
_current: Bench | None = None


def install(bench: Bench) -> None:
    """Makes it the bench of this process."""
    global _current
    _current = bench


def current() -> Bench:
    """The bench of this process."""
    if _current is None:
        raise InvalidCheck(
            "the kit's provider and counters work only inside a check: pass the tool to once(...), which calls it"
        )
    return _current
