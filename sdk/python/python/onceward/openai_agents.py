"""Guards functions under `function_tool` of the OpenAI Agents SDK, and names the calls of its MCP servers.

    from onceward.openai_agents import once

    @function_tool
    @once(ledger, operation="charge", key=["invoice"], match=["cents"], tier="payment")
    async def charge(invoice: str, cents: int, memo: str) -> str: ...

Needs openai-agents 0.8 or newer.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.metadata
import inspect
import logging
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, Union

from . import _native
from ._arguments import argument_of, check_names, window_fields
from ._claim import is_from_inside, settled
from ._context import current_session
from ._errors import DO_NOT_REPEAT, Error, InvalidCall, OwnerUnknown, SessionRequired
from ._native import Stored
from ._once import default_name, refuse_hidden_object
from ._operation import IN_DOUBT, Operation, Settings, own_key, pointer
from ._results import Codec

try:
    from agents import RunContextWrapper
    from agents.mcp import MCPToolMetaContext
    from agents.tool_context import ToolContext
except ImportError as error:
    try:
        _found = f"{importlib.metadata.version('openai-agents')} cannot be used: {error}"
    except importlib.metadata.PackageNotFoundError:
        _found = "it is not installed: pip install 'openai-agents>=0.8'"
    raise ImportError(f"onceward.openai_agents needs openai-agents 0.8 or newer, and {_found}") from error

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._ledger import Ledger

__all__ = ["once", "once_meta", "tell_model", "tell_timeout"]

_log = logging.getLogger("onceward")

P = ParamSpec("P")
R = TypeVar("R")
Context = RunContextWrapper[Any]
SessionOfRun = Union[str, bool, Callable[[Context], Union[str, None]], None]
TenantOfRun = Union[str, Callable[[Context], str], None]
KeyOfCall = Union[Sequence[str], Callable[[MCPToolMetaContext], Union[str, None]]]
# Tenant, session, key and intent of a call.
Parts = tuple[Union[str, None], Union[str, None], Union[str, None], Any]

# How long a call waits for an equal call that is running: models often make equal calls in one response.
_WAIT = "60s"

# The parameter through which a function without a context gets it.
_CONTEXT = "onceward_context"

# A part of an intent that is not an argument.
_KEY = "onceward:key"


def once(
    ledger: Ledger,
    *,
    operation: str | None = None,
    key: Sequence[str] | Callable[..., str] | None = None,
    session: SessionOfRun = None,
    tenant: TenantOfRun = None,
    probe: Callable[..., Any] | None = None,
    errors: Literal["tell", "raise"] = "tell",
    **settings: Unpack[Settings],
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Makes a function run once for each intent. Put it below `@function_tool`.

    `key` names the arguments that make the same intent. Without it, all arguments do, in one session. `session` is a
    text, a function of the run's context, or True: the session that `onceward.session` set, or the `group_id` of the
    run. With `errors="tell"`, the model gets a text when the call cannot run; with `"raise"`, the function raises. The
    other settings are those of `ledger.once`.
    """
    if unknown := set(settings) - set(Settings.__annotations__):
        raise InvalidCall(f"unknown settings: {', '.join(sorted(unknown))}")
    if errors not in ("tell", "raise"):
        raise InvalidCall(f'errors is "tell" or "raise", not {errors!r}')
    if session == "" or tenant == "":
        raise InvalidCall("sessions and tenants are texts that are not empty")

    def decorate(function: Any) -> Any:
        chosen: dict[str, Any] = {"wait": _WAIT, **settings}
        guard = _Guard(ledger, function, operation, key, session, tenant, probe, errors == "tell", chosen)
        return guard.wrapper()

    return decorate


