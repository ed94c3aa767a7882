"""Guards tools of the Claude Agent SDK: a call that the model repeats gets the result of the first one.

    from onceward.claude_agent import once

    @once(ledger, key=["to", "subject"], session=run, tier="email")
    @tool("send_email", "Sends an email.", {"to": str, "subject": str, "body": str})
    async def send_email(args): ...

Hooks of the SDK can refuse a call, but they cannot answer it with a stored result. So the handler itself is wrapped.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import importlib.metadata
import inspect
import logging
import re
import typing
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from ._arguments import argument_of, check_names, window_fields
from ._claim import is_from_inside, settled
from ._defaults import with_defaults
from ._errors import DO_NOT_REPEAT, Error, InvalidCall, OwnerUnknown, SessionRequired
from ._ledger import Ledger
from ._native import Stored
from ._once import SessionRule, TenantRule, checked_session
from ._operation import Duration, Operation, Settings, checked_tenant, own_key, session_of, tenant_of
from ._results import Codec

# Older releases were not tried.
_OLDEST = (0, 2)

try:
    from claude_agent_sdk import SdkMcpTool
except ImportError as error:
    raise ImportError("onceward.claude_agent needs claude-agent-sdk: pip install 'claude-agent-sdk>=0.2'") from error

_installed = importlib.metadata.version("claude-agent-sdk")
if tuple(int(number) for number in re.findall(r"\d+", _installed)[:2]) < _OLDEST:
    raise ImportError(f"onceward.claude_agent needs claude-agent-sdk 0.2 or later, and {_installed} is installed")

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["once"]

_log = logging.getLogger("onceward")

T = TypeVar("T")
Result = dict[str, Any]

# What the model is told after a stored result.
_REPLAYED = "[onceward] This call was done before and was not repeated: this is its stored result."

# The part of an intent that the user's own key is, in a session. Only derived keys are bound to their session.
_KEY = "onceward:key"

# How long a repeat waits for the call that is running. Claude Code waits longer than this for a tool.
_WAIT: Duration = 60


class _Decorator(Protocol):
    @overload
    def __call__(self, tool: SdkMcpTool[T], /) -> SdkMcpTool[T]: ...

    @overload
    def __call__(self, tool: Callable[[T], Awaitable[Result]], /) -> Callable[[T], Awaitable[Result]]: ...


def once(
    ledger: Ledger,
    *,
    key: Sequence[str] | Callable[[Any], str],
    operation: str | None = None,
    session: SessionRule = None,
    tenant: TenantRule = None,
    probe: Callable[[Any], Any] | None = None,
    notice: bool = True,
    **settings: Unpack[Settings],
) -> _Decorator:
    """Makes a tool act once for each intent: put it above `@tool`, or below it with `operation=`.

    `key` names the arguments that make the same intent, because a model may reword the others; or it is a function
    of the arguments. `session` is the run or the conversation: in another one, the same call acts again. With
    `notice`, a text after a stored result tells the model that the call was not repeated. The settings are those of
    `ledger.once`.
    """
    unknown = set(settings) - set(Settings.__annotations__)
    if unknown:
        raise InvalidCall(f"unknown settings: {', '.join(sorted(unknown))}")
    if not callable(tenant):
        checked_tenant(tenant)
    if isinstance(settings.get("match"), str):
        raise InvalidCall('match= is a list of arguments, such as match=["cents"]')

    def decorate(tool: Any) -> Any:
        is_tool = isinstance(tool, SdkMcpTool)
        name = operation or (tool.name if is_tool else None)
        if name is None:
            raise InvalidCall("a handler without @tool needs operation=, the name of its intents in the ledger")
        chosen: dict[str, Any] = {"wait": _WAIT, **settings}
        own_session = checked_session(session)
        fields = _Fields(name, key, chosen, has_session=own_session is not None)
        fields.schema = tool.input_schema if is_tool else _annotation(tool)
        fields.check(_arguments(fields.schema))
        handler = tool.handler if is_tool else tool
        tool_name = tool.name if is_tool else name
        guard = _Guard(ledger, name, tool_name, handler, fields, own_session, tenant, probe, notice)
        # Refuses wrong settings now.
        guard.operation()

        @functools.wraps(handler)
        async def guarded(args: Any) -> Result:
            return await guard.call(args)

        return dataclasses.replace(tool, handler=guarded) if is_tool else guarded

    return decorate


class _Fields:
    """Which arguments identify the intent, which must agree, and the settings of the operation."""

    def __init__(self, name: str, key: Any, settings: dict[str, Any], has_session: bool) -> None:
        if isinstance(key, str) or not key:
            raise InvalidCall(f'{name}: key= is a list of arguments, such as key=["invoice"], or a function of them')
        self.name, self.key_of, self.settings = name, key if callable(key) else None, settings
        self._read = [*(settings.get("match") or ()), *window_fields(settings)]
        self._are_checked = False
        self.schema: Any = None
        self.recipe: list[str] | None = None if callable(key) else [str(one) for one in key]
        if callable(key) and has_session:
            self.recipe = [_KEY]
        elif callable(key):
            # All of the intent is compared: it is what `match` names.
            self.settings = {setting: value for setting, value in settings.items() if setting != "match"}

    def check(self, arguments: Collection[str] | None) -> None:
        """Refuses names that the tool does not have, if its arguments are known."""
        if arguments is not None:
            check_names(self.name, [*([] if self.key_of else self.recipe or ()), *self._read], arguments)
            self._are_checked = True

    def parts(self, args: dict[str, Any]) -> tuple[str | None, dict[str, Any] | None]:
        """The key that the user's function makes, and the intent."""
        if not self._are_checked:
            self._check_given(args)
        elif isinstance(self.schema, dict):
            args = with_defaults(args, self.schema, None if self.key_of else [*(self.recipe or ()), *self._read])
        if self.key_of is None:
            # An optional argument that the model leaves out is None.
            named = dict.fromkeys(argument_of(one) for one in [*(self.recipe or ()), *self._read])
            return None, {**named, **args}
        key = own_key(self.name, self.key_of(args))
        wanted = {argument_of(one) for one in self._read}
        intent = {name: value for name, value in args.items() if name in wanted}
        return (key, intent or None) if self.recipe is None else (None, {**intent, _KEY: key})


    def _check_given(self, args: dict[str, Any]) -> None:
        """Refuses a call without an argument that makes the key: its name may be misspelt, and then all calls would be one."""
        for one in [*([] if self.key_of else self.recipe or ()), *self._read]:
            if argument_of(one) not in args:
                raise InvalidCall(
                    f"{self.name} was called without `{argument_of(one)}`, which key= or match= names: put @once above @tool, "
                    "which says which arguments there are, or annotate them with a TypedDict",
                    operation=self.name,
                )


