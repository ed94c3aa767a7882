"""Runs nodes of LangGraph graphs once, and holds what nodes and tools have in common. Import `onceward.langchain`."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import importlib.metadata
import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Union

from ._arguments import argument_of, window_fields
from ._claim import settled
from ._context import current_session
from ._errors import InvalidCall, SessionRequired
from ._native import Stored
from ._once import is_async
from ._operation import Operation, Settings, own_key
from ._results import Codec

try:
    from langchain_core.messages import BaseMessage, message_to_dict, messages_from_dict
    from langchain_core.runnables import RunnableConfig
    from langgraph.errors import GraphBubbleUp
    from langgraph.prebuilt.tool_node import ToolCallRequest as ToolCallRequest
    from langgraph.types import Command
except ImportError as error:
    try:
        _found = f"{importlib.metadata.version('langgraph')} cannot be used: {error}"
    except importlib.metadata.PackageNotFoundError:
        _found = "it is not installed: pip install 'langgraph>=1.0.4'"
    raise ImportError(f"onceward.langchain needs langgraph 1.0.4 or newer, and {_found}") from error

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._ledger import Ledger

F = TypeVar("F", bound=Callable[..., Any])
# Tenant, session, key and intent of a call.
Parts = tuple[Union[str, None], Union[str, None], Union[str, None], Any]

# The name of a part of an intent or of a stored result that is not a name of the user's.
MARK = "onceward:kind"


# Where LangGraph says how it writes checkpoints, if the run says so.
_DURABILITY = "__pregel_durability"


def once_node(
    ledger: Ledger,
    *,
    operation: str,
    key: Sequence[str] | Callable[[Any], str] | None = None,
    session: bool | str = False,
    probe: Callable[..., Any] | None = None,
    **settings: Unpack[Settings],
) -> Callable[[F], F]:
    """Makes a node of a graph run once for each intent: `@once_node(ledger, operation="charge")`.

    Without `key`, the intent is the task of the graph: a retry, and a run that resumes from a checkpoint, get the
    stored result, and the next pass through the node runs. This needs a checkpointer, and a run with
    `durability="sync"`. `key` names fields of the state instead.
    """
    if isinstance(key, str) or (key is not None and not callable(key) and not key):
        raise InvalidCall(f'{operation}: key= is a list of fields of the state, such as key=["invoice"]')
    fields = [] if key is None or callable(key) else [str(one) for one in key]
    wanted = {argument_of(one) for one in [*fields, *settings.get("match", ()), *window_fields(settings)]}

    @functools.lru_cache(maxsize=1)
    def made(_native: object) -> Operation:
        return operation_of(ledger, operation, settings, fields or [MARK], _NodeCodec(), probe)

    # Refuses wrong settings now.
    made(ledger._native)

    def parts(state: Any, config: Mapping[str, Any]) -> Parts:
        configurable = config.get("configurable") or {}
        thread, task = configurable.get("thread_id"), configurable.get("__pregel_task_id")
        name = session if isinstance(session, str) else None
        if session is True or key is None:
            name = current_session() or (None if thread is None else str(thread))
            if name is None or not (key or task):
                needs = "a thread_id or `with onceward.session(...)`" if key else "a checkpointer and a thread_id"
                raise SessionRequired(f"{operation}: this node needs {needs}", operation=operation)
        if key is None and configurable.get(_DURABILITY) != "sync":
            raise InvalidCall(
                f'{operation}: a node without key= is known by its checkpoint, so the graph must run with durability="sync": with '
                "LangGraph's default, a crash can lose the checkpoint and the node would act again. Or name fields with key=[...]",
                operation=operation,
            )
        intent = {one: _field(operation, state, one) for one in wanted}
        if not fields:
            intent[MARK] = own_key(operation, key(state)) if callable(key) else str(task)
        return ledger.tenant, name, None, intent

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        takes_config = "config" in signature.parameters

        def call(run: Callable[..., Any], args: tuple[Any, ...], injected: dict[str, Any]) -> Any:
            config = injected["config"] if takes_config else injected.pop("config", {})
            # A method gets its object before the state.
            owner, state = args[:-1], args[-1]
            # The test kit may have moved the ledger to another store.
            operation = made(ledger._native)
            return run(operation, parts(state, config), lambda state: function(*owner, state, **injected), (state,), {})

        @functools.wraps(function)
        def node(*args: Any, **injected: Any) -> Any:
            return call(run_once, args, injected)

        @functools.wraps(function)
        async def node_async(*args: Any, **injected: Any) -> Any:
            return await call(run_once_async, args, injected)

        wrapper: Any = node_async if is_async(function) else node
        if not takes_config:
            # LangGraph passes what the signature asks for.
            config = inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, annotation=RunnableConfig)
            parameters = list(signature.parameters.values())
            takes_any = bool(parameters) and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD
            parameters.insert(len(parameters) - takes_any, config)
            wrapper.__signature__ = signature.replace(parameters=parameters)
        return typing.cast(F, wrapper)

    return decorate


def run_once(
    operation: Operation, parts: Parts, work: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Runs the work, or returns the stored result. The arguments are for the work and for the probe."""
    started = operation.start(None, *parts)
    if type(started) is Stored:
        return operation.read(started)

    def interruptible(*args: Any, **kwargs: Any) -> Any:
        try:
            return work(*args, **kwargs)
        except GraphBubbleUp as signal:
            raise Paused(signal) from None

    try:
        return operation.run(started, interruptible, args, kwargs)
    except Paused as paused:
        raise paused.signal from None


