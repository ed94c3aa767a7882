"""A repeat gets what the first call did, in every detail, or `OutcomeNotKept`."""

from __future__ import annotations

import dataclasses
import enum
from datetime import datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any, Optional
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest
import typing_extensions
from onceward._results import Codec

pydantic = pytest.importorskip("pydantic")

BERLIN = ZoneInfo("Europe/Berlin")


class Text(str, enum.Enum):
    A = "a"


class Line(pydantic.BaseModel):
    price: Decimal = Decimal("1.50")
    note: Optional[str] = None


class Receipt(pydantic.BaseModel):
    text: str = ""
    count: int = 0
    anything: Any = None
    at: Optional[datetime] = None
    lines: list[Line] = []
    _hidden: int = 0


class Numbered(pydantic.BaseModel):
    name: str
    id: UUID = pydantic.Field(default_factory=uuid4)


def assigned(**values: Any) -> Receipt:
    """Pydantic does not look at what is assigned."""
    made = Receipt()
    for name, value in values.items():
        setattr(made, name, value)
    return made


def moment(zone: Optional[tzinfo]) -> datetime:
    return datetime(2026, 7, 1, 12, tzinfo=zone)


KEPT = [
    Receipt(),
    Receipt(text="a"),
    Receipt(text="a", count=0, lines=[Line(), Line(note=None)]),
    Receipt(text="a", count=1, anything=[1, True, None, "x"], at=None, lines=[]),
    *(Receipt(at=moment(zone)) for zone in (None, timezone.utc, timezone(timedelta(hours=-5)), ZoneInfo("UTC"))),
    Numbered(name="a"),
    Numbered(name="a", id=UUID(int=1)),
]


@pytest.mark.parametrize("value", KEPT, ids=repr)
def test_a_model_comes_back_with_the_fields_that_were_set(value: Any) -> None:
    codec = Codec(annotation=type(value))
    body = codec.write(value)
    assert body is not None
    again = codec.read(body)
    assert (again, again.model_fields_set) == (value, value.model_fields_set)
    assert again.model_dump(exclude_unset=True) == value.model_dump(exclude_unset=True)


NOT_KEPT = [
    Receipt(at=moment(BERLIN)),
    Receipt(anything=Text.A),
    Receipt(anything=[(1, 2)]),
    assigned(text=Text.A),
    assigned(_hidden=1),
    Receipt.model_construct(count=True),
    Receipt.model_construct(lines=({"price": 1},)),
    Receipt(lines=[Line.model_construct(price=1)]),
]


@pytest.mark.parametrize("value", NOT_KEPT, ids=repr)
def test_a_model_that_would_come_back_different_is_not_kept(value: Any) -> None:
    assert Codec(annotation=type(value)).write(value) is None


class Dated(tzinfo):
    """A time zone that is not of the database."""

    def utcoffset(self, moment: Optional[datetime]) -> Optional[timedelta]:
        return None if moment is None else timedelta(hours=2)

    def tzname(self, moment: Optional[datetime]) -> str:
        return "CEST"

    def dst(self, moment: Optional[datetime]) -> timedelta:
        return timedelta(0)


@pytest.mark.parametrize("zone", [timezone(timedelta(0), "GMT"), timezone(timedelta(hours=2), "CEST"), Dated()])
def test_a_time_zone_that_would_lose_its_name_or_its_rules_is_not_kept(zone: tzinfo) -> None:
    assert Codec(annotation=datetime).write(moment(zone)) is None


@pytest.mark.parametrize("zone", [None, timezone.utc, timezone(timedelta(hours=-5)), ZoneInfo("UTC"), BERLIN])
def test_other_time_zones_come_back(zone: Optional[tzinfo]) -> None:
    codec = Codec(annotation=datetime)
    again = codec.read(codec.write(moment(zone)) or b"")
    assert again == moment(zone) and repr(again) == repr(moment(zone)) and again.tzname() == moment(zone).tzname()


@dataclasses.dataclass(slots=True)
class Slotted:
    n: int


class WithToken(Slotted):
    __slots__ = ("token",)


def test_a_subclass_with_more_slots_is_not_kept() -> None:
    value = WithToken(1)
    codec = Codec(annotation=WithToken)
    assert codec.read(codec.write(value) or b"") == value
    value.token = "secret"
    assert codec.write(value) is None


class Old(typing_extensions.TypedDict):
    a: int
    at: typing_extensions.NotRequired[typing_extensions.ReadOnly[datetime]]


def test_typed_dicts_of_typing_extensions_are_kept() -> None:
    codec = Codec(annotation=list[Old])
    value = [{"a": 1}, {"a": 2, "at": moment(BERLIN)}]
    assert codec.read(codec.write(value) or b"") == value
    assert codec.write([{"b": 1}]) is None and codec.write([{"a": "1"}]) is None
