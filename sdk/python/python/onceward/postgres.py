"""Queues intents in the caller's own PostgreSQL transaction: the entry and the rows beside it commit together, or not at all.

    with connection.transaction():
        connection.execute("INSERT INTO invoice …")
        onceward.postgres.enqueue(connection, "send_mail", letter, key="invoice-7")

Works with connections of psycopg 3, asyncpg and SQLAlchemy. It never commits, and needs no ledger: the database has one after
`onceward migrate`. Keys and fingerprints are those of `ledger.enqueue`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, Union

from ._errors import Collision, InFlight, InvalidCall, Mismatch
from ._native import sql_entry
from ._once import SessionRule, checked_session
from ._operation import Duration, Tier, Window, check_key, checked_tenant, prepared_settings, session_of
from ._outbox import Enqueued, EntryKey, EntryState, Priority, entry_options, key_parts, told
from ._results import Codec

__all__ = ["enqueue", "enqueue_async"]

# A claim that ended before it sent anything is free for the next caller of a server, which comes soon.
_LAPSED_SECONDS = 1.0

_COLUMNS = "decision, verdict, body, attempt, extract(epoch FROM retry_after)::float8"

_STATES: dict[str, EntryState] = {
    "created": "queued", "queued": "queued", "in_flight": "running", "in_doubt": "in_doubt", "dead": "dead", "replay": "done",
    "outcome_not_kept": "done",
}  # fmt: skip

InDoubt = Literal["hold", "retry", "probe"]


def enqueue(
    connection: Any,
    operation: str,
    payload: Any,
    *,
    key: EntryKey = None,
    match: Sequence[str] = (),
    normalise: Sequence[str] = (),
    window: Window | None = None,
    allow_volatile: bool = False,
    session: SessionRule = None,
    tenant: str | None = None,
    delay: Duration | None = None,
    deliver_within: Duration | None = None,
    priority: Priority | None = None,
    keep_payload: bool = False,
    max_attempts: int | None = None,
    tier: Tier | None = None,
    retention: Duration | None = None,
    tombstone: Duration | None = None,
    in_doubt: InDoubt | None = None,
    result: Any = Any,
) -> Enqueued:
    """Queues an intent in the transaction of this connection: of psycopg, or of SQLAlchemy (also a session). It never commits.

    The arguments are those of `ledger.enqueue`. While another transaction queues the same intent, it raises `InFlight`: roll
    back and run the transaction again, because the other one may roll back too.
    """
    entry = _SqlEntry.make(
        operation, payload, key, session, tenant,
        {
            "match": match, "normalise": normalise, "window": window, "allow_volatile": allow_volatile, "tier": tier,
            "retention": retention, "tombstone": tombstone, "in_doubt": in_doubt,
        },
        entry_options(operation, delay, deliver_within, priority, keep_payload, max_attempts), result,
    )  # fmt: skip
    library = _library_of(connection)
    if library == "psycopg":
        return entry.read(_with_psycopg(connection, entry))
    if library == "sqlalchemy":
        return entry.read(connection.execute(*_for_sqlalchemy(entry)).one())
    raise _refused(connection, "enqueue")


async def enqueue_async(
    connection: Any,
    operation: str,
    payload: Any,
    *,
    key: EntryKey = None,
    match: Sequence[str] = (),
    normalise: Sequence[str] = (),
    window: Window | None = None,
    allow_volatile: bool = False,
    session: SessionRule = None,
    tenant: str | None = None,
    delay: Duration | None = None,
    deliver_within: Duration | None = None,
    priority: Priority | None = None,
    keep_payload: bool = False,
    max_attempts: int | None = None,
    tier: Tier | None = None,
    retention: Duration | None = None,
    tombstone: Duration | None = None,
    in_doubt: InDoubt | None = None,
    result: Any = Any,
) -> Enqueued:
    """`enqueue` for async connections: of asyncpg, psycopg, or SQLAlchemy (also a session)."""
    entry = _SqlEntry.make(
        operation, payload, key, session, tenant,
        {
            "match": match, "normalise": normalise, "window": window, "allow_volatile": allow_volatile, "tier": tier,
            "retention": retention, "tombstone": tombstone, "in_doubt": in_doubt,
        },
        entry_options(operation, delay, deliver_within, priority, keep_payload, max_attempts), result,
    )  # fmt: skip
    library = _library_of(connection)
    if library == "asyncpg":
        statement, values = entry.statement(lambda number, _name: f"${number}")
        return entry.read(await connection.fetchrow(statement, *values))
    if library == "psycopg async":
        return entry.read(await _with_async_psycopg(connection, entry))
    if library == "sqlalchemy async":
        return entry.read((await connection.execute(*_for_sqlalchemy(entry))).one())
    raise _refused(connection, "enqueue_async")


@dataclass(frozen=True)
class _SqlEntry:
    """An entry that is about to be queued: the arguments of `onceward.enqueue` by their names, without those that are not given."""

    arguments: dict[str, Any]
    about: dict[str, Any]
    codec: Codec

    @classmethod
    def make(
        cls,
        operation: str,
        payload: Any,
        key: EntryKey,
        session: SessionRule,
        tenant: str | None,
        settings: dict[str, Any],
        options: dict[str, Any],
        result: Any,
    ) -> _SqlEntry:
        own_key, fields = key_parts(operation, key)
        chosen_session = session_of(checked_session(session), operation, (), {})
        check_key(operation, own_key, chosen_session)
        chosen = prepared_settings(operation, settings, fields)
        derived = sql_entry(
            operation, json.dumps(chosen), checked_tenant(tenant), chosen_session, own_key, payload, options
        )
        keeps = {name: derived[name] for name in ("retention", "tombstone") if name in chosen or "window" in chosen}
        if "retention" in keeps and keeps["retention"] is None and chosen.get("tier") != "forever":
            raise InvalidCall(f'{operation}: for a retention without an end, use tier="forever"', operation=operation)
        given = {
            **{name: _interval(seconds) for name, seconds in keeps.items()},
            "tier": chosen.get("tier"),
            "in_doubt": chosen.get("in_doubt"),
            "delay": _interval(derived["delay"] or None),
            "deliver_within": _interval(derived["deliver_within"]),
            "priority": options["priority"],
            "keep_payload": options["keep_payload"] or None,
            "max_attempts": options["max_attempts"],
        }
        about = {"operation": operation, **{name: derived[name] for name in ("tenant", "key", "intent")}}
        arguments = {
            "operation": operation,
            **{name: derived[name] for name in ("key", "payload", "tenant", "fingerprint")},
            # The functions of an older database have fewer arguments, and are called without those.
            **{name: value for name, value in given.items() if value is not None},
        }
        return cls(arguments, about, Codec(annotation=result))

    def statement(self, placeholder: Callable[[int, str], str]) -> tuple[str, list[Any]]:
        """The call, with a placeholder for each argument, and the values in their order."""
        places = [f"{name} => {placeholder(number, name)}" for number, name in enumerate(self.arguments, 1)]
        return f"SELECT {_COLUMNS} FROM onceward.enqueue({', '.join(places)})", list(self.arguments.values())

    def read(self, row: Any) -> Enqueued:
        """The answer of the function as the caller gets it."""
        decision, verdict, body, attempt, retry_after = row
        intent = self.about["intent"]
        if decision == "mismatch":
            raise Mismatch(f"{intent} is queued with another request; nothing was queued", **self.about)
        if decision == "collision":
            raise Collision(f"{intent}: two intents have the same derived key; nothing was queued", **self.about)
        # Without an attempt there is no record yet: another transaction holds the key.
        if decision == "lapsed" or (decision == "in_flight" and attempt is None):
            seconds = _LAPSED_SECONDS if retry_after is None else float(retry_after)
            text = f"{intent} was not queued: another transaction or server has it now. Roll back, and run the transaction again"
            raise InFlight(text, **self.about, retry_after=seconds)
        state = _STATES[decision]
        kept = None if decision != "replay" else _Kept(bytes(body or b""), verdict == "success", intent, self.about)
        return told(self.codec, decision == "created", state, kept, self.about)


@dataclass(frozen=True)
class _Kept:
    """An outcome as the function of the database returns it."""

    body: bytes
    is_success: bool
    intent: str
    about: dict[str, Any]


def _interval(seconds: Union[float, None]) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


# The libraries.


def _library_of(connection: Any) -> str | None:
    """Which library a connection is of, without importing any."""
    for kind in type(connection).__mro__:
        package, name = kind.__module__.partition(".")[0], kind.__name__
        if package == "psycopg" and name in ("BaseConnection", "BaseCursor"):
            return "psycopg async" if _is_async_psycopg(connection) else "psycopg"
        if package == "asyncpg" and name in ("Connection", "PoolConnectionProxy"):
            return "asyncpg"
        if package == "sqlalchemy" and name in ("AsyncConnection", "AsyncSession", "async_scoped_session"):
            return "sqlalchemy async"
        if package == "sqlalchemy" and name in ("Connection", "Session", "scoped_session"):
            return "sqlalchemy"
    return None


def _is_async_psycopg(connection: Any) -> bool:
    names = {kind.__name__ for kind in type(connection).__mro__}
    return not names.isdisjoint(("AsyncConnection", "AsyncCursor"))


def _with_psycopg(connection: Any, entry: _SqlEntry) -> Any:
    from psycopg.rows import tuple_row

    statement, values = entry.statement(lambda _number, _name: "%s")
    # A cursor of the caller's may have rows that it still reads.
    with getattr(connection, "connection", connection).cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(statement, values).fetchone()


async def _with_async_psycopg(connection: Any, entry: _SqlEntry) -> Any:
    from psycopg.rows import tuple_row

    statement, values = entry.statement(lambda _number, _name: "%s")
    async with getattr(connection, "connection", connection).cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(statement, values)
        return await cursor.fetchone()


def _for_sqlalchemy(entry: _SqlEntry) -> tuple[Any, dict[str, Any]]:
    from sqlalchemy import text

    statement, _ = entry.statement(lambda _number, name: f":{name}")
    return text(statement), entry.arguments


def _refused(connection: Any, called: str) -> InvalidCall:
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    other = {"enqueue": "enqueue_async", "enqueue_async": "enqueue"}[called]
    if _library_of(connection):
        return InvalidCall(f"{kind} is for onceward.postgres.{other}")
    return InvalidCall(
        f"{kind} is not a connection of psycopg 3, asyncpg or SQLAlchemy. Pass the connection, or the session of SQLAlchemy, that "
        "has your transaction, and no pool or engine"
    )
