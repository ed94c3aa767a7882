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
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from ._claim import settled
from ._errors import _DO_NOT_REPEAT, Error, InvalidCall
from ._ledger import Ledger
from ._native import Stored
from ._once import SessionRule, TenantRule
from ._operation import Duration, Operation, Settings, session_of
from ._results import Codec

# The first release whose servers pass `is_error` of a handler on to the model on every version of `mcp`.
_OLDEST = (0, 2)

try:
    from claude_agent_sdk import SdkMcpTool
except ImportError as error:
    raise ImportError("onceward.claude_agent needs the Claude Agent SDK: pip install 'claude-agent-sdk>=0.2'") from error

_installed = importlib.metadata.version("claude-agent-sdk")
if tuple(int(number) for number in re.findall(r"\d+", _installed)[:2]) < _OLDEST:
    raise ImportError(f"onceward.claude_agent needs claude-agent-sdk 0.2 or later, and {_installed} is installed")

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["once"]

_log = logging.getLogger("onceward")

T = TypeVar("T")
Result = dict[str, Any]

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

    `key` names the arguments that make the same intent, because a model may reword the others; or it is a function of the
    arguments. `session` is the run or the conversation: in another one, the same call acts again. With `notice`, a text after
    a stored result tells the model that the call was not repeated. The settings are those of `ledger.once`.
    """
    unknown = set(settings) - set(Settings.__annotations__)
    if unknown:
        raise InvalidCall(f"unknown settings: {', '.join(sorted(unknown))}")

    def decorate(tool: Any) -> Any:
        is_tool = isinstance(tool, SdkMcpTool)
        name = operation or (tool.name if is_tool else None)
        if name is None:
            raise InvalidCall("a handler without @tool needs operation=, the name of its intents in the ledger")
        fields = _Fields(name, key, [str(one) for one in settings.get("match", ())], settings.get("window"))
        if is_tool:
            fields.check(_arguments(tool.input_schema))
        handler = tool.handler if is_tool else tool
        chosen: dict[str, Any] = {"wait": _WAIT, **settings}
        made = Operation.make(
            ledger._native,
            name,
            chosen,
            key=fields.recipe,
            codec=Codec(annotation=dict[str, Any]),
            tenant=ledger.tenant,
            probe=probe,
        )
        in_doubt = chosen.get("in_doubt") or ("probe" if probe else "hold")
        guard = _Guard(ledger, made, handler, fields, session or None, tenant, notice, in_doubt)

        @functools.wraps(handler)
        async def guarded(args: Any) -> Result:
            return await guard.call(args)

        return dataclasses.replace(tool, handler=guarded) if is_tool else guarded

    return decorate


class _Fields:
    """Which arguments identify the intent, and which must agree."""

    def __init__(self, name: str, key: Any, match: list[str], window: Any) -> None:
        if isinstance(key, str) or not key:
            raise InvalidCall(f'{name}: key= is a list of arguments, such as key=["invoice"], or a function of them')
        self.name, self.key_of = name, key if callable(key) else None
        self.recipe = None if callable(key) else [str(one) for one in key]
        self._match = [*match, *([window["of"]] if window and window.get("of", "now") != "now" else [])]

    def check(self, arguments: Iterable[str] | None) -> None:
        """Refuses names that the tool does not have."""
        for one in [*(self.recipe or ()), *self._match]:
            if arguments is not None and _root(one) not in arguments:
                raise InvalidCall(f"{self.name} has no argument `{_root(one)}`")

    def parts(self, args: dict[str, Any]) -> tuple[str | None, dict[str, Any] | None]:
        """The key that the user's function makes, and the intent."""
        if self.key_of is None:
            return None, args
        key = self.key_of(args)
        if not isinstance(key, str):
            raise InvalidCall(f"{self.name}: key= returned {type(key).__name__}, and a key is a str", operation=self.name)
        wanted = {_root(one) for one in self._match}
        return key, {name: value for name, value in args.items() if name in wanted} or None


