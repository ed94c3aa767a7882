"""The decorator: a function that runs once for each intent, with the signature and the return type that it had."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Union

from ._arguments import argument_of, binder, check_names, name_of, signature_of, window_fields
from ._claim import settled
from ._errors import InvalidCall
from ._native import Stored
from ._operation import Duration, Operation, check_key, checked_tenant, duration_text, own_key, running_loop, session_of, tenant_of
from ._remote import check_tenant
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


# Tenant, session, key and intent of a call.
Parts = tuple[Union[str, None], Union[str, None], Union[str, None], Any]


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
        if not callable(function):
            raise InvalidCall(
                f"once guards a function, not {type(function).__name__}: put @ledger.once directly above `def`, below decorators "
                "such as @property"
            )
        refuse_generators(function)
        self.ledger, self.function = ledger, function
        self.is_async = is_async(function)
        if operation is None and settings.get("tier"):
            raise InvalidCall(
                f"{name_of(function)} declares a tier, so it needs operation=: renaming the function must not rename its "
                "intents, or work that is done would run again"
            )
        self.name = operation or default_name(function)
        if ledger._native.is_remote:
            check_tenant(tenant)
        _refuse_second_guard(ledger, function, self.name)
        if probe is not None and is_async(probe) and not self.is_async:
            raise InvalidCall(f"{self.name} is not async, so its probe cannot be async")
        self.session, self.tenant = checked_session(session), tenant if callable(tenant) else checked_tenant(tenant)
        self.key_of = key if callable(key) else None
        self._inner, self._first, self._named = _taken_apart(function)
        signature = signature_of(self._inner)
        match, of = settings.get("match") or (), window_fields(settings)
        if key is None:
            refuse_hidden_object(self.name, self._inner)
        fields = _fields(self.name, signature, key, [] if isinstance(match, str) else list(match), of)
        self.bind = binder(signature, {argument_of(one) for one in [*fields, *match, *of]})
        # The name in Python's own message about wrong arguments.
        self.bind.__qualname__ = name_of(function)
        recipe: list[str] | None = fields
        if self.key_of is not None:
            recipe, settings = None, _compared_with_own_key(self.name, settings)
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

    def parts(self, args: tuple[Any, ...], kwargs: dict[str, Any], given: dict[str, Any] | None = None) -> Parts:
        """Tenant, session, key and intent of a call; `given` overrides what the decorator says."""
        given = given or {}
        args, kwargs = (*self._first, *args), {**self._named, **kwargs}
        tenant = self.tenant if given.get("tenant") is None else given["tenant"]
        tenant = tenant_of(self.name, tenant, *args, **kwargs)
        key = given.get("key")
        if key is None and self.key_of is not None:
            key = own_key(self.name, self.key_of(*args, **kwargs))
        session = self.session if given.get("session") is None else given["session"]
        session = session_of(session, self.name, args, kwargs)
        check_key(self.name, key, session)
        intent = self.bind(*args, **kwargs)
        return tenant or self.operation.tenant, session, key, intent or None

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any], given: dict[str, Any] | None = None) -> Any:
        parts = self.parts(args, kwargs, given)
        found = self.operation.start(None, *parts, wait=(given or {}).get("wait"))
        if type(found) is Stored:
            return self.operation.read(found)
        # With the arguments that a partial holds: a probe gets them too.
        return self.operation.run(found, self._inner, (*self._first, *args), {**self._named, **kwargs})

    async def call_async(self, args: tuple[Any, ...], kwargs: dict[str, Any], given: dict[str, Any] | None = None) -> Any:
        parts = self.parts(args, kwargs, given)
        loop = running_loop(self.name)
        found = await settled(self.operation.start(loop, *parts, wait=(given or {}).get("wait")))
        if type(found) is Stored:
            return self.operation.read(found)
        return await self.operation.run_async(found, self._inner, (*self._first, *args), {**self._named, **kwargs})

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
        self.wrapped = wrapped
        return wrapped


def guarded(function: Callable[..., Any]) -> Guarded:
    """What the ledger knows about a function with `@ledger.once`."""
    found = getattr(function, "__onceward__", None)
    if not isinstance(found, Guarded):
        raise InvalidCall(f"{name_of(function)} is not guarded: decorate it with @ledger.once")
    return found


def options(
    function: Callable[P, R],
    *,
    key: str | None = None,
    session: str | None = None,
    tenant: str | None = None,
    wait: Duration | None = None,
) -> Callable[P, R]:
    """The guarded function with a key, session, tenant or wait for this call: `options(pay, key="invoice-7")(7, 1999)`."""
    this, first = guarded(function), _owner(function)
    if getattr(function, "__func__", function) is not this.wrapped:
        # `functools.wraps` copies all that a function has, and what the decorator does would be left out.
        raise InvalidCall(f"{this.name} has decorators above @ledger.once, which options() would skip: put @ledger.once on top")
    given = {
        "key": key,
        "session": checked_session(session),
        "tenant": checked_tenant(tenant),
        "wait": None if wait is None else duration_text(wait),
    }
    if this.is_async:

        # Not with the attributes of the function: what `guarded` finds there would forget these options.
        @functools.wraps(function, updated=())
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            return await this.call_async((*first, *args), kwargs, given)

        return call_async  # type: ignore[return-value]

    @functools.wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        return this.call((*first, *args), kwargs, given)

    return call


def key_of(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> str:
    """The key of a call with these arguments. Nothing runs."""
    this = guarded(function)
    return this.operation.native.key(*this.parts((*_owner(function), *args), kwargs))


def _owner(function: Callable[..., Any]) -> tuple[Any, ...]:
    """The object that a bound method passes on."""
    owner = getattr(function, "__self__", None)
    return () if owner is None else (owner,)


def default_name(function: Callable[..., Any]) -> str:
    """The name of a function's intents: its module and its own name, where these are the same in every process."""
    name, module = name_of(function), _module(function)
    if "<" in name or module is None or not hasattr(function, "__qualname__"):
        raise InvalidCall(f"{name} has no lasting name: say operation=, the name of its intents in the ledger")
    return f"{module}.{name}"


