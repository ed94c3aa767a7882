"""Guards Celery tasks: a task that is delivered again, or retried, takes effect once.

    from onceward.celery import once

    @app.task(base=once(ledger, tier="payment"), acks_late=True)
    def charge(invoice, cents): ...

The key is the task's id, which stays the same over retries and redeliveries.
"""

from __future__ import annotations

import inspect
import logging
import math
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NoReturn

from ._arguments import argument_of, binder, check_names, signature_of, window_fields
from ._errors import (
    Contended,
    Error,
    Failed,
    InFlight,
    InvalidCall,
    NotRecorded,
    OutcomeNotKept,
    OwnerFailed,
    OwnerUnknown,
    StoreUnavailable,
)
from ._ledger import Ledger
from ._native import Stored
from ._once import TenantRule
from ._operation import Operation, Settings, checked_tenant, own_key, tenant_of
from ._results import Codec

try:
    from celery import VERSION  # type: ignore[import-untyped,unused-ignore]
    from celery.app.task import Task  # type: ignore[import-untyped,unused-ignore]
    from celery.exceptions import (  # type: ignore[import-untyped,unused-ignore]
        Ignore,
        Reject,
        Retry,
        SoftTimeLimitExceeded,
    )
except ImportError as error:
    raise ImportError("onceward.celery needs Celery: pip install 'celery>=5.4'") from error

# Retries keep `ignore_result`, chains and headers of their request since then.
_OLDEST = (5, 4)
if tuple(VERSION[:2]) < _OLDEST:
    raise ImportError(f"onceward.celery needs Celery 5.4 or later, and {VERSION[0]}.{VERSION[1]} is installed")

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["once"]

# Finds arguments in a call, by name.
Bind = Callable[..., dict[str, Any]]

_log = logging.getLogger("onceward")

# Celery sends the next message before the ledger records when it may run, and its timers are not exact.
_EARLY_SECONDS = 1.0

# A task that finds its own id running comes back no sooner than this.
_COME_BACK_SECONDS = 1

# The mark of a request whose task has begun: a call in it is a direct one.
_BEGUN = "onceward_begun"


@dataclass(frozen=True)
class _Guard:
    ledger: Ledger
    key: Sequence[str] | Callable[..., str] | None
    operation_name: str | None
    tenant: TenantRule
    probe: Callable[..., Any] | None
    settings: dict[str, Any]

    @property
    def fields(self) -> list[str]:
        """The arguments that the settings name."""
        named = () if self.key is None or callable(self.key) else self.key
        return [*named, *(self.settings.get("match") or ()), *window_fields(self.settings)]

    def check_names(self, task: str, run: Callable[..., Any]) -> None:
        check_names(task, self.fields, signature_of(run))

    def operation(self, name: str, codec: Codec | None) -> Operation:
        settings = dict(self.settings)
        if callable(self.key):
            # All of the intent is compared: it is what `match` names.
            settings.pop("match", None)
        made = _TaskOperation.make(
            self.ledger._native,
            name,
            settings,
            key=None if callable(self.key) else self.key,
            codec=codec or Codec(),
            tenant=self.ledger.tenant,
            probe=self.probe,
        )
        # A soft time limit interrupts the work, wherever it is. A task that raises Ignore has ended for good.
        for kind, meaning in ((SoftTimeLimitExceeded, "unknown"), (Ignore, "permanent")):
            made.classes.setdefault(kind, meaning)
        return made


