"""Guards the tools of LangChain agents and the nodes of LangGraph graphs.

Needs langgraph 1.0.4 or newer, and langchain 1.1 or newer for agents.

    from onceward.langchain import OnceMiddleware, ToolRule

    rules: dict[str, ToolRule] = {"charge": {"key": ["customer", "invoice"], "match": ["amount"], "tier": "payment"}}
    guard = OnceMiddleware(ledger, rules)

    agent = create_agent(model, tools, middleware=[guard])
    node = ToolNode(tools, wrap_tool_call=guard.wrap_tool_call, awrap_tool_call=guard.awrap_tool_call)
"""

from __future__ import annotations

import asyncio
import dataclasses
import difflib
import functools
import json
import logging
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ._arguments import argument_of, check_names, window_fields
from ._context import current_session
from ._errors import DO_NOT_REPEAT, Error, InvalidCall, OwnerUnknown, SessionRequired
from ._langgraph import MARK, Parts, ToolCallRequest, once_node, operation_of, run_once, run_once_async
from ._operation import Settings, own_key
from ._results import Codec

# `_langgraph` has checked that the frameworks are there.
from langchain_core.messages import ToolMessage  # isort: skip
from langchain_core.messages.tool import ToolOutputMixin  # isort: skip
from langchain_core.tools import BaseTool, StructuredTool, Tool  # isort: skip
from langchain_core.utils.pydantic import get_fields  # isort: skip
from langgraph.errors import GraphBubbleUp  # isort: skip
from langgraph.types import Command  # isort: skip

if TYPE_CHECKING:
    from langchain.agents.middleware import AgentMiddleware

    from ._ledger import Ledger

    _Middleware = AgentMiddleware[Any, Any, Any]
else:
    try:
        from langchain.agents.middleware import AgentMiddleware as _Middleware
    except ImportError:
        # ToolNode needs only langgraph. An agent, which needs langchain, cannot be made without it.
        _Middleware = object


__all__ = ["OnceMiddleware", "ToolRule", "once_node"]

_log = logging.getLogger("onceward")

# How long a call waits for an equal call that is running: models often make equal calls in one turn.
_WAIT = "60s"


class ToolRule(Settings, total=False):
    """How one tool is guarded: the settings of `@ledger.once`, under the tool's name."""

    # The name of its intents in the ledger; the tool's name unless given.
    operation: str
    # Names of the arguments that make the same intent, or a function of the arguments that returns the key.
    key: Sequence[str] | Callable[..., str]
    # True: one for each session of the run. Without a key, this is the default, and all arguments count.
    session: bool | str | Callable[[ToolCallRequest], str]
    tenant: str | Callable[[ToolCallRequest], str]
    # Asks whether an earlier attempt happened; gets the arguments of the tool by name.
    probe: Callable[..., Any]


class OnceMiddleware(_Middleware):
    """Guards the tools that `rules` names; all other tools pass untouched."""

    def __init__(
        self,
        ledger: Ledger,
        rules: Mapping[str, ToolRule],
        *,
        session: str | Callable[[ToolCallRequest], str] | None = None,
        errors: Literal["tell", "raise"] = "tell",
        tools: Sequence[BaseTool] | None = None,
    ) -> None:
        """`session` names the run; without it, that is what `onceward.session` set, or the `thread_id` of the run.

        With `errors="tell"`, the model is told about decisions such as `InDoubt`; with `"raise"`, they are raised. If
        `tools` is given, the rules are compared with them now instead of at the first call.
        """
        if errors not in ("tell", "raise"):
            raise InvalidCall(f'errors is "tell" or "raise", not {errors!r}')
        if session == "":
            raise InvalidCall("a session is a text that is not empty")
        self.tools = []
        self._ledger, self._errors, self._session = ledger, errors, session
        self._rules = {name: _checked(name, rule) for name, rule in rules.items()}
        self._guarded: dict[str, _GuardedTool] = {}
        self._is_checked = False
        if tools is not None:
            if unknown := _unknown(self._rules, tools):
                raise InvalidCall(unknown)
            for tool in tools:
                if tool.name in self._rules:
                    self._guard_of(tool)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        """Runs a guarded tool once. LangChain and `ToolNode` call this."""
        running = self._running(request)
        if running is None:
            return handler(request)
        if isinstance(running, ToolMessage):
            return running
        return running.explained(handler(running.request()))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """`wrap_tool_call` for async code."""
        running = self._running(request)
        if running is None:
            return await handler(request)
        if isinstance(running, ToolMessage):
            return running
        return running.explained(await handler(running.request()))

    def _running(self, request: ToolCallRequest) -> _ToolCall | ToolMessage | None:
        """The guarded call, the answer if it cannot be made, or None for a tool without a rule."""
        self._check_names(request)
        name = request.tool_call["name"]
        if name not in self._rules:
            return None
        if request.tool is None:
            # A middleware further in could still run such a tool, and would run it unguarded.
            text = f"{name} has a rule but is not a tool here: middleware that adds tools comes before OnceMiddleware"
            if self._errors == "raise":
                raise InvalidCall(text, operation=name)
            _log.warning("%s", text)
            return _message(request, f"{name} is not available here. Nothing happened.")
        return _ToolCall(self._guard_of(request.tool), request, self._session, self._errors == "tell")

    def _guard_of(self, tool: BaseTool) -> _GuardedTool:
        found = self._guarded.get(tool.name)
        # The test kit may have moved the ledger to another store.
        if found is None or found.tool is not tool or found.native is not self._ledger._native:
            found = self._guarded[tool.name] = _GuardedTool(self._ledger, tool, self._rules[tool.name])
        return found

    def _check_names(self, request: ToolCallRequest) -> None:
        """Warns once about rules for tools that are not there: a misspelled name leaves a tool unguarded."""
        if self._is_checked:
            return
        self._is_checked = True
        tools = getattr(request.runtime, "tools", None)
        if tools and (unknown := _unknown(self._rules, tools)):
            _log.warning("%s", unknown)


