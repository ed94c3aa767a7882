"""Reads the payload of an entry into the annotated type of the function that gets it. The forms are those of `_keys.plain`, in
which it was queued."""

from __future__ import annotations

import base64
import enum
import functools
import inspect
import json
import types
import typing
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal, Union
from uuid import UUID

from ._errors import InvalidCall
from ._same import fields_of
from ._results import (
    _expect,
    _is_typed_dict,
    _taken_apart,
    _tuple_members,
    _typed_dict_hints,
)

_Reader = Callable[[str], Any]

_JSON_TYPES = (str, int, float, bool)


class PayloadType:
    """The annotated type of the one argument of a function."""

    def __init__(self, function: Callable[..., Any], operation: str) -> None:
        self._function, self._annotation, self._is_resolved = function, Any, False
        try:
            signature = inspect.signature(function)
            signature.bind(None)
        except (TypeError, ValueError):
            raise InvalidCall(
                f"{operation}: the function of a courier is called with one argument, the payload", operation=operation
            ) from None
        self._parameter = next(iter(signature.parameters.values()), None)

    @property
    def annotation(self) -> Any:
        # Annotations may name classes that are defined later, so they are read at the first attempt.
        if not self._is_resolved:
            self._annotation, self._is_resolved = self._resolved(), True
        return self._annotation

    def _resolved(self) -> Any:
        if self._parameter is None or self._parameter.annotation is inspect.Parameter.empty:
            return Any
        function = self._function
        while isinstance(function, functools.partial):
            function = function.func
        if not inspect.isroutine(function):
            function = getattr(type(function), "__call__", function)
        holder = types.SimpleNamespace(__annotations__={"payload": self._parameter.annotation})
        names = getattr(inspect.unwrap(function), "__globals__", {})
        return typing.get_type_hints(holder, names, include_extras=True)["payload"]

    def read(self, body: bytes) -> Any:
        """The payload. Raises if it is not of the annotated type."""
        return _read(json.loads(body), self.annotation)


def _read(kept: Any, wanted: Any) -> Any:
    wanted, origin, arguments = _taken_apart(wanted)
    if wanted in (Any, object) or isinstance(wanted, typing.TypeVar):
        return kept
    if wanted is None or wanted is type(None):
        return _expect(kept, type(None))
    if wanted in _JSON_TYPES:
        return float(kept) if wanted is float and type(kept) is int else _expect(kept, wanted)
    if wanted in _TEXTS:
        return _TEXTS[wanted](_expect(kept, str))
    if origin is Literal:
        return _expect_one_of(kept, arguments)
    if origin in (Union, types.UnionType):
        return _read_union(kept, arguments)
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        return _read_enum(kept, wanted)
    if origin in (dict, typing.get_origin(typing.Mapping[str, Any])):
        inner = arguments[1] if len(arguments) == 2 else Any
        return {name: _read(one, inner) for name, one in _expect(kept, dict).items()}
    if origin in (list, typing.get_origin(typing.Sequence[Any])):
        inner = arguments[0] if arguments else Any
        return [_read(one, inner) for one in _expect(kept, list)]
    if origin is tuple:
        members = _tuple_members(arguments, _expect(kept, list))
        return tuple(_read(one, inner) for one, inner in zip(kept, members, strict=True))
    return _read_model(kept, wanted)


def _read_model(kept: Any, wanted: Any) -> Any:
    if _is_typed_dict(wanted):
        hints = _typed_dict_hints(wanted, _expect(kept, dict))
        return {name: _read(one, hints[name]) for name, one in kept.items()}
    if hasattr(wanted, "__pydantic_validator__"):
        return _read_pydantic_model(json.dumps(kept), wanted)
    names = fields_of(wanted) if isinstance(wanted, type) else None
    if names is None or set(names) != set(_expect(kept, dict)):
        raise TypeError(f"{getattr(wanted, '__name__', wanted)} does not have the fields of the payload")
    hints = typing.get_type_hints(wanted)
    values = {name: _read(kept[name], hints.get(name, Any)) for name in names}
    if issubclass(wanted, tuple):
        return typing.cast(Any, wanted)(**values)
    # Without __init__, which may not take all fields or may act.
    made = object.__new__(wanted)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def _read_pydantic_model(text: str, wanted: Any) -> Any:
    try:
        # The payload has the names of the fields, and not their aliases.
        return wanted.__pydantic_validator__.validate_json(text, by_name=True, by_alias=True)
    except TypeError:
        # Pydantic before 2.11.
        return wanted.__pydantic_validator__.validate_json(text)


def _read_union(kept: Any, arguments: tuple[Any, ...]) -> Any:
    for argument in arguments:
        try:
            return _read(kept, argument)
        except Exception:
            continue
    raise TypeError("it is none of the types that are expected")


def _expect_one_of(kept: Any, literals: tuple[Any, ...]) -> Any:
    for one in literals:
        # `1 == True` in Python.
        if type(one) is type(kept) and one == kept:
            return one
    raise TypeError("it is none of the values that are expected")


def _read_enum(kept: Any, wanted: type[enum.Enum]) -> Any:
    for member in wanted:
        # A member's value may be of a type that JSON does not have.
        if _read(kept, type(member.value)) == member.value:
            return member
    raise TypeError(f"it is not a value of {wanted.__name__}")


def _read_datetime(text: str) -> datetime:
    # As `_keys` writes it: in UTC. Python 3.10 reads neither a Z nor two digits of a fraction.
    moment, _, fraction = text.removesuffix("Z").partition(".")
    read = datetime.fromisoformat(f"{moment}.{fraction:0<6}+00:00")
    if not text.endswith("Z"):
        raise ValueError("a datetime in UTC is expected")
    return read


_TEXTS: dict[Any, _Reader] = {
    date: date.fromisoformat,
    datetime: _read_datetime,
    Decimal: Decimal,
    UUID: UUID,
    bytes: lambda text: base64.b64decode(text, validate=True),
}
