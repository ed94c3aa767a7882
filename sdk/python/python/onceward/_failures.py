"""How a function says what became of its effect: it raises one of these, or `on_error` names the class of its exceptions."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Mapping
from datetime import timedelta
from typing import Literal, Union

from ._errors import InvalidCall
from ._native import is_lost_exit_code

Treatment = Literal["retry", "doubt", "keep"]
OnError = Union[Literal["classify"], Treatment, Mapping[type[BaseException], Treatment]]

# How many errors of a chain are looked at; a group may have many.
_MAX_CHAIN = 256

# Longer than the part of a text in which evidence is searched.
_MAX_TEXT = 20_000

# The mark of an exception that has left a guarded call.
_SPOKEN = "_onceward_spoken"

_CLASSES = {"retry": "not_sent", "doubt": "unknown", "keep": "permanent"}


# After these, something may have been sent, whatever their message says.
_LOST = (TimeoutError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError, EOFError, InterruptedError)


# The same for classes of other packages, by their names: importing them would cost time.
_LOST_NAMES = frozenset(
    ("SSLError", "BrokenExecutor", "ClientPayloadError", "StreamReset", "InterfaceError", "APIConnectionError")
    + ("ConnectionClosed", "ConnectionClosedError", "Cancelled", "DataLoss")
    # A database that does not know whether it has committed.
    + ("StatementCompletionUnknown", "TransactionResolutionUnknown")
    + ("StatementCompletionUnknownError", "TransactionResolutionUnknownError")
    # There was an answer, and it cannot be read.
    + ("BadStatusLine", "LineTooLong", "BadHttpMessage", "ContentTypeError", "DecodingError", "ContentDecodingError")
    + ("APIResponseValidationError", "ResponseParserError", "ResponseStreamingError")
)


class Failure(Exception):
    """An error that says what became of the effect. Raise one of its subclasses, `from` the original error."""

    kind = "unknown"
    retry_after: float | timedelta | None = None


class NotSent(Failure):
    """It never reached the downstream: nothing happened, and the next call may try."""

    kind = "not_sent"


class Refused(Failure):
    """The downstream says that it was not done, perhaps later: the next call may try, after `retry_after` seconds."""

    kind = "refused"

    def __init__(self, *args: object, retry_after: float | timedelta | None = None) -> None:
        super().__init__(*args)
        self.retry_after = retry_after


class Permanent(Failure):
    """The same request would fail in the same way again: kept, and raised to every repeat as `onceward.Failed`."""

    kind = "permanent"


class Unknown(Failure):
    """It may have happened: the intent is in doubt."""

    kind = "unknown"


def check(on_error: object) -> tuple[str, dict[type[BaseException], str]]:
    """The policy's word and the classes of exceptions, from what the user gave."""
    if isinstance(on_error, str):
        if on_error not in ("classify", *_CLASSES):
            raise InvalidCall(f'on_error is "classify", "retry", "doubt" or "keep", not {on_error!r}')
        return on_error, {}
    if not isinstance(on_error, Mapping):
        raise InvalidCall("on_error is a word, or a dict from exception classes to words")
    classes = {}
    for kind, treatment in on_error.items():
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise InvalidCall(f"on_error: {kind!r} is not a class of exceptions")
        if treatment not in _CLASSES:
            raise InvalidCall(f'on_error: {kind.__name__} is "retry", "doubt" or "keep", not {treatment!r}')
        classes[kind] = _CLASSES[treatment]
    return "classify", classes


def classify(error: BaseException, classes: dict[type[BaseException], str]) -> tuple[str | None, list[str], float | None]:
    """The class of an error, the messages of its chain, and when it may be tried again."""
    chain, is_complete = _chain(error)
    kind = _class_of(error, classes)
    if kind is None and (not is_complete or any(_class_of(one, classes) == "unknown" for one in chain)):
        # What an error came from, or a member of a group, can only add doubt.
        kind = "unknown"
    retry_after = _seconds(error.retry_after) if kind == "refused" and isinstance(error, Failure) else None
    messages = [_message(one) for one in chain]
    # An error without a message says nothing about the effect, unless it only led to one with a message.
    if not getattr(error, "exceptions", ()):
        messages[1:] = [message.removesuffix(": ") for message in messages[1:]]
    if any(_is_lost(one) for one in chain):
        messages.append("connection lost")
    return kind, messages, retry_after


def spoken(error: BaseException, number: int) -> None:
    """Marks an exception that a guarded call has recorded: it proves nothing about the work around that call. `number` is that of
    the claim."""
    # A class of the user's may refuse attributes in any way.
    with contextlib.suppress(Exception):
        setattr(error, _SPOKEN, number)


def forget_earlier(error: BaseException, number: int) -> None:
    """Takes the marks of calls away that did not begin inside of this one: a program may raise one exception again and again."""
    for one in _chain(error)[0]:
        if getattr(one, _SPOKEN, number) < number:
            with contextlib.suppress(Exception):
                delattr(one, _SPOKEN)


def _is_lost(error: BaseException) -> bool:
    if isinstance(error, _LOST) or (isinstance(error, OSError) and error.errno == errno.EIO):
        return True
    names = {kind.__name__ for kind in type(error).__mro__}
    if "CalledProcessError" in names:
        # A negative code is that of a signal, which ended it in the middle of its work.
        code = getattr(error, "returncode", 0)
        return isinstance(code, int) and (code < 0 or (code < 256 and is_lost_exit_code(code)))
    if {"JSONDecodeError", "RequestException"} <= names:
        # The body of a response, and not just any JSON.
        return True
    # A certificate is refused before anything is sent.
    if "SSLCertVerificationError" in names or "CERTIFICATE_VERIFY_FAILED" in _text(error):
        return False
    return not names.isdisjoint(_LOST_NAMES) or "(InternalFailure)" in _text(error)


def _class_of(error: BaseException, classes: dict[type[BaseException], str]) -> str | None:
    # The nearest class in the order of inheritance is the most specific one.
    for kind in type(error).__mro__:
        if kind in classes:
            return classes[kind]
        if kind is Failure and isinstance(error, Failure):
            # It spoke for the guarded call that it left. What the work around that call has done is unknown.
            is_proof = error.kind in ("not_sent", "refused")
            return None if is_proof and getattr(error, _SPOKEN, False) else error.kind
    # Ctrl-C, a cancelled task, the end of the program: the work was interrupted.
    return None if isinstance(error, Exception) else "unknown"


def _chain(error: BaseException) -> tuple[list[BaseException], bool]:
    """The error and those that it came from, and whether these are all."""
    found: list[BaseException] = []
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting and len(found) < _MAX_CHAIN:
        one = waiting.pop(0)
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        found.append(one)
        waiting.append(one.__cause__ or (None if one.__suppress_context__ else one.__context__))
        # The members of a group.
        members = getattr(one, "exceptions", ())
        if isinstance(members, (list, tuple)):
            waiting.extend(member for member in members if isinstance(member, BaseException))
    return found, not any(waiting)


def _message(error: BaseException) -> str:
    """The error as the last line of a traceback."""
    return f"{type(error).__name__}: {_text(error)}"


def _text(error: BaseException) -> str:
    try:
        # A name of a file may contain what is not text.
        return str(error)[:_MAX_TEXT].encode("utf-8", "replace").decode()
    except Exception:
        return ""


def _seconds(retry_after: object) -> float | None:
    seconds = retry_after.total_seconds() if isinstance(retry_after, timedelta) else retry_after
    return float(seconds) if isinstance(seconds, (int, float)) else None
