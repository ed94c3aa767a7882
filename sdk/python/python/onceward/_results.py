"""Keeps results as JSON and reads them back into the annotated type. A result whose type would not come back as it was is not
kept: a repeat must not get something else than the first call did."""

from __future__ import annotations

import base64
import collections.abc
import enum
import functools
import inspect
import json
import types
import typing
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, Union
from uuid import UUID

from . import _pydantic_models as pydantic_models
from ._attributes import attributes_besides
from ._same import NotKeepable, fields_of, is_same_zone

# Results nested deeper than this are not kept; it also ends values that contain themselves.
_MAX_DEPTH = 100


class Codec:
    """Writes and reads the results of one function."""

    def __init__(self, function: Callable[..., Any] | None = None, annotation: Any = Any) -> None:
        self._function, self._annotation = function, annotation
        self._resolved = function is None

    @property
    def annotation(self) -> Any:
        # Annotations may name classes that are defined later, so they are read at the first call.
        if not self._resolved:
            self._annotation = _return_annotation(self._function)
            self._resolved = True
        return self._annotation

    def write(self, result: Any) -> bytes | None:
        """The result as JSON; `None` if it cannot be kept."""
        try:
            kept = _write(result, self.annotation, 0)
            return json.dumps(kept, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        except Exception:
            # The work is done: nothing that is wrong with its result may hide that.
            return None

    def promises(self, result: Any) -> bool:
        """Whether the annotation allows this result. Without one, everything is allowed but None, with which Python says that
        there is nothing."""
        wanted, origin, arguments = _taken_apart(self.annotation)
        members = arguments if origin in (Union, types.UnionType) else (wanted,)
        if result is None:
            return any(one is None or one is type(None) for one in members)
        if wanted in (Any, object) or isinstance(wanted, typing.TypeVar) or self.write(result) is not None:
            return True
        # A result that is never kept: only its class can be checked. `True` is an int for Python.
        classes = (typing.get_origin(one) or one for one in members)
        return not isinstance(result, bool) and any(isinstance(one, type) and isinstance(result, one) for one in classes)

    def read(self, body: bytes) -> Any:
        """The result that was kept."""
        # A person who settles an intent need not give a result.
        return _read(json.loads(body or b"null"), self.annotation)


def _return_annotation(function: Callable[..., Any] | None) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, type):
        return function
    if not inspect.isroutine(function):
        function = getattr(type(function), "__call__", None)
    try:
        annotated = getattr(function, "__annotations__", {})
        # The annotations of arguments may have names that are known only to type checkers.
        holder = types.SimpleNamespace(__annotations__={"return": annotated.get("return", Any)})
        names = getattr(inspect.unwrap(function), "__globals__", {})  # type: ignore[arg-type]
        return typing.get_type_hints(holder, names)["return"]
    except Exception:
        # A name that cannot be resolved: only JSON's own types are kept.
        return Any


def _write_datetime(value: datetime) -> str:
    # A time zone of the database is kept by name, as RFC 9557 writes it; any other one as its offset.
    zone = getattr(value.tzinfo, "key", None)
    if value.fold and value.tzinfo is None:
        raise NotKeepable("a local time that comes twice")
    text = value.isoformat() if zone is None else f"{value.isoformat()}[{zone}]"
    if not is_same_zone(value.tzinfo, _read_datetime(text).tzinfo):
        raise NotKeepable("a time zone of a kind that cannot be written")
    return text


def _read_datetime(kept: str) -> datetime:
    text, _, zone = kept.partition("[")
    moment = datetime.fromisoformat(text)
    if len(text) <= len("2026-11-15"):
        raise TypeError("it is a date, and a datetime is expected")
    if not zone:
        return moment
    from zoneinfo import ZoneInfo

    local = moment.replace(tzinfo=ZoneInfo(zone.rstrip("]")))
    for found in (local, local.replace(fold=1)):
        if found.utcoffset() == moment.utcoffset():
            return found
    raise ValueError("the rules of its time zone have changed")


# The type of the JSON, how a value is written, and how it is read.
_SCALARS: dict[type, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    datetime: (str, _write_datetime, _read_datetime),
    date: (str, date.isoformat, date.fromisoformat),
    timedelta: (list, lambda value: [value.days, value.seconds, value.microseconds], lambda kept: timedelta(*kept)),
    Decimal: (str, str, Decimal),
    UUID: (str, str, UUID),
    bytes: (str, lambda value: base64.b64encode(value).decode(), lambda kept: base64.b64decode(kept, validate=True)),
}

# By name, because `typing_extensions` has its own ones for versions of Python without them.
_QUALIFIERS = frozenset({"Final", "ClassVar", "Required", "NotRequired", "ReadOnly"})

_JSON_TYPES = (str, int, float, bool, type(None))
_SEQUENCES: dict[Any, Callable[[Any], Any]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Iterable: list,
}
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


