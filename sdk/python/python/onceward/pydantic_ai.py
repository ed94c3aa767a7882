"""Guards tools of pydantic-ai: a toolset around another one, in which a call that the model repeats gets the first
result.

    from onceward.pydantic_ai import OnceToolset, once

    guarded = {"charge": once(key=["invoice"], match=["cents"], tier="payment")}
    agent = Agent(model, toolsets=[OnceToolset(FunctionToolset([charge]), ledger, guarded)])
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

from ._arguments import argument_of, check_names, window_fields
from ._claim import is_from_inside, settled
from ._defaults import defaults_of, with_defaults
from ._errors import DO_NOT_REPEAT, Error, InvalidCall, SessionRequired
from ._failures import Failure, NotSent
from ._ledger import Ledger
from ._native import Stored
from ._once import checked_session
from ._operation import Duration, Operation, Settings, checked_tenant, own_key, session_of, tenant_of
from ._results import Codec
from ._same import fields_of

try:
    import pydantic_ai as _framework
    from pydantic import ConfigDict, TypeAdapter
    from pydantic.fields import FieldInfo
except ImportError as error:
    raise ImportError("onceward.pydantic_ai needs pydantic-ai: pip install 'pydantic-ai-slim>=2.66'") from error

try:
    from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
    from pydantic_ai.messages import ToolReturn, ToolReturnContent
    from pydantic_ai.tools import AgentDepsT, RunContext
    from pydantic_ai.toolsets import WrapperToolset
    from pydantic_ai.toolsets.abstract import ToolsetTool
except ImportError as error:
    version = getattr(_framework, "__version__", "unknown")
    raise ImportError(f"onceward.pydantic_ai needs pydantic-ai 2.66 or later, and {version} is installed") from error

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["BadArguments", "Once", "OnceToolset", "by_conversation", "by_run", "once"]

_log = logging.getLogger("onceward")

# How long a repeat waits for the call that is running: models often make equal calls in one response.
_WAIT: Duration = 60

# The member under which a `ToolReturn` is kept. Every other result is kept as the model reads it.
_TOOL_RETURN = "onceward:tool_return"

# The part of an intent that the user's own key is, in a session. Only derived keys are bound to their session.
_KEY = "onceward:key"

SessionOfRun = Union[str, bool, Callable[[RunContext[Any]], Union[str, None]], None]


def by_run(ctx: RunContext[Any]) -> str | None:
    """A session for each run of the agent. A run that is started again must get the same `run_id=`."""
    return ctx.run_id


def by_conversation(ctx: RunContext[Any]) -> str | None:
    """A session for each conversation, which spans runs that share their messages or their `conversation_id=`."""
    return ctx.conversation_id


class BadArguments(ModelRetry, NotSent):
    """A `ModelRetry` that also says that nothing was done yet: the intent is released."""


@dataclass(frozen=True)
class Once:
    """How one tool is guarded; `once` makes it."""

    key: Sequence[str] | Callable[[dict[str, Any]], str]
    operation: str | None
    probe: Callable[..., Any] | None
    settings: Mapping[str, Any]

    @property
    def fields(self) -> list[str]:
        """The arguments that the settings name."""
        named = () if callable(self.key) else self.key
        return [*named, *(self.settings.get("match") or ()), *window_fields(self.settings)]


def once(
    *,
    key: Sequence[str] | Callable[[dict[str, Any]], str],
    operation: str | None = None,
    probe: Callable[..., Any] | None = None,
    **settings: Unpack[Settings],
) -> Once:
    """How a tool is guarded. `key` names the arguments that make the same intent, because a model may reword the
    others; or it is a function of the arguments, as a dict. `operation` is the name in the ledger: the tool's name
    unless given. `probe` gets the tool's arguments. The settings are those of `ledger.once`."""
    unknown = set(settings) - set(Settings.__annotations__)
    if unknown:
        raise InvalidCall(f"unknown settings: {', '.join(sorted(unknown))}")
    if isinstance(settings.get("match"), str):
        raise InvalidCall('match= is a list of arguments, such as match=["cents"]')
    if isinstance(key, str) or not key:
        raise InvalidCall('key= is a list of arguments, such as key=["invoice"], or a function of them')
    return Once(key, operation, probe, {"wait": _WAIT, **settings})


