"""Guards Temporal activities: an activity that is tried again takes effect once.

    from onceward.temporal import OnceInterceptor, once

    interceptor = OnceInterceptor(ledger, {charge: once(tier="payment")})
    worker = Worker(client, task_queue="billing", activities=[charge], interceptors=[interceptor])

The key is made of namespace, workflow id, run id and activity id, which stay the same over all attempts of an activity.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from ._arguments import argument_of, binder, check_names, signature_of, window_fields
from ._claim import settled
from ._errors import (
    Contended,
    Error,
    InDoubt,
    InFlight,
    InvalidCall,
    NotRecorded,
    OwnerFailed,
    OwnerUnknown,
    StoreUnavailable,
)
from ._failures import Failure
from ._ledger import Ledger
from ._native import Stored
from ._operation import Operation, Settings, own_key
from ._results import Codec

try:
    from temporalio import activity
    from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, CancelledError
    from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor
except ImportError as error:
    _how = "pip install 'temporalio>=1.12'"
    raise ImportError(f"onceward.temporal needs Temporal's SDK 1.12 or later ({error}): {_how}") from error

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Once", "OnceInterceptor", "once"]

# Finds arguments in a call, by name.
Bind = Callable[..., dict[str, Any]]

_log = logging.getLogger("onceward")

# An attempt that finds another one running comes back no sooner than this.
_COME_BACK_SECONDS = 1.0

# Nothing ran, or it runs elsewhere: Temporal tries again. After every other decision that would not change anything.
_RETRYABLE = (InFlight, OwnerFailed, OwnerUnknown, StoreUnavailable, Contended)


@dataclass(frozen=True)
class Once:
    """How one activity is guarded; `once` makes it."""

    key: Sequence[str] | Callable[..., str] | None
    operation: str | None
    probe: Callable[..., Any] | None
    settings: Mapping[str, Any]

    @property
    def fields(self) -> list[str]:
        """The arguments that the settings name."""
        named = () if self.key is None or callable(self.key) else self.key
        return [*named, *(self.settings.get("match") or ()), *window_fields(self.settings)]

    def binder(self, name: str, function: Callable[..., Any]) -> Bind:
        """Finds these arguments in a call. Refuses names that the activity does not have."""
        signature = signature_of(function)
        check_names(name, self.fields, signature)
        return binder(signature, {argument_of(one) for one in self.fields})


def once(
    *,
    key: Sequence[str] | Callable[..., str] | None = None,
    operation: str | None = None,
    probe: Callable[..., Any] | None = None,
    **settings: Unpack[Settings],
) -> Once:
    """How an activity is guarded. The key is that of the activity execution. With `key`, the names of arguments,
    pointers into them, or a function of them, executions of other workflows and of a workflow that was reset can be
    the same intent. `operation` is the name in the ledger: the activity's name unless given. The settings are those
    of `ledger.once`."""
    unknown = set(settings) - set(Settings.__annotations__)
    if unknown:
        raise InvalidCall(f"unknown settings: {', '.join(sorted(unknown))}")
    if isinstance(settings.get("match"), str):
        raise InvalidCall('match= is a list of arguments, such as match=["cents"]')
    if isinstance(key, str) or (key is not None and not key):
        raise InvalidCall('key= is a list of arguments, such as key=["invoice"], or a function of them')
    if key is None and settings.get("match"):
        raise InvalidCall("match= needs key=: the arguments of an activity execution never change")
    return Once(key, operation, probe, dict(settings))


class OnceInterceptor(Interceptor):
    """A worker interceptor. Activities that are named act once for each intent; the others run as before."""

    def __init__(self, ledger: Ledger, activities: Mapping[Callable[..., Any] | str, Once]) -> None:
        """`activities` names the guarded ones, each by its function with `@activity.defn` or by its name."""
        super().__init__()
        self.ledger = ledger
        self.guarded = {_name(one): guard for one, guard in activities.items()}
        self._made: dict[str, tuple[Any, Operation, Bind]] = {}
        # Refuses wrong settings now, and wrong names where the function is known.
        for one, guard in activities.items():
            self._make(_name(one), guard, None if isinstance(one, str) else one)
            if not isinstance(one, str):
                guard.binder(_name(one), one)

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Called by the worker for each attempt."""
        return _Inbound(next, self)

    def operation(self, name: str, guard: Once, function: Callable[..., Any]) -> tuple[Operation, Bind]:
        """The operation of an activity and what finds the arguments that it names. They are made at the first call, and
        again after the test kit has moved the ledger."""
        native = self.ledger._native
        known = self._made.get(name)
        if known is None or known[0] is not native:
            known = self._made[name] = (native, self._make(name, guard, function), guard.binder(name, function))
        return known[1:]

    def _make(self, name: str, guard: Once, function: Callable[..., Any] | None) -> Operation:
        settings = dict(guard.settings)
        if callable(guard.key):
            # All of the intent is compared: it is what `match` names.
            settings.pop("match", None)
        made = _ActivityOperation.make(
            self.ledger._native,
            guard.operation or name,
            settings,
            key=None if callable(guard.key) else guard.key,
            codec=Codec(function),
            tenant=self.ledger.tenant,
            probe=guard.probe,
        )
        # How Temporal interrupts activities in threads. Tasks are interrupted by asyncio's own exception.
        made.classes.setdefault(CancelledError, "unknown")
        return made