def _module(function: Callable[..., Any]) -> str | None:
    """The module by the name under which others import it; None in a script, which every program calls `__main__`."""
    module = getattr(function, "__module__", None)
    if module not in ("__main__", "__mp_main__"):
        return module
    # With `python -m package.module`, and in the processes of such a program.
    spec = getattr(inspect.unwrap(function), "__globals__", {}).get("__spec__")
    name = getattr(spec, "name", None)
    return None if name == "__main__" else name


def _taken_apart(function: Callable[..., Any]) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The function inside of partials, and the arguments that they hold: these are part of the intent too."""
    first: tuple[Any, ...] = ()
    named: dict[str, Any] = {}
    while isinstance(function, functools.partial):
        first, named, function = (*function.args, *first), {**function.keywords, **named}, function.func
    return function, first, named


def is_async(function: Callable[..., Any]) -> bool:
    inner, _, _ = _taken_apart(function)
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(getattr(inner, "__call__", None))


def refuse_generators(function: Callable[..., Any]) -> None:
    """Refuses a function whose effects happen only while its result is iterated."""
    inner, _, _ = _taken_apart(function)
    if not inspect.isroutine(inner):
        inner = getattr(type(inner), "__call__", inner)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise InvalidCall(
            f"{name_of(function)} is a generator: its effects happen while its caller iterates, so its end cannot be "
            "recorded. Guard the function that acts on each item instead"
        )


def _refuse_second_guard(ledger: Ledger, function: Callable[..., Any], name: str) -> None:
    inside = getattr(function, "__onceward__", None)
    if isinstance(inside, Guarded) and inside.name == name and inside.ledger is ledger:
        raise InvalidCall(f"{name} is guarded already: its second guard would wait for the first one")


def refuse_hidden_object(name: str, function: Callable[..., Any]) -> None:
    """Refuses a function with an object that its arguments do not show: two accounts must not share a withdrawal."""
    inner = inspect.unwrap(function)
    owner = getattr(inner, "__self__", None)
    # The functions of a module in C have the module. An object around a function is a decorator.
    is_plain = owner is None or inspect.ismodule(owner)
    if is_plain and (isinstance(inner, type) or inspect.isroutine(inner)):
        return
    kind = "a method" if not is_plain else f"an object of {type(inner).__qualname__}"
    raise InvalidCall(
        f"{name} is {kind}, and without key= its object would not be part of the intent: name the arguments that make the "
        "intent with key=[...], or give a function of them"
    )


def _compared_with_own_key(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """With a key of its own, a call compares the arguments that `match` names, as a whole."""
    for one in settings.get("match") or ():
        if "/" in one.strip("/"):
            raise InvalidCall(f"{name}: with a function as key=, match= names whole arguments, not `{one}`")
    return {setting: value for setting, value in settings.items() if setting != "match"}


def checked_session(session: SessionRule) -> SessionRule:
    if session is False or session is None:
        return None
    if session is True or callable(session) or (isinstance(session, str) and session):
        return session
    raise InvalidCall("session= is True, a text that is not empty, or a function of the arguments")


def _fields(operation: str, signature: inspect.Signature, key: KeyRule, match: list[str], of: list[str]) -> list[str]:
    """The fields that identify the intent. `of` is the field of the window, if it has one."""
    parameters = signature.parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    if isinstance(key, str):
        raise InvalidCall(f"{operation}: key= is a list of arguments: key=[{key!r}]")
    given = [] if key is None or callable(key) else [str(one) for one in key]
    check_names(operation, [*given, *match, *of], signature)
    if callable(key):
        return []
    if key is not None:
        if not isinstance(key, Collection):
            raise InvalidCall(f"{operation}: key= is a list of arguments, not {type(key).__name__}")
        if not given:
            raise InvalidCall(f"{operation}: key=[] names nothing; name the arguments that make the same intent")
        return given
    if kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}:
        raise InvalidCall(f"{operation} takes any arguments: name those that make the intent with key=[...]")
    first = next(iter(parameters), None)
    if first in ("self", "cls"):
        raise InvalidCall(
            f"{operation} is a method, and without key= its object would not be part of the intent: name the arguments that "
            f"make the intent with key=[...], or give a function: key=lambda {first}, ...: ..."
        )
    others = {one.removeprefix("/") for one in [*match, *of]}
    names = [name for name in parameters if name not in others]
    if not names:
        raise InvalidCall(f"{operation} has no arguments that could make a key: give key=, a function that returns one")
    return names