@dataclass
class OnceToolset(WrapperToolset[AgentDepsT]):
    """A toolset whose named tools act once for each intent. The other tools are called as before.

    `session` makes a tool act once in each session: a text, `by_run`, `by_conversation`, another function of the
    context, or `True` for the one that `onceward.session(...)` set. Without it, a tool acts once for each key.
    """

    ledger: Ledger
    guarded: Mapping[str, Once]
    session: SessionOfRun = None
    tenant: str | Callable[[RunContext[Any]], str] | None = None
    # The operations that were made so far; the copies that pydantic-ai makes for each run share them.
    operations: dict[str, tuple[Any, Operation]] = field(default_factory=dict, repr=False)
    # The guarded tools that the toolset has had so far: a tool may be hidden for a step.
    seen: set[str] = field(default_factory=set, repr=False)

    def __post_init__(self) -> None:
        checked_session(self.session)
        if not callable(self.tenant):
            checked_tenant(self.tenant)
        # Refuses wrong settings now. The toolset says later which arguments there are.
        for name, guard in self.guarded.items():
            self._operation(name, guard)

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """The tools. A guarded name that does not exist is refused: it could be a misspelt one, which would run
        unguarded."""
        tools = await super().get_tools(ctx)
        for name, guard in self.guarded.items():
            if name not in tools and name in self.seen:
                continue
            if name not in tools:
                raise InvalidCall(f"OnceToolset guards `{name}`, and the toolset in it has no such tool")
            arguments = tools[name].tool_def.parameters_json_schema.get("properties", {})
            check_names(name, guard.fields, arguments)
            _check_found(name, guard, tools[name])
            self.seen.add(name)
        return tools

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        """Calls the tool, or gives the stored result. What the ledger decides otherwise reaches the model as a
        failed call."""
        guard = self.guarded.get(name)
        if guard is None:
            return await super().call_tool(name, tool_args, ctx, tool)

        async def work(**args: Any) -> Any:
            return await self.wrapped.call_tool(name, args, ctx, tool)

        operation = self._operation(name, guard)
        try:
            parts = self._parts(operation, guard, tool_args, tool, ctx)
            started = await settled(operation.start(asyncio.get_running_loop(), *parts))
            if type(started) is Stored:
                return operation.read(started)
        except Error as decision:
            raise _refused(name, decision) from decision
        try:
            return await operation.run_async(started, work, (), tool_args)
        except Error as decision:
            if is_from_inside(decision, started) and await self._is_held(operation, parts):
                _log.warning("%s failed, and it is unknown whether it took effect: %s", name, decision.message)
                raise ToolFailed(_doubt(name)) from decision
            raise _refused(name, decision) from decision
        except (ModelRetry, ToolFailed) as error:
            if await self._is_held(operation, parts):
                # The framework would ask the model to try again.
                raise ToolFailed(f"{error.message}\n{_doubt(name)}") from error
            raise

    def _operation(self, name: str, guard: Once) -> Operation:
        native = self.ledger._native
        known = self.operations.get(name)
        # The test kit moves ledgers to other stores.
        if known is not None and known[0] is native:
            return known[1]
        settings, fields = dict(guard.settings), guard.key
        if callable(fields) and self.session:
            fields = [_KEY]
        elif callable(fields):
            # All of the intent is compared: it is what `match` names.
            settings.pop("match", None)
        made = _ToolOperation.make(
            native,
            guard.operation or name,
            settings,
            key=None if callable(fields) else fields,
            codec=_ToolCodec(),
            tenant=self.ledger.tenant,
            probe=guard.probe,
        )
        # The framework calls the tool again once the call is approved, and leaves deferred calls to other programs.
        for kind, meaning in ((ApprovalRequired, "not_sent"), (CallDeferred, "unknown")):
            made.classes.setdefault(kind, meaning)
        self.operations[name] = (native, made)
        return made

    def _parts(
        self,
        operation: Operation,
        guard: Once,
        args: dict[str, Any],
        tool: ToolsetTool[AgentDepsT],
        ctx: RunContext[AgentDepsT],
    ) -> tuple[Any, ...]:
        tenant = tenant_of(operation.name, self.tenant, ctx)
        session = session_of(checked_session(self.session), operation.name, (ctx,), {})
        shown = _with_defaults(_shown(args, tool), guard, tool)
        # An optional argument that the model leaves out is None.
        key, intent = None, {**dict.fromkeys(map(argument_of, guard.fields)), **shown}
        if callable(guard.key):
            key = own_key(operation.name, guard.key(_with_defaults(args, guard, tool)))
            wanted = set(map(argument_of, guard.fields))
            intent = {name: value for name, value in shown.items() if name in wanted}
            if self.session:
                key, intent = None, {**intent, _KEY: key}
        return tenant or operation.tenant, session, key, intent or None

    async def _is_held(self, operation: Operation, parts: tuple[Any, ...]) -> bool:
        """Whether the attempt that just failed may have happened, so that nothing runs until a person has
        settled it. If the ledger cannot say, it may have."""
        try:
            key = operation.native.key(*parts)
            found = await asyncio.to_thread(self.ledger.get, operation.name, key, tenant=parts[0])
        except Error:
            return True
        return found is not None and found.when_in_doubt == "hold"


class _ToolOperation(Operation):
    """An operation whose `ModelRetry` and `ToolFailed` say what their cause says about the effect."""

    def _classified(self, error: BaseException) -> tuple[str | None, list[str], float | None]:
        if isinstance(error, (ModelRetry, ToolFailed)) and not isinstance(error, Failure):
            cause = error.__cause__
            if type(error) not in self.classes and isinstance(cause, Exception):
                kind, _, retry_after = super()._classified(cause)
                return kind, super()._classified(error)[1], retry_after
        return super()._classified(error)


