"""Results of annotated types come back as they were; what would not is not kept, and is never something else."""

from __future__ import annotations

import dataclasses
import enum
import functools
import logging
import math
import random
import sys
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal, NamedTuple, NewType, Optional, TypedDict, Union
from uuid import UUID
from zoneinfo import ZoneInfo

import onceward
import pytest
from onceward import Ledger, OutcomeNotKept
from onceward._results import Codec

if typing.TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]


class Color(enum.Enum):
    RED = 1
    BLUE = "blue"
    ALSO_RED = 1


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Mode(str, enum.Enum):
    FAST = "fast"


@dataclasses.dataclass
class Money:
    amount: Decimal
    currency: str = "EUR"


@dataclasses.dataclass(frozen=True)
class Receipt:
    id: UUID
    lines: tuple[Money, ...]
    at: datetime
    parent: Optional[Receipt] = None
    tags: frozenset[str] = frozenset()
    color: Color = Color.RED


@dataclasses.dataclass(**({"slots": True} if sys.version_info >= (3, 10) else {}))
class Slotted:
    n: int


@dataclasses.dataclass
class Empty:
    pass


@dataclasses.dataclass
class Acts:
    n: int

    def __post_init__(self) -> None:
        Acts.made += 1

    made: typing.ClassVar[int] = 0


class Point(NamedTuple):
    x: int
    y: float = 0.5


class Address(TypedDict, total=False):
    street: str
    since: date


class Person(TypedDict):
    name: str
    home: Address


Cents = NewType("Cents", int)
BERLIN = ZoneInfo("Europe/Berlin")

VALUES: list[tuple[Any, list[Any]]] = [
    (None, [None]),
    (bool, [True, False]),
    (int, [0, -1, 2**63, -(2**200), 10**4000]),
    (float, [0.0, -0.0, 0.1, 1e308, 5e-324, math.pi, 1, 10**30]),
    (str, ["", "é", "e\u0301", "\u0000\u2028\U0001f600", '"\\', "null"]),
    (Any, [None, 1, 1.5, "a", [1, {"a": None}], {"a": [True]}]),
    (object, [None, [1]]),
    (bytes, [b"", b"\x00\xff", bytes(range(256))]),
    (Decimal, [Decimal(text) for text in ("0", "-0", "1.50", "1E+50", "1E-50", "NaN", "sNaN", "-Infinity")]),
    (UUID, [UUID(int=0), UUID(int=2**128 - 1)]),
    (date, [date.min, date.max, date(2026, 11, 18)]),
    (timedelta, [timedelta(0), timedelta.min, timedelta.max, timedelta(days=-1, microseconds=1)]),
    (datetime, [datetime.min, datetime.max, datetime(2026, 1, 1, 1, 1, 1, 1)]),
    (datetime, [datetime(2026, 1, 1, tzinfo=timezone.utc), datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-5)))]),
    (datetime, [datetime(2026, 7, 1, tzinfo=BERLIN), datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)]),
    (datetime, [datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1), datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN)]),
    (Color, list(Color)),
    (Level, list(Level)),
    (Mode, list(Mode)),
    (Rights, [Rights.READ, Rights.READ | Rights.WRITE, Rights(0)]),
    (list, [[], [1, "a", [None]]]),
    (list[Decimal], [[], [Decimal("1.0"), Decimal("1.00")]]),
    (Sequence[int], [[1, 2]]),
    (Iterable[int], [[1, 2]]),
    (dict, [{}, {"a": 1}]),
    (dict[str, list[date]], [{"a": [date.min]}]),
    (Mapping[str, UUID], [{"a": UUID(int=1)}]),
    (set[int], [set(), {1, 2}]),
    (set[bytes], [{b"a", b"b"}]),
    (frozenset[str], [frozenset("ab")]),
    (tuple, [(), (1, "a")]),
    (tuple[()], [()]),
    (tuple[int, ...], [(), (1, 2, 3)]),
    (tuple[int, Decimal, None], [(1, Decimal("2.0"), None)]),
    (Optional[int], [None, 0, 5]),
    (Optional[date], [None, date.min]),
    (Optional[list[Money]], [None, [], [Money(Decimal("1.0"))]]),
    (Union[int, str], [1, "1"]),
    (Union[int, float, str, bool, None], [1, 1.0, True, "x", None]),
    (Union[float, str], [1, 1.5, "x"]),
    (Union[Decimal, str, None], [Decimal("1"), "1", None]),
    (Union[date, datetime, str], [date.min, datetime.min, "0001-01-01"]),
    (Union[UUID, bytes, int], [UUID(int=5), b"5", 5]),
    (Union[list[int], list[str], dict[str, int]], [[1], ["1"], [], {"a": 1}]),
    (Union[Money, Point, Slotted], [Money(Decimal(1)), Point(1), Slotted(1)]),
    (Union[tuple[int, int], set[int]], [(1, 1), {1}]),
    (Literal["a", 1, True, None], ["a", 1, True, None]),
    (Literal[Color.RED, b"x"], [Color.RED, b"x"]),
    (Literal[Level.HIGH, 2], [Level.HIGH, 2]),
    (Literal[Mode.FAST, "fast"], [Mode.FAST, "fast"]),
    (Cents, [Cents(5)]),
    (Money, [Money(Decimal("1.50")), Money(Decimal(0), "USD")]),
    (Slotted, [Slotted(5)]),
    (Empty, [Empty()]),
    (Point, [Point(1), Point(1, 2.5)]),
    (Address, [Address(), Address(street="a"), Address(since=date.min)]),
    (Person, [Person(name="a", home=Address(since=date.max))]),
    (
        Receipt,
        [
            Receipt(UUID(int=1), (), datetime.min),
            Receipt(
                UUID(int=2),
                (Money(Decimal("1.5")), Money(Decimal(2))),
                datetime(2026, 7, 1, tzinfo=BERLIN),
                Receipt(UUID(int=1), (), datetime.min, color=Color.BLUE),
                frozenset({"a"}),
            ),
        ],
    ),
    (list[Optional[Union[Receipt, Money]]], [[None, Money(Decimal(1)), Receipt(UUID(int=1), (), datetime.min)]]),
    (typing.Annotated[int, "cents"], [5]),
]


