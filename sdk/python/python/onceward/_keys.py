"""Which Python values can be part of an intent, besides JSON's own, and what they become. The vectors in `spec/vectors/types.json`
hold for every language."""

from __future__ import annotations

import base64
import dataclasses
import enum
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

from ._attributes import attributes_besides

# A decimal is written without an exponent, which could take any amount of memory.
_MAX_DIGITS = 10_000

# Python refuses to write integers with very many digits; this many it always writes.
_PART = 600


def plain(value: Any) -> Any:
    """One level of a value as JSON's types. Refuses what has no documented form."""
    if isinstance(value, enum.Enum):
        return value.value
    if (fields := _fields(value)) is not None:
        _check_only_fields(value, fields)
        return fields
    _check_has_no_more(value)
    # The values of subclasses, such as numpy's strings, are those of the type itself.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool):
        return bool(value)
    if isinstance(value, int):
        return int.__index__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, dict):
        return dict(dict.items(value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: getattr(value, name) for name in getattr(value, "_fields")}
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, datetime):
        return _moment(value)
    if isinstance(value, date):
        return date.isoformat(value)
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, UUID):
        return UUID.__str__(value)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    raise TypeError(f"{_full_name(value)} cannot be part of a key{_hint(value)}")


# Values of these types say more than the attributes that a class adds to them.
_VALUES = (str, int, float, dict, list, tuple, date, Decimal, UUID, bytes, bytearray)


def _check_only_fields(value: Any, fields: dict[str, Any]) -> None:
    """Refuses a model that is more than its fields: one that is also a value, such as a dataclass that is a dict, and one of a
    subclass that adds attributes."""
    is_empty = isinstance(value, (dict, list, tuple, str, bytes, bytearray)) and not len(value)
    if isinstance(value, _VALUES) and not is_empty:
        raise TypeError(f"{_full_name(value)} has fields and a value of its own{_hint(value)}")
    if others := attributes_besides(value, fields):
        raise TypeError(f"{_full_name(value)} has attributes that are not fields, such as {others[0]}{_hint(value)}")


def _check_has_no_more(value: Any) -> None:
    """Refuses a value with attributes, as of a class `Money(int)` with a currency: the value alone is not all of it."""
    if not isinstance(value, _VALUES):
        return
    order = type(value).__mro__
    own = order[: next(index for index, kind in enumerate(order) if kind in _VALUES)]
    if attributes_besides(value, (), own):
        raise TypeError(f"{_full_name(value)} has attributes besides its value{_hint(value)}")


def _full_name(value: Any) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def _fields(value: Any) -> dict[str, Any] | None:
    """The fields of a dataclass, a pydantic model or an attrs class."""
    kind = type(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(kind, "__pydantic_validator__"):
        # Pydantic before 2.10 has the second name.
        fields = getattr(kind, "__pydantic_fields__", None) or kind.model_fields
        extra = getattr(value, "__pydantic_extra__", None) or {}
        return {name: getattr(value, name) for name in fields} | dict(extra)
    attributes = getattr(kind, "__attrs_attrs__", None)
    if attributes is not None:
        return {attribute.name: getattr(value, attribute.name) for attribute in attributes}
    return None


def _hint(value: Any) -> str:
    if isinstance(value, (set, frozenset)):
        return ": a set has no order; pass a sorted list"
    if isinstance(value, time):
        return ": pass a datetime with a time zone, or a text"
    if callable(value):
        return ": functions and clients are not part of an intent; name the arguments that are with key=[...]"
    return ": pass one of the documented types, or name the arguments that make the intent with key=[...]"


def _moment(value: datetime) -> str:
    if value.utcoffset() is None:
        raise ValueError("a datetime without a time zone is ambiguous; use datetime.now(timezone.utc) or add tzinfo")
    if getattr(value, "nanosecond", 0):
        raise ValueError("a time with nanoseconds is finer than a datetime; round it, or pass a text")
    try:
        moment = datetime.astimezone(value, timezone.utc)
    except OverflowError:
        raise ValueError("a datetime is outside the years 1 to 9999 in UTC") from None
    text = datetime.isoformat(moment.replace(microsecond=0, tzinfo=None))
    fraction = f".{moment.microsecond:06d}".rstrip("0") if moment.microsecond else ""
    return f"{text}{fraction}Z"


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise ValueError("a decimal is infinite or not a number")
    if value == 0:
        return "0"
    if abs(value.adjusted()) > _MAX_DIGITS:
        raise ValueError("a decimal has too many digits")
    digits = Decimal.__format__(value, "f")
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def digits(value: int) -> str:
    """All digits of an integer."""
    sign, rest, parts = "-" if value < 0 else "", abs(value), []
    while rest >= 10**_PART:
        rest, part = divmod(rest, 10**_PART)
        parts.append(f"{part:0{_PART}d}")
    return sign + str(rest) + "".join(reversed(parts))
