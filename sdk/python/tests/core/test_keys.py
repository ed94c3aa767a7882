"""Which values make a key, and which keys are equal: every documented type, and everything else is refused."""

from __future__ import annotations

import collections
import dataclasses
import enum
import pathlib
import types
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from onceward import Ledger, key_of
from onceward._native import canonical, derived_key


class Text(str):
    def __str__(self) -> str:
        return "not the value"


class Whole(int):
    def __int__(self) -> int:
        return 7

    def __str__(self) -> str:
        return "7"

    __repr__ = __str__


class Real(float):
    def __float__(self) -> float:
        return 7.5

    __repr__ = __str__ = lambda self: "7.5"


class Names(dict):
    def __iter__(self):
        return iter(["other"])

    def keys(self):  # type: ignore[override]
        return ["other"]

    def __getitem__(self, name: str) -> str:
        return "other"


class Currency(str, enum.Enum):
    EUR = "eur"


class Level(enum.IntEnum):
    HIGH = 3


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Inner(enum.Enum):
    OUTER = Currency.EUR


@dataclasses.dataclass(frozen=True)
class Line:
    sku: str
    count: int = 1
    price: Decimal = dataclasses.field(default=Decimal("1.50"), compare=False)


class Point(NamedTuple):
    x: int
    y: int = 2


