"""Stops a task whose claim is lost: another caller may go on with its work."""

from __future__ import annotations

import asyncio
import contextlib
import weakref

from ._native import NativeClaim


class LostWatch:
    """Cancels the task when another caller may go on with its work."""

    def __init__(self, native: NativeClaim, loop: asyncio.AbstractEventLoop) -> None:
        self.is_lost = self._is_stopped = False
        self._task, self._loop = asyncio.current_task(), loop
        # The library must not keep the task alive, nor its loop: when they are dropped, the claim ends.
        this = weakref.ref(self)

        def wake() -> None:
            if (watch := this()) is not None:
                watch._loop.call_soon_threadsafe(watch._cancel)

        self._stop = native.on_lost(wake)

    def _cancel(self) -> None:
        if not self._is_stopped and self._task is not None:
            self.is_lost = True
            self._task.cancel("onceward: the claim was lost")

    def stop(self) -> None:
        self._is_stopped = True
        self._stop()

    async def end(self) -> None:
        """Stops, and takes back a cancellation that came too late for the function to see it."""
        self.stop()
        if self.is_lost:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            self.uncancel()

    def uncancel(self) -> None:
        # Python 3.10 does not count cancellations.
        if uncancel := getattr(self._task, "uncancel", None):
            uncancel()
