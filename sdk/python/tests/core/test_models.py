"""Results that are models of pydantic or attrs."""

from __future__ import annotations

import enum
import pickle
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any, Generic, Optional, TypeVar, Union

import pytest
from onceward import Ledger, Unreadable
from onceward._results import Codec

pydantic = pytest.importorskip("pydantic")
attrs = pytest.importorskip("attrs")
to_camel = pytest.importorskip("pydantic.alias_generators").to_camel

T = TypeVar("T")


class Kind(enum.Enum):
    CARD = "card"


class Line(pydantic.BaseModel):
    sku: str
    price: Decimal


class Receipt(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(alias_generator=to_camel, extra="forbid")
    receipt_id: int
    paid_at: datetime
    kind: Kind = Kind.CARD
    lines: list[Line] = []
    raw: bytes = b""
    tags: set[str] = set()
    extra: Optional[Union[int, str]] = None

    @pydantic.computed_field
    def total(self) -> Decimal:
        return sum((line.price for line in self.lines), Decimal(0))


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]


class Root(pydantic.RootModel[Optional[int]]):
    pass


@pydantic.dataclasses.dataclass
class Validated:
    n: int
    at: datetime


@attrs.define
class Shipment:
    parcel: int
    _secret: str = "s"
    at: Optional[datetime] = None
    made: int = attrs.field(init=False, default=7)


@attrs.frozen
class Route:
    stops: tuple[Shipment, ...]


NOW = datetime(2026, 11, 18, 9, 30, tzinfo=timezone.utc)
FULL = {
    "receiptId": 1,
    "paidAt": NOW,
    "lines": [{"sku": "a", "price": "1.50"}],
    "raw": b"ab",
    "tags": {"x"},
    "extra": "1",
}

KEPT: list[tuple[Any, Any]] = [
    (Line, Line(sku="a", price=Decimal("1.50"))),
    (Receipt, Receipt(**FULL)),
    (Receipt, Receipt(receiptId=1, paidAt=NOW)),
    (Page[Line], Page[Line](items=[Line(sku="a", price=Decimal(1))])),
    (Root, Root(5)),
    (Root, Root(None)),
    (Optional[Root], Root(5)),
    (Validated, Validated(1, NOW)),
    (list[Line], [Line(sku="a", price=Decimal(1))]),
    (Optional[Line], None),
    (Union[Line, Receipt, None], Receipt(receiptId=1, paidAt=NOW)),
    (Shipment, Shipment(1)),
    (Shipment, Shipment(1, "other", NOW)),
    (Route, Route((Shipment(1), Shipment(2)))),
    (Union[Shipment, Route], Route(())),
]


@pytest.mark.parametrize(("annotation", "value"), KEPT, ids=repr)
def test_a_model_comes_back_as_it_was(memory: Ledger, annotation: Any, value: Any) -> None:
    assert memory.call("make", key="a", result=annotation).run(lambda: value) is value
    again = memory.call("make", key="a", result=annotation).run(lambda: pytest.fail("must not run"))
    assert again == value and type(again) is type(value) and again is not value or value is None


class Hides(pydantic.BaseModel):
    n: int
    secret: str = pydantic.Field(exclude=True)


class Hashes(pydantic.BaseModel):
    password: str

    @pydantic.field_validator("password")
    @classmethod
    def hashed(cls, value: str) -> str:
        return f"hash({value})"


class Remembers(pydantic.BaseModel):
    n: int
    _seen: int = 0


class Number(pydantic.BaseModel):
    n: float


class Strict(pydantic.BaseModel):
    line: Line


class SubLine(Line):
    more: int = 1


class Falsy(pydantic.BaseModel):
    n: int

    def __bool__(self) -> bool:
        return False


def remembered() -> Remembers:
    made = Remembers(n=1)
    made._seen = 5
    return made


LOST: list[tuple[Any, Any]] = [
    (Hides, Hides(n=1, secret="s")),
    (Hashes, Hashes(password="p")),
    (Remembers, remembered()),
    (Number, Number(n=float("nan"))),
    (Number, Number.model_construct(n="not a number")),
    (Strict, Strict(line=SubLine(sku="a", price=Decimal(1)))),
    (Line, SubLine(sku="a", price=Decimal(1))),
    (pydantic.BaseModel, Line(sku="a", price=Decimal(1))),
    (Page, Page[int](items=[1])),
    (Optional[Root], Root(None)),
    (Any, Line(sku="a", price=Decimal(1))),
    (Any, Shipment(1)),
]


@pytest.mark.parametrize(("annotation", "value"), LOST, ids=repr)
def test_a_model_that_would_not_come_back_is_not_kept(annotation: Any, value: Any) -> None:
    assert Codec(annotation=annotation).write(value) is None


def test_a_model_that_is_false_is_kept() -> None:
    body = Codec(annotation=Falsy).write(Falsy(n=1))
    assert body is not None and Codec(annotation=Falsy).read(body) == Falsy(n=1)


def test_a_changed_model_is_unreadable(memory: Ledger) -> None:
    memory.call("make", key="a", result=Line).run(lambda: Line(sku="a", price=Decimal(1)))
    memory.call("make", key="b", result=Shipment).run(lambda: Shipment(1))
    for key, now in (("a", Receipt), ("a", Shipment), ("b", Route), ("b", Line), ("b", list[Shipment])):
        with pytest.raises(Unreadable):
            memory.call("make", key=key, result=now).run(lambda: pytest.fail("must not run"))


def test_a_model_is_part_of_an_error_that_can_be_pickled(memory: Ledger) -> None:
    memory.call("make", key="a", result=Line).run(lambda: Line(sku="a", price=Decimal(1)))
    with pytest.raises(Unreadable) as caught:
        memory.call("make", key="a", result=int).run(lambda: 1)
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.result_json == caught.value.result_json and b'"sku"' in again.result_json
