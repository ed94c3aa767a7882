"""An operation: its settings, and how one call of it runs. Everything that `@ledger.once`, `ledger.call` and the adapters have
in common."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union

from . import _failures
from ._claim import Claim, settled
from ._context import current_session, running
from ._errors import ClaimLost, Error, Failed, InDoubt, InvalidCall, SessionRequired, Unreadable
from ._failures import OnError
from ._native import NativeClaim, NativeOperation, Stored
from ._results import Codec

if TYPE_CHECKING:
    from ._native import NativeLedger

_log = logging.getLogger("onceward")

Tier = Literal["payment", "notification", "email", "standard", "forever"]
Duration = Union[str, float, timedelta]


class Window(TypedDict, total=False):
    """A window of time that is part of the identity: `{"of": "/scheduled_at", "every": "day", "zone": "Europe/Berlin"}`."""

    of: str
    every: str
    zone: str
    allow_now: bool


class Settings(TypedDict, total=False):
    """The settings of an operation. They have the names and meanings of `[operation.NAME]` in `onceward.toml`."""

    tier: Tier | None
    match: Sequence[str]
    normalise: Sequence[str]
    window: Window | None
    allow_volatile: bool
    max_runtime: Duration | None
    deadline: Duration | None
    in_doubt: Literal["hold", "retry", "probe", "tell"] | None
    on_error: OnError
    retention: Duration | None
    tombstone: Duration | None
    dedup: Duration | None
    honours_key_for: Duration | None
    store_down: Literal["closed", "open"] | None
    keep_limit: int | str | None
    wait: Duration | None
    marks_sent: bool


class NotFound:
    """The answer of a probe: the service knows of no earlier attempt."""

    def __repr__(self) -> str:
        return "onceward.NOT_FOUND"


NOT_FOUND = NotFound()


class _ProbeFailed(InDoubt):
    """The probe raised, which says nothing about the effect."""

_DURATIONS = ("max_runtime", "deadline", "retention", "tombstone", "dedup", "honours_key_for", "wait")


def duration_text(value: Duration) -> str:
    """A duration as `onceward.toml` writes it. Numbers are seconds."""
    if isinstance(value, str):
        return value
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if not 0 <= seconds < 10**11:
        raise InvalidCall(f"a duration is a number of seconds, not negative, or a text such as \"20s\", not {value!r}")
    return f"{round(seconds * 1000)}ms"


def pointer(name: str) -> str:
    """A JSON pointer to an argument: `to` means `/to`."""
    return name if name.startswith("/") else "/" + name.replace("~", "~0").replace("/", "~1")


@dataclass
class Operation:
    """One operation of a ledger, ready for calls."""

    name: str
    native: NativeOperation
    codec: Codec
    tenant: str | None = None
    # Classes of exceptions and what they say about the effect.
    classes: dict[type[BaseException], str] = field(default_factory=dict)
    probe: Callable[..., Any] | None = None

    @classmethod
    def make(
        cls,
        ledger: NativeLedger,
        name: str,
        settings: Mapping[str, Any],
        *,
        key: Sequence[str] | None,
        codec: Codec,
        tenant: str | None,
        probe: Callable[..., Any] | None = None,
    ) -> Operation:
        """Checks the settings. `key` are the fields that identify the intent; without it, the caller has a key of its own."""
        chosen = {setting: value for setting, value in settings.items() if value is not None}
        on_error, classes = _failures.check(chosen.pop("on_error", "classify"))
        marks_sent = bool(chosen.pop("marks_sent", False))
        for setting in _DURATIONS:
            if setting in chosen:
                chosen[setting] = duration_text(chosen[setting])
        for setting in ("match", "normalise"):
            chosen[setting] = list(chosen.get(setting, ()))
        chosen["match"] = [pointer(one) for one in chosen["match"]]
        if key is None:
            # Without a recipe, all of the intent is compared.
            for setting in ("match", "normalise", "window", "allow_volatile"):
                chosen.pop(setting, None)
        else:
            chosen["key"] = [pointer(one) for one in key]
        if probe is not None:
            if chosen.setdefault("in_doubt", "probe") != "probe":
                raise InvalidCall('a probe is asked only with in_doubt="probe"')
        elif chosen.get("in_doubt") == "probe":
            raise InvalidCall('in_doubt="probe" needs probe=, a function that asks whether the effect happened')
        native = ledger.operation(name, json.dumps(chosen | {"on_error": on_error}), marks_sent, probe is not None)
        return cls(name, native, codec, tenant, classes, probe)

    def read(self, stored: Stored) -> Any:
        """The result that a repeat gets."""
        body = stored.body
        if not stored.is_success:
            reason = str(json.loads(body)) if body else ""
            raise Failed(f"{self.name} failed before, and is not tried again: {reason}", operation=self.name, reason=reason)
        try:
            return self.codec.read(body)
        except Exception as error:
            text = f"the stored result of {self.name} is not what this caller expects: {error}"
            raise Unreadable(text, operation=self.name, reason=str(error), result_json=body) from error

    # Running under a claim.

    def run(self, native: NativeClaim, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs a function under its claim and records how it ended."""
        with running(Claim(native)):
            try:
                result = self._found(native, args, kwargs) if native.probe_first else NOT_FOUND
                if result is NOT_FOUND:
                    result = function(*args, **kwargs)
                self._check_result(result)
            except BaseException as error:
                self._failed(native, error)
                raise
        native.finish(None, self._kept(native, result))
        return result

    async def run_async(
        self,
        native: NativeClaim,
        function: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Runs an async function under its claim and records how it ended."""
        loop = asyncio.get_running_loop()
        watch = _LostWatch(native, loop) if native.may_be_taken_over else None
        try:
            with running(Claim(native)):
                result = await self._found_async(native, args, kwargs) if native.probe_first else NOT_FOUND
                if result is NOT_FOUND:
                    result = await function(*args, **kwargs)
        except GeneratorExit:
            # The coroutine was closed, and cannot wait for anything any more.
            native.abandon()
            raise
        except BaseException as error:
            if watch is not None and watch.is_lost and isinstance(error, asyncio.CancelledError):
                watch.uncancel()
                native.abandon()
                raise ClaimLost(
                    f"the claim on {native.intent} was lost while the work ran; another caller may go on with it",
                    operation=self.name,
                    intent=native.intent,
                ) from None
            await self._failed_async(native, error, loop)
            raise
        finally:
            if watch is not None:
                watch.stop()
        await settled(native.finish(loop, self._kept(native, result)))
        return result

    def _found(self, native: NativeClaim, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the service says about an earlier attempt."""
        assert self.probe is not None
        try:
            found = self.probe(*args, **kwargs)
        except Exception as error:
            raise self._probe_failed(native) from error
        if found is NOT_FOUND:
            native.not_found(None)
        return found

    async def _found_async(self, native: NativeClaim, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert self.probe is not None
        try:
            found = self.probe(*args, **kwargs)
            if isinstance(found, Awaitable):
                found = await found
        except Exception as error:
            raise self._probe_failed(native) from error
        if found is NOT_FOUND:
            await settled(native.not_found(asyncio.get_running_loop()))
        return found

    def _probe_failed(self, native: NativeClaim) -> Error:
        text = f"{native.intent} is in doubt, and the probe failed: an attempt may have happened. Call it again to probe again"
        return _ProbeFailed(text, intent=native.intent)

    def _check_result(self, result: Any) -> None:
        if isinstance(result, Awaitable):
            if close := getattr(result, "close", None):
                close()
            raise TypeError(f"{self.name} returned an awaitable: make the function async, so that its end can be recorded")

    def _kept(self, native: NativeClaim, result: Any) -> bytes | None:
        body = self.codec.write(result)
        if body is None:
            _log.warning(
                "%s is done, but its result (%s) cannot be kept: repeats get OutcomeNotKept. Annotate the return type, or "
                "return JSON's own types.",
                native.intent,
                type(result).__qualname__,
            )
        return body

    def _classified(self, error: BaseException) -> tuple[str | None, list[str], float | None]:
        if isinstance(error, _ProbeFailed):
            return "unknown", [str(error)], None
        return _failures.classify(error, self.classes)

    def _failed(self, native: NativeClaim, error: BaseException) -> None:
        kind, messages, retry_after = self._classified(error)
        try:
            _note(error, native, native.fail(None, kind, messages, retry_after))
        except Error as unrecorded:
            _log.warning("%s failed, and this could not be recorded: %s", native.intent, unrecorded)

    async def _failed_async(self, native: NativeClaim, error: BaseException, loop: asyncio.AbstractEventLoop) -> None:
        kind, messages, retry_after = self._classified(error)
        try:
            _note(error, native, await settled(native.fail(loop, kind, messages, retry_after)))
        except Error as unrecorded:
            _log.warning("%s failed, and this could not be recorded: %s", native.intent, unrecorded)


class _LostWatch:
    """Cancels the task when another caller may go on with its work."""

    def __init__(self, native: NativeClaim, loop: asyncio.AbstractEventLoop) -> None:
        self.is_lost = False
        self._task = asyncio.current_task()
        self.stop = native.on_lost(loop, self._cancel)

    def _cancel(self) -> None:
        self.is_lost = True
        if self._task is not None:
            self._task.cancel("onceward: the claim was lost")

    def uncancel(self) -> None:
        # Python 3.10 does not count cancellations.
        if self._task is not None and hasattr(self._task, "uncancel"):
            self._task.uncancel()


def _note(error: BaseException, native: NativeClaim, ending: str) -> None:
    """Says in the traceback what became of the intent, where that needs a person."""
    if ending == "in_doubt" and hasattr(error, "add_note"):
        error.add_note(f"onceward: {native.intent} is now in doubt: it may have happened, and repeats are held")


def session_of(session: object, operation: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """The session of a call: fixed, computed from its arguments, or the one that its caller set."""
    if session is None or isinstance(session, str):
        return session
    found = session(*args, **kwargs) if callable(session) else current_session()
    if not found or not isinstance(found, str):
        raise SessionRequired(
            f"{operation} runs once in each session, and no session is set: use `with onceward.session(...)`",
            operation=operation,
        )
    return found