class Order(TypedDict):
    lines: list[Line]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Text("a"), '"a"'),
        (Whole(5), "5"),
        (Real(0.5), "0.5"),
        (Names(a=1), '{"a":1}'),
        (Currency.EUR, '"eur"'),
        (Level.HIGH, "3"),
        (Rights.READ | Rights.WRITE, "3"),
        (Inner.OUTER, '"eur"'),
        (True, "true"),
        (1, "1"),
        (1.0, "1"),
        (-0.0, "0"),
        (1e21, "1e+21"),
        (10**21, "1000000000000000000000"),
        (2**63, str(2**63)),
        (-(2**63) - 1, str(-(2**63) - 1)),
        (5e-324, "5e-324"),
        ("é", '"é"'),
        ("e\u0301", '"e\u0301"'),
        ("\u0000\u2028", '"\\u0000\u2028"'),
        ((1, [2, (3,)]), "[1,[2,[3]]]"),
        (Point(1), '{"x":1,"y":2}'),
        (Line("a"), '{"count":1,"price":"1.5","sku":"a"}'),
        (Order(lines=[Line("a", 2)]), '{"lines":[{"count":2,"price":"1.5","sku":"a"}]}'),
        (collections.OrderedDict(b=1, a=2), '{"a":2,"b":1}'),
        (collections.defaultdict(int, a=1), '{"a":1}'),
        (collections.Counter("aab"), '{"a":2,"b":1}'),
        (b"\x00\xff", '"AP8="'),
        (bytearray(b"a"), '"YQ=="'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (date(2026, 1, 2), '"2026-01-02"'),
        (datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin")), '"2026-07-01T10:00:00Z"'),
        (datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")), '"2026-10-25T00:30:00Z"'),
        (datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1), '"2026-10-25T01:30:00Z"'),
        (Decimal("1E+2"), '"100"'),
        (Decimal("-0"), '"0"'),
        (Decimal("0.10"), '"0.1"'),
        ({}, "{}"),
        (types.SimpleNamespace, None),
    ],
    ids=repr,
)
def test_documented_values_have_one_canonical_form(value: Any, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(TypeError):
            canonical(value)
    else:
        assert canonical(value) == expected
        assert canonical([value]) == f"[{expected}]"


class Custom:
    def __str__(self) -> str:
        raise AssertionError("str() must not be used")

    __repr__ = __str__


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        frozenset(),
        time(9, 30),
        timedelta(1),
        1j,
        Fraction(1, 2),
        pathlib.PurePosixPath("a"),
        range(3),
        collections.deque([1]),
        memoryview(b"a"),
        iter([1]),
        (n for n in [1]),
        types.MappingProxyType({"a": 1}),
        collections.UserDict(a=1),
        Ellipsis,
        object(),
        len,
        Line,
        int,
        pytest,
        ValueError("x"),
        Custom(),
        types.SimpleNamespace(a=1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_other_value_is_refused_and_never_turned_into_text(memory: Ledger, value: Any) -> None:
    with pytest.raises(TypeError, match="^/here/0/there: .* cannot be part of a key"):
        canonical({"here": [{"there": value}]})

    @memory.once(operation="send")
    def send(to: Any) -> None:
        raise AssertionError("must not run")

    with pytest.raises(TypeError, match="^/to: "):
        send(value)
    assert memory.list() == []


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (float("nan"), "not a number"),
        (float("-inf"), "infinite"),
        (Decimal("NaN"), "not a number"),
        (Decimal("sNaN"), "not a number"),
        (Decimal("1E+999999"), "too many digits"),
        (Decimal("1E-999999"), "too many digits"),
        (datetime(2026, 1, 1), "time zone"),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=1))), "years 1 to 9999"),
        ("\ud800", "surrogate"),
        ({"\udfff": 1}, "surrogate"),
        ({1: 2}, "must be a str, not int"),
        ({Text("a"): 2}, "must be a str, not Text"),
        ({Currency.EUR: 2}, "must be a str, not Currency"),
        ({None: 2}, "must be a str, not NoneType"),
    ],
    ids=repr,
)
def test_values_without_one_meaning_are_refused(value: Any, says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        canonical({"a": value})


def test_integers_have_any_size() -> None:
    for digits in (18, 19, 20, 599, 600, 601, 1200, 4300, 4301, 20_000):
        for leading in ("1", "9", "1" + "0" * (digits - 1)):
            text = leading.ljust(digits, "7")
            value = 0
            for part in range(0, len(text), 500):
                piece = text[part : part + 500]
                value = value * 10 ** len(piece) + int(piece)
            assert canonical(value) == text and canonical(-value) == f"-{text}"
            assert canonical(value + 1) != text


def test_a_place_is_named_even_in_names_with_slashes() -> None:
    with pytest.raises(TypeError, match="^/a~1b~0c/1: "):
        canonical({"a/b~c": [1, {2}]})


def test_values_may_be_128_levels_deep_whatever_they_are() -> None:
    def nested(levels: int, leaf: Any) -> Any:
        value = leaf
        for _ in range(levels):
            value = [value]
        return value

    for leaf in (1, date(2026, 1, 1), Currency.EUR, Inner.OUTER):
        assert canonical(nested(128, leaf)).startswith("[" * 128)
        with pytest.raises(ValueError, match="deeper"):
            canonical(nested(129, leaf))
    value: Any = 1
    for _ in range(128):
        value = dataclasses.make_dataclass("Level", ["inner"])(value)
    assert canonical(value).count("inner") == 128
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(ValueError, match="deeper"):
        canonical(cycle)


def test_a_value_that_is_converted_for_ever_is_refused() -> None:
    class Forever(enum.Enum):
        ONE = 1

        @property
        def value(self) -> Any:
            return self

    with pytest.raises(ValueError, match="converted"):
        canonical(Forever.ONE)


def test_errors_of_the_value_itself_are_not_changed() -> None:
    @dataclasses.dataclass
    class Broken:
        text: str = "x"

        def __getattribute__(self, name: str) -> Any:
            if name == "text":
                raise UnicodeDecodeError("utf-8", b"x", 0, 1, "no")
            return super().__getattribute__(name)

    with pytest.raises(UnicodeDecodeError):
        canonical({"a": [Broken()]})


def test_a_time_that_is_finer_than_a_datetime_is_refused() -> None:
    class Timestamp(datetime):
        nanosecond = 1

    with pytest.raises(ValueError, match="nanoseconds"):
        canonical(Timestamp(2026, 1, 1, tzinfo=timezone.utc))


def test_equal_arguments_make_the_same_key_in_any_order() -> None:
    left = {"a": 1, "b": [1, {"x": None, "y": "z"}], "é": True}
    right = {"é": True, "b": [1, {"y": "z", "x": None}], "a": 1}
    assert derived_key("s", "op", left) == derived_key("s", "op", right)
    different = [{**left, "a": other} for other in (True, "1", 2, 1.5, None, [1])]
    assert len({derived_key("s", "op", one) for one in [left, *different]}) == 7
    assert len({derived_key(s, o, left) for s in ("", "s") for o in ("op", "po")}) == 4
    assert derived_key("s", "op", {"n": 9007199254740993}) != derived_key("s", "op", {"n": 9007199254740992})


def test_models_make_the_key_of_their_fields() -> None:
    pydantic = pytest.importorskip("pydantic")
    attrs = pytest.importorskip("attrs")

    class Model(pydantic.BaseModel):
        model_config = {"extra": "allow"}
        sku: str = pydantic.Field(alias="stockKeepingUnit")
        price: Decimal = Decimal("1.50")
        _hidden: int = 3

        @pydantic.computed_field
        def double(self) -> int:
            return 2

    @pydantic.dataclasses.dataclass
    class Validated:
        sku: str
        price: Decimal = Decimal("1.50")

    @attrs.define
    class Attrs:
        sku: str
        price: Decimal = Decimal("1.50")

    same = '{"price":"1.5","sku":"a"}'
    assert [canonical(one) for one in (Model(stockKeepingUnit="a"), Validated("a"), Attrs("a"))] == [same] * 3
    assert canonical(Model(stockKeepingUnit="a", more=1)) == '{"more":1,"price":"1.5","sku":"a"}'

    class Secret(pydantic.BaseModel):
        token: pydantic.SecretStr

    with pytest.raises(TypeError, match="^/token: "):
        canonical(Secret(token="x"))
    for kind in (Model, Attrs, Validated):
        with pytest.raises(TypeError):
            canonical(kind)


def test_numpy_scalars_are_exact_or_refused() -> None:
    numpy = pytest.importorskip("numpy")
    assert canonical(numpy.float64(0.1)) == "0.1" and canonical(numpy.str_("a")) == '"a"'
    scalars = (numpy.int64(1), numpy.float32(0.1), numpy.bool_(True), numpy.datetime64("2026-01-01"))
    for value in (*scalars, numpy.array([1])):
        with pytest.raises(TypeError):
            canonical(value)


def test_a_mutable_default_is_read_at_the_call(memory: Ledger) -> None:
    limits = [1]

    def send(to: str, limits: list[int] = limits) -> None: ...

    guarded = memory.once(operation="send")(send)
    before = key_of(guarded, "a")
    limits.append(2)
    assert key_of(guarded, "a") != before == key_of(guarded, "a", [1])