def _write(value: Any, wanted: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise NotKeepable("nested too deeply")
    depth += 1
    wanted, origin, arguments = _taken_apart(wanted)
    if wanted in (Any, object) or isinstance(wanted, typing.TypeVar):
        return _exact(value, depth)
    if wanted is None or wanted is type(None):
        return _only(value is None, value)
    if origin in (Union, types.UnionType):
        member, kept = _member(value, arguments, depth)
        if not _is_plain_union(arguments):
            return [_label(member, arguments), kept]
        _only(kept is not None or value is None, value)
        return kept
    if origin is Literal:
        _only(any(value == one and type(value) is type(one) for one in arguments), value)
        return _write(value, type(value), depth)
    if wanted in _JSON_TYPES:
        # An integer where a float is promised stays one: it is written and read as it is.
        return _only(type(value) is wanted or (wanted is float and type(value) is int), value)
    if wanted in _SCALARS:
        return _SCALARS[wanted][1](_only(type(value) is wanted, value))
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        _only(type(value) is wanted, value)
        # A combination of flags has no name of its own.
        return value.value if issubclass(wanted, enum.Flag) else value.name
    if origin in _MAPPINGS:
        _only(type(value) is dict and all(type(name) is str for name in value), value)
        inner = arguments[1] if len(arguments) == 2 else Any
        return {name: _write(one, inner, depth) for name, one in value.items()}
    if origin in _SEQUENCES:
        inner = arguments[0] if arguments else Any
        return [_write(one, inner, depth) for one in _only(type(value) is _SEQUENCES[origin], value)]
    if origin is tuple:
        _only(type(value) is tuple, value)
        return [_write(one, inner, depth) for one, inner in zip(value, _tuple_members(arguments, value), strict=True)]
    return _write_model(value, wanted, depth)


def _write_model(value: Any, wanted: Any, depth: int) -> Any:
    if _is_typed_dict(wanted):
        hints = _typed_dict_hints(wanted, value if type(value) is dict else {})
        return {name: _write(one, hints[name], depth) for name, one in _only(type(value) is dict, value).items()}
    if not isinstance(wanted, type):
        raise NotKeepable(str(wanted))
    _only(type(value) is wanted, value)
    if hasattr(wanted, "__pydantic_serializer__"):
        return pydantic_models.write(value, wanted)
    names = fields_of(wanted)
    if names is not None and _holds_only(value, names):
        hints = typing.get_type_hints(wanted)
        return {name: _write(getattr(value, name), hints.get(name, Any), depth) for name in names}
    raise NotKeepable(wanted.__qualname__)


def _read(kept: Any, wanted: Any) -> Any:
    wanted, origin, arguments = _taken_apart(wanted)
    if wanted in (Any, object) or isinstance(wanted, typing.TypeVar):
        return kept
    if wanted is None or wanted in _JSON_TYPES:
        expected = type(None) if wanted is None else wanted
        return kept if expected is float and type(kept) is int else _expect(kept, expected)
    if origin is Literal:
        return _read_literal(kept, arguments)
    if origin in (Union, types.UnionType):
        return _read_union(kept, arguments)
    if wanted in _SCALARS:
        kind, _, read = _SCALARS[wanted]
        return read(_expect(kept, kind))
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        return wanted(_expect(kept, int)) if issubclass(wanted, enum.Flag) else wanted[_expect(kept, str)]
    if origin in _MAPPINGS:
        inner = arguments[1] if len(arguments) == 2 else Any
        return {name: _read(one, inner) for name, one in _expect(kept, dict).items()}
    if origin in _SEQUENCES:
        inner = arguments[0] if arguments else Any
        return _SEQUENCES[origin](_read(one, inner) for one in _expect(kept, list))
    if origin is tuple:
        members = _tuple_members(arguments, _expect(kept, list))
        return tuple(_read(one, inner) for one, inner in zip(kept, members, strict=True))
    return _read_model(kept, wanted)


def _read_model(kept: Any, wanted: Any) -> Any:
    if _is_typed_dict(wanted):
        hints = _typed_dict_hints(wanted, _expect(kept, dict))
        return {name: _read(one, hints[name]) for name, one in kept.items()}
    if hasattr(wanted, "__pydantic_validator__"):
        return pydantic_models.read(kept, wanted)
    names = fields_of(wanted) if isinstance(wanted, type) else None
    if names is None or set(names) != set(_expect(kept, dict)):
        raise TypeError(f"{getattr(wanted, '__name__', wanted)} does not have the fields of what is stored")
    hints = typing.get_type_hints(wanted)
    values = {name: _read(kept[name], hints.get(name, Any)) for name in names}
    if issubclass(wanted, tuple):
        return typing.cast(Any, wanted)(**values)
    # Without __init__, which may not take all fields or may act.
    made = object.__new__(wanted)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def _expect(kept: Any, wanted: type) -> Any:
    """A stored value of JSON's own types, if it has the type that is wanted now."""
    if type(kept) is not wanted:
        raise TypeError(f"it is a {type(kept).__name__}, and a {wanted.__name__} is expected")
    return kept


def _read_literal(kept: Any, literals: tuple[Any, ...]) -> Any:
    # In JSON, because `1 == True` in Python.
    for one in literals:
        if json.dumps(_write(one, type(one), 0)) == json.dumps(kept):
            return one
    raise TypeError("it is none of the values that are expected")


def _read_union(kept: Any, arguments: tuple[Any, ...]) -> Any:
    if not _is_plain_union(arguments):
        label, inner = _expect(kept, list)
        for argument in arguments:
            if _label(argument, arguments) == label:
                return _read(inner, argument)
        raise TypeError(f"it is a {label}, which is not expected")
    if kept is None and type(None) in arguments:
        return None
    others = [argument for argument in arguments if argument is not type(None)]
    if len(others) == 1:
        return _read(kept, others[0])
    # A float may be stored as an integer.
    fits = type(kept) in others or (type(kept) is int and float in others)
    return kept if fits else _expect(kept, others[0])


def _taken_apart(wanted: Any) -> tuple[Any, Any, tuple[Any, ...]]:
    """A type without the wrappers that do not matter here, its origin and its arguments."""
    while True:
        origin = typing.get_origin(wanted)
        if origin is typing.Annotated:
            wanted = typing.get_args(wanted)[0]
        elif supertype := getattr(wanted, "__supertype__", None):
            wanted = supertype
        elif _qualifier(origin) in _QUALIFIERS:
            wanted = typing.get_args(wanted)[0]
        elif hasattr(wanted, "__value__") and type(wanted).__name__ == "TypeAliasType":
            wanted = wanted.__value__
        else:
            return wanted, origin or wanted, typing.get_args(wanted)


def _qualifier(origin: Any) -> str | None:
    return getattr(origin, "_name", None) if getattr(origin, "__module__", None) in ("typing", "typing_extensions") else None


def _exact(value: Any, depth: int) -> Any:
    """A value of JSON's own types, which comes back as it is without an annotation."""
    if depth > _MAX_DEPTH:
        raise NotKeepable("nested too deeply")
    if type(value) in _JSON_TYPES:
        return value
    if type(value) is list:
        return [_exact(one, depth + 1) for one in value]
    if type(value) is dict and all(type(name) is str for name in value):
        return {name: _exact(one, depth + 1) for name, one in value.items()}
    raise NotKeepable(type(value).__qualname__)


def _only(fits: bool, value: Any) -> Any:
    if not fits:
        raise NotKeepable(type(value).__qualname__)
    return value


def _member(value: Any, arguments: tuple[Any, ...], depth: int) -> tuple[Any, Any]:
    """The first member of a union that the value fits."""
    for argument in arguments:
        try:
            return argument, _write(value, argument, depth)
        except NotKeepable:
            continue
    raise NotKeepable(type(value).__qualname__)


def _label(member: Any, arguments: tuple[Any, ...]) -> str:
    """The name of a member of a union, which does not depend on their order. The module is part of it only where it has to be:
    the same class has another one in a program and in its tests."""
    name = getattr(member, "__qualname__", None) if isinstance(member, type) and not typing.get_args(member) else None
    if name is None or sum(getattr(one, "__qualname__", None) == name for one in arguments) > 1:
        return str(member)
    return str(name)


def _is_plain_union(arguments: tuple[Any, ...]) -> bool:
    """Whether the JSON type alone tells the members apart: `T | None`, or JSON's own scalars."""
    others = [argument for argument in arguments if argument is not type(None)]
    return len(others) <= 1 or all(argument in _JSON_TYPES for argument in others)


def _tuple_members(arguments: tuple[Any, ...], value: Any) -> list[Any]:
    if len(arguments) == 2 and arguments[1] is ...:
        return [arguments[0]] * len(value)
    if not arguments:
        return [Any] * len(value)
    if len(arguments) != len(value):
        raise NotKeepable("a tuple of another length")
    return list(arguments)


def _holds_only(value: Any, names: list[str]) -> bool:
    """Whether the fields are all that an object holds. What is computed once from the fields can be computed again."""
    if isinstance(value, (dict, list, set, frozenset, str, bytes, int, float, BaseException)):
        return False
    return not attributes_besides(value, names)


def _is_typed_dict(wanted: Any) -> bool:
    # `typing` does not know the class of the same name in `typing_extensions`.
    return typing.is_typeddict(wanted) or (
        isinstance(wanted, type) and issubclass(wanted, dict) and hasattr(wanted, "__required_keys__")
    )


def _typed_dict_hints(wanted: Any, members: dict[str, Any]) -> dict[str, Any]:
    """The types of the members, if the names fit."""
    hints = typing.get_type_hints(wanted, include_extras=True)
    # Python itself does not see it in annotations that are texts.
    optional = {name for name, hint in hints.items() if _qualifier(typing.get_origin(hint)) == "NotRequired"}
    if not wanted.__required_keys__ - optional <= set(members) <= set(hints):
        raise NotKeepable(f"{wanted.__name__} has other members")
    return hints
