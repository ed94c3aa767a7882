"""Passes the messages of the library on to `logging`, on a thread of its own: its handlers may take their time."""

from __future__ import annotations

import _thread
import contextlib
import logging
import sys
import threading
from typing import Any

from . import _native

# How long the end of the interpreter waits for a handler.
_END_SECONDS = 1.0


def _original(name: str) -> Any:
    """A function of `_thread` as Python has it. Those that gevent puts in its place switch to another greenlet, which a thread of
    the library must not wait for."""
    gevent = sys.modules.get("gevent.monkey")
    return getattr(_thread, name) if gevent is None else gevent.get_original("_thread", name)


# Held from taking messages until handlers have them.
_is_busy = _original("allocate_lock")()


def start() -> None:
    """Starts the thread, and does not wait for it. The native module calls this when the first message comes."""
    _original("start_new_thread")(_run, ())


def flush() -> None:
    """Passes on what is left at the end of the interpreter, unless a handler does not end."""
    if _is_busy.acquire(timeout=_END_SECONDS):
        _pass_on_all()
        _is_busy.release()


def after_fork_in_child() -> None:
    """The thread of the parent, which may have held the lock, does not exist here."""
    global _is_busy
    _is_busy = _original("allocate_lock")()


def _run() -> None:
    # `threading` did not start this thread, and has a name for it when it is asked.
    with contextlib.suppress(Exception):
        threading.current_thread().name = "onceward-log"
    while True:
        _native.wait_for_messages()
        with _is_busy:
            _pass_on_all()


def _pass_on_all() -> None:
    for message in _native.waiting_messages():
        _pass_on(*message)


def _pass_on(name: str, level: int, text: str) -> None:
    try:
        logging.getLogger(name).log(level, "%s", text)
    except Exception:
        # A handler or a filter that raises must not end the thread. Handlers report their own errors.
        pass