async def run_once_async(
    operation: Operation,
    parts: Parts,
    work: Callable[..., Awaitable[Any]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """`run_once` for async work."""
    started = await settled(operation.start(asyncio.get_running_loop(), *parts))
    if type(started) is Stored:
        return operation.read(started)

    async def interruptible(*args: Any, **kwargs: Any) -> Any:
        try:
            return await work(*args, **kwargs)
        except GraphBubbleUp as signal:
            raise Paused(signal) from None

    try:
        return await operation.run_async(started, interruptible, args, kwargs)
    except Paused as paused:
        raise paused.signal from None


class Paused(Exception):
    """The work called `interrupt()`: the framework runs it again from its start when it is resumed."""

    def __init__(self, signal: GraphBubbleUp) -> None:
        super().__init__("interrupted")
        self.signal = signal


class _NodeCodec(Codec):
    """Keeps what a node returns: JSON's own types, messages and commands, if they come back equal."""

    def write(self, result: Any) -> bytes | None:
        try:
            encoded = _encoded(result)
            body = super().write(encoded)
            return body if body is not None and _decoded(encoded) == result else None
        except (TypeError, ValueError, RecursionError):
            return None

    def read(self, body: bytes) -> Any:
        return _decoded(super().read(body))


def _encoded(value: Any) -> Any:
    if isinstance(value, BaseMessage):
        return {MARK: "message", "value": message_to_dict(value)}
    if isinstance(value, Command):
        given = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        kept = {name: _encoded(one) for name, one in given.items() if one not in (None, ())}
        return {MARK: "command", "value": kept}
    if type(value) is dict:
        if MARK in value:
            raise ValueError(f"{MARK} is a reserved name")
        return {name: _encoded(one) for name, one in value.items()}
    return [_encoded(one) for one in value] if type(value) is list else value


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.get(MARK) == "message":
        return messages_from_dict([value["value"]])[0]
    if value.get(MARK) == "command":
        return Command(**_decoded(value["value"]))
    return {name: _decoded(one) for name, one in value.items()}


def operation_of(
    ledger: Ledger, name: str, settings: Any, key: Sequence[str] | None, codec: Codec, probe: Any
) -> Operation:
    made = Operation.make(ledger._native, name, settings, key=key, codec=codec, tenant=ledger.tenant, probe=probe)
    # Whatever `on_error` says about other exceptions, an interrupt runs the work again from its start.
    made.classes[Paused] = "not_sent"
    return made


def _field(operation: str, state: Any, name: str) -> Any:
    try:
        return state[name] if isinstance(state, Mapping) else getattr(state, name)
    except (KeyError, AttributeError):
        raise InvalidCall(f"{operation}: the state has no field `{name}`", operation=operation) from None