def once(
    ledger: Ledger,
    *,
    key: Sequence[str] | Callable[..., str] | None = None,
    operation: str | None = None,
    tenant: TenantRule = None,
    probe: Callable[..., Any] | None = None,
    **settings: Unpack[Settings],
) -> type[Any]:
    """A base class for tasks: `@app.task(base=once(ledger), acks_late=True)`.

    The key is the task's id. With `key`, the names of arguments or a function of them, two messages with different
    ids can be the same intent: a producer that sends twice. `operation` is the name in the ledger: the task's name
    unless given. The settings are those of `ledger.once`.
    """
    unknown = set(settings) - set(Settings.__annotations__)
    if unknown:
        raise InvalidCall(f"unknown settings: {', '.join(sorted(unknown))}")
    if isinstance(settings.get("match"), str):
        raise InvalidCall('match= is a list of arguments, such as match=["cents"]')
    if isinstance(key, str) or (key is not None and not key):
        raise InvalidCall('key= is a list of arguments, such as key=["invoice"], or a function of them')
    if key is None and settings.get("match"):
        raise InvalidCall("match= needs key=: a task may be retried with other arguments under its id")
    guard = _Guard(ledger, key, operation, tenant if callable(tenant) else checked_tenant(tenant), probe, dict(settings))
    # Refuses wrong settings now. The task and its name come later.
    guard.operation(operation or "task", None)

    class OnceTask(Task):  # type: ignore[misc,unused-ignore]
        abstract = True

        @classmethod
        def bind(cls, app: Any) -> Any:
            if cls.run is not Task.run:
                guard.check_names(cls.name, inspect.getattr_static(cls, "run").__get__(cls, cls))
            return super().bind(app)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return _call(self, guard, super().__call__, args, kwargs)

    return OnceTask