class _GuardedTool:
    """A tool with its rule: everything that its calls have in common."""

    def __init__(self, ledger: Ledger, tool: BaseTool, rule: Mapping[str, Any]) -> None:
        self.ledger, self.native, self.tool, self.rule = ledger, ledger._native, tool, rule
        if _returns_command(tool):
            raise InvalidCall(
                f"{tool.name} returns a Command, which changes the graph and cannot be kept: guard the function that "
                "acts with @ledger.once, and call it from the tool"
            )
        self.has_artifact = tool.response_format == "content_and_artifact"
        settings = {name: value for name, value in rule.items() if name in Settings.__annotations__}
        settings.setdefault("wait", _WAIT)
        self.defaults = _arguments(tool)
        key, match = rule.get("key"), [argument_of(one) for one in settings.get("match", ())]
        self.key_of = key if callable(key) else None
        fields = [] if key is None or callable(key) else list(key)
        if key is None:
            fields = [name for name in self.defaults if name not in match]
        self.wanted = {argument_of(one) for one in [*fields, *match, *window_fields(settings)]}
        check_names(tool.name, self.wanted, self.defaults)
        if not fields and self.key_of is None:
            raise InvalidCall(f"{tool.name} has no arguments that could make a key: give key, a function")
        self.session = rule.get("session", key is None)
        if self.key_of is not None and self.session:
            # A key of one's own is not bound to a session; a derived one is.
            fields = [MARK]
        elif self.key_of is not None:
            # With a key of one's own, the whole intent is compared, which is what `match` names.
            settings.pop("match", None)
        name = rule.get("operation") or tool.name
        codec = _ToolCodec(self.has_artifact)
        self.operation = operation_of(ledger, name, settings, fields or None, codec, rule.get("probe"))

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments that the model gave, as the tool gets them."""
        given = dict(zip(self.defaults, args, strict=False)) | kwargs
        return {name: given.get(name, default) for name, default in self.defaults.items()}

    def parts(self, request: ToolCallRequest, session: Any, arguments: dict[str, Any]) -> Parts:
        """Tenant, session, key and intent of a call."""
        tenant = self.rule.get("tenant")
        if callable(tenant):
            tenant = tenant(request)
            if not tenant or not isinstance(tenant, str):
                raise InvalidCall(f"{self.tool.name}: tenant returned no tenant; a tenant is a text that is not empty")
        name = None
        if self.session:
            name = _session_of(self.tool.name, session if self.session is True else self.session, request)
        intent = {one: arguments[one] for one in self.wanted}
        key = None
        if self.key_of is not None:
            key = own_key(self.tool.name, self.key_of(**arguments))
            if name is not None:
                intent, key = intent | {MARK: key}, None
        return tenant or self.operation.tenant, name, key, intent or None

    def doubt(self, parts: Parts) -> str | None:
        """What the model is told if the attempt that just failed may have happened."""
        try:
            found = self.ledger.get(self.operation.name, self.operation.native.key(*parts), tenant=parts[0])
        except Error:
            # The ledger cannot say, so it may have happened.
            terms: str | None = "hold"
        else:
            terms = found.when_in_doubt if found else None
        if terms is None:
            return None
        if terms != "hold":
            return OwnerUnknown(operation=self.tool.name).for_model()
        unknown = f"It is unknown whether {self.tool.name} took effect."
        return f"{unknown} {DO_NOT_REPEAT} Tell the user that a person has to check it."


class _ToolCall:
    """One guarded call of a tool. It replaces what the tool runs, so that the framework still checks and injects
    arguments, and other middleware still sees the call."""

    def __init__(self, guard: _GuardedTool, request: ToolCallRequest, session: Any, tells: bool) -> None:
        self.guard, self.original, self.session, self.tells = guard, request, session, tells
        self.doubt: str | None = None
        self.is_begun = False

    def request(self) -> ToolCallRequest:
        """The request with the guarded tool in place of the tool."""
        tool, guarded = self.guard.tool, self.guard.tool.model_copy()
        run, arun = tool._run, tool._arun

        @functools.wraps(run)
        def guarded_run(*args: Any, **kwargs: Any) -> Any:
            if isinstance(tool, (StructuredTool, Tool)) and tool.func is None:
                # An async tool in a sync run, which the framework refuses: nothing may happen, so there is nothing to guard.
                return run(*args, **kwargs)
            arguments, parts = self._parts(args, kwargs)

            def work(**_arguments: Any) -> Any:
                self.is_begun = True
                return self._checked(run(*args, **kwargs))

            try:
                return self._bound(run_once(self.guard.operation, parts, work, (), arguments))
            except Exception as error:
                return self._failed(error, self._doubt_after(error, parts))

        @functools.wraps(arun)
        async def guarded_arun(*args: Any, **kwargs: Any) -> Any:
            arguments, parts = self._parts(args, kwargs)

            async def work(**_arguments: Any) -> Any:
                self.is_begun = True
                return self._checked(await arun(*args, **kwargs))

            try:
                return self._bound(await run_once_async(self.guard.operation, parts, work, (), arguments))
            except Exception as error:
                return self._failed(error, await asyncio.to_thread(self._doubt_after, error, parts))

        object.__setattr__(guarded, "_run", guarded_run)
        object.__setattr__(guarded, "_arun", guarded_arun)
        return dataclasses.replace(self.original, tool=guarded)

    def explained(self, result: Any) -> Any:
        """The result, with what is known about the effect if the framework turned a failure into a message."""
        is_failure = isinstance(result, ToolMessage) and result.status == "error"
        return _message(self.original, self.doubt) if self.tells and self.doubt and is_failure else result

    def _parts(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dict[str, Any], Parts]:
        arguments = self.guard.arguments(args, kwargs)
        return arguments, self.guard.parts(self.original, self.session, arguments)

    def _checked(self, result: Any) -> Any:
        """The result as every repeat will see it. A tool that reports a failure as a message has failed."""
        if isinstance(result, ToolMessage) and result.status == "error":
            raise _Reported(result)
        if self.guard.has_artifact and isinstance(result, tuple) and len(result) == 2:
            return _content(result[0]), result[1]
        return _content(result)

    def _bound(self, result: Any) -> Any:
        """The result for this call: a stored message gets its id."""
        if isinstance(result, tuple):
            return self._bound(result[0]), result[1]
        if isinstance(result, _KeptMessage):
            return ToolMessage(**result.fields, tool_call_id=self.original.tool_call["id"])
        return result

    def _doubt_after(self, error: Exception, parts: Parts) -> str | None:
        operation = self.guard.operation
        if isinstance(error, Error) and self.is_begun:
            # Of another guarded call, inside the tool, it says nothing about the tool.
            is_own = (error.operation, error.key) == (operation.name, operation.native.key(*parts))
        else:
            is_own = isinstance(error, Error)
        return None if is_own or isinstance(error, GraphBubbleUp) else self.guard.doubt(parts)

    def _failed(self, error: Exception, doubt: str | None) -> Any:
        self.doubt = doubt or self.doubt
        if isinstance(error, Error) and self.tells:
            # The model knows the tool by its own name.
            named = type(error)(error.message, **{**error._fields, "operation": self.guard.tool.name})
            message = _message(self.original, named.for_model())
        elif isinstance(error, _Reported):
            message = error.result
        else:
            raise error
        return (message, message.artifact) if self.guard.has_artifact else message


class _Reported(Exception):
    """A tool returned a message that reports a failure."""

    def __init__(self, result: ToolMessage) -> None:
        super().__init__(result.text)
        self.result = result


@dataclasses.dataclass
class _KeptMessage:
    """A stored message, before it gets the id of the call that it answers."""

    fields: dict[str, Any]


class _ToolCodec(Codec):
    """Keeps what a tool returns: its content as JSON, with its artifact if the tool has one."""

    def __init__(self, has_artifact: bool) -> None:
        super().__init__()
        self._has_artifact = has_artifact

    def write(self, result: Any) -> bytes | None:
        content, artifact = result if self._has_artifact and isinstance(result, tuple) else (result, None)
        if type(content) is ToolMessage:
            # Not its id: the graph would replace the earlier message.
            names = ("content", "artifact", "status", "name", "additional_kwargs", "response_metadata")
            content = {MARK: "message", "fields": {name: getattr(content, name) for name in names}}
        return super().write([content, artifact] if self._has_artifact else content)

    def read(self, body: bytes) -> Any:
        value, artifact = super().read(body), None
        # A person who settles a doubt may give the content alone.
        if self._has_artifact and isinstance(value, list) and len(value) == 2:
            value, artifact = value
        if isinstance(value, dict) and value.get(MARK) == "message":
            value = _KeptMessage(value["fields"])
        return (value, artifact) if self._has_artifact else value


def _checked(name: str, rule: Mapping[str, Any]) -> Mapping[str, Any]:
    if unknown := set(rule) - set(ToolRule.__annotations__) - set(Settings.__annotations__):
        raise InvalidCall(f"{name}: unknown settings: {', '.join(sorted(unknown))}")
    key = rule.get("key")
    if isinstance(key, str) or (key is not None and not callable(key) and not key):
        raise InvalidCall(f'{name}: key is a list of arguments, such as ["invoice"]')
    if rule.get("session") == "" or rule.get("tenant") == "":
        raise InvalidCall(f"{name}: sessions and tenants are texts that are not empty")
    return rule


def _unknown(rules: Mapping[str, Any], tools: Sequence[BaseTool]) -> str | None:
    names = [tool.name for tool in tools]
    missing = sorted(set(rules) - set(names))
    near = [match for name in missing for match in difflib.get_close_matches(name, names, 1)]
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    return f"there are rules for unknown tools: {', '.join(missing)}{hint}" if missing else None


def _arguments(tool: BaseTool) -> dict[str, Any]:
    """The arguments that the model may give, with their defaults."""
    if isinstance(tool, Tool) and tool.args_schema is None:
        # A tool of one text, whose name is not in its signature.
        return {name: None for name in tool.args}
    schema: Any = tool.tool_call_schema
    if isinstance(schema, dict):
        return {name: one.get("default") for name, one in (schema.get("properties") or {}).items()}
    fields = {name: getattr(field, "default", None) for name, field in get_fields(schema).items()}
    return {name: None if "Undefined" in type(default).__name__ else default for name, default in fields.items()}


def _returns_command(tool: BaseTool) -> bool:
    function = getattr(tool, "func", None) or getattr(tool, "coroutine", None) or tool._run

    def mentions(annotation: Any) -> bool:
        is_command = annotation is Command or typing.get_origin(annotation) is Command
        return is_command or any(mentions(one) for one in typing.get_args(annotation))

    try:
        return mentions(typing.get_type_hints(function).get("return"))
    except Exception:
        # A name that cannot be resolved. A Command is then noticed when the tool returns it, and is not kept.
        return False


def _session_of(name: str, given: Any, request: ToolCallRequest) -> str:
    found = given(request) if callable(given) else given or current_session()
    if given is None and not found:
        config = getattr(request.runtime, "config", None) or {}
        thread = (config.get("configurable") or {}).get("thread_id")
        # Zero is an id too.
        found = None if thread is None else str(thread)
    if not found:
        raise SessionRequired(
            f"{name} runs once in each session, and no session is set: give the run a thread_id, give session=, or use "
            "`with onceward.session(...)`",
            operation=name,
        )
    return str(found)


def _content(result: Any) -> Any:
    """What a tool returned, or the text that the model would see of it if it is not JSON."""
    is_output = isinstance(result, ToolOutputMixin) or (
        isinstance(result, list) and any(isinstance(one, ToolOutputMixin) for one in result)
    )
    if is_output or Codec().write(result) is not None:
        return result
    try:
        return json.dumps(result, ensure_ascii=False)
    except Exception:
        return str(result)


def _message(request: ToolCallRequest, text: str) -> ToolMessage:
    call = request.tool_call
    return ToolMessage(text, name=call["name"], tool_call_id=call["id"], status="error")
