"""Keeps results as JSON and reads them back into the annotated type. A result whose type would not come back as it was is not
kept: a repeat must not get something else than the first call did."""

from __future__ import annotations

import base64
import collections.abc
import dataclasses
import enum
import json
import types
import typing
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, Union
from uuid import UUID

# Results nested deeper than this are not kept; it also ends values that contain themselves.
_MAX_DEPTH = 100


class NotKeepable(Exception):
    """A result that cannot be kept as JSON and read back as it was."""


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
        except (NotKeepable, ValueError, UnicodeEncodeError, RecursionError):
            return None

    def read(self, body: bytes) -> Any:
        """The result that was kept."""
        return _read(json.loads(body), self.annotation)


def _return_annotation(function: Callable[..., Any] | None) -> Any:
    try:
        return typing.get_type_hints(function).get("return", Any)
    except Exception:
        # A name that cannot be resolved: only JSON's own types are kept.
        return Any


_SCALARS: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    datetime: (datetime.isoformat, datetime.fromisoformat),
    date: (date.isoformat, date.fromisoformat),
    timedelta: (lambda value: [value.days, value.seconds, value.microseconds], lambda kept: timedelta(*kept)),
    Decimal: (str, Decimal),
    UUID: (str, UUID),
    bytes: (lambda value: base64.b64encode(value).decode(), base64.b64decode),
}

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
        index, kept = _member(value, arguments, depth)
        return kept if _is_plain_union(arguments) else [index, kept]
    if origin is Literal:
        return _only(any(value == one and type(value) is type(one) for one in arguments), value)
    if wanted in _JSON_TYPES:
        # An integer where a float is promised stays one: it is written and read as it is.
        return _only(type(value) is wanted or (wanted is float and type(value) is int), value)
    if wanted in _SCALARS:
        return _SCALARS[wanted][0](_only(type(value) is wanted, value))
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        return _only(isinstance(value, wanted), value).name
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
    if typing.is_typeddict(wanted):
        hints = typing.get_type_hints(wanted)
        _only(type(value) is dict and set(value) <= set(hints), value)
        return {name: _write(one, hints[name], depth) for name, one in value.items()}
    if not isinstance(wanted, type):
        raise NotKeepable(str(wanted))
    _only(type(value) is wanted, value)
    if dump := getattr(wanted, "__pydantic_serializer__", None):
        return json.loads(dump.to_json(value))
    if names := _field_names(wanted):
        hints = typing.get_type_hints(wanted)
        return {name: _write(getattr(value, name), hints.get(name, Any), depth) for name in names}
    raise NotKeepable(wanted.__qualname__)


def _read(kept: Any, wanted: Any) -> Any:
    wanted, origin, arguments = _taken_apart(wanted)
    if wanted in (Any, object, None) or wanted in _JSON_TYPES or origin is Literal or isinstance(wanted, typing.TypeVar):
        return _checked(kept, wanted, arguments if origin is Literal else None)
    if origin in (Union, types.UnionType):
        if not _is_plain_union(arguments):
            index, kept = kept
            return _read(kept, arguments[index])
        return None if kept is None and type(None) in arguments else _read(kept, _plain_member(kept, arguments))
    if wanted in _SCALARS:
        return _SCALARS[wanted][1](kept)
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        return wanted[kept]
    if origin in _MAPPINGS:
        inner = arguments[1] if len(arguments) == 2 else Any
        return {name: _read(one, inner) for name, one in kept.items()}
    if origin in _SEQUENCES:
        inner = arguments[0] if arguments else Any
        return _SEQUENCES[origin](_read(one, inner) for one in kept)
    if origin is tuple:
        return tuple(_read(one, inner) for one, inner in zip(kept, _tuple_members(arguments, kept), strict=True))
    return _read_model(kept, wanted)


def _read_model(kept: Any, wanted: Any) -> Any:
    hints = {} if hasattr(wanted, "__pydantic_validator__") else typing.get_type_hints(wanted)
    if typing.is_typeddict(wanted):
        return {name: _read(one, hints[name]) for name, one in kept.items()}
    if hasattr(wanted, "__pydantic_validator__"):
        return wanted.__pydantic_validator__.validate_json(json.dumps(kept))
    values = {name: _read(one, hints.get(name, Any)) for name, one in kept.items()}
    if hasattr(wanted, "_fields"):
        return wanted(**values)
    # Without __init__, which may not take all fields or may act.
    made = wanted.__new__(wanted)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def _checked(kept: Any, wanted: Any, literals: tuple[Any, ...] | None) -> Any:
    """A stored value of JSON's own types, if it has the type that is wanted now."""
    fits = kept in literals if literals is not None else wanted not in _JSON_TYPES or isinstance(kept, wanted) or (
        wanted is float and isinstance(kept, int)
    )
    if not fits:
        raise TypeError(f"it is a {type(kept).__name__}, and a {getattr(wanted, '__name__', wanted)} is expected")
    return kept


def _taken_apart(wanted: Any) -> tuple[Any, Any, tuple[Any, ...]]:
    """A type without the wrappers that do not matter here, its origin and its arguments."""
    while True:
        origin = typing.get_origin(wanted)
        if origin is typing.Annotated:
            wanted = typing.get_args(wanted)[0]
        elif supertype := getattr(wanted, "__supertype__", None):
            wanted = supertype
        elif origin in (typing.Final, typing.ClassVar) or origin in (_required_types()):
            wanted = typing.get_args(wanted)[0]
        elif hasattr(wanted, "__value__") and type(wanted).__name__ == "TypeAliasType":
            wanted = wanted.__value__
        else:
            return wanted, origin or wanted, typing.get_args(wanted)


def _required_types() -> tuple[Any, ...]:
    return tuple(getattr(typing, name) for name in ("Required", "NotRequired") if hasattr(typing, name))


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


def _member(value: Any, arguments: tuple[Any, ...], depth: int) -> tuple[int, Any]:
    """The first member of a union that the value fits."""
    for index, argument in enumerate(arguments):
        try:
            return index, _write(value, argument, depth)
        except NotKeepable:
            continue
    raise NotKeepable(type(value).__qualname__)


def _is_plain_union(arguments: tuple[Any, ...]) -> bool:
    """Whether the JSON type alone tells the members apart: `T | None`, or JSON's own scalars."""
    others = [argument for argument in arguments if argument is not type(None)]
    return len(others) <= 1 or all(argument in _JSON_TYPES for argument in others)


def _plain_member(kept: Any, arguments: tuple[Any, ...]) -> Any:
    others = [argument for argument in arguments if argument is not type(None)]
    return others[0] if len(others) == 1 else (type(kept) if type(kept) in others else Any)


def _tuple_members(arguments: tuple[Any, ...], value: Any) -> list[Any]:
    if len(arguments) == 2 and arguments[1] is ...:
        return [arguments[0]] * len(value)
    if not arguments:
        return [Any] * len(value)
    if len(arguments) != len(value):
        raise NotKeepable("a tuple of another length")
    return list(arguments)


def _field_names(kind: type) -> list[str]:
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return list(kind._fields)
    return [attribute.name for attribute in getattr(kind, "__attrs_attrs__", ())]
