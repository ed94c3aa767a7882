"""Puts a stand-in in the place of a function that acts: it counts its calls, answers, loses its answer or refuses. Only
processes of a scenario are changed, never the process of the test."""

from __future__ import annotations

import difflib
import enum
import functools
import importlib
import inspect
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .._once import Guarded
from ._bench import Bench, Faults
from ._errors import InvalidCheck


class Receipt(enum.Enum):
    """The default answer of an effect: a receipt."""

    RECEIPT = "receipt"


RECEIPT = Receipt.RECEIPT


@dataclass
class Effect:
    """A function whose calls are effects."""

    # Where the function is found: a dotted path, or the function itself.
    target: str | Callable[..., Any]
    name: str
    # A value, or a function of the effect's arguments.
    answer: Any = RECEIPT
    # The argument with the idempotency key, or a function of the arguments that returns the key.
    honours_key: str | Callable[..., str | None] | None = None
    # The real function acts, and is counted.
    wraps: bool = False
    faults: Faults = field(default_factory=Faults)


def name_of(target: str | Callable[..., Any]) -> str:
    """The name of an effect in the report."""
    path = target if isinstance(target, str) else getattr(target, "__qualname__", type(target).__qualname__)
    return path.rpartition(".")[2]


def replace(effect: Effect, bench: Bench) -> None:
    """Replaces the function, wherever a module holds it."""
    owner, attribute = _found(effect.target)
    raw = inspect.getattr_static(owner, attribute, None)
    original = getattr(owner, attribute)
    guarded = getattr(original, "__onceward__", None)
    if isinstance(guarded, Guarded):
        # The effect is what runs under the guard, not the guard.
        guarded.function = guarded._inner = _stand_in(effect, guarded.function, bench)
        return
    stand_in: Any = _stand_in(effect, original, bench)
    if isinstance(owner, type) and isinstance(raw, (staticmethod, classmethod)):
        # The original is bound already, and a stand-in must not be bound again.
        stand_in = staticmethod(stand_in)
    try:
        setattr(owner, attribute, stand_in)
    except (AttributeError, TypeError) as error:
        raise InvalidCheck(f"{_text(effect.target)} cannot be replaced: {error}") from error
    if inspect.ismodule(owner):
        _replace_imported(original, stand_in)


def _replace_imported(original: Any, stand_in: Any) -> None:
    """Modules that did `from shop import charge` hold the function under a name of their own."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if not isinstance(names, dict):
            continue
        for name in [name for name, value in list(names.items()) if value is original]:
            names[name] = stand_in


def _stand_in(effect: Effect, original: Any, bench: Bench) -> Callable[..., Any]:
    if not callable(original):
        raise InvalidCheck(f"{_text(effect.target)} is not a function")

    def answer(receipt: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if effect.answer is RECEIPT:
            return _receipt(receipt, original)
        return effect.answer(*args, **kwargs) if callable(effect.answer) else effect.answer

    if inspect.iscoroutinefunction(original) or inspect.iscoroutinefunction(getattr(original, "__call__", None)):

        @functools.wraps(original)
        async def act_async(*args: Any, **kwargs: Any) -> Any:
            work = functools.partial(original, *args, **kwargs) if effect.wraps else None
            acted = await bench.act_async(effect.name, _key(effect, original, args, kwargs), effect.faults, work)
            return acted.result if effect.wraps else answer(acted.receipt, args, kwargs)

        return act_async

    @functools.wraps(original)
    def act(*args: Any, **kwargs: Any) -> Any:
        work = functools.partial(original, *args, **kwargs) if effect.wraps else None
        acted = bench.act(effect.name, _key(effect, original, args, kwargs), effect.faults, work)
        return acted.result if effect.wraps else answer(acted.receipt, args, kwargs)

    return act


def _receipt(receipt: dict[str, Any], original: Any) -> Any:
    """The receipt, as the type that the real function promises: its id for a text, and nothing for None."""
    try:
        promised = typing.get_type_hints(original).get("return")
    except Exception:
        # A name that cannot be resolved, or an object without annotations.
        promised = None
    known: dict[Any, Any] = {str: receipt["id"], type(None): None, bool: True}
    return known.get(promised, receipt) if isinstance(promised, type) else receipt


def _key(effect: Effect, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """The idempotency key that the provider got."""
    rule = effect.honours_key
    if rule is None:
        return None
    if callable(rule):
        return rule(*args, **kwargs)
    if rule in kwargs:
        found = kwargs[rule]
    else:
        try:
            found = inspect.signature(original).bind_partial(*args, **kwargs).arguments.get(rule)
        except (TypeError, ValueError):
            found = None
    return None if found is None else str(found)


def _found(target: str | Callable[..., Any]) -> tuple[Any, str]:
    """The object that holds the function, and the name there."""
    if not isinstance(target, str):
        return _holder(target)
    parts = target.split(".")
    if len(parts) < 2:
        raise InvalidCheck(f"`{target}` is not a dotted path to a function, such as `shop.stripe.charge`")
    owner: Any = None
    for length in range(len(parts) - 1, 0, -1):
        try:
            owner = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError as error:
            # Another module that the named one needs is missing: say so.
            if error.name is None or not target.startswith(f"{error.name}."):
                raise
            continue
        for part in parts[length:-1]:
            owner = _member(owner, part, target)
        _member(owner, parts[-1], target)
        return owner, parts[-1]
    raise InvalidCheck(f"`{target}` names no module: there is no `{parts[0]}`")


def _member(owner: Any, name: str, target: str) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError:
        near = difflib.get_close_matches(name, dir(owner), 1)
        hint = f"; did you mean `{near[0]}`?" if near else ""
        raise InvalidCheck(f"`{target}`: there is no `{name}`{hint}") from None


def _holder(function: Callable[..., Any]) -> tuple[Any, str]:
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__name__", "")
    if owner is not None and not inspect.ismodule(owner):
        return owner, name
    module, qualname = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    if not module or "<" in qualname or not qualname:
        raise InvalidCheck(f"{function!r} is not found by its name: give its dotted path, such as `shop.stripe.charge`")
    found = _found(f"{module}.{qualname}")
    if getattr(*found) is not function:
        raise InvalidCheck(f"`{module}.{qualname}` is another object: give the dotted path that the tool uses")
    return found


def _text(target: str | Callable[..., Any]) -> str:
    return f"`{target}`" if isinstance(target, str) else f"`{name_of(target)}`"