def same(left: Any, right: Any) -> bool:
    """Equal, and of the same types inside."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return math.copysign(1, left) == math.copysign(1, right) and left == right
    if isinstance(left, Decimal):
        return str(left) == str(right)
    if isinstance(left, datetime):
        if type(left.tzinfo) is not type(right.tzinfo) or str(left.tzinfo) != str(right.tzinfo):
            return False
        return left.utcoffset() == right.utcoffset() and left.replace(tzinfo=None) == right.replace(tzinfo=None)
    if isinstance(left, (set, frozenset)):
        return left == right and {type(one) for one in left} == {type(one) for one in right}
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[name], right[name]) for name in left)
    if dataclasses.is_dataclass(left) and not isinstance(left, type):
        return all(same(getattr(left, one.name), getattr(right, one.name)) for one in dataclasses.fields(left))
    return bool(left == right)


@pytest.mark.parametrize(
    ("annotation", "value"), [(annotation, value) for annotation, values in VALUES for value in values], ids=repr
)
def test_a_result_comes_back_as_it_was(annotation: Any, value: Any) -> None:
    codec = Codec(annotation=annotation)
    body = codec.write(value)
    assert body is not None
    assert same(codec.read(body), value)


def test_combinations_come_back_as_they_were() -> None:
    chance = random.Random(7)
    pool = [(annotation, values) for annotation, values in VALUES if annotation not in (None, Any, object)]
    for _ in range(400):
        (left, lefts), (right, rights) = chance.sample(pool, 2)
        one, other = chance.choice(lefts), chance.choice(rights)
        for annotation, value in [
            (list[left], [one]),
            (dict[str, left], {"a": one}),
            (tuple[left, right], (one, other)),
            (Optional[left], chance.choice([one, None])),
            (tuple[Union[left, right], ...], (one, other)),
        ]:
            codec = Codec(annotation=annotation)
            body = codec.write(value)
            assert body is not None, (annotation, value)
            assert same(codec.read(body), value), (annotation, value)


class Loud(dict):
    pass


@dataclasses.dataclass
class Hidden:
    n: int

    def __post_init__(self) -> None:
        self.double = 2 * self.n


@dataclasses.dataclass
class Cached:
    n: int

    @functools.cached_property
    def double(self) -> int:
        return 2 * self.n


@dataclasses.dataclass
class Mapped(dict):
    n: int


@dataclasses.dataclass
class Local:
    inner: Unknown


class Sub(Money):
    pass


LOST: list[tuple[Any, Any]] = [
    (Any, (1, 2)),
    (Any, {1: 2}),
    (Any, Loud(a=1)),
    (Any, Level.HIGH),
    (Any, Mode.FAST),
    (Any, date.min),
    (Any, Money(Decimal(1))),
    (Any, object()),
    (Any, float("nan")),
    (Any, float("inf")),
    (Any, "\ud800"),
    (int, True),
    (int, "1"),
    (int, None),
    (bool, 1),
    (str, b"a"),
    (float, True),
    (None, 0),
    (date, datetime.min),
    (datetime, date.min),
    (datetime, datetime(2026, 10, 25, 2, 30, fold=1)),
    (bytes, bytearray(b"a")),
    (list[int], (1, 2)),
    (list[int], ["1"]),
    (tuple[int, int], (1, 2, 3)),
    (dict[int, str], {1: "a"}),
    (dict[str, int], {"a": "b"}),
    (set[int], frozenset([1])),
    (Money, Sub(Decimal(1))),
    (Money, {"amount": "1"}),
    (Hidden, Hidden(1)),
    (Mapped, Mapped(1)),
    (Local, Local(1)),
    (Color, 1),
    (enum.Enum, Color.RED),
    (Literal[1], True),
    (Literal["a"], "b"),
    (Union[int, Decimal], "x"),
    (Optional[int], "x"),
    (Address, {"street": 1}),
    (Address, {"other": 1}),
    (Person, {"name": "a"}),
    (typing.Callable[[], int], len),
    (typing.Iterator[int], iter([1])),
    (types.SimpleNamespace, types.SimpleNamespace(a=1)),
]


@pytest.mark.parametrize(("annotation", "value"), LOST, ids=repr)
def test_a_result_that_would_not_come_back_is_not_kept(annotation: Any, value: Any) -> None:
    assert Codec(annotation=annotation).write(value) is None


def test_the_depth_of_results_is_limited() -> None:
    value: list[Any] = []
    value.append(value)
    assert Codec().write(value) is None
    deep: Any = 1
    for _ in range(90):
        deep = [deep]
    body = Codec().write(deep)
    assert body is not None and Codec().read(body) == deep


def test_the_first_caller_gets_the_object_and_repeats_are_told(
    memory: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    class Handle:
        pass

    handle = Handle()

    @memory.once(operation="open")
    def open_it(n: int):
        return handle

    with caplog.at_level(logging.WARNING, "onceward"):
        assert open_it(1) is handle
    assert "cannot be kept" in caplog.text and "Handle" in caplog.text
    for _ in range(2):
        with pytest.raises(OutcomeNotKept):
            open_it(1)
    assert memory.list()[0].status == "done"


def test_an_object_that_breaks_when_it_is_written_does_not_hide_that_the_work_is_done(memory: Ledger) -> None:
    class Half:
        __attrs_attrs__ = [types.SimpleNamespace(name="missing")]

    @memory.once(operation="half")
    def half(n: int) -> Half:
        return Half()

    half.__wrapped__.__annotations__["return"] = Half  # type: ignore[attr-defined]
    assert isinstance(half(1), Half)
    with pytest.raises(OutcomeNotKept):
        half(1)


def test_a_result_over_the_limit_is_not_kept(memory: Ledger) -> None:
    @memory.once(operation="big", keep_limit="1KiB")
    def big(n: int) -> str:
        return "x" * n

    assert len(big(10)) == 10 and len(big(5000)) == 5000 and len(big(10)) == 10
    with pytest.raises(OutcomeNotKept):
        big(5000)


def test_reading_a_dataclass_does_not_run_its_code(memory: Ledger) -> None:
    @memory.once(operation="acts")
    def acts(n: int) -> Acts:
        return Acts(n)

    first = acts(1)
    made = Acts.made
    assert acts(1) == first and Acts.made == made
    cached = Cached(2)
    assert cached.double == 4
    body = Codec(annotation=Cached).write(cached)
    assert body is not None and Codec(annotation=Cached).read(body).double == 4


def annotated(argument: Unknown) -> list[Money]:
    return [Money(Decimal(argument))]


def test_an_annotation_of_an_argument_that_cannot_be_resolved_does_not_matter(memory: Ledger) -> None:
    guarded = memory.once(annotated)
    assert guarded(1) == guarded(1) == [Money(Decimal(1))]


def unresolved(argument: int) -> Unknown:
    return [argument] if argument else (argument,)


def test_without_a_known_annotation_only_json_is_kept(memory: Ledger) -> None:
    guarded = memory.once(unresolved)
    assert guarded(1) == guarded(1) == [1]
    assert guarded(0) == (0,)
    with pytest.raises(OutcomeNotKept):
        guarded(0)


def later(n: int) -> Later:
    return Later(n)


def test_a_class_that_is_defined_later_is_found(memory: Ledger) -> None:
    guarded = memory.once(later)
    assert guarded(1) == guarded(1) == Later(1)


@dataclasses.dataclass
class Later:
    n: int


def test_the_annotation_of_partials_and_callable_objects_is_found(memory: Ledger) -> None:
    class Pays:
        cents: int = 0

        def __call__(self, n: int) -> Money:
            return Money(Decimal(n))

    def pay(currency: str, n: int) -> Money:
        return Money(Decimal(n), currency)

    for index, one in enumerate([Pays(), functools.partial(pay, "USD"), functools.partial(Pays())]):
        guarded = memory.once(operation=f"pay{index}", key=["n"])(one)
        first = guarded(1)
        assert guarded(1) == first and type(guarded(1)) is Money
    make = memory.once(operation="make", key=["n"])(Later)
    assert make(3) == make(3) == Later(3)


def test_a_settled_intent_without_a_result_is_none_where_none_is_allowed() -> None:
    for annotation in (Any, None, Optional[int], Union[int, str, None]):
        assert Codec(annotation=annotation).read(b"") is None
    for annotation in (int, Money, list[int], Union[int, str]):
        with pytest.raises(TypeError):
            Codec(annotation=annotation).read(b"")


def test_results_are_the_same_from_async_functions_and_blocks(memory: Ledger) -> None:
    import asyncio

    @memory.once(operation="pay")
    async def pay(n: int) -> Optional[Money]:
        return Money(Decimal(n))

    assert asyncio.run(pay(1)) == asyncio.run(pay(1)) == Money(Decimal(1))
    with memory.begin("block", key="a", result=Money) as claim:
        claim.finish(Money(Decimal(2)))
    with pytest.raises(onceward.AlreadyDone) as caught, memory.begin("block", key="a", result=Money):
        pass
    assert caught.value.value == Money(Decimal(2))