class _ToolError(Exception):
    """The handler returned a result with `is_error`: an error without a class."""

    def __init__(self, result: Result) -> None:
        super().__init__("\n".join(str(block.get("text", "")) for block in result.get("content", [])))
        self.result = result


@dataclasses.dataclass
class _Guard:
    """A handler and its operation."""

    ledger: Ledger
    name: str
    tool: str
    handler: Callable[[Any], Awaitable[Result]]
    fields: _Fields
    session: SessionRule
    tenant: TenantRule
    probe: Callable[[Any], Any] | None
    notice: bool
    _made: tuple[Any, Operation] | None = None

    def operation(self) -> Operation:
        """The operation, made again after the test kit has moved the ledger to another store."""
        native = self.ledger._native
        if self._made is None or self._made[0] is not native:
            made = Operation.make(
                native,
                self.name,
                self.fields.settings,
                key=self.fields.recipe,
                codec=Codec(annotation=dict[str, Any]),
                tenant=self.ledger.tenant,
                probe=self.probe,
            )
            self._made = (native, made)
        return self._made[1]

    async def call(self, args: Any) -> Result:
        """Runs the handler, or says what became of the same call before. Everything that the model can act on
        is a result."""
        operation = self.operation()
        try:
            parts = self._parts(args)
            started = await settled(operation.start(asyncio.get_running_loop(), *parts))
            if type(started) is Stored:
                return self._replayed(operation.read(started))
        except Error as decision:
            return self._refused(decision)
        try:
            result: Result = await operation.run_async(started, self._work, (args,), {})
            return result
        except Error as decision:
            doubt = await self._doubt(operation, parts) if is_from_inside(decision, started) else None
            if doubt is None:
                return self._refused(decision)
            _log.warning("%s failed, and it is unknown whether it took effect: %s", self.name, decision.message)
            return _error(doubt)
        except _ToolError as failed:
            doubt = await self._doubt(operation, parts)
            return failed.result if doubt is None else _with_text(failed.result, doubt)
        except Exception as error:
            doubt = await self._doubt(operation, parts)
            if doubt is None:
                raise
            _log.warning("%s failed, and it is unknown whether it took effect: %s", self.name, type(error).__name__)
            return _error(f"{error}\n{doubt}")

    async def _work(self, args: Any) -> Result:
        result = await self.handler(args)
        if isinstance(result, dict) and result.get("is_error"):
            raise _ToolError(result)
        return result

    def _refused(self, decision: Error) -> Result:
        # Not the whole text: the commands that settle a doubt contain its key.
        _log.warning("%s was not carried out: %s", self.name, decision.message)
        if isinstance(decision, SessionRequired):
            # A mistake of the program, not of the model's arguments.
            return _error(f"{self.tool} was not carried out: the program did not name a session. Nothing happened.")
        # The model knows the tool by its own name.
        named = type(decision)(decision.message, **{**decision._fields, "operation": self.tool})
        return _error(named.for_model())

    def _parts(self, args: dict[str, Any]) -> tuple[Any, ...]:
        tenant = tenant_of(self.name, self.tenant, args)
        session = session_of(self.session, self.name, (args,), {})
        key, intent = self.fields.parts(args)
        return tenant or self.ledger.tenant, session, key, intent

    def _replayed(self, result: Result) -> Result:
        if not self.notice:
            return result
        return _with_text(result, _REPLAYED)

    async def _doubt(self, operation: Operation, parts: tuple[Any, ...]) -> str | None:
        """What the model is told besides the error, if the attempt that just failed may have happened."""
        try:
            key = operation.native.key(*parts)
            found = await asyncio.to_thread(self.ledger.get, self.name, key, tenant=parts[0])
        except Error:
            # The ledger cannot say, so it may have happened.
            terms: str | None = "hold"
        else:
            terms = found.when_in_doubt if found else None
        if terms is None:
            return None
        if terms != "hold":
            return f"[onceward] {OwnerUnknown(operation=self.tool).for_model()}"
        unknown = f"[onceward] It is unknown whether {self.tool} took effect. {DO_NOT_REPEAT}"
        return f"{unknown} Tell the user that a person has to check it."


def _error(text: str) -> Result:
    return {"content": [{"type": "text", "text": text}], "is_error": True}


def _with_text(result: Result, text: str) -> Result:
    return {**result, "content": [*result.get("content", []), {"type": "text", "text": text}]}


def _annotation(handler: Callable[[Any], Any]) -> Any:
    """The type of a handler's arguments, which says their names if it is a TypedDict."""
    try:
        hints = typing.get_type_hints(handler)
        return hints.get(next(iter(inspect.signature(handler).parameters)))
    except Exception:
        # A name that cannot be resolved, or a callable of another kind.
        return None


def _arguments(schema: Any) -> Collection[str] | None:
    """The names of a tool's arguments, in any of the forms that `@tool` takes; None if they are not known."""
    if not isinstance(schema, dict):
        # Also those that a TypedDict inherits.
        keys = getattr(schema, "__required_keys__", None)
        return None if keys is None else keys | schema.__optional_keys__
    if isinstance(schema.get("type"), str):
        return schema.get("properties")
    return schema
