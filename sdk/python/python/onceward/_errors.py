"""What a guarded call can raise. Every error names the intent by its operation and a short hash, never by its arguments."""

from __future__ import annotations

import shlex
from datetime import datetime, timezone
from typing import Any

# What a model must not do after an unknown outcome; the same words for every surface.
DO_NOT_REPEAT = "Do not call it again with other arguments or under another name: that could do it twice."


class Error(Exception):
    """The base of all errors of Onceward.

    `intent` is the masked name of the intent, `operation`, `tenant` and `key` identify it, and `store` is the ledger. They
    are empty where they are not known.
    """

    def __init__(self, message: str = "", **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self._fields = fields
        self.intent: str = fields.get("intent", "")
        self.operation: str = fields.get("operation", "")
        self.tenant: str = fields.get("tenant", "")
        self.key: str = fields.get("key", "")
        self.store: str = fields.get("store", "")

    def __reduce__(self) -> tuple[Any, ...]:
        notes = getattr(self, "__notes__", None)
        return (_restored, (type(self), self.message, self._fields), {"__notes__": notes} if notes else None)

    def for_model(self) -> str:
        """A text that is safe to show to a model: what is known and what to do, without keys, paths or arguments."""
        return f"{self._name()} was not carried out. {self._advice()}"

    def _name(self) -> str:
        return self.operation or "The call"

    def _advice(self) -> str:
        return "Report this to the user."


class InvalidCall(Error, ValueError):
    """The call or a setting is wrong; nothing was written, and nothing ran."""

    def for_model(self) -> str:
        return f"{self._name()} was not carried out: its arguments cannot be used. Nothing happened."


class InvalidValue(InvalidCall, TypeError):
    """A value cannot be part of a key: its text could change between two runs. Nothing ran."""


class InFlight(Error):
    """Another caller is doing the work now (`is_running`), or it may not be tried again yet. Ask again in `retry_after`
    seconds."""

    def __init__(self, message: str = "", **fields: Any) -> None:
        super().__init__(message, **fields)
        self.retry_after: float = fields.get("retry_after", 0.0)
        self.is_running: bool = fields.get("is_running", True)

    def for_model(self) -> str:
        seconds = max(1, round(self.retry_after))
        if not self.is_running:
            return (
                f"{self._name()} was not carried out: it may not be tried again yet. Wait {seconds} s and make the same call "
                "again. Do not change the arguments."
            )
        return (
            f"The same call of {self._name()} is already running. Wait {seconds} s and make the same call again to get its "
            "result. Do not change the arguments."
        )


class InDoubt(Error):
    """An attempt may have happened; its outcome is unknown since `since`. Nothing runs until it is settled."""

    def __init__(self, message: str = "", **fields: Any) -> None:
        super().__init__(message, **fields)
        since = fields.get("since_ms")
        self.since: datetime | None = None if since is None else datetime.fromtimestamp(since / 1000, timezone.utc)

    @property
    def settle(self) -> str:
        """The command that settles it, once you know that it happened. With `--did-not-happen` it may run again."""
        return _resolve(self, "--happened")

    def __str__(self) -> str:
        if not self.operation or self.store == "memory:":
            return self.message
        return f"{self.message}:\n  {_resolve(self, '--happened')}\n  {_resolve(self, '--did-not-happen')}"

    def for_model(self) -> str:
        return (
            f"It is unknown whether an earlier call of {self._name()} took effect, so this call was not carried out. "
            f"{DO_NOT_REPEAT} Tell the user that a person has to check it."
        )


class Mismatch(Error):
    """The same key came with a different request. The same key must always mean the same request."""

    def for_model(self) -> str:
        return (
            f"{self._name()} was already called for the same purpose with other details, and was not carried out again. "
            "If the new details are right, tell the user; do not repeat the call."
        )


class Collision(Error):
    """Two different intents have the same derived key; nothing ran."""


class MixedUse(Error):
    """The key is used both by a stream and by calls with keys of their own; nothing ran."""


class OutOfOrder(Error):
    """Another item of the stream comes first: `expected`, where this call is `given`."""

    def __init__(self, message: str = "", **fields: Any) -> None:
        super().__init__(message, **fields)
        self.expected: int = fields.get("expected", 0)
        self.given: int = fields.get("given", 0)


class OutcomeNotKept(Error):
    """The work is done, but its result is not kept (any more). It will not run again."""

    def for_model(self) -> str:
        return f"{self._name()} was already carried out. Its result is no longer available. Do not call it again."


class AlreadyDone(Error):
    """The work of a `with` block is done; `value` is its result."""

    def __init__(self, message: str = "", **fields: Any) -> None:
        super().__init__(message, **fields)
        self.value: Any = fields.get("value")

    def for_model(self) -> str:
        return f"{self._name()} was already carried out. Do not call it again."


class Queued(Error):
    """The intent is queued for the courier."""


class Dead(Error):
    """All attempts are used up; the effect did not happen."""


class Failed(Error):
    """The effect failed for good before; `reason` is the message of that failure. The work did not run now."""

    def __init__(self, message: str = "", **fields: Any) -> None:
        super().__init__(message, **fields)
        self.reason: str = fields.get("reason", "")

    def for_model(self) -> str:
        return f"{self._name()} failed before in a way that does not change: the same call fails again. Do not repeat it."


class OwnerFailed(Error):
    """The attempt that this call waited for failed and was released; `reason` is its error. The call may be made again."""

    def __init__(self, message: str = "", **fields: Any) -> None:
        super().__init__(message, **fields)
        self.reason: str = fields.get("reason", "")

    def for_model(self) -> str:
        return f"{self._name()} failed and did not take effect. The same call may be made again."


class OwnerUnknown(Error):
    """The attempt that this call waited for may or may not have happened; the next call tries again with the same key."""

    def for_model(self) -> str:
        return f"{self._name()} got no answer. Make the same call again, with the same arguments."


class ClaimLost(Error):
    """The claim was lost while the work ran: another caller took over, or a person settled the intent."""

    def __init__(self, message: str = "", **fields: Any) -> None:
        super().__init__(message, **fields)
        self.result_json: bytes | None = fields.get("result_json")

    def for_model(self) -> str:
        return f"It is unknown whether {self._name()} took effect once. {DO_NOT_REPEAT} Tell the user."


class NotRecorded(Error):
    """The effect took place, but its outcome could not be recorded; `result_json` is the result."""

    def __init__(self, message: str = "", **fields: Any) -> None:
        super().__init__(message, **fields)
        self.result_json: bytes | None = fields.get("result_json")

    def for_model(self) -> str:
        return f"{self._name()} was carried out, but this could not be recorded. {DO_NOT_REPEAT} Tell the user."


class Unreadable(Error):
    """The stored result does not have the type that this caller expects; `result_json` is what is stored."""

    def __init__(self, message: str = "", **fields: Any) -> None:
        super().__init__(message, **fields)
        self.reason: str = fields.get("reason", "")
        self.result_json: bytes | None = fields.get("result_json")

    def for_model(self) -> str:
        return f"{self._name()} was already carried out. Its result cannot be shown. Do not call it again."


class QuotaReached(Error):
    """The tenant has as many records as it may have, and this key would need a new one; nothing ran."""


class Contended(Error):
    """The record changed again and again while this call tried to write to it. Try again."""


class StoreUnavailable(Error):
    """The store cannot be used, so nothing ran."""

    def for_model(self) -> str:
        return f"{self._name()} was not carried out, because its record could not be written. Nothing happened. Try later."


class NotAllowed(StoreUnavailable):
    """The server of the ledger refuses the token, or needs one; nothing ran."""

    def for_model(self) -> str:
        return f"{self._name()} was not carried out, because its record could not be written. Nothing happened. Tell the user."


class SessionRequired(InvalidCall):
    """The operation needs a session, and none is set: use `with onceward.session(...)`."""


def _resolve(error: Error, verdict: str) -> str:
    if error.store.lower().startswith(("http://", "https://")):
        from ._remote import settle_command

        return settle_command(error, happened=verdict == "--happened")
    # With `=`, because a key may begin with a dash.
    words = ["onceward", "resolve"]
    if error.store:
        words.append(f"--store={error.store}")
    if error.tenant and error.tenant != "default":
        words.append(f"--tenant={error.tenant}")
    words += [f"--operation={error.operation}", f"--key={error.key}", verdict]
    return shlex.join(words)


def _restored(kind: type[Error], message: str, fields: dict[str, Any]) -> Error:
    return kind(message, **fields)


_KINDS: dict[str, type[Error]] = {
    kind.__name__: kind
    for kind in (
        InvalidCall, InvalidValue, InFlight, InDoubt, Mismatch, Collision, MixedUse, OutOfOrder, OutcomeNotKept, Queued, Dead, Failed,
        OwnerFailed, OwnerUnknown, ClaimLost, NotRecorded, Unreadable, QuotaReached, Contended, StoreUnavailable,
        NotAllowed,
    )
}  # fmt: skip


def make(kind: str, message: str, fields: dict[str, Any]) -> Error:
    """The exception of a kind that the native module names."""
    return _KINDS[kind](message, **fields)
