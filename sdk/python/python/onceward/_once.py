"""The decorator: a function that runs once for each intent, with the signature and the return type that it had."""

from __future__ import annotations

import asyncio
import difflib
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Union

from ._claim import settled
from ._errors import InvalidCall
from ._native import Stored
from ._operation import Operation, session_of
from ._results import Codec

if TYPE_CHECKING:
    from ._ledger import Ledger
    from ._native import NativeLedger

P = ParamSpec("P")
R = TypeVar("R")

# `key=`: names of arguments or JSON pointers into them, or a function of the arguments that returns the key.
KeyRule = Union[Sequence[str], Callable[..., str], None]
# `session=` and `tenant=`: fixed, or a function of the arguments. For sessions, `True` is the one that the caller set.
SessionRule = Union[str, bool, Callable[..., str], None]
TenantRule = Union[str, Callable[..., str], None]


class Guarded:
    """A guarded function: everything that a call of it needs. `onceward.guarded(function)` returns it."""

    def __init__(
        self,
        ledger: Ledger,
        function: Callable[..., Any],
        *,
        operation: str | None,
        key: KeyRule,
        session: SessionRule,
        tenant: TenantRule,
        probe: Callable[..., Any] | None,
        settings: dict[str, Any],
    ) -> None:
        _refuse_generators(function)
        self.function = function
        self.is_async = _is_async(function)
        if operation is None and settings.get("tier"):
            raise InvalidCall(
                f"{_name(function)} declares a tier, so it needs operation=: renaming the function must not rename its "
                "intents, or work that is done would run again"
            )
        self.name = operation or _default_name(function)
        self.session, self.tenant = _checked_session(session), tenant
        self.key_of = key if callable(key) else None
        match = [str(one) for one in settings.get("match", ())]
        signature = inspect.signature(function)
        fields = _fields(self.name, signature, key, match)
        recipe = None if self.key_of is not None else fields
        # A recipe also reads the time of its window.
        window = (settings.get("window") or {}).get("of", "now")
        self.bind = _binder(signature, {_root(one) for one in [*fields, *match, window]})
        self._make = functools.partial(
            Operation.make,
            name=self.name,
            settings=settings,
            key=recipe,
            codec=Codec(function),
            tenant=ledger.tenant,
            probe=probe,
        )
        self._move_to(ledger._native)
        ledger._functions.add(self)

    def _move_to(self, native: NativeLedger) -> None:
        """Puts the function on this ledger. The test kit moves it to the ledger of a scenario."""
        self.operation = self._make(native)

    def parts(self, args: tuple[Any, ...], kwargs: dict[str, Any], given: dict[str, Any] | None = None) -> tuple[Any, ...]:
        """Tenant, session, key and intent of a call; `given` overrides what the decorator says."""
        given = given or {}
        tenant = given.get("tenant") or self.tenant
        if callable(tenant):
            tenant = tenant(*args, **kwargs)
        key = given.get("key")
        if key is None and self.key_of is not None:
            key = self.key_of(*args, **kwargs)
            if not isinstance(key, str):
                raise InvalidCall(f"{self.name}: key= returned {type(key).__name__}, and a key is a str")
        session = session_of(given.get("session") or self.session, self.name, args, kwargs)
        intent = self.bind(*args, **kwargs)
        return tenant or self.operation.tenant, session, key, intent or None

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any], given: dict[str, Any] | None = None) -> Any:
        parts = self.parts(args, kwargs, given)
        started = self.operation.native.start(None, *parts, None, (given or {}).get("wait"))
        if type(started) is Stored:
            return self.operation.read(started)
        return self.operation.run(started, self.function, args, kwargs)

    async def call_async(self, args: tuple[Any, ...], kwargs: dict[str, Any], given: dict[str, Any] | None = None) -> Any:
        parts = self.parts(args, kwargs, given)
        loop = asyncio.get_running_loop()
        started = await settled(self.operation.native.start(loop, *parts, None, (given or {}).get("wait")))
        if type(started) is Stored:
            return self.operation.read(started)
        return await self.operation.run_async(started, self.function, args, kwargs)

    def wrapper(self) -> Callable[..., Any]:
        """The function that takes the place of the guarded one."""
        call, call_async = self.call, self.call_async
        if self.is_async:

            @functools.wraps(self.function)
            async def guarded_async(*args: Any, **kwargs: Any) -> Any:
                return await call_async(args, kwargs)

            wrapped: Callable[..., Any] = guarded_async
        else:

            @functools.wraps(self.function)
            def guarded_sync(*args: Any, **kwargs: Any) -> Any:
                return call(args, kwargs)

            wrapped = guarded_sync
        wrapped.__onceward__ = self  # type: ignore[attr-defined]
        return wrapped


def guarded(function: Callable[..., Any]) -> Guarded:
    """What the ledger knows about a function with `@ledger.once`."""
    found = getattr(function, "__onceward__", None)
    if not isinstance(found, Guarded):
        raise InvalidCall(f"{_name(function)} is not guarded: decorate it with @ledger.once")
    return found