def tell_model(context: RunContextWrapper[Any], error: Exception) -> str:
    """A `failure_error_function` for functions with `@ledger.once`: tells the model what the ledger decided."""
    tool = getattr(context, "tool_name", None)
    if isinstance(error, Error):
        return _for_model(error, tool)
    if getattr(error, IN_DOUBT, False):
        return f"It is unknown whether {tool or 'the call'} took effect. {DO_NOT_REPEAT} Tell the user."
    return f"{tool or 'The call'} failed. If it is called again, its arguments must stay the same."


def tell_timeout(context: RunContextWrapper[Any], error: Exception) -> str:
    """A `timeout_error_function` for guarded functions: a call that got no answer in time may have taken effect."""
    name = getattr(context, "tool_name", None) or getattr(error, "tool_name", None) or "the call"
    return (
        f"It is unknown whether {name} took effect: it got no answer in time. To learn what became of it, make the "
        f"same call again, with the same arguments. {DO_NOT_REPEAT}"
    )


def once_meta(
    keys: Mapping[str, KeyOfCall] | None = None,
    *,
    session: str | Callable[[MCPToolMetaContext], str | None] | None = None,
    every_call: bool = False,
) -> Callable[[MCPToolMetaContext], dict[str, Any] | None]:
    """A `tool_meta_resolver` for MCP servers behind `onceward mcp`: the gateway recognises calls that are sent again.

    `keys` says for each tool which arguments make the same call, or is a function that returns the key. `session` names
    work that may be run again from its start. With `every_call`, every other call in a session is named by the id that
    the model gave it: a run that is resumed from a `RunState` then does not repeat calls.
    """
    rules = dict(keys or {})
    for name, rule in rules.items():
        if isinstance(rule, str) or (not callable(rule) and not rule):
            raise InvalidCall(f'{name}: a key is a list of arguments, such as ["invoice"], or a function')
    if every_call and session is None:
        raise InvalidCall("every_call needs session=: the ids of a model's calls are unique only in one conversation")

    def resolve(call: MCPToolMetaContext) -> dict[str, Any] | None:
        run = session(call) if callable(session) else session
        meta = {} if not run else {"onceward/session": run}
        rule = rules.get(call.tool_name)
        call_id = getattr(call.run_context, "tool_call_id", None)
        if callable(rule):
            key = rule(call)
        elif rule is not None:
            intent = {name: _found(call, name) for name in rule}
            key = _native.derived_key("", f"mcp:{call.tool_name}", intent)
        else:
            key = None
            if every_call and run and call_id:
                key = _native.derived_key(run, f"mcp:{call.tool_name}", {"call": call_id})
        return (meta | ({"onceward/key": key} if key else {})) or None

    return resolve


def _found(call: MCPToolMetaContext, field: str) -> Any:
    """The argument of an MCP call that a name or a JSON pointer leads to. One that is missing must not make one key for all
    calls."""
    value: Any = call.arguments or {}
    for name in pointer(field)[1:].split("/"):
        name = name.replace("~1", "/").replace("~0", "~")
        if not isinstance(value, Mapping) or name not in value:
            raise InvalidCall(
                f"{call.tool_name} was called without `{field}`, which makes its key: name arguments that every call has, or "
                "give a function",
                operation=call.tool_name,
            )
        value = value[name]
    return value


