"""The ledger: records intents, lets one caller do the work, and gives every repeat the outcome."""

from __future__ import annotations

import asyncio
import json
import os
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from ._claim import Claim, begin, settled
from ._context import enter, leave
from ._courier import Courier, Sink, sinks_of
from ._errors import AlreadyDone, InvalidCall
from ._failures import OnError
from ._native import NativeClaim, NativeLedger, Stored, shown_store
from ._once import Guarded, KeyRule, SessionRule, TenantRule, checked_session
from ._operation import NOT_FOUND, Duration, Operation, Settings, check_key, check_known, checked_tenant, session_of
from ._outbox import Enqueued, Entry, EntryKey, Priority, asked_by_courier, entry_options, key_parts
from ._remote import token_for
from ._results import Codec

if TYPE_CHECKING:
    from typing_extensions import Unpack

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


# Numbers of items and limits are below this one, which no store can write.
_END = 2**63

# A person who settles an intent need not know its result.
_WITHOUT_RESULT: Any = object()


@dataclass(frozen=True)
class Intent:
    """An intent as it stands now."""

    status: str
    tenant: str
    operation: str
    key: str
    attempts: int
    version: int
    recorded_at: datetime
    doubt_since: datetime | None
    error: str | None
    # Everything that the ledger knows, as `onceward get --json` shows it.
    record: Mapping[str, Any]

    @property
    def when_in_doubt(self) -> str | None:
        """What happens to an intent in doubt: `hold`, `retry`, `probe` or `tell`. None for one that is not in doubt."""
        if self.status != "in_doubt":
            return None
        terms = (self.record.get("record") or {}).get("terms") or {}
        return str(terms.get("in_doubt", "hold"))


