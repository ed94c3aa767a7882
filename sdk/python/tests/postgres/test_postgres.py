"""Entries in the caller's own transaction, with each library: the entry and the row beside it commit together."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from datetime import date, timedelta
from typing import Any

import asyncpg
import onceward
import onceward.postgres
import psycopg
import psycopg.rows
import pytest
import sqlalchemy
import sqlalchemy.ext.asyncio
import sqlalchemy.orm
from onceward import Enqueued, InFlight, InvalidCall, Ledger, Mismatch

INSERT = "INSERT INTO public.invoice (name) VALUES ('i-7')"


class Undo(Exception):
    """Rolls a transaction back."""


def with_driver(url: str, driver: str) -> str:
    return url.replace("postgres://", f"postgresql+{driver}://")


def plain(url: str) -> str:
    return url.replace("postgres://", "postgresql://")


# One transaction with each library: it inserts a row, queues an entry, and commits, or rolls back if it is told so.


def in_psycopg(url: str, undo: bool, **entry: Any) -> Enqueued:
    with psycopg.connect(url) as connection:
        connection.execute(INSERT)
        queued = onceward.postgres.enqueue(connection, "mail", **entry)
        if undo:
            raise Undo
    return queued


def in_a_psycopg_cursor(url: str, undo: bool, **entry: Any) -> Enqueued:
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO public.invoice (name) VALUES ('i-7') RETURNING name")
        queued = onceward.postgres.enqueue(cursor, "mail", **entry)
        assert cursor.fetchone() == {"name": "i-7"}
        if undo:
            raise Undo
    return queued


def in_async_psycopg(url: str, undo: bool, **entry: Any) -> Enqueued:
    async def main() -> Enqueued:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await connection.execute(INSERT)
            queued = await onceward.postgres.enqueue_async(connection, "mail", **entry)
            if undo:
                raise Undo
        return queued

    return asyncio.run(main())


def in_asyncpg(url: str, undo: bool, **entry: Any) -> Enqueued:
    async def main() -> Enqueued:
        connection = await asyncpg.connect(url)
        try:
            async with connection.transaction():
                await connection.execute(INSERT)
                queued = await onceward.postgres.enqueue_async(connection, "mail", **entry)
                if undo:
                    raise Undo
            return queued
        finally:
            await connection.close()

    return asyncio.run(main())


def in_an_asyncpg_pool(url: str, undo: bool, **entry: Any) -> Enqueued:
    async def main() -> Enqueued:
        async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
            async with pool.acquire() as connection, connection.transaction():
                await connection.execute(INSERT)
                queued = await onceward.postgres.enqueue_async(connection, "mail", **entry)
                if undo:
                    raise Undo
            return queued

    return asyncio.run(main())


def in_sqlalchemy(url: str, undo: bool, **entry: Any) -> Enqueued:
    engine = sqlalchemy.create_engine(with_driver(url, "psycopg"))
    try:
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text(INSERT))
            queued = onceward.postgres.enqueue(connection, "mail", **entry)
            if undo:
                raise Undo
        return queued
    finally:
        engine.dispose()


def in_a_session(url: str, undo: bool, **entry: Any) -> Enqueued:
    engine = sqlalchemy.create_engine(with_driver(url, "psycopg"))
    try:
        with sqlalchemy.orm.Session(engine) as session, session.begin():
            session.execute(sqlalchemy.text(INSERT))
            queued = onceward.postgres.enqueue(session, "mail", **entry)
            if undo:
                raise Undo
        return queued
    finally:
        engine.dispose()


@contextlib.asynccontextmanager
async def async_engine(url: str, driver: str) -> AsyncIterator[Any]:
    engine = sqlalchemy.ext.asyncio.create_async_engine(with_driver(url, driver))
    try:
        yield engine
    finally:
        await engine.dispose()


def in_async_sqlalchemy(url: str, undo: bool, **entry: Any) -> Enqueued:
    async def main() -> Enqueued:
        async with async_engine(url, "asyncpg") as engine, engine.begin() as connection:
            await connection.execute(sqlalchemy.text(INSERT))
            queued = await onceward.postgres.enqueue_async(connection, "mail", **entry)
            if undo:
                raise Undo
        return queued

    return asyncio.run(main())


def in_an_async_session(url: str, undo: bool, **entry: Any) -> Enqueued:
    async def main() -> Enqueued:
        async with async_engine(url, "psycopg") as engine:
            async with sqlalchemy.ext.asyncio.AsyncSession(engine) as session, session.begin():
                await session.execute(sqlalchemy.text(INSERT))
                queued = await onceward.postgres.enqueue_async(session, "mail", **entry)
                if undo:
                    raise Undo
        return queued

    return asyncio.run(main())


EVERY = [
    in_psycopg, in_a_psycopg_cursor, in_async_psycopg, in_asyncpg, in_an_asyncpg_pool, in_sqlalchemy, in_a_session,
    in_async_sqlalchemy, in_an_async_session,
]  # fmt: skip
Transaction = Callable[..., Enqueued]


def counted(url: str) -> tuple[int, int]:
    """Rows and entries."""
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT count(*) FROM public.invoice").fetchone()
    with Ledger(url) as ledger:
        return (rows or (0,))[0], len(ledger.list())


@dataclasses.dataclass
class Letter:
    to: str
    day: date


LETTER = Letter("ada", date(2026, 11, 19))


@pytest.mark.parametrize("transaction", EVERY)
def test_the_entry_and_the_row_commit_together(database: str, transaction: Transaction) -> None:
    with pytest.raises(Undo):
        transaction(database, True, payload=LETTER, key="i-7", tier="email", delay="1h")
    assert counted(database) == (0, 0)
    queued = transaction(database, False, payload=LETTER, key="i-7", tier="email", delay="1h")
    assert (queued.created, queued.state, queued.key) == (True, "queued", "i-7") and queued.intent.startswith("mail#")
    assert counted(database) == (1, 1)
    again = transaction(database, False, payload=LETTER, key="i-7", tier="email", delay="1h")
    assert (again.created, again.state) == (False, "queued")
    with pytest.raises(Mismatch):
        transaction(database, True, payload=Letter("bob", LETTER.day), key="i-7")


@pytest.mark.parametrize(
    "entry",
    [
        {"key": "i-7"},
        {},
        {"key": ["to"], "match": ["day"]},
        {"key": ["to"], "normalise": ["trim"]},
        {"key": ["to"], "window": {"of": "day", "every": "day", "zone": "UTC"}},
        {"session": "conversation-1"},
        {"tenant": "acme", "key": "i-7"},
    ],
)
def test_sql_and_the_ledger_give_an_entry_the_same_key_and_fingerprint(database: str, entry: dict[str, Any]) -> None:
    with psycopg.connect(database) as connection:
        first = onceward.postgres.enqueue(connection, "mail", LETTER, **entry)
    with Ledger(database) as ledger:
        again = ledger.enqueue("mail", LETTER, **entry)
        assert (first.created, again.created) == (True, False)
        assert (first.key, first.intent) == (again.key, again.intent)
        ledger.enqueue("note", LETTER, **entry)
    with psycopg.connect(database) as connection:
        assert not onceward.postgres.enqueue(connection, "note", LETTER, **entry).created


def test_no_commit_is_made(database: str) -> None:
    with psycopg.connect(database) as connection, Ledger(database) as ledger:
        onceward.postgres.enqueue(connection, "mail", LETTER, key="i-7")
        assert ledger.list() == []
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
        connection.rollback()
        assert ledger.list() == []


def test_while_another_transaction_queues_it_the_caller_is_told_to_run_again(database: str) -> None:
    with psycopg.connect(database) as one, psycopg.connect(database) as other:
        onceward.postgres.enqueue(one, "mail", LETTER, key="i-7")
        with pytest.raises(InFlight) as caught:
            onceward.postgres.enqueue(other, "mail", LETTER, key="i-7")
        assert 0 < caught.value.retry_after <= 1 and caught.value.key == "i-7"
        other.rollback()
        one.rollback()
        # The first one rolled back, so an answer that it was queued would have lost the entry.
        assert onceward.postgres.enqueue(other, "mail", LETTER, key="i-7").created


def test_an_intent_that_is_done_answers_with_its_result(database: str) -> None:
    with Ledger(database) as ledger:
        ledger.call("mail", key="a", intent=LETTER, result=date).run(lambda: date(2026, 11, 20))

        def declined() -> str:
            raise onceward.Permanent("no such customer")

        with pytest.raises(onceward.Permanent):
            ledger.call("mail", key="b", intent=LETTER).run(declined)
        with ledger.begin("mail", key="c", intent=LETTER), psycopg.connect(database) as connection:
            assert onceward.postgres.enqueue(connection, "mail", LETTER, key="c").state == "running"
    with psycopg.connect(database) as connection:
        done = onceward.postgres.enqueue(connection, "mail", LETTER, key="a", result=date)
        failed = onceward.postgres.enqueue(connection, "mail", LETTER, key="b")
    assert (done.created, done.state, done.result) == (False, "done", date(2026, 11, 20))
    assert isinstance(failed.error, onceward.Failed) and "no such customer" in failed.error.reason


def test_the_terms_are_written_into_the_entry(database: str) -> None:
    with psycopg.connect(database) as connection:
        onceward.postgres.enqueue(
            connection, "mail", LETTER, key="a", tier="payment", retention="3d", tombstone=timedelta(days=9), in_doubt="retry"
        )
        onceward.postgres.enqueue(connection, "mail", LETTER, key="b", tier="forever")
    with Ledger(database) as ledger:
        terms = [ledger.get("mail", key).record["record"]["terms"] for key in ("a", "b")]  # type: ignore[union-attr]
    day = 86_400_000
    assert (terms[0]["retention"], terms[0]["tombstone"], terms[0]["in_doubt"]) == (3 * day, 9 * day, "retry")
    assert terms[1]["retention"] is None


def test_only_arguments_that_are_given_are_passed() -> None:

    entry = onceward.postgres._SqlEntry.make("mail", 1, "k", None, None, {}, _options(), Any)
    assert list(entry.arguments) == ["operation", "key", "payload", "tenant", "fingerprint"]
    options = _options(deliver_within="1h", priority="high", keep_payload=True, max_attempts=2)
    entry = onceward.postgres._SqlEntry.make("mail", 1, "k", None, None, {}, options, Any)
    statement, values = entry.statement(lambda number, _name: f"${number}")
    assert "deliver_within => $6, priority => $7, keep_payload => $8, max_attempts => $9)" in statement
    assert values[5:] == [timedelta(hours=1), "high", True, 2]


def _options(**given: Any) -> dict[str, Any]:
    nothing = {"delay": None, "deliver_within": None, "priority": None, "keep_payload": False, "max_attempts": None}
    return nothing | given


def test_what_is_not_a_connection_of_the_kind_is_refused(database: str) -> None:
    engine = sqlalchemy.create_engine(with_driver(database, "psycopg"))
    for wrong in (object(), engine, database):
        with pytest.raises(InvalidCall, match="connection"):
            onceward.postgres.enqueue(wrong, "mail", LETTER)
        with pytest.raises(InvalidCall, match="connection"):
            asyncio.run(onceward.postgres.enqueue_async(wrong, "mail", LETTER))
    with psycopg.connect(database) as connection:
        with pytest.raises(InvalidCall, match=r"onceward\.postgres\.enqueue$"):
            asyncio.run(onceward.postgres.enqueue_async(connection, "mail", LETTER))
        with pytest.raises(InvalidCall, match="tier"):
            onceward.postgres.enqueue(connection, "mail", LETTER, retention="forever")
        with pytest.raises(InvalidCall):
            onceward.postgres.enqueue(connection, "mail", object())
        connection.execute("SELECT 1")
    assert counted(database) == (0, 0)
