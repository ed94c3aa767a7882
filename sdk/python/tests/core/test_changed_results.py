"""Stored results whose function has another return type by now: they fit the new type, or they are unreadable."""

from __future__ import annotations

import dataclasses
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal, Union
from uuid import UUID

import pytest
from onceward import Ledger, Unreadable
from onceward._results import Codec
from test_results import Address, Color, Empty, Level, Local, Money, Person, Point, Rights, Slotted, same

CHANGES: list[tuple[Any, Any, Any]] = [
    (int, 1, str),
    (int, 1, bool),
    (bool, True, int),
    (bool, True, float),
    (float, 1.5, int),
    (float, 0.1, Decimal),
    (int, 5, Decimal),
    (int, 1, None),
    (str, "hello", list[str]),
    (str, "hello", tuple[str, ...]),
    (str, "hello", set[str]),
    (str, "hello", bytes),
    (str, "hello", date),
    (str, "hello", UUID),
    (str, "1", int),
    (date, date.min, datetime),
    (datetime, datetime.min, date),
    (list[int], [1], dict[str, int]),
    (list[int], [1], list[str]),
    (tuple[int, int], (1, 2), tuple[int, int, int]),
    (dict[str, int], {"a": 1}, Money),
    (Money, Money(Decimal(1)), Point),
    (Money, Money(Decimal(1)), Slotted),
    (Empty, Empty(), Money),
    (Person, {"name": "a", "home": {}}, Address),
    (Address, {"street": "a"}, Person),
    (Color, Color.BLUE, Level),
    (Color, Color.RED, Rights),
    (Literal["a", "b"], "b", Literal["a"]),
    (Literal[1], 1, Literal[True]),
    (int, 1, Literal[True]),
    (float, 1.5, Union[int, str]),
    (None, None, Union[int, str]),
    (None, None, int),
    (None, None, Money),
    (Union[Decimal, UUID], Decimal(1), Union[UUID, bytes]),
    (Union[Decimal, UUID], Decimal(1), Decimal),
    (str, "a", Union[Decimal, UUID]),
    (int, 1, Local),
]


@pytest.mark.parametrize(("was", "value", "now"), CHANGES, ids=repr)
def test_a_result_that_does_not_fit_a_changed_annotation_is_unreadable(
    memory: Ledger, was: Any, value: Any, now: Any
) -> None:
    assert memory.call("change", key="a", result=was).run(lambda: value) == value
    with pytest.raises(Unreadable) as caught:
        memory.call("change", key="a", result=now).run(lambda: pytest.fail("must not run"))
    assert caught.value.result_json == Codec(annotation=was).write(value)
    assert caught.value.key == "a" and caught.value.reason


def test_the_order_of_a_union_may_change() -> None:
    for value in (Decimal(1), "1", UUID(int=1)):
        body = Codec(annotation=Union[Decimal, str, UUID]).write(value)
        assert body is not None
        again = Codec(annotation=Union[UUID, str, Decimal, None]).read(body)
        assert same(again, value)


def test_classes_of_the_same_name_are_told_apart() -> None:
    first, second = (dataclasses.make_dataclass("Same", [("n", int)]) for _ in range(2))
    first.__module__, second.__module__ = "one", "two"
    codec = Codec(annotation=Union[first, second])
    for kind in (first, second):
        body = codec.write(kind(1))
        assert body is not None and type(codec.read(body)) is kind
