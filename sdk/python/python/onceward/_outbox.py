"""Queues intents for a courier, and says how they stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Union, cast

from ._errors import Error, Failed, InvalidCall, OutcomeNotKept, Unreadable
from ._native import Stored
from ._operation import Duration, KeptOutcome, Operation, check_key, duration_text, read_outcome, session_of
from ._results import Codec

EntryState = Literal["queued", "running", "open", "in_doubt", "done", "tombstone", "dead"]
Priority = Literal["high", "normal", "low"]

# A key of one's own, or the fields of the payload that make it.
EntryKey = Union[str, Sequence[str], None]

# More attempts than any downstream should get.
_MOST_ATTEMPTS = 1_000_000


@dataclass(frozen=True)
class Enqueued:
    """An intent in the outbox."""

    # Whether this call queued it. Otherwise it was there already.
    created: bool
    state: EntryState
    # The name of the intent in messages: never the key.
    intent: str
    key: str = field(repr=False)
    # What the delivery returned, once it is done.
    result: Any = field(default=None, repr=False)
    # Why there is no result although it is done: `Failed`, `OutcomeNotKept` or `Unreadable`.
    error: Error | None = None

    @property
    def is_done(self) -> bool:
        """Whether it is over: it was delivered, or failed for good (`error`)."""
        return self.state in ("done", "tombstone")


def key_parts(operation: str, key: object) -> tuple[str | None, Sequence[str] | None]:
    """The caller's own key, or the fields that make it."""
    if key is None or isinstance(key, str):
        return key, None
    if not isinstance(key, Sequence) or not all(isinstance(one, str) for one in cast("Sequence[object]", key)):
        raise InvalidCall(
            f"{operation}: key= is a text, or a list of the fields of the payload that make the key", operation=operation
        )
    return None, cast("Sequence[str]", key)


def entry_options(
    operation: str,
    delay: Duration | None,
    deliver_within: Duration | None,
    priority: Priority | None,
    keep_payload: bool,
    max_attempts: int | None,
) -> dict[str, Any]:
    """How an entry is queued, for the native module."""
    if max_attempts is not None and not (type(max_attempts) is int and 0 < max_attempts <= _MOST_ATTEMPTS):
        raise InvalidCall(f"{operation}: max_attempts is a number from 1 to {_MOST_ATTEMPTS:,}", operation=operation)
    if priority is not None and not isinstance(priority, str):
        raise InvalidCall(f'{operation}: priority is "high", "normal" or "low"', operation=operation)
    return {
        "delay": None if delay is None else duration_text(delay),
        "deliver_within": None if deliver_within is None else duration_text(deliver_within),
        "priority": priority,
        "keep_payload": bool(keep_payload),
        "max_attempts": max_attempts,
    }


def asked_by_courier() -> Any:
    """Stands for the probe of an entry with `in_doubt="probe"`: the sink of its courier is asked, and never this function."""
    raise AssertionError("an entry is looked up by its courier")


@dataclass(frozen=True)
class Entry:
    """An entry that is about to be queued."""

    operation: Operation
    session: str | None
    key: str | None
    payload: Any
    options: dict[str, Any]

    @classmethod
    def make(cls, operation: Operation, session: object, key: str | None, payload: Any, options: dict[str, Any]) -> Entry:
        chosen_session = session_of(session, operation.name, (), {})
        check_key(operation.name, key, chosen_session)
        return cls(operation, chosen_session, key, payload, options)

    def start(self, event_loop: Any) -> Any:
        """Queues it: returns the native answer, or with an event loop what `settled` takes."""
        operation = self.operation
        return operation.native.enqueue(event_loop, operation.tenant, self.session, self.key, self.payload, self.options)

    def read(self, answer: tuple[bool, EntryState, Stored | None, dict[str, Any]]) -> Enqueued:
        """The native answer as the caller gets it."""
        created, state, stored, about = answer
        return told(self.operation.codec, created, state, stored, about)


def told(
    codec: Codec, created: bool, state: EntryState, stored: KeptOutcome | None, about: dict[str, Any]
) -> Enqueued:
    """How an entry stands, as the caller gets it."""
    result, error = None, None
    intent = about.get("intent", "")
    if stored is not None:
        try:
            result = read_outcome(codec, stored)
        except (Failed, OutcomeNotKept, Unreadable) as problem:
            error = problem.with_traceback(None)
    elif state in ("done", "tombstone"):
        error = OutcomeNotKept(f"{intent} is done, and its result is not kept", **about)
    return Enqueued(created, state, intent, about.get("key", ""), result, error)