def _call(task: Any, guard: _Guard, direct: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs the task, or does what its earlier attempt calls for."""
    request = task.request
    is_direct = request.called_directly or hasattr(request, _BEGUN)
    if not is_direct:
        setattr(request, _BEGUN, True)
    operation, bind = _operation(task, guard)
    try:
        parts = _parts(task, guard, operation, bind, None if is_direct else _message_key(request), args, kwargs)
        started = operation.start(None, *parts)
        if type(started) is Stored:
            return _replayed(task, request, is_direct, operation.read(started))
    except Error as decision:
        _refused(task, request, is_direct, decision)
    try:
        return operation.run(started, direct if is_direct else task.run, args, kwargs)
    except NotRecorded as error:
        if error.intent != started.intent:
            # It is about another guarded call, inside the task.
            raise
        _log.error("%s[%s] is done, but this could not be recorded: %s", task.name, request.id, error)
        return None if error.result_json is None else operation.codec.read(error.result_json)


def _refused(task: Any, request: Any, is_direct: bool, decision: Error) -> NoReturn:
    """Raises what tells Celery what to do with a task that does not run now."""
    is_message = not is_direct and not request.is_eager
    if isinstance(decision, (InFlight, OwnerFailed, OwnerUnknown)) and is_message:
        _come_back(task, request, decision)
    if isinstance(decision, (StoreUnavailable, Contended)) and is_message:
        # Nothing ran. Celery's own limit of retries holds.
        raise task.retry(exc=decision) from decision
    if isinstance(decision, Failed) and decision.reason.startswith(f"{Ignore.__name__}:"):
        raise Ignore(decision.reason) from decision
    if isinstance(decision, OutcomeNotKept):
        _replayed(task, request, is_direct, None)
    # Result back-ends keep only the arguments of an exception: with these, its reader can settle a doubt.
    decision.args = (str(decision),)
    raise decision


def _operation(task: Any, guard: _Guard) -> tuple[Operation, Bind]:
    """The operation of a task and what finds the arguments that it names. They are made at the first call, and again
    after the test kit has moved the ledger to another store."""
    native = guard.ledger._native
    made, bind, used = task.__dict__.get("_onceward", (None, None, None))
    if made is None or used is not native:
        guard.check_names(task.name, task.run)
        bind = binder(signature_of(task.run), {argument_of(one) for one in guard.fields})
        made = guard.operation(guard.operation_name or task.name, _codec(task.run))
        task.__dict__["_onceward"] = (made, bind, native)
    return made, bind


def _codec(run: Callable[..., Any]) -> Codec:
    """Keeps what Celery gets from the task: with `pydantic=True`, Celery makes JSON of a model, and stores that too."""
    codec = Codec(inspect.unwrap(run))
    is_converted = any(map(_is_wrapper_of_celery, _layers(run))) and _is_model(codec.annotation)
    return Codec() if is_converted else codec


def _layers(run: Callable[..., Any] | None) -> Iterator[Callable[..., Any]]:
    """The function and those that it wraps, from the outside."""
    while run is not None:
        yield run
        run = getattr(run, "__func__", None) or getattr(run, "__wrapped__", None)


def _is_wrapper_of_celery(function: Any) -> bool:
    return getattr(function, "__globals__", {}).get("__name__") == "celery.app.base"


def _is_model(annotation: Any) -> bool:
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    members = typing.get_args(annotation) if is_union else (annotation,)
    return any(hasattr(one, "__pydantic_serializer__") for one in members)


def _parts(
    task: Any,
    guard: _Guard,
    operation: Operation,
    bind: Bind,
    task_id: str | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[Any, ...]:
    tenant = tenant_of(operation.name, guard.tenant, *args, **kwargs)
    key, intent = task_id, None
    if guard.key is not None:
        key, intent = None, bind(*args, **kwargs)
    if callable(guard.key):
        key = own_key(operation.name, guard.key(*args, **kwargs))
    if key is None and intent is None:
        raise InvalidCall(
            f"{task.name} was called directly, so it has no task id: use .delay() or .apply(), or give key=",
            operation=operation.name,
        )
    return tenant or operation.tenant, None, key, intent or None


def _message_key(request: Any) -> str | None:
    """The task's id. A task that replaces another one keeps its id, and is work of its own."""
    replaced = getattr(request, "replaced_task_nesting", 0) or 0
    return f"{request.id}:{replaced}" if replaced and request.id else request.id  # type: ignore[no-any-return]


def _replayed(task: Any, request: Any, is_direct: bool, result: Any) -> Any:
    """The stored result. Celery sends callbacks and the rest of a chain before it stores success: if it has, there
    is nothing left to do for this message."""
    if is_direct or request.is_eager or not request.id:
        return result
    try:
        is_complete = task.backend.get_state(request.id) == "SUCCESS"
    except Exception:
        # There is no result back-end, or it cannot be reached: what comes after the task may be sent again.
        is_complete = False
    if is_complete:
        raise Ignore(f"{task.name} was done before")
    return result


def _come_back(task: Any, request: Any, error: Error) -> NoReturn:
    """Sends the message again for later, without using up a retry. It must not be dropped: if the attempt that is
    running now dies, this message is the one that says so."""
    seconds = max(_COME_BACK_SECONDS, math.ceil(getattr(error, "retry_after", 0)))
    signature = task.signature_from_request(request, countdown=seconds, retries=request.retries)
    try:
        signature.apply_async()
    except Exception as unsent:
        raise Reject(unsent, requeue=True) from unsent
    raise Retry(exc=error, when=seconds, sig=signature) from error


class _TaskOperation(Operation):
    """An operation whose `Retry` and `Reject` say what their cause says about the effect."""

    def _classified(self, error: BaseException) -> tuple[str | None, list[str], float | None]:
        if not isinstance(error, (Retry, Reject)) or type(error) in self.classes:
            return super()._classified(error)
        messages, delay = super()._classified(error)[1], _delay(error)
        cause = error.__cause__ or error.__context__ or (error.exc if isinstance(error, Retry) else error.reason)
        if not isinstance(cause, BaseException):
            # The task itself says that it is not done yet.
            return "refused", messages, delay
        kind, because, retry_after = super()._classified(cause)
        if kind in ("not_sent", "refused"):
            return "refused", messages, max(delay or 0, retry_after or 0) or None
        return kind, [*messages, *because], None


def _delay(error: BaseException) -> float | None:
    """After how many seconds a retry may run."""
    when = getattr(error, "when", None)
    if when is None or getattr(error, "is_eager", False):
        return None
    if isinstance(when, datetime):
        now = datetime.now(timezone.utc) if when.tzinfo else datetime.now(timezone.utc).replace(tzinfo=None)
        when = (when - now).total_seconds()
    return max(0.0, float(when) - _EARLY_SECONDS) or None