class _ToolError(Exception):
    """The handler returned a result with `is_error`: an error without a class."""

    def __init__(self, result: Result) -> None:
        super().__init__("\n".join(str(block.get("text", "")) for block in result.get("content", [])))
        self.result = result


@dataclasses.dataclass
class _Guard:
    """A handler and its operation."""

    ledger: Ledger
    operation: Operation
    handler: Callable[[Any], Awaitable[Result]]
    fields: _Fields
    session: SessionRule
    tenant: TenantRule
    notice: bool
    in_doubt: str

    async def call(self, args: Any) -> Result:
        """Runs the handler, or says what became of the same call before. Everything that the model can act on is a result."""
        name = self.operation.name
        try:
            parts = self._parts(args)
            started = await settled(self.operation.native.start(asyncio.get_running_loop(), *parts))
            if type(started) is Stored:
                return self._replayed(self.operation.read(started))
        except Error as decision:
            return _refused(name, decision)
        try:
            return await _to_its_end(self.operation.run_async(started, self._work, (args,), {}))
        except Error as decision:
            return _refused(name, decision)
        except _ToolError as failed:
            return _with_text(failed.result, self._doubt()) if await self._is_in_doubt(parts) else failed.result
        except Exception as error:
            if not await self._is_in_doubt(parts):
                raise
            _log.warning("%s failed, and it is unknown whether it took effect: %r", name, error)
            return _error(f"{error}\n{self._doubt()}")

    async def _work(self, args: Any) -> Result:
        result = await self.handler(args)
        if result.get("is_error"):
            raise _ToolError(result)
        return result

    def _parts(self, args: dict[str, Any]) -> tuple[Any, ...]:
        tenant = self.tenant(args) if callable(self.tenant) else self.tenant
        session = session_of(self.session, self.operation.name, (args,), {})
        key, intent = self.fields.parts(args)
        return tenant or self.operation.tenant, session, key, intent

    def _replayed(self, result: Result) -> Result:
        if not self.notice:
            return result
        return _with_text(result, "[onceward] This call was done before and was not repeated: this is its stored result.")

    def _doubt(self) -> str:
        """What the model is told besides the error."""
        known = f"[onceward] It is unknown whether {self.operation.name} took effect. {_DO_NOT_REPEAT}"
        if self.in_doubt == "hold":
            return f"{known} Tell the user that a person has to check it."
        return f"{known} The same call may be made again with the same arguments."

    async def _is_in_doubt(self, parts: tuple[Any, ...]) -> bool:
        """What became of the intent after an error. If the ledger cannot say, it may have happened."""
        try:
            key = self.operation.native.key(*parts)
            found = await asyncio.to_thread(self.ledger.get, self.operation.name, key, tenant=parts[0])
        except Error:
            return True
        return found is not None and found.status == "in_doubt"


async def _to_its_end(work: Awaitable[Result]) -> Result:
    """Awaits work in a task of its own. The SDK's cancellation interrupts every wait of the handler's task, also the one in
    which the ledger records that the work was interrupted."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        # The SDK no longer waits for the result, so this is the only reader of the task's exception.
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        raise


def _refused(name: str, decision: Error) -> Result:
    _log.warning("%s was not carried out: %s", name, decision)
    return _error(decision.for_model())


def _error(text: str) -> Result:
    return {"content": [{"type": "text", "text": text}], "is_error": True}


def _with_text(result: Result, text: str) -> Result:
    return {**result, "content": [*result.get("content", []), {"type": "text", "text": text}]}


def _root(field: str) -> str:
    if not field.startswith("/"):
        return field
    return field[1:].split("/")[0].replace("~1", "/").replace("~0", "~")


def _arguments(schema: Any) -> Iterable[str] | None:
    """The names of a tool's arguments, in any of the forms that `@tool` takes; None if they are not known."""
    if not isinstance(schema, dict):
        return getattr(schema, "__annotations__", None)
    if isinstance(schema.get("type"), str):
        return schema.get("properties")
    return schema