class _Inbound(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, interceptor: OnceInterceptor) -> None:
        super().__init__(next)
        self._interceptor = interceptor

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        """Runs the attempt, or answers it from the ledger."""
        info = activity.info()
        guard = self._interceptor.guarded.get(info.activity_type)
        if guard is None:
            return await self.next.execute_activity(input)

        async def work(*args: Any) -> Any:
            return await self.next.execute_activity(input)

        try:
            operation, bind = self._interceptor.operation(info.activity_type, guard, input.fn)
            parts = _parts(operation, bind, guard, input, info)
            started = await settled(operation.start(asyncio.get_running_loop(), *parts))
            if type(started) is Stored:
                return operation.read(started)
        except Error as decision:
            _refuse(decision, decision)
        try:
            return await operation.run_async(started, work, tuple(input.args), {})
        except CancelledError:
            raise
        except NotRecorded as error:
            if error.intent != started.intent:
                # It is about another guarded call, inside the activity.
                raise
            _log.error("%s is done, but this could not be recorded: %s", info.activity_type, error)
            return None if error.result_json is None else operation.codec.read(error.result_json)
        except Exception as error:
            if await self._is_held(operation, parts):
                # Another attempt would hear the same, only later.
                text = f"{started.intent} is in doubt: it failed and may have happened ({error}). Settle it"
                _refuse(InDoubt(text, **started.about), error)
            raise

    async def _is_held(self, operation: Operation, parts: tuple[Any, ...]) -> bool:
        """Whether the attempt that just failed may have happened, so that nothing runs until a person has
        settled it."""
        try:
            key = operation.native.key(*parts)
            found = await asyncio.to_thread(self._interceptor.ledger.get, operation.name, key, tenant=parts[0])
        except Error:
            return False
        return found is not None and found.when_in_doubt == "hold"


def _parts(
    operation: Operation, bind: Bind, guard: Once, input: ExecuteActivityInput, info: activity.Info
) -> tuple[Any, ...]:
    if guard.key is None:
        # A hash of these: a workflow id alone can be longer than a key. Older releases know activities of
        # workflows only.
        intent: dict[str, Any] = {
            "namespace": getattr(info, "namespace", None) or info.workflow_namespace,
            "workflow_id": info.workflow_id,
            "run_id": info.workflow_run_id or getattr(info, "activity_run_id", None),
            "activity_id": info.activity_id,
        }
        return operation.tenant, None, None, intent
    intent = bind(*input.args)
    key = own_key(operation.name, guard.key(*input.args)) if callable(guard.key) else None
    return operation.tenant, None, key, intent or None


def _refuse(decision: Exception, cause: Exception) -> NoReturn:
    """Raises a decision as Temporal understands it."""
    is_retryable = isinstance(decision, _RETRYABLE)
    after = getattr(decision, "retry_after", None)
    raise ApplicationError(
        str(decision),
        type=type(decision).__name__,
        non_retryable=not is_retryable,
        next_retry_delay=None if after is None else timedelta(seconds=max(_COME_BACK_SECONDS, after)),
        category=ApplicationErrorCategory.BENIGN if isinstance(decision, InFlight) else
        ApplicationErrorCategory.UNSPECIFIED, ) from cause


class _ActivityOperation(Operation):
    """An operation whose `ApplicationError` says what its cause says about the effect."""

    def _classified(self, error: BaseException) -> tuple[str | None, list[str], float | None]:
        kind, messages, retry_after = super()._classified(error)
        if kind is None and isinstance(error, ApplicationError) and isinstance(error.__cause__, Failure):
            kind, _, retry_after = super()._classified(error.__cause__)
        return kind, messages, retry_after


def _name(one: Callable[..., Any] | str) -> str:
    if isinstance(one, str):
        return one
    definition = activity._Definition.from_callable(one)
    if definition is None or definition.name is None:
        named = getattr(one, "__name__", one)
        raise InvalidCall(f"{named!r} is not an activity with a name: use @activity.defn, or its name")
    return definition.name