class _Guard:
    """A guarded function: everything that its calls have in common."""

    def __init__(
        self,
        ledger: Ledger,
        function: Callable[..., Any],
        operation: str | None,
        key: Any,
        session: SessionOfRun,
        tenant: TenantOfRun,
        probe: Callable[..., Any] | None,
        tells: bool,
        settings: dict[str, Any],
    ) -> None:
        if not inspect.isroutine(function):
            raise InvalidCall("@once goes below @function_tool, on a function")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidCall(f"{function.__name__} is a generator: its end cannot be recorded")
        if operation is None and settings.get("tier"):
            raise InvalidCall(
                f"{function.__name__} declares a tier, so it needs operation=: renaming the function must not rename "
                "its intents, or work that is done would run again"
            )
        self.ledger, self.function, self.probe, self.tells = ledger, function, probe, tells
        self.name, self.tenant, self.settings = operation or default_name(function), tenant, settings
        self.signature = inspect.signature(function)
        self.context_name = _context_of(function, self.signature)
        self.key_of = key if callable(key) else None
        self.session = (key is None) if session is None else session
        match = [str(one) for one in settings.get("match", ())]
        self.fields = self._fields(key, match)
        self.wanted = {argument_of(one) for one in [*self.fields, *match, *window_fields(settings)]}
        check_names(self.name, self.wanted, self.signature.parameters)
        if self.key_of is not None and self.session:
            # A key of one's own is not bound to a session; a derived one is.
            self.fields = [_KEY]
        elif self.key_of is not None:
            # With a key of one's own, the whole intent is compared, which is what `match` names.
            self.settings.pop("match", None)
        self._made: tuple[Any, Operation] | None = None
        # Refuses wrong settings now.
        self.operation()

    def _fields(self, key: Any, match: list[str]) -> list[str]:
        if isinstance(key, str) or (key is not None and not callable(key) and not key):
            raise InvalidCall(f'{self.name}: key= is a list of arguments, such as key=["invoice"], or a function')
        if key is not None:
            return [] if callable(key) else [str(one) for one in key]
        refuse_hidden_object(self.name, self.function)
        kinds = {parameter.kind for parameter in self.signature.parameters.values()}
        if kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}:
            raise InvalidCall(f"{self.name} takes any arguments: name those that make the intent with key=[...]")
        hidden = {self.context_name, *(argument_of(one) for one in match)}
        names = [name for name in self.signature.parameters if name not in hidden]
        if not names:
            raise InvalidCall(f"{self.name} has no arguments that could make a key: give key=, a function")
        return names

    def operation(self) -> Operation:
        """The operation, made again after the test kit has moved the ledger to another store."""
        native = self.ledger._native
        if self._made is None or self._made[0] is not native:
            made = Operation.make(
                native,
                self.name,
                self.settings,
                key=self.fields or None,
                codec=Codec(self.function),
                tenant=self.ledger.tenant,
                probe=self.probe,
            )
            self._made = (native, made)
        return self._made[1]

    def wrapper(self) -> Callable[..., Any]:
        """The function that takes the place of the guarded one. It always takes the context of the run."""

        @functools.wraps(self.function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            context, args, arguments = self._taken(args, kwargs)
            parts, started = None, None
            try:
                operation, parts = self.operation(), self._parts(context, arguments)
                started = operation.start(None, *parts)
                if type(started) is Stored:
                    return operation.read(started)
                return operation.run(started, lambda **_: self.function(*args, **kwargs), (), arguments)
            except Exception as error:
                return self._answer(error, context, self._doubt_after(error, parts, started))

        @functools.wraps(self.function)
        async def guarded_async(*args: Any, **kwargs: Any) -> Any:
            context, args, arguments = self._taken(args, kwargs)
            parts, started = None, None
            try:
                operation, parts = self.operation(), self._parts(context, arguments)
                started = await settled(operation.start(asyncio.get_running_loop(), *parts))
                if type(started) is Stored:
                    return operation.read(started)
                return await operation.run_async(started, lambda **_: self.function(*args, **kwargs), (), arguments)
            except Exception as error:
                return self._answer(error, context, await asyncio.to_thread(self._doubt_after, error, parts, started))

        wrapper: Any = guarded_async if inspect.iscoroutinefunction(self.function) else guarded
        if self.context_name is None:
            hint = ToolContext[Any]
            first = inspect.Parameter(_CONTEXT, inspect.Parameter.POSITIONAL_ONLY, annotation=hint)
            others = self.signature.parameters.values()
            wrapper.__signature__ = self.signature.replace(parameters=[first, *others])
            wrapper.__annotations__ = {_CONTEXT: hint, **self.function.__annotations__}
        return typing.cast(Callable[..., Any], wrapper)

    def _taken(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Context | None, tuple[Any, ...], dict[str, Any]]:
        """The context, the arguments for the function, and those of them that the model gave."""
        context = args[0] if args and isinstance(args[0], RunContextWrapper) else None
        if context is not None and self.context_name is None:
            args = args[1:]
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return context, args, {name: value for name, value in bound.arguments.items() if name != self.context_name}

    def _parts(self, context: Context | None, arguments: dict[str, Any]) -> Parts:
        tenant = self.tenant
        if callable(tenant):
            tenant = None if context is None else tenant(context)
            if not tenant or not isinstance(tenant, str):
                raise InvalidCall(f"{self.name}: tenant= returned no tenant; a tenant is a text that is not empty")
        session = _session_of(self.name, self.session, context) if self.session else None
        intent = {name: arguments[name] for name in self.wanted}
        key = None
        if self.key_of is not None:
            key = own_key(self.name, self.key_of(**arguments))
            if session is not None:
                intent, key = intent | {_KEY: key}, None
        return tenant or self.ledger.tenant, session, key, intent or None

    def _answer(self, error: Exception, context: Context | None, repeats: str | None) -> str:
        """What the model is told, if it is told: the framework would make "please try again" of any exception."""
        tool = getattr(context, "tool_name", None) or self.function.__name__
        if self.tells and isinstance(error, Error) and repeats is None:
            # Not the whole text: the commands that settle a doubt contain its key.
            _log.warning("%s was not carried out: %s", self.name, error.message)
            return _for_model(error, tool)
        if not self.tells or repeats is None:
            raise error
        _log.warning("%s failed, and it is unknown whether it took effect: %s", self.name, type(error).__name__)
        if repeats != "hold":
            return OwnerUnknown(operation=tool).for_model()
        unknown = f"It is unknown whether {tool} took effect. {DO_NOT_REPEAT}"
        return f"{unknown} Tell the user that a person has to check it."

    def _doubt_after(self, error: Exception, parts: Parts | None, started: Any) -> str | None:
        """What happens to repeats, if the attempt that just failed may have happened."""
        if parts is None or not self.tells or (isinstance(error, Error) and not is_from_inside(error, started)):
            return None
        try:
            found = self.ledger.get(self.name, self.operation().native.key(*parts), tenant=parts[0])
        except Error:
            # The ledger cannot say, so it may have happened.
            return "hold"
        return found.when_in_doubt if found else None


def _for_model(error: Error, tool: str | None) -> str:
    name = tool or error.operation or "The call"
    if isinstance(error, SessionRequired):
        # A mistake of the program. If it were raised, the framework would hide it and tell the model to try again.
        return f"{name} was not carried out: the program did not name a session. Nothing happened. Tell the user."
    # The model knows the tool by its own name.
    return type(error)(error.message, **{**error._fields, "operation": name}).for_model()


def _session_of(name: str, given: SessionOfRun, context: Context | None) -> str:
    found: Any = given
    if callable(given):
        found = None if context is None else given(context)
    elif given is True:
        found = current_session() or getattr(getattr(context, "run_config", None), "group_id", None)
    if not found or not isinstance(found, str):
        raise SessionRequired(
            f"{name} runs once in each session, and no session is set: give the run RunConfig(group_id=...), give "
            "session=, or use `with onceward.session(...)`",
            operation=name,
        )
    return found


def _context_of(function: Callable[..., Any], signature: inspect.Signature) -> str | None:
    """The parameter that takes the context of the run: the first one, if its type says so."""
    first = next(iter(signature.parameters), None)
    try:
        hint = typing.get_type_hints(function).get(first or "")
    except Exception as error:
        raise InvalidCall(f"the annotations of {function.__name__} cannot be resolved: {error}") from error
    return first if (typing.get_origin(hint) or hint) in (RunContextWrapper, ToolContext) else None
