"""Whether a value that was written and read back is what it was: `==` alone takes a list of `True` for a list of 1, a text for an
enumeration of texts, and a time zone for its offset of today."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from datetime import datetime, time, tzinfo
from decimal import Decimal
from typing import Any

from ._attributes import attributes_besides


class NotKeepable(Exception):
    """A result that cannot be kept as JSON and read back as it was."""


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are equal and have equal types, down to their members."""
    if type(one) is not type(other):
        return False
    if (fields := fields_of(type(one))) is not None:
        return _is_same_model(one, other, fields)
    if isinstance(one, dict):
        return _are_same(one.keys(), other.keys()) and _are_same(one.values(), other.values())
    if isinstance(one, (list, tuple)):
        return _are_same(one, other)
    if isinstance(one, (set, frozenset)):
        return {(type(item), item) for item in one} == {(type(item), item) for item in other}
    if isinstance(one, (datetime, time)):
        is_equal: bool = one == other and one.fold == other.fold
        return is_equal and is_same_zone(one.tzinfo, other.tzinfo)
    if isinstance(one, Decimal):
        return bool(one.as_tuple() == other.as_tuple())
    return bool(one == other)


def _is_same_model(one: Any, other: Any, fields: Iterable[str]) -> bool:
    hidden = ("__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
    return (
        not attributes_besides(one, list(fields) + list(getattr(one, "__pydantic_extra__", None) or ()))
        and _are_same((getattr(one, name) for name in fields), (getattr(other, name) for name in fields))
        and _are_same((getattr(one, name, None) for name in hidden), (getattr(other, name, None) for name in hidden))
    )


def _are_same(some: Iterable[Any], others: Iterable[Any]) -> bool:
    some, others = list(some), list(others)
    return len(some) == len(others) and all(map(is_same, some, others))


def fields_of(kind: type) -> list[str] | None:
    """The names of the fields of a dataclass, a pydantic model, an attrs class or a named tuple."""
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    if hasattr(kind, "__pydantic_validator__"):
        # Pydantic before 2.10 has the second name.
        return list(getattr(kind, "__pydantic_fields__", None) or getattr(kind, "model_fields"))
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return list(getattr(kind, "_fields"))
    attributes = getattr(kind, "__attrs_attrs__", None)
    return None if attributes is None else [attribute.name for attribute in attributes]


def is_same_zone(one: tzinfo | None, other: tzinfo | None) -> bool:
    """Whether two time zones have one offset and one name at any time. Pydantic has a class of its own for fixed offsets."""
    if one is None or other is None:
        return one is other
    key = getattr(one, "key", None)
    if type(one) is type(other) and key is not None and key == getattr(other, "key", None):
        return True
    # Without a time, only a zone with one offset has one.
    offset = one.utcoffset(None)
    return offset is not None and offset == other.utcoffset(None) and _name(one) == _name(other)


def _name(zone: tzinfo) -> str:
    """Its name, where `UTC+02:00` and `+02:00` are one."""
    return (zone.tzname(None) or "").removeprefix("UTC")