class Ledger:
    """A ledger: a file that any number of processes on this machine may share, `memory:`, or a server: `http://HOST:PORT`."""

    def __init__(
        self,
        store: str | os.PathLike[str] = "onceward.db",
        *,
        tenant: str | None = None,
        token: str | None = None,
        ca: str | os.PathLike[str] | None = None,
    ) -> None:
        """Opens the ledger, and creates the file if it is missing. `tenant` is whose intents these are; `default` unless given.

        For `onceward serve`, the store is its URL, `token` is its token or `env:NAME` (by default the variable
        `ONCEWARD_TOKEN`), and `ca` is a PEM file with CA certificates besides those of the system.
        """
        self.store = os.fspath(store)
        self.tenant = checked_tenant(tenant)
        token = token_for(self.store, token, ca, tenant)
        self._native = NativeLedger(self.store, token, None if ca is None else os.fspath(ca))
        self._functions: weakref.WeakSet[Guarded] = weakref.WeakSet()
        self._sinks: dict[str, Sink] = {}
        _ledgers.add(self)

    def _move_to(self, native: NativeLedger) -> None:
        """Uses another store from now on, for all guarded functions too. Only the test kit does this."""
        self._native = native
        for function in self._functions:
            function._move_to(native)

    @overload
    def once(self, function: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def once(
        self,
        /,
        *,
        operation: str | None = None,
        key: KeyRule = None,
        session: SessionRule = None,
        tenant: TenantRule = None,
        probe: Callable[..., Any] | None = None,
        **settings: Unpack[Settings],
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def once(
        self,
        function: Any = None,
        /,
        *,
        operation: str | None = None,
        key: KeyRule = None,
        session: SessionRule = None,
        tenant: TenantRule = None,
        probe: Callable[..., Any] | None = None,
        **settings: Any,
    ) -> Any:
        """Makes a function run once for each intent. The first call runs it; every repeat gets its result.

        `key` names the arguments that make the same intent; without it, all arguments do. `match` names arguments that must
        agree whenever the intent comes again. See `docs/guides/python.md` for all settings.
        """
        check_known(operation or "", settings)

        def decorate(decorated: Any) -> Any:
            if isinstance(decorated, (staticmethod, classmethod)):
                return type(decorated)(decorate(decorated.__func__))
            guarded = Guarded(
                self,
                decorated,
                operation=operation,
                key=key,
                session=session,
                tenant=tenant,
                probe=probe,
                settings=dict(settings),
            )
            return guarded.wrapper()

        return decorate if function is None else decorate(function)

    def call(
        self,
        operation: str,
        *,
        key: str | None = None,
        intent: Any = None,
        fields: Sequence[str] | None = None,
        item: tuple[str, int] | None = None,
        session: SessionRule = None,
        tenant: str | None = None,
        result: Any = Any,
        probe: Callable[..., Any] | None = None,
        **settings: Unpack[Settings],
    ) -> Call:
        """One guarded call without a decorator: `ledger.call("charge", key="invoice-7").run(charge, 1999)`.

        `key` is your own key; otherwise it is derived from `intent`, or from the `fields` of it. `item` is a stream and a
        number instead of a key. `result` is the type of the result, for repeats.
        """
        made = Operation.make(
            self._native,
            operation,
            settings,
            key=fields,
            codec=Codec(annotation=result),
            tenant=checked_tenant(tenant) or self.tenant,
            probe=probe,
        )
        chosen_session = session_of(checked_session(session), operation, (), {})
        check_key(operation, key, chosen_session)
        if item is not None:
            _check_item(operation, item)
        parts = (made.tenant, chosen_session, key, intent, item)
        return Call(made, parts)

    def begin(self, operation: str, **call: Any) -> Block:
        """A guarded `with` block: `with ledger.begin("charge", key="invoice-7") as claim:`. Takes what `call` takes."""
        return self.call(operation, **call).begin()

    def consume(self, source: str, message_id: str, **call: Any) -> Call:
        """A guarded call for a message from a queue: each message id of a source is handled once."""
        return self.call(f"consume:{source}", key=message_id, **call)

    def consume_event(self, source: str, aggregate: str, sequence: int, **call: Any) -> Call:
        """A guarded call for an event: each event of an aggregate is handled once, in the order of its sequence numbers."""
        return self.call(f"events:{source}", item=(aggregate, sequence), **call)

    # The outbox.

    def enqueue(
        self,
        operation: str,
        payload: Any,
        *,
        key: EntryKey = None,
        session: SessionRule = None,
        tenant: str | None = None,
        delay: Duration | None = None,
        deliver_within: Duration | None = None,
        priority: Priority | None = None,
        keep_payload: bool = False,
        max_attempts: int | None = None,
        result: Any = Any,
        **settings: Unpack[Settings],
    ) -> Enqueued:
        """Queues an intent for a courier, which delivers it: `ledger.enqueue("send_mail", letter, key="welcome-7")`.

        `payload` is JSON, by the same rules as a key. `key` is your own key, or a list of the fields of the payload that make
        it; without it, all of the payload does. Ten calls make one entry; with another payload (or other `match` fields), the
        same key is a `Mismatch`. `delay` is the time before the first attempt, `deliver_within` the time after which none is
        made any more. `result` is the type of the result, for an entry that is done.
        """
        entry = self._entry(
            operation, payload, key, session, tenant, result, settings,
            entry_options(operation, delay, deliver_within, priority, keep_payload, max_attempts),
        )  # fmt: skip
        return entry.read(entry.start(None))

    async def enqueue_async(
        self,
        operation: str,
        payload: Any,
        *,
        key: EntryKey = None,
        session: SessionRule = None,
        tenant: str | None = None,
        delay: Duration | None = None,
        deliver_within: Duration | None = None,
        priority: Priority | None = None,
        keep_payload: bool = False,
        max_attempts: int | None = None,
        result: Any = Any,
        **settings: Unpack[Settings],
    ) -> Enqueued:
        """`enqueue` for async code."""
        entry = self._entry(
            operation, payload, key, session, tenant, result, settings,
            entry_options(operation, delay, deliver_within, priority, keep_payload, max_attempts),
        )  # fmt: skip
        return entry.read(await settled(entry.start(asyncio.get_running_loop())))

    def _entry(
        self,
        operation: str,
        payload: Any,
        key: EntryKey,
        session: SessionRule,
        tenant: str | None,
        result: Any,
        settings: Mapping[str, Any],
        options: dict[str, Any],
    ) -> Entry:
        own_key, fields = key_parts(operation, key)
        chosen_tenant = checked_tenant(tenant) or self.tenant
        # The courier's sink is what is asked.
        probe = asked_by_courier if settings.get("in_doubt") == "probe" else None
        codec = Codec(annotation=result)
        made = Operation.make(
            self._native, operation, settings, key=fields, codec=codec, tenant=chosen_tenant, probe=probe
        )
        return Entry.make(made, checked_session(session), own_key, payload, options)

    def deliver(
        self,
        operation: str,
        *,
        sink: str | None = None,
        probe: Callable[..., Any] | None = None,
        on_error: OnError = "classify",
        concurrency: int | None = None,
        max_runtime: Duration = "60s",
        settle: Duration | None = None,
        passes_key: bool = False,
    ) -> Callable[[F], F]:
        """Makes a function the one that delivers the entries of an operation. It is called by `ledger.courier()`, with the payload
        read into the type of its argument, and stays as it is.

        `sink` is part of the downstream key: the name of the operation, unless given. `probe` is asked about an earlier attempt of an
        entry that was queued with `in_doubt="probe"`; for `settle` after that attempt, it is not believed when it finds nothing.
        `passes_key` passes the key of the intent on, instead of one that is derived from it. An exception without a class leaves a
        doubt, unless `on_error` says otherwise. See `docs/guides/python-outbox.md`.
        """

        def register(function: F) -> F:
            if operation in self._sinks:
                raise InvalidCall(f"{operation} is delivered by another function already", operation=operation)
            self._sinks[operation] = Sink.make(
                operation, function, sink=sink, probe=probe, on_error=on_error, concurrency=concurrency,
                max_runtime=max_runtime, settle=settle, passes_key=passes_key,
            )  # fmt: skip
            return function

        return register

    def courier(self, functions: Mapping[str, Callable[..., Any]] | None = None) -> Courier:
        """A courier that delivers entries to functions: to those of `@ledger.deliver`, or to these, by their operations."""
        return Courier(self, list(self._sinks.values()) if functions is None else sinks_of(functions))

    # Looking and settling.

    def get(self, operation: str, key: str, *, tenant: str | None = None) -> Intent | None:
        """An intent as it stands now, or None."""
        found = self._native.get(checked_tenant(tenant) or self.tenant or "default", operation, key)
        return None if found is None else _intent(json.loads(found))

    def list(self, *, state: str | None = None, tenant: str | None = None, limit: int | None = 50) -> list[Intent]:
        """The newest intents, of one state or all: `ledger.list(state="in_doubt")`. With `limit=None`, all of them.

        A ledger that was opened without a tenant lists the intents of every tenant.
        """
        if limit is not None and not 0 <= limit < _END:
            raise InvalidCall(f"limit= is a number of intents, or None for all of them, not {limit}")
        listed = json.loads(self._native.list(checked_tenant(tenant) or self.tenant, state, limit))
        return [_intent(one) for one in listed]

    @overload
    def resolve(
        self,
        intent: Intent,
        /,
        *,
        happened: bool,
        result: Any = _WITHOUT_RESULT,
        result_type: Any = Any,
        by: str | None = None,
        note: str | None = None,
    ) -> None: ...

    @overload
    def resolve(
        self,
        operation: str,
        key: str,
        *,
        happened: bool,
        result: Any = _WITHOUT_RESULT,
        result_type: Any = Any,
        tenant: str | None = None,
        version: int | None = None,
        by: str | None = None,
        note: str | None = None,
    ) -> None: ...

    def resolve(
        self,
        operation: str | Intent,
        key: str | None = None,
        *,
        happened: bool,
        result: Any = _WITHOUT_RESULT,
        result_type: Any = Any,
        tenant: str | None = None,
        version: int | None = None,
        by: str | None = None,
        note: str | None = None,
    ) -> None:
        """Settles an intent in doubt: it happened, with this result, or it did not.

        The intent is one that `list` or `get` returned, or an operation and a key. Without a result, repeats get None, or
        `OutcomeNotKept` where the function is annotated with another type. `result_type` is the return annotation of the
        function, unless its results are JSON's own types. `version` is the one that you looked at.
        """
        if isinstance(operation, Intent):
            if key is not None or tenant is not None or version is not None:
                raise InvalidCall("an intent has its own key, tenant and version")
            seen = operation
            # The tenant of a server is that of the token.
            tenant = "default" if self._native.is_remote else seen.tenant
            operation, key, version = seen.operation, seen.key, seen.version
        if key is None:
            raise InvalidCall("settle an intent that list() returned, or an operation and a key")
        chosen = checked_tenant(tenant) or self._only_tenant(operation, key)
        if version is None:
            found = self.get(operation, key, tenant=chosen)
            if found is None:
                raise InvalidCall(f"there is no such intent of {operation}", operation=operation, tenant=chosen)
            version = found.version
        outcome: bytes | None = None
        if happened:
            outcome = b"" if result is _WITHOUT_RESULT else Codec(annotation=result_type).write(result)
        if happened and outcome is None:
            raise InvalidCall("a result of this type cannot be kept: pass result_type=, or JSON's own types")
        self._native.resolve(chosen, operation, key, version, outcome, by, note)

    def _only_tenant(self, operation: str, key: str) -> str:
        """The tenant that is meant where none is named. Doubts of several tenants may have one key, and settling the wrong one
        would say that another customer's work is done."""
        if self.tenant is not None or self._native.is_remote:
            return self.tenant or "default"
        doubts = self.list(state="in_doubt", limit=None)
        others = [one for one in doubts if (one.operation, one.key) == (operation, key) and one.tenant != "default"]
        if others:
            raise InvalidCall(
                f"another tenant has an intent of {operation} with this key in doubt: pass the intent that list() returned, or "
                "tenant=",
                operation=operation,
            )
        return "default"

    def stats(self) -> dict[str, int]:
        """Counters since the ledger was opened: acquired, replayed, collisions, contradictions, unguarded. Behind HTTP they are
        those of the token's tenant since the server was started, without contradictions."""
        return dict(self._native.stats())

    def close(self) -> None:
        """Closes the ledger. Guarded functions of it can no longer be called."""
        self._native.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"onceward.Ledger({shown_store(self.store)!r})"


# Every ledger of this process, for the test kit.
_ledgers: weakref.WeakSet[Ledger] = weakref.WeakSet()


class Call:
    """One guarded call. Nothing happens until `run`, `run_async` or `begin`."""

    def __init__(self, operation: Operation, parts: tuple[Any, ...]) -> None:
        self._operation, self._parts = operation, parts

    @property
    def key(self) -> str:
        """The key of the intent."""
        return self._operation.native.key(*self._parts)

    def run(self, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """Runs the function, or returns the stored result."""
        found = self._operation.start(None, *self._parts)
        if type(found) is Stored:
            return self._operation.read(found)  # type: ignore[no-any-return]
        return self._operation.run(found, function, args, kwargs)  # type: ignore[no-any-return]

    async def run_async(self, function: Callable[..., Awaitable[R]], /, *args: Any, **kwargs: Any) -> R:
        """Runs the async function, or returns the stored result."""
        found = await settled(self._operation.start(asyncio.get_running_loop(), *self._parts))
        if type(found) is Stored:
            return self._operation.read(found)  # type: ignore[no-any-return]
        return await self._operation.run_async(found, function, args, kwargs)  # type: ignore[no-any-return]

    def begin(self) -> Block:
        """The call as a `with` or `async with` block."""
        return Block(self._operation, self._parts)


class BlockClaim(Claim):
    """The claim of a `with` block. `finish` says what the result is; without it, the result is None."""

    __slots__ = ("result",)

    def __init__(self, native: NativeClaim, operation: Operation | None = None) -> None:
        super().__init__(native, operation)
        self.result: Any = None

    def finish(self, result: Any) -> None:
        """The result of the work, which every repeat gets. It is recorded at the end of the block."""
        self.result = result


class Block:
    """A guarded block. If the work is done already, entering it raises `AlreadyDone`, so that the block cannot run again."""

    def __init__(self, operation: Operation, parts: tuple[Any, ...]) -> None:
        self._operation, self._parts = operation, parts
        self._claim: BlockClaim | None = None
        self._token: Any = None

    def _stored(self, stored: Stored) -> AlreadyDone:
        text = f"{stored.intent} is done already"
        return AlreadyDone(text, **stored.about, value=self._operation.read(stored))

    def _found(self, native: NativeClaim, found: Any) -> AlreadyDone:
        return AlreadyDone(f"{native.intent} was done by an earlier attempt", **native.about, value=found)

    def _entered(self, native: NativeClaim) -> BlockClaim:
        claim = BlockClaim(native, self._operation)
        token = enter(claim)
        try:
            begin(native)
        except BaseException:
            leave(claim, token)
            raise
        self._claim, self._token = claim, token
        return claim

    def _left(self) -> BlockClaim:
        """The claim, which is that of the block no more."""
        if self._claim is None:
            raise InvalidCall("the block was not entered")
        claim, self._claim = self._claim, None
        leave(claim, self._token)
        return claim

    def __enter__(self) -> BlockClaim:
        native = self._operation.start(None, *self._parts)
        if type(native) is Stored:
            raise self._stored(native)
        if native.probe_first:
            found = self._operation.probed(native)
            if found is not NOT_FOUND:
                raise self._found(native, found)
        return self._entered(native)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        claim = self._left()
        native = claim._native
        try:
            if error is not None:
                self._operation._failed(claim, error)
            else:
                native.finish(None, self._operation._kept(native, claim.result))
        finally:
            native.abandon()

    async def __aenter__(self) -> BlockClaim:
        native = await settled(self._operation.start(asyncio.get_running_loop(), *self._parts))
        if type(native) is Stored:
            raise self._stored(native)
        if native.probe_first:
            found = await self._operation.probed_async(native)
            if found is not NOT_FOUND:
                raise self._found(native, found)
        return self._entered(native)

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        claim, loop = self._left(), asyncio.get_running_loop()
        native = claim._native
        try:
            # A coroutine that was closed cannot wait for anything any more.
            if error is None:
                await settled(native.finish(loop, self._operation._kept(native, claim.result)))
            elif not isinstance(error, GeneratorExit):
                await self._operation._failed_async(claim, error, loop)
        finally:
            native.abandon()


def _check_item(operation: str, item: Any) -> None:
    """Refuses what is not an item of a stream. `True` would be the first one."""
    if not isinstance(item, tuple) or len(item) != 2:
        raise InvalidCall(f"{operation}: item= is a stream and a number: item=(\"account-7\", 1)", operation=operation)
    stream, number = item
    if not isinstance(stream, str):
        raise InvalidCall(f"{operation}: a stream is a str, not {type(stream).__name__}", operation=operation)
    if isinstance(number, bool) or not isinstance(number, int):
        raise InvalidCall(f"{operation}: the number of an item is an int, not {type(number).__name__}", operation=operation)
    if not 0 <= number < _END:
        raise InvalidCall(f"{operation}: the number of an item is not negative, and below 2**63", operation=operation)


def _intent(found: dict[str, Any]) -> Intent:
    record = found["intent"]["record"]
    # A tombstone has no names any more.
    names = record.get("identity") or {}
    return Intent(
        status=found["status"] or "expired",
        tenant=names.get("tenant", ""),
        operation=names.get("operation", ""),
        key=names.get("key", ""),
        attempts=record.get("attempts", 0),
        version=record.get("version", 0),
        recorded_at=_moment(record["created_at"]),
        doubt_since=None if record.get("doubt_since") is None else _moment(record["doubt_since"]),
        error=record.get("last_error"),
        record=found["intent"],
    )


def _moment(value: Any) -> datetime:
    if isinstance(value, str):
        return datetime.fromisoformat(value.replace("Z", "+00:00"))
    return datetime.fromtimestamp(value / 1000, timezone.utc)
