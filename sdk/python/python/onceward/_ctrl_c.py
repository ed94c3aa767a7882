"""Runs a coroutine in an event loop of its own in which Ctrl-C cancels that coroutine only, as it does from Python 3.11 on."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`. In Python 3.10, that cancels every task of the loop at once, and with them the attempts under way."""
    if sys.version_info >= (3, 11) or threading.current_thread() is not threading.main_thread():
        return asyncio.run(main)
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        # The program decides what Ctrl-C does.
        return asyncio.run(main)
    return _Interruptible(main).run()


class _Interruptible:
    """A coroutine that the first Ctrl-C cancels. The second one ends its loop."""

    def __init__(self, main: Coroutine[Any, Any, Any]) -> None:
        self._main, self._interrupts = main, 0

    def run(self) -> Any:
        try:
            return asyncio.run(self._watched())
        except asyncio.CancelledError:
            if self._interrupts:
                raise KeyboardInterrupt from None
            raise

    async def _watched(self) -> Any:
        self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        try:
            signal.signal(signal.SIGINT, self._interrupted)
            return await self._main
        finally:
            # The coroutine may have set a handler of its own.
            if signal.getsignal(signal.SIGINT) == self._interrupted:
                signal.signal(signal.SIGINT, signal.default_int_handler)

    def _interrupted(self, _number: int, _frame: FrameType | None) -> None:
        self._interrupts += 1
        if self._interrupts > 1 or self._task is None:
            raise KeyboardInterrupt
        self._task.cancel()
        # A loop that waits for its files does not notice a signal.
        self._loop.call_soon_threadsafe(lambda: None)
