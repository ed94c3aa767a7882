"""A claim as the work sees it: the key to pass on, and the means to say how far the work has come."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._errors import Error
from ._native import NativeClaim

if TYPE_CHECKING:
    from ._operation import Operation


# Claims in the order in which this process got them.
_numbers = itertools.count(1)


class Claim:
    """The right to do the work. `onceward.claim()` returns it inside a guarded function."""

    __slots__ = ("_is_over", "_native", "_number", "_operation", "_outer", "_process")

    def __init__(self, native: NativeClaim, operation: Operation | None = None) -> None:
        self._native, self._operation, self._number = native, operation, next(_numbers)
        # The claim inside of whose work this one is, whether the work under this one has ended, and its process.
        self._outer: Claim | None = None
        self._is_over = False
        self._process = 0

    @property
    def downstream_key(self) -> str:
        """The key to pass to the service that you call: the same on every attempt of this intent, and on no other."""
        return self._native.downstream_key

    @property
    def key(self) -> str:
        """The key of the intent."""
        return self._native.key

    @property
    def intent(self) -> str:
        """The name of the intent in messages: its operation and a short hash."""
        return self._native.intent

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._native.attempt

    @property
    def is_guarded(self) -> bool:
        """Whether the intent is recorded. It is not while the store is down and `store_down` is `"open"`."""
        return self._native.is_guarded

    @property
    def probe_first(self) -> bool:
        """Whether an earlier attempt may have happened, so that the service must be asked first."""
        return self._native.probe_first

    def sent(self) -> None:
        """Marks that the first byte is about to leave: for operations with `marks_sent=True`. A crash before it leaves no doubt."""
        self._native.sent(None)

    async def sent_async(self) -> None:
        """`sent` for async code."""
        await settled(self._native.sent(asyncio.get_running_loop()))

    def not_found(self) -> None:
        """Records that the service was asked and knows of no earlier attempt: the doubt is settled."""
        self._native.not_found(None)

    async def not_found_async(self) -> None:
        """`not_found` for async code."""
        await settled(self._native.not_found(asyncio.get_running_loop()))

    def __repr__(self) -> str:
        return f"<onceward.Claim of {self.intent}, attempt {self.attempt}>"


def begin(native: NativeClaim) -> None:
    """Marks that the work begins. What a signal handler raises here gives the claim back."""
    try:
        native.begin()
    except BaseException:
        native.give_back()
        raise


def has_not_begun(native: NativeClaim, function: Callable[..., Any], error: BaseException) -> bool:
    """Whether nothing of the function has run, as when Ctrl-C comes just before its first step. Only for the frame that called
    the function."""
    if not native.is_begun:
        return True
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    inside = error.__traceback__ and error.__traceback__.tb_next
    if not inside or not isinstance(code, types.CodeType) or inside.tb_frame.f_code is not code:
        return False
    return inside.tb_lasti <= _before_first_step(code)


def is_from_inside(error: Error, started: Any) -> bool:
    """Whether the work raised an error of another guarded call. It says nothing about the work itself, which may have acted
    before that call."""
    return isinstance(error, Error) and started is not None and error.intent != started.intent


def _before_first_step(code: types.CodeType) -> int:
    """The instruction where Python looks for signals before it runs the first one of a function."""
    import dis

    # Python 3.10 has no such instruction, and an offset below that of the first one.
    return next((one.offset for one in dis.get_instructions(code) if one.opname == "RESUME"), -1)


async def settled(answer: tuple[bool, Any]) -> Any:
    """The result of a native call in an event loop. A caller that goes away before it has its claim gives it back."""
    is_ready, result = answer
    if is_ready:
        return result
    try:
        return await result
    except BaseException:
        _leave(result)
        raise


def _leave(result: asyncio.Future[Any]) -> None:
    if not result.done():
        # The coroutine was closed. The loop may be closed too.
        with contextlib.suppress(RuntimeError):
            result.cancel()
    elif not result.cancelled() and result.exception() is None:
        # The task was cancelled between the answer and the moment when it could go on.
        if give_back := getattr(result.result(), "give_back", None):
            give_back()
