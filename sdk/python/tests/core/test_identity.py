"""What makes an intent: no two different calls share one, and no call has two, whatever the function looks like."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import pathlib
import subprocess
import sys
import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from datetime import datetime
from typing import Any

import onceward
import pytest
import scene
from onceward import NOT_FOUND, InvalidCall, Ledger, key_of

PROGRAM = """
    import multiprocessing, sys
    import onceward, scene

    ledger, effects = onceward.Ledger(sys.argv[1]), scene.Effects(sys.argv[2])

    @ledger.once
    def send(to: str) -> str:
        effects.add(to)
        return "sent"

    if __name__ == "__main__":
        assert send("ada") == "sent"
        child = multiprocessing.get_context("spawn").Process(target=send, args=("ada",))
        child.start()
        child.join()
        sys.exit(child.exitcode)
"""


def run_program(folder: pathlib.Path, *command: str, effects: scene.Effects) -> subprocess.CompletedProcess[str]:
    import textwrap

    (folder / "prog.py").write_text(textwrap.dedent(PROGRAM))
    store = str(folder / "onceward.db")
    environment = scene.environment()
    environment["PYTHONPATH"] += f":{folder}"
    words = [sys.executable, *command, store, effects.path]
    return subprocess.run(words, capture_output=True, text=True, env=environment, cwd=folder, timeout=60, check=False)


def test_a_script_needs_a_name_for_its_operations(tmp_path: pathlib.Path, effects: scene.Effects) -> None:
    """Every script is `__main__`, and its processes `__mp_main__`: intents of two programs would meet."""
    done = run_program(tmp_path, "prog.py", effects=effects)
    assert done.returncode == 1 and "send has no lasting name: say operation=" in done.stderr
    assert effects.count() == 0


def test_a_module_that_is_run_has_the_name_by_which_it_is_imported(
    tmp_path: pathlib.Path, effects: scene.Effects
) -> None:
    done = run_program(tmp_path, "-m", "prog", effects=effects)
    assert done.returncode == 0, done.stderr
    done = run_program(tmp_path, "-c", "import prog; assert prog.send('ada') == 'sent'", effects=effects)
    assert done.returncode == 0, done.stderr
    assert effects.all() == ["ada"]


@pytest.mark.parametrize("name", ["self", "cls"])
def test_a_method_without_a_key_is_refused(memory: Ledger, name: str) -> None:
    """Its object cannot be part of the key, and two accounts must not share a withdrawal."""
    namespace: dict[str, Any] = {}
    exec(f"def withdraw({name}, amount): return amount", namespace)
    with pytest.raises(InvalidCall, match="is a method, and without key= its object would not be part"):
        memory.once(operation="withdraw")(namespace["withdraw"])
    assert memory.once(operation="withdraw", key=["amount"])(namespace["withdraw"])(None, 1) == 1


@pytest.mark.parametrize("odd", [property(len), functools.partialmethod(len), max, dict, 7, None.__class__])
def test_an_object_without_known_arguments_is_an_invalid_call(memory: Ledger, odd: Any) -> None:
    with pytest.raises(InvalidCall):
        memory.once(operation="act", key=["n"])(odd)


def test_half_a_surrogate_pair_is_an_invalid_call(memory: Ledger) -> None:
    half = "a\udc80"

    @memory.once(operation="act", key=lambda n: n, tenant=lambda n: "t" if n != "tenant" else half)
    def act(n: str) -> None: ...

    @memory.once(operation="act", session=lambda n: n)
    def in_session(n: str) -> None: ...

    calls: list[Callable[[], Any]] = [
        lambda: act(half),
        lambda: act("tenant"),
        lambda: in_session(half),
        lambda: memory.call("act", key=half),
        lambda: memory.call("act", key="k", tenant=half),
        lambda: onceward.options(act, key=half)("n"),
    ]
    for call in calls:
        with pytest.raises(InvalidCall, match="half of a surrogate pair"):
            call()


def test_an_async_call_without_an_event_loop_of_asyncio_is_an_invalid_call(memory: Ledger) -> None:
    @memory.once(operation="act", key=["n"])
    async def act(n: int) -> None: ...

    with pytest.raises(InvalidCall, match="need an event loop of asyncio"):
        act(1).send(None)


class Account:
    def __init__(self, name: str) -> None:
        self.name = name

    def pay(self, cents: int) -> str:
        return f"{self.name} {cents}"

    __call__ = pay


@pytest.mark.parametrize("take", [lambda one: one.pay, lambda one: one, lambda one: functools.partial(one.pay, 1)])
def test_a_bound_method_or_an_object_needs_a_key(memory: Ledger, take: Callable[[Account], Any]) -> None:
    with pytest.raises(InvalidCall, match="without key= its object would not be part of the intent"):
        memory.once(operation="pay")(take(Account("ann")))
    assert memory.once(operation="pay", key=["cents"])(Account("ann").pay)(1) == "ann 1"
    named = memory.once(operation="named", key=lambda cents: f"ann-{cents}")(Account("ann"))
    assert named(1) == "ann 1"


def test_functions_without_a_hidden_object_need_no_key(memory: Ledger) -> None:
    class Receipt:
        def __init__(self, invoice: int) -> None: ...

    class Decorated:
        def __init__(self, function: Callable[..., Any]) -> None:
            functools.update_wrapper(self, function)
            self.function = function

        def __call__(self, n: int) -> Any:
            return self.function(n)

    def double(n: int) -> int:
        return 2 * n

    for number, function in enumerate((Decorated(double), functools.lru_cache(double), functools.partial(double))):
        guarded: Any = memory.once(operation=f"double{number}")(function)
        assert guarded(2) == 4
    memory.once(operation="make")(Receipt)(1)


def test_a_function_of_the_object_can_make_the_key(memory: Ledger) -> None:
    class Account:
        def __init__(self, name: str) -> None:
            self.name = name

        @memory.once(operation="withdraw", key=lambda self, amount: f"{self.name}-{amount}")
        def withdraw(self, amount: int) -> str:
            return f"{self.name} {amount}"

    assert [Account(name).withdraw(10) for name in "ABA"] == ["A 10", "B 10", "A 10"]


def test_the_arguments_of_a_wrapper_count_where_it_names_them(memory: Ledger) -> None:
    def connected(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(to: str) -> Any:
            return function("connection", to)

        return wrapper

    @memory.once(operation="send", key=["to"])
    @connected
    def send(connection: str, to: str = "default") -> str:
        return to

    assert [send("x"), send("y"), send(to="x")] == ["x", "y", "x"]


def test_wrong_arguments_are_refused_by_the_name_of_the_function(memory: Ledger) -> None:
    @memory.once(operation="send", key=["to"])
    def send(to: str) -> str:
        return to

    with pytest.raises(TypeError, match=r"send\(\) missing 1 required positional argument: 'to'"):
        send()  # type: ignore[call-arg]


def test_a_positional_parameter_and_a_keyword_can_have_one_name(memory: Ledger) -> None:
    @memory.once(operation="po", key=["a"])
    def po(a: int, /, **others: int) -> int:
        return a

    assert [po(1, a=9), po(2, a=9), po(1, a=8)] == [1, 2, 1]


@dataclasses.dataclass
class Order(dict):  # type: ignore[type-arg]
    number: int


class Money(int):
    currency: str


class Labelled(str):
    __slots__ = ("label",)


def money(amount: int, currency: str) -> Money:
    made = Money(amount)
    made.currency = currency
    return made


def labelled(text: str, label: str) -> Labelled:
    made = Labelled(text)
    made.label = label  # type: ignore[misc]
    return made


def test_classes_that_add_to_a_value_are_not_taken_for_it(memory: Ledger) -> None:
    @memory.once(operation="take", key=["value"])
    def take(value: Any) -> None: ...

    assert key_of(take, Order(1)) == key_of(take, {"number": 1}) != key_of(take, Order(2))
    full = Order(1)
    full["more"] = 1
    for value in (full, money(1, "EUR"), labelled("a", "b")):
        with pytest.raises(InvalidCall, match="cannot|has attributes besides its value|has fields and a value"):
            take(value)
    # Classes that add nothing are the value.
    assert key_of(take, Money(1)) == key_of(take, 1)
    assert key_of(take, OrderedDict(a=1)) == key_of(take, defaultdict(int, a=1)) == key_of(take, {"a": 1})


@dataclasses.dataclass
class Customer:
    name: str

    @functools.cached_property
    def greeting(self) -> str:
        return f"Dear {self.name}"


class Ordering(Customer):
    def __init__(self, name: str, item: str) -> None:
        super().__init__(name)
        self.item = item


@dataclasses.dataclass(slots=True)
class Slotted:
    name: str


class SlottedOrdering(Slotted):
    __slots__ = ("__item",)

    def __init__(self, name: str, item: str) -> None:
        super().__init__(name)
        self.__item = item


def test_a_subclass_of_a_dataclass_with_more_attributes_is_refused(memory: Ledger) -> None:
    @memory.once(operation="ship", key=["order"])
    def ship(order: Any) -> None: ...

    for order, name in ((Ordering("ada", "book"), "item"), (SlottedOrdering("ada", "book"), "_SlottedOrdering__item")):
        with pytest.raises(onceward.InvalidValue, match=f"attributes that are not fields, such as {name}"):
            ship(order)
    customer = Customer("ada")
    before = key_of(ship, customer)
    assert customer.greeting and key_of(ship, customer) == before == key_of(ship, Slotted("ada"))


@pytest.mark.parametrize("slots", [True, False])
def test_a_subclass_of_an_attrs_class_with_more_attributes_is_refused(memory: Ledger, slots: bool) -> None:
    attrs = pytest.importorskip("attrs")

    @memory.once(operation="ship", key=["order"])
    def ship(order: Any) -> None: ...

    @attrs.define(slots=slots, frozen=True, cache_hash=True)
    class Named:
        name: str

        @functools.cached_property
        def greeting(self) -> str:
            return f"Dear {self.name}"

    class More(Named):  # type: ignore[misc]
        def __init__(self, name: str, item: str) -> None:
            Named.__init__(self, name)
            self.__dict__["item"] = item

    with pytest.raises(onceward.InvalidValue, match="attributes that are not fields, such as item"):
        ship(More("ada", "book"))
    named: Any = Named("ada")
    before = key_of(ship, named)
    assert hash(named) and named.greeting and key_of(ship, named) == before == key_of(ship, {"name": "ada"})


@pytest.mark.parametrize("value", [datetime(2026, 1, 1), {1}, object(), float("nan"), "\ud800"])
def test_a_value_that_cannot_be_part_of_a_key_is_an_invalid_call(memory: Ledger, value: object) -> None:
    @memory.once(operation="take", key=["value"])
    def take(value: Any) -> None: ...

    for call in (lambda: take(value), lambda: key_of(take, value)):
        with pytest.raises(onceward.InvalidValue, match="^/value: ") as caught:
            call()
        assert isinstance(caught.value, (InvalidCall, TypeError)) and caught.value.operation == "take"
        assert caught.value.for_model() == "take was not carried out: its arguments cannot be used. Nothing happened."


def test_arguments_that_are_not_part_of_the_intent_may_be_anything(memory: Ledger) -> None:
    """Adapters pass all arguments: only the fields that the recipe names are read."""
    fields = ["n", "/order/id"]
    given = {"n": 1, "order": {"id": 7, "tags": {"a"}}, "client": object(), "at": datetime(2026, 1, 1)}
    key = memory.call("take", intent=given, fields=fields).key
    assert key == memory.call("take", intent={"n": 1, "order": {"id": 7}}, fields=fields).key
    assert key != memory.call("take", intent={"n": 1, "order": {"id": 8}}, fields=fields).key
    with pytest.raises(onceward.InvalidValue, match="^/order/tags: builtins.set"):
        assert memory.call("take", intent=given, fields=["/order"]).key
    with pytest.raises(onceward.InvalidValue, match="^/order/list/1: builtins.set"):
        assert memory.call("take", intent={"order": {"list": [1, {2}]}}, fields=["/order/list/0"]).key


def test_functions_get_the_arguments_that_a_partial_holds(memory: Ledger) -> None:
    seen: list[tuple[int, int]] = []

    def act(a: int, b: int) -> str:
        if not seen:
            seen.append((a, b))
            raise ConnectionResetError("no answer")
        return "done"

    def probe(a: int, b: int) -> object:
        seen.append((a, b))
        return onceward.NOT_FOUND

    made: Any = memory.once(
        operation="act", key=lambda a, b: f"{a}{b}", tenant=lambda a, b: f"t{a}", tier="payment", probe=probe
    )(functools.partial(act, 1))
    with pytest.raises(ConnectionResetError):
        made(5)
    assert made(5) == "done" and seen == [(1, 5), (1, 5)] and memory.get("act", "15", tenant="t1") is not None


def passed_on(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize("kind", ["generator", "async generator", "coroutine", "context manager"])
def test_a_wrapped_function_whose_body_has_not_run_is_refused_and_not_done(memory: Ledger, kind: str) -> None:
    ran: list[int] = []

    def generator(n: int) -> Any:
        ran.append(n)
        yield n

    async def async_generator(n: int) -> Any:
        ran.append(n)
        yield n

    async def coroutine(n: int) -> None:
        ran.append(n)

    function: Any = {"generator": generator, "async generator": async_generator, "coroutine": coroutine}.get(kind)
    guarded = memory.once(operation="act", key=["n"], tier="payment")
    wrapped = guarded(contextlib.contextmanager(generator) if function is None else passed_on(function))
    for _ in range(2):
        with pytest.raises((TypeError, onceward.InDoubt), match="returned an? |is in doubt"):
            wrapped(1)
    # What a context manager does before it is entered cannot be seen.
    state = "in_doubt" if function is None else "open"
    assert [one.status for one in memory.list()] == [state] and ran == []


def first_step_taken(function: Callable[..., Any]) -> Callable[..., Any]:
    """As decorators do that prime a generator, or start a coroutine at once."""

    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        body = function(*args)
        with contextlib.suppress(StopIteration):
            (body.asend(None) if hasattr(body, "asend") else body).send(None)
        return body

    return wrapper


@types.coroutine
def pause() -> Any:
    yield


@pytest.mark.parametrize("kind", ["generator", "async generator", "waiting async generator", "coroutine"])
def test_a_body_that_has_begun_is_in_doubt(memory: Ledger, kind: str) -> None:
    ran: list[int] = []

    def generator(n: int) -> Any:
        ran.append(n)
        yield n

    async def async_generator(n: int) -> Any:
        ran.append(n)
        yield n

    async def waiting(n: int) -> Any:
        ran.append(n)
        await pause()
        yield n

    async def coroutine(n: int) -> None:
        ran.append(n)
        await pause()

    bodies: dict[str, Any] = {
        "generator": generator,
        "async generator": async_generator,
        "waiting async generator": waiting,
        "coroutine": coroutine,
    }
    act: Any = memory.once(operation="act", key=["n"])(first_step_taken(bodies[kind]))
    with pytest.raises(TypeError, match="returned an?"):
        act(1)
    with pytest.raises(onceward.InDoubt):
        act(1)
    assert ran == [1]


@pytest.mark.parametrize("lazily", [lambda send: (send(n) for n in (1, 2)), lambda send: map(send, (1, 2))])
def test_a_lazy_result_is_in_doubt(memory: Ledger, lazily: Callable[..., Any]) -> None:
    """The function has run, and may have acted; its result has not."""

    @memory.once(operation="act", key=["n"])
    def act(n: int) -> Any:
        return lazily(print)

    with pytest.raises(TypeError, match="whose effects happen later: return a list"):
        act(1)
    assert [one.status for one in memory.list()] == ["in_doubt"]


@pytest.mark.parametrize("key", [5, b"k", 1.5])
def test_a_key_that_is_not_a_text_is_refused_by_name(memory: Ledger, key: Any) -> None:
    with pytest.raises(InvalidCall, match="consume:q: a key is a str, not"):
        memory.consume("q", key)


def test_arguments_may_have_any_name(memory: Ledger) -> None:
    """Also those of the functions through which they pass."""
    names = ("operation", "tenant", "function", "session", "key", "intent", "native", "given", "loop", "self_", "args", "kwargs")

    def pay(**named: str) -> str:
        return named["tenant"]

    guarded = memory.once(
        operation="pay",
        key=list(names),
        tenant=lambda **named: named["tenant"],
        session=lambda **named: named["session"],
        probe=lambda **named: NOT_FOUND,
    )(pay)
    given = {name: name for name in names}
    assert [guarded(**given), onceward.options(guarded, wait=1)(**given)] == ["tenant", "tenant"]
    assert memory.get("pay", onceward.key_of(guarded, **given), tenant="tenant") is not None
    assert memory.call("pay", key="k", result=str).run(pay, **given) == "tenant"

    async def pay_async(**named: str) -> str:
        return named["tenant"]

    assert asyncio.run(memory.call("pay", key="k2", result=str).run_async(pay_async, **given)) == "tenant"


@pytest.mark.parametrize("kind", ["future", "starmap", "map"])
def test_a_result_whose_effect_comes_later_is_in_doubt(memory: Ledger, kind: str) -> None:
    """It may still fail, and a repeat must not be told that it is done."""
    sent: list[int] = []
    with concurrent.futures.ThreadPoolExecutor() as pool:

        def send(n: int) -> None:
            sent.append(n)
            raise ConnectionError("no route")

        @memory.once(operation="send", key=["n"], tier="payment")
        def act(n: int) -> Any:
            if kind == "future":
                return pool.submit(send, n)
            return itertools.starmap(send, [(n,)]) if kind == "starmap" else map(send, [n])

        with pytest.raises(TypeError, match="returned a .* whose effects happen later: return "):
            act(1)
        with pytest.raises(onceward.InDoubt):
            act(1)
    assert sent == ([1] if kind == "future" else [])