def options(
    function: Callable[P, R],
    *,
    key: str | None = None,
    session: str | None = None,
    tenant: str | None = None,
    wait: float | str | None = None,
) -> Callable[P, R]:
    """The guarded function with a key, session, tenant or wait for this call: `options(pay, key="invoice-7")(7, 1999)`."""
    this = guarded(function)
    # A bound method passes its object on.
    owner = getattr(function, "__self__", None)
    first = () if owner is None else (owner,)
    given = {"key": key, "session": session, "tenant": tenant, "wait": wait}

    def call(*args: Any, **kwargs: Any) -> Any:
        run = this.call_async if this.is_async else this.call
        return run((*first, *args), kwargs, given)

    return call


def key_of(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> str:
    """The key of a call with these arguments. Nothing runs."""
    this = guarded(function)
    return this.operation.native.key(*this.parts(args, kwargs))


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)


def _default_name(function: Callable[..., Any]) -> str:
    name = _name(function)
    if "<" in name or not hasattr(function, "__qualname__"):
        raise InvalidCall(f"{name} has no lasting name: say operation=, the name of its intents in the ledger")
    return f"{function.__module__}.{name}"


def _unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _is_async(function: Callable[..., Any]) -> bool:
    inner = _unwrapped(function)
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(getattr(inner, "__call__", None))


def _refuse_generators(function: Callable[..., Any]) -> None:
    inner = _unwrapped(function)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise InvalidCall(
            f"{_name(function)} is a generator: its effects happen while its caller iterates, so its end cannot be "
            "recorded. Guard the function that acts on each item instead"
        )


def _checked_session(session: SessionRule) -> SessionRule:
    if session is False or session is None:
        return None
    if session is True or callable(session) or (isinstance(session, str) and session):
        return session
    raise InvalidCall("session= is True, a text that is not empty, or a function of the arguments")


def _fields(operation: str, signature: inspect.Signature, key: KeyRule, match: list[str]) -> list[str]:
    """The fields that identify the intent."""
    parameters = signature.parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    if isinstance(key, str):
        raise InvalidCall(f"{operation}: key= is a list of arguments: key=[{key!r}]")
    given = [] if key is None or callable(key) else [str(one) for one in key]
    open_ended = inspect.Parameter.VAR_KEYWORD in kinds
    for one in [*given, *match]:
        root = one.strip("/").split("/")[0].replace("~1", "/").replace("~0", "~") if one.startswith("/") else one
        if root not in parameters and not open_ended:
            near = difflib.get_close_matches(root, list(parameters), 1)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            raise InvalidCall(f"{operation} has no argument `{root}`{hint}")
    if callable(key):
        return []
    if key is not None:
        if not given:
            raise InvalidCall(f"{operation}: key=[] names nothing; name the arguments that make the same intent")
        return given
    if open_ended or inspect.Parameter.VAR_POSITIONAL in kinds:
        raise InvalidCall(f"{operation} takes any arguments: name those that make the intent with key=[...]")
    names = [name for name in _named(parameters) if name not in match and f"/{name}" not in match]
    if not names:
        raise InvalidCall(f"{operation} has no arguments that could make a key: give key=, a function that returns one")
    return names


def _named(parameters: Any) -> list[str]:
    """The parameters, without the object of a method."""
    names = list(parameters)
    return names[1:] if names and names[0] in ("self", "cls") else names


def _binder(signature: inspect.Signature, wanted: set[str]) -> Callable[..., dict[str, Any]]:
    """A function with the same parameters that returns the wanted arguments by name. Python itself then binds them, as fast as
    it calls any function."""
    parameters, defaults, words, seen_star = list(signature.parameters.values()), {}, [], False
    for index, parameter in enumerate(parameters):
        text = f"_{index}"
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            text, seen_star = f"*{text}", True
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            text = f"**{text}"
        elif parameter.kind is not inspect.Parameter.POSITIONAL_ONLY:
            text = parameter.name
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not seen_star:
                words.append("*")
                seen_star = True
        if parameter.default is not inspect.Parameter.empty:
            defaults[f"_d{index}"] = parameter.default
            text = f"{text}=_d{index}"
        words.append(text)
        is_last_positional = parameter.kind is inspect.Parameter.POSITIONAL_ONLY and (
            index + 1 == len(parameters) or parameters[index + 1].kind is not inspect.Parameter.POSITIONAL_ONLY
        )
        if is_last_positional:
            words.append("/")
    members = []
    for index, parameter in enumerate(parameters):
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            members.append(f"**{{name: value for name, value in _{index}.items() if name in _wanted}}")
        elif parameter.name in wanted:
            variable = f"_{index}" if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL) else parameter.name
            members.append(f"{parameter.name!r}: {variable}")
    namespace: dict[str, Any] = {**defaults, "_wanted": wanted}
    exec(f"def bind({', '.join(words)}):\n    return {{{', '.join(members)}}}", namespace)
    bind: Callable[..., dict[str, Any]] = namespace["bind"]
    return bind


def _root(field: str) -> str:
    if not field.startswith("/"):
        return field
    return field[1:].split("/")[0].replace("~1", "/").replace("~0", "~")