class _ToolCodec(Codec):
    """Keeps what the model reads of a result, as pydantic-ai keeps its message history."""

    _contents: TypeAdapter[Any] = TypeAdapter(
        ToolReturnContent, config=ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    )
    _returns: TypeAdapter[ToolReturn[Any]] = TypeAdapter(ToolReturn)

    def write(self, result: Any) -> bytes | None:
        try:
            if isinstance(result, ToolReturn):
                return b'{"%s":%s}' % (_TOOL_RETURN.encode(), self._returns.dump_json(result, by_alias=True))
            return self._contents.dump_json(result, by_alias=True)
        except Exception:
            # A value that pydantic cannot write: repeats are told that it is done and not kept.
            return None

    def read(self, body: bytes) -> Any:
        value = json.loads(body)
        if isinstance(value, dict) and set(value) == {_TOOL_RETURN}:
            return self._returns.validate_json(json.dumps(value[_TOOL_RETURN]))
        return self._contents.validate_json(body)


def _with_defaults(args: dict[str, Any], guard: Once, tool: ToolsetTool[Any]) -> dict[str, Any]:
    """The arguments with their defaults. The framework sets those of a function's own schema, but not those of a schema
    that was written by hand or that an MCP server sent. Where such a schema says none, the function may."""
    fields = None if callable(guard.key) else guard.fields
    function = getattr(_called(tool), "function", None)
    return {**defaults_of(function), **with_defaults(args, tool.tool_def.parameters_json_schema, fields)}


def _called(tool: ToolsetTool[Any]) -> Any:
    """How the framework calls a function, if the tool is one."""
    called = getattr(getattr(tool, "call_func", None), "__self__", None)
    return called if hasattr(called, "function") else None


def _shown(args: dict[str, Any], tool: ToolsetTool[Any]) -> dict[str, Any]:
    """The arguments by the names that the model sees. The framework gives them to a function by the names of its parameters: those
    of a function with one model are the fields of the model, and a parameter may have an alias."""
    called = _called(tool)
    if called is None:
        return args
    single = getattr(called, "single_arg_name", None)
    if single is not None and single in args:
        return _members(args[single])
    aliases = {alias: args[name] for name, alias in _aliases(called.function).items() if name in args}
    return {**args, **aliases}


def _members(value: Any) -> dict[str, Any]:
    """The members of a model, by all names that they have."""
    if isinstance(value, Mapping):
        return dict(value)
    found = dict(getattr(value, "__pydantic_extra__", None) or {})
    known = getattr(type(value), "__pydantic_fields__", {})
    for name in fields_of(type(value)) or ():
        names = {name, *_aliases_of(known[name])} if name in known else {name}
        found.update(dict.fromkeys(names, getattr(value, name)))
    return found


def _aliases(function: Callable[..., Any]) -> dict[str, str]:
    """The parameters of a function that have another name for the model."""
    found = {}
    for name, annotation in _annotations(function).items():
        for alias in _aliases_of(FieldInfo.from_annotation(annotation)):
            found[name] = alias
    return found


def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception:
        # A name that cannot be resolved: an alias that is not found is refused before the model is asked.
        return {}
    return {name: hint for name, hint in hints.items() if name != "return"}


def _aliases_of(info: FieldInfo) -> set[str]:
    return {name for name in (info.alias, info.validation_alias) if isinstance(name, str)}


def _check_found(tool_name: str, guard: Once, tool: ToolsetTool[Any]) -> None:
    """Refuses a name that the model sees and a call does not have: it would be the same in every call."""
    called = _called(tool)
    if called is None:
        return
    single = getattr(called, "single_arg_name", None)
    parameters = inspect.signature(called.function).parameters
    if single is None and any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return
    if single is not None:
        known = _names_in(_annotations(called.function).get(single))
    else:
        known = {*parameters, *_aliases(called.function).values()}
    for root in map(argument_of, guard.fields):
        if known is not None and root not in known:
            raise InvalidCall(
                f"{tool_name} gets no argument `{root}` from the framework: only the model sees it under this name. Give key=, a "
                "function of the arguments"
            )


def _names_in(kind: Any) -> set[str] | None:
    """All names of the members of a model; None for one whose members have the names that the model sees."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    kind = get_origin(kind) or kind
    if not isinstance(kind, type) or (names := fields_of(kind)) is None:
        return None
    known = getattr(kind, "__pydantic_fields__", {})
    return {*names, *(alias for name in names if name in known for alias in _aliases_of(known[name]))}


def _refused(name: str, decision: Error) -> ToolFailed:
    # Not the whole text: the commands that settle a doubt contain its key.
    _log.warning("%s was not carried out: %s", name, decision.message)
    if isinstance(decision, SessionRequired):
        # A mistake of the program, not of the model's arguments.
        return ToolFailed(f"{name} was not carried out: the program did not name a session. Nothing happened.")
    # The model knows the tool by its own name.
    return ToolFailed(type(decision)(decision.message, **{**decision._fields, "operation": name}).for_model())


def _doubt(name: str) -> str:
    return f"It is unknown whether {name} took effect. {DO_NOT_REPEAT} Tell the user that a person has to check it."

