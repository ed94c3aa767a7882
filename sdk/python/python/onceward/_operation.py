"""An operation: its settings, and how one call of it runs. Everything that `@ledger.once`, `ledger.call` and the adapters have
in common."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, Union

from . import _failures
from ._claim import Claim, begin, has_not_begun, settled
from ._context import claims, current_session, running
from ._errors import ClaimLost, Error, Failed, InDoubt, InvalidCall, OutcomeNotKept, SessionRequired, Unreadable
from ._failures import OnError
from ._lazy import refuse_lazy
from ._lost import LostWatch
from ._native import NativeClaim, NativeOperation, Stored
from ._remote import check_settings
from ._results import Codec

if TYPE_CHECKING:
    from ._native import NativeLedger

_log = logging.getLogger("onceward")

# The mark of an exception that leaves its intent in doubt.
IN_DOUBT = "_onceward_in_doubt"

Tier = Literal["payment", "notification", "email", "standard", "forever"]
Duration = Union[str, float, timedelta]


class _WindowOf(TypedDict):
    of: str


class Window(_WindowOf, total=False):
    """A window of time that is part of the identity: `{"of": "/scheduled_at", "every": "day", "zone": "Europe/Berlin"}`."""

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
    in_doubt: Literal["hold", "retry", "probe"] | None
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
    """The answer of a probe: the service knows of no earlier attempt. There is one, `NOT_FOUND`."""

    _only: NotFound | None = None

    def __new__(cls) -> NotFound:
        if cls._only is None:
            cls._only = super().__new__(cls)
        return cls._only

    def __reduce__(self) -> str:
        return "NOT_FOUND"

    def __repr__(self) -> str:
        return "onceward.NOT_FOUND"


NOT_FOUND = NotFound()


class _ProbeFailed(InDoubt):
    """The probe raised, which says nothing about the effect."""


# How long a cancelled task waits for its end to be recorded: longer than a healthy ledger takes.
_CANCELLED_SECONDS = 1.0

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
    """A JSON pointer to an argument: `to` means `/to`. The empty one is the whole intent."""
    return name if name.startswith("/") or not name else "/" + name.replace("~", "~0").replace("/", "~1")


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
    ledger: NativeLedger | None = None

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
        chosen = prepared_settings(name, settings, key)
        on_error, classes = _failures.check(chosen.pop("on_error", "classify"))
        marks_sent = bool(chosen.pop("marks_sent", False))
        check_settings(ledger, name, chosen, tenant)
        if ledger.is_remote:
            # The server's onceward.toml says whether a probe is asked.
            pass
        elif probe is not None:
            if chosen.setdefault("in_doubt", "probe") != "probe":
                raise InvalidCall('a probe is asked only with in_doubt="probe"')
        elif chosen.get("in_doubt") == "probe":
            raise InvalidCall('in_doubt="probe" needs probe=, a function that asks whether the effect happened')
        native = ledger.operation(name, json.dumps(chosen | {"on_error": on_error}), marks_sent, probe is not None)
        return cls(name, native, codec, tenant, classes, probe, ledger)

    def start(
        self,
        loop: asyncio.AbstractEventLoop | None,
        tenant: str | None,
        session: str | None,
        key: str | None,
        intent: Any,
        item: tuple[str, int] | None = None,
        wait: float | str | None = None,
    ) -> Any:
        """Begins a call: returns a claim, or what is stored. With an event loop, `settled` takes the answer."""
        for claim in claims():
            if self._is_of(claim, tenant, session, key, intent, item):
                raise InvalidCall(
                    f"{claim.intent} is called inside of itself, and would wait for itself. Guard only one of the two functions, "
                    "or give them different operations or keys",
                    operation=self.name,
                )
        return self.native.start(loop, tenant, session, key, intent, item, wait)

    def _is_of(self, claim: Claim, tenant: str | None, *parts: Any) -> bool:
        """Whether a call with these parts has the intent of a claim."""
        other = claim._operation
        if other is None or other.name != self.name or not _is_one_store(self.ledger, other.ledger):
            return False
        own_tenant = claim._native.about.get("tenant") or "default"
        return own_tenant == (tenant or "default") and claim.key == self.native.key(tenant, *parts)

    def read(self, stored: Stored) -> Any:
        """The result that a repeat gets."""
        return read_outcome(self.codec, stored)

    # Running under a claim.

    def run(self, native: NativeClaim, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs a function under its claim and records how it ended."""
        # Python 3.10 looks for signals after each call, so Ctrl-C may come between `begin` and the function.
        may_have_run = native.probe_first
        try:
            claim = Claim(native, self)
            with running(claim):
                try:
                    begin(native)
                    result = self._found(native, args, kwargs) if native.probe_first else NOT_FOUND
                    if result is NOT_FOUND:
                        may_have_run = True
                        result = function(*args, **kwargs)
                    refuse_lazy(self.name, result, function)
                except BaseException as error:
                    if not may_have_run or has_not_begun(native, function, error):
                        native.give_back()
                    else:
                        self._failed(claim, error)
                    raise
            native.finish(None, self._kept(native, result))
            return result
        finally:
            # Ctrl-C may come between any two steps. A claim that has ended stays as it is.
            native.abandon()

    async def run_async(
        self,
        native: NativeClaim,
        function: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Runs an async function under its claim and records how it ended."""
        loop = asyncio.get_running_loop()
        claim = Claim(native, self)
        watch = LostWatch(native, loop) if native.may_be_taken_over else None
        may_have_run = native.probe_first
        try:
            with running(claim):
                begin(native)
                result = await self._found_async(native, args, kwargs) if native.probe_first else NOT_FOUND
                if result is NOT_FOUND:
                    may_have_run = True
                    result = function(*args, **kwargs)
                    # A function that is not async has acted by now, and its result is as good.
                    if inspect.isawaitable(result):
                        result = await result
                refuse_lazy(self.name, result, function)
        except GeneratorExit:
            # The coroutine was closed, and cannot wait for anything any more.
            raise
        except BaseException as error:
            if watch is not None and watch.is_lost and isinstance(error, asyncio.CancelledError):
                watch.uncancel()
                raise ClaimLost(
                    f"the claim on {native.intent} was lost while the work ran; another caller may go on with it",
                    **native.about,
                ) from None
            if not may_have_run or has_not_begun(native, function, error):
                native.give_back()
            else:
                await self._failed_async(claim, error, loop)
            raise
        else:
            if watch is not None:
                await watch.end()
            await settled(native.finish(loop, self._kept(native, result)))
            return result
        finally:
            if watch is not None:
                watch.stop()
            native.abandon()

    def probed(self, native: NativeClaim) -> Any:
        """Asks the service before a block runs, and records what an earlier attempt did."""
        try:
            begin(native)
            claim = Claim(native, self)
            with running(claim):
                try:
                    found = self._found(native, (), {})
                except BaseException as error:
                    self._failed(claim, error)
                    raise
            if found is not NOT_FOUND:
                native.finish(None, self._kept(native, found))
            return found
        except BaseException:
            native.abandon()
            raise

    async def probed_async(self, native: NativeClaim) -> Any:
        """`probed` for async code."""
        loop = asyncio.get_running_loop()
        try:
            begin(native)
            claim = Claim(native, self)
            with running(claim):
                try:
                    found = await self._found_async(native, (), {})
                except Exception as error:
                    await self._failed_async(claim, error, loop)
                    raise
            if found is not NOT_FOUND:
                await settled(native.finish(loop, self._kept(native, found)))
            return found
        except BaseException:
            native.abandon()
            raise

    def _found(self, native: NativeClaim, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the service says about an earlier attempt."""
        assert self.probe is not None
        try:
            found = self._answer(self.probe(*args, **kwargs))
            if found is NOT_FOUND:
                native.not_found(None)
        except Exception as error:
            raise self._probe_failed(native) from error
        return found

    async def _found_async(self, native: NativeClaim, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert self.probe is not None
        try:
            found = self.probe(*args, **kwargs)
            if isinstance(found, Awaitable):
                found = await found
            found = self._answer(found)
            if found is NOT_FOUND:
                await settled(native.not_found(asyncio.get_running_loop()))
        except Exception as error:
            raise self._probe_failed(native) from error
        return found

    def _answer(self, found: Any) -> Any:
        """What a probe returned, if it can be an answer: `NOT_FOUND`, or a result of the function."""
        if found is NOT_FOUND or found is NotFound:
            return NOT_FOUND
        refuse_lazy(self.name, found, None)
        if not self.codec.promises(found):
            kind = "None" if found is None else type(found).__qualname__
            raise TypeError(
                f"the probe returned {kind}, which is not a result of {self.name}: it returns onceward.NOT_FOUND, or the result "
                "of the earlier attempt, of the type that the function is annotated with"
            )
        return found

    def _probe_failed(self, native: NativeClaim) -> Error:
        text = f"{native.intent} is in doubt, and the probe failed: an attempt may have happened. Call it again to probe again"
        return _ProbeFailed(text, **native.about)

    def _kept(self, native: NativeClaim, result: Any) -> bytes | None:
        body = self.codec.write(result)
        if body is None:
            log_not_kept(native.intent, result)
        return body

    def _classified(self, error: BaseException) -> tuple[str | None, list[str], float | None]:
        if isinstance(error, _ProbeFailed):
            return "unknown", [str(error)], None
        return _failures.classify(error, self.classes)

    def _failed(self, claim: Claim, error: BaseException) -> None:
        native = claim._native
        try:
            _failures.forget_earlier(error, claim._number)
            kind, messages, retry_after = self._classified(error)
            _failures.spoken(error, claim._number)
            _note(error, native, native.fail(None, kind, messages, retry_after))
        except Exception as unrecorded:
            # Texts of other errors may contain anything.
            why = unrecorded.message if isinstance(unrecorded, Error) else type(unrecorded).__name__
            _log.warning("%s failed, and this could not be recorded: %s", native.intent, why)

    async def _failed_async(self, claim: Claim, error: BaseException, loop: asyncio.AbstractEventLoop) -> None:
        native = claim._native
        try:
            _failures.forget_earlier(error, claim._number)
            kind, messages, retry_after = self._classified(error)
            _failures.spoken(error, claim._number)
            recording = native.fail(loop, kind, messages, retry_after)
            if isinstance(error, Exception):
                ending = await settled(recording)
            else:
                # A task that is cancelled, or a program that ends, does not wait for a ledger that does not answer. The report
                # goes on, and a claim without one becomes a doubt by itself.
                ending = await _settled_soon(recording, loop)
            _note(error, native, ending)
        except Exception as unrecorded:
            # Texts of other errors may contain anything.
            why = unrecorded.message if isinstance(unrecorded, Error) else type(unrecorded).__name__
            _log.warning("%s failed, and this could not be recorded: %s", native.intent, why)


async def _settled_soon(answer: tuple[bool, Any], loop: asyncio.AbstractEventLoop) -> Any:
    """The result of a native call, or None if it takes too long."""
    is_ready, result = answer
    if is_ready:
        return result
    is_late: list[bool] = []

    def give_up() -> None:
        is_late.append(result.cancel())

    timer = loop.call_later(_CANCELLED_SECONDS, give_up)
    try:
        return await settled(answer)
    except asyncio.CancelledError:
        if any(is_late):
            return None
        raise
    finally:
        timer.cancel()


def _is_one_store(one: NativeLedger | None, other: NativeLedger | None) -> bool:
    if one is None or other is None or one is other:
        return one is other
    # Each ledger in memory is a store of its own.
    return one.shown == other.shown != "memory:"


class KeptOutcome(Protocol):
    """An outcome that is stored."""

    @property
    def body(self) -> bytes: ...
    @property
    def is_success(self) -> bool: ...
    @property
    def intent(self) -> str: ...
    @property
    def about(self) -> dict[str, Any]: ...


def read_outcome(codec: Codec, stored: KeptOutcome) -> Any:
    """The result that is stored, or the error that says why there is none."""
    body = stored.body
    if not stored.is_success:
        reason = str(json.loads(body)) if body else ""
        raise Failed(f"{stored.intent} failed before, and is not tried again: {reason}", **stored.about, reason=reason)
    try:
        return codec.read(body)
    except Exception as error:
        if not body:
            text = f"{stored.intent} is done, and was settled without a result. It will not run again"
            raise OutcomeNotKept(text, **stored.about) from None
        # Validators show the value that they refuse, and a result may be a secret.
        reason = str(error) if type(error) is TypeError else type(error).__name__
        text = f"the stored result of {stored.intent} is not what this caller expects: {reason}"
        raise Unreadable(text, **stored.about, reason=reason, result_json=body) from None


def prepared_settings(name: object, settings: Mapping[str, Any], key: Sequence[str] | None) -> dict[str, Any]:
    """The settings that are given, checked and in the form of `onceward.toml`."""
    if not isinstance(name, str):
        raise InvalidCall(f"the name of an operation is a str, not {type(name).__name__}")
    _check_is_list(name, "key", key or ())
    chosen = _checked(name, settings, key is None)
    for setting in _DURATIONS:
        if setting in chosen:
            chosen[setting] = duration_text(chosen[setting])
    if key is not None:
        chosen["key"] = [pointer(one) for one in key]
        chosen["match"] = [pointer(one) for one in chosen.get("match", ())]
        chosen["normalise"] = list(chosen.get("normalise", ()))
        if (window := chosen.get("window")) and window.get("of", "now") != "now":
            chosen["window"] = {**window, "of": pointer(window["of"])}
    return chosen


def running_loop(operation: str) -> asyncio.AbstractEventLoop:
    """The event loop of asyncio, in which an async call waits for the ledger."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise InvalidCall(
            f"{operation}: async calls need an event loop of asyncio, and none is running here", operation=operation
        ) from None


def check_known(name: str, settings: Mapping[str, Any]) -> None:
    """Refuses unknown settings."""
    if unknown := set(settings) - set(Settings.__annotations__):
        raise InvalidCall(f"unknown settings: {', '.join(sorted(unknown))}", operation=name)


def checked_tenant(tenant: str | None) -> str | None:
    """A tenant that the user gave. An empty one must not become the default tenant."""
    if tenant is None or (isinstance(tenant, str) and tenant):
        return tenant and _checked_text("", "tenant", tenant)
    raise InvalidCall("a tenant is a text that is not empty")


def log_not_kept(intent: str, result: object) -> None:
    """Warns of a result that repeats will not get."""
    _log.warning(
        "%s is done, but its result (%s) cannot be kept: repeats get OutcomeNotKept. Annotate the return type, or return JSON's "
        "own types.",
        intent,
        type(result).__qualname__,
    )


def tenant_of(operation: str, tenant: Any, /, *args: Any, **kwargs: Any) -> str | None:
    """The tenant of a call: fixed, or computed from what the call is about. A function that finds none must not lead to the
    intents of the default tenant."""
    if not callable(tenant):
        return checked_tenant(tenant)
    found = tenant(*args, **kwargs)
    if not found or not isinstance(found, str):
        raise InvalidCall(
            f"{operation}: tenant= returned no tenant; a tenant is a text that is not empty", operation=operation
        )
    return _checked_text(operation, "tenant", found)


def own_key(operation: str, found: Any) -> str:
    """The key that a function of the user's returned. An empty one would be one intent for all calls."""
    if not isinstance(found, str):
        raise InvalidCall(f"{operation}: key= returned {type(found).__name__}, and a key is a str", operation=operation)
    if not found:
        raise InvalidCall(f"{operation}: key= returned an empty text, which would be one key for all calls", operation=operation)
    return _checked_text(operation, "key", found)


def _checked(name: str, settings: Mapping[str, Any], has_own_key: bool) -> dict[str, Any]:
    """The settings that are given. Refuses those that would have no effect."""
    check_known(name, settings)
    chosen = {setting: value for setting, value in settings.items() if value is not None}
    for setting in ("match", "normalise"):
        if isinstance(chosen.get(setting), str):
            raise InvalidCall(f"{name}: {setting}= is a list: {setting}=[{chosen[setting]!r}]", operation=name)
        _check_is_list(name, setting, chosen.get(setting, ()))
    if has_own_key:
        for setting in ("match", "normalise", "window", "allow_volatile"):
            if chosen.pop(setting, None):
                raise InvalidCall(f"{name}: {setting}= needs the fields that make the intent, not a key", operation=name)
    return chosen


def _check_is_list(name: str, setting: str, given: object) -> None:
    """Refuses an iterator: it is empty after its first use, and what it named would not count."""
    if not isinstance(given, Collection):
        raise InvalidCall(f"{name}: {setting}= is a list, not {type(given).__name__}", operation=name)


def _note(error: BaseException, native: NativeClaim, ending: str) -> None:
    """Says in the traceback what became of the intent, where that needs a person."""
    if ending != "in_doubt":
        return
    # A class of the user's may refuse attributes in any way.
    with contextlib.suppress(Exception):
        setattr(error, IN_DOUBT, True)
    # Python 3.10 has no notes.
    if add_note := getattr(error, "add_note", None):
        held = "" if native.may_be_taken_over else ", and repeats are held"
        add_note(f"onceward: {native.intent} is now in doubt: it may have happened{held}")


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


def _checked_text(operation: str, name: str, text: str) -> str:
    """Refuses a text that no encoding can write, as Python makes them of file names that are not UTF-8."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            about = f"{operation}: the" if operation else "the"
            why = f"{about} {name} contains half of a surrogate pair, which is not a character"
            raise InvalidCall(why, operation=operation) from None
    return text


def check_key(operation: str, key: str | None, session: str | None) -> None:
    """Refuses a key that is not a text, and a session for a key of the caller's own: only derived keys contain the session."""
    if key is not None and not isinstance(key, str):
        raise InvalidCall(f"{operation}: a key is a str, not {type(key).__name__}", operation=operation)
    for name, text in (("key", key), ("session", session)):
        if text is not None:
            _checked_text(operation, name, text)
    if key is not None and session is not None:
        raise InvalidCall(
            f"{operation}: a key of your own names the intent in every session. Put the session into the key, or let the key "
            "be derived with key=[...]",
            operation=operation,
        )
