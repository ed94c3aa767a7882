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


def plain(value: Any) -> Any:
    """One level of a value as JSON's types. Refuses what has no documented form."""
    if isinstance(value, enum.Enum):
        return value.value
    # The values of subclasses, such as numpy's strings, are those of the type itself.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool):
        return bool(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: getattr(value, name) for name in value._fields}
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, datetime):
        return _moment(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    return _model(value)


def _model(value: Any) -> dict[str, Any]:
    kind = type(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    fields = getattr(kind, "__pydantic_fields__", None)
    if isinstance(fields, dict):
        extra = getattr(value, "__pydantic_extra__", None) or {}
        return {name: getattr(value, name) for name in fields} | dict(extra)
    attributes = getattr(kind, "__attrs_attrs__", None)
    if attributes is not None:
        return {attribute.name: getattr(value, attribute.name) for attribute in attributes}
    raise TypeError(f"{kind.__module__}.{kind.__qualname__} cannot be part of a key{_hint(value)}")


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
    moment = value.astimezone(timezone.utc)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S") if moment.year >= 1000 else moment.replace(tzinfo=None).isoformat()[:19]
    fraction = f".{moment.microsecond:06d}".rstrip("0") if moment.microsecond else ""
    return f"{text}{fraction}Z"


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise ValueError("a decimal is infinite or not a number")
    digits = format(value, "f")
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    return "0" if digits in ("-0", "") else digits
