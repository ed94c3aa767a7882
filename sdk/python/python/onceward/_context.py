"""What belongs to the running call: the session that its caller set, and the claim under which a function runs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any

from ._errors import InvalidCall

if TYPE_CHECKING:
    from ._claim import Claim

_session: ContextVar[str | None] = ContextVar("onceward_session", default=None)
_intent: ContextVar[str | None] = ContextVar("onceward_intent", default=None)
_claim: ContextVar[Claim | None] = ContextVar("onceward_claim", default=None)


@contextlib.contextmanager
def session(name: str) -> Iterator[None]:
    """Sets the session for the guarded calls inside: operations with `session=True` run once in each session."""
    if not name or not isinstance(name, str):
        raise InvalidCall("a session is a text that is not empty, such as the id of the conversation or the run")
    token = _session.set(name)
    try:
        yield
    finally:
        reset(_session, token)


def current_session() -> str | None:
    """The session that is set here, if any."""
    return _session.get()


@contextlib.contextmanager
def intent(name: str) -> Iterator[None]:
    """Names what the HTTP requests inside are for, such as an invoice: repeats of them have the same key, also after a restart. For
    `onceward.httpx.Transport` and `onceward.requests.Adapter`."""
    if not name or not isinstance(name, str):
        raise InvalidCall("an intent is a text that is not empty, such as the id of the invoice")
    token = _intent.set(name)
    try:
        yield
    finally:
        reset(_intent, token)


def current_intent() -> str | None:
    """The intent that is set here, if any."""
    return _intent.get()


def claim() -> Claim:
    """The claim of the guarded function that is running: its `downstream_key` goes to the service that you call."""
    current = _claim.get()
    if current is None:
        raise InvalidCall("no guarded call is running here: onceward.claim() works inside a function with @ledger.once")
    return current


@contextlib.contextmanager
def running(current: Claim) -> Iterator[None]:
    """Makes a claim the current one."""
    token = enter(current)
    try:
        yield
    finally:
        leave(current, token)


def enter(current: Claim) -> Token[Claim | None]:
    """Makes a claim the current one, inside the one that is."""
    current._outer, current._process = _claim.get(), os.getpid()
    return _claim.set(current)


def leave(current: Claim, token: Token[Claim | None]) -> None:
    """Ends the work under a claim. Tasks that it has started may still see the claim."""
    current._is_over = True
    reset(_claim, token)


def claims() -> Iterator[Claim]:
    """The claims whose work is running here, the innermost first."""
    current = _claim.get()
    while current is not None:
        # A child process sees the claims of its parent, which goes on by itself.
        if not current._is_over and current._process == os.getpid():
            yield current
        current = current._outer


def reset(variable: ContextVar[Any], token: Token[Any]) -> None:
    """Restores a variable. Code that ends in another context than it began in, such as a generator that is closed by the garbage
    collector, has nothing to restore there."""
    with contextlib.suppress(ValueError):
        variable.reset(token)
