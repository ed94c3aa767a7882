"""What a courier says in `logging`, and what it refuses and hides: a bug in a delivered function must not go unnoticed."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Iterator

import onceward
import pytest
import scene
from onceward import InvalidCall, Ledger


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.WARNING, "onceward"):
        yield caplog


@pytest.mark.parametrize("is_async", [False, True])
def test_an_attempt_that_fails_is_a_warning(memory: Ledger, warnings: pytest.LogCaptureFixture, is_async: bool) -> None:
    def send(_payload: int) -> None:
        raise AttributeError("typo in the code")

    async def send_async(_payload: int) -> None:
        send(_payload)

    memory.deliver("mail")(send_async if is_async else send)
    memory.enqueue("mail", 1, key="customer-7")
    memory.courier().run(until_idle=True)
    scene.wait_until(lambda: "typo in the code" in warnings.text)
    (record,) = [one for one in warnings.records if "typo" in one.getMessage()]
    assert record.levelno == logging.WARNING and "may have happened" in record.getMessage()
    assert "mail#" in record.getMessage() and "customer-7" not in record.getMessage()


def test_an_attempt_that_was_refused_is_a_warning(memory: Ledger, warnings: pytest.LogCaptureFixture) -> None:
    @memory.deliver("mail")
    def send(_payload: int) -> None:
        raise onceward.NotSent("no route to the mail server")

    memory.enqueue("mail", 1, max_attempts=1)
    memory.courier().run(until_idle=True)
    scene.wait_until(lambda: "no route to the mail server" in warnings.text)


def test_a_payload_of_another_type_is_a_warning_that_does_not_show_it(
    memory: Ledger, warnings: pytest.LogCaptureFixture
) -> None:
    @memory.deliver("mail")
    def send(_payload: str) -> None: ...

    memory.enqueue("mail", {"secret": "hunter2"})
    memory.courier().run(until_idle=True)
    scene.wait_until(lambda: "the payload is not what the function expects" in warnings.text)
    assert "hunter2" not in warnings.text


@pytest.mark.parametrize("is_async", [False, True])
def test_a_result_that_cannot_be_kept_is_a_warning(
    memory: Ledger, warnings: pytest.LogCaptureFixture, is_async: bool
) -> None:
    def send(_payload: int) -> object:
        return object()

    async def send_async(_payload: int) -> object:
        return object()

    memory.deliver("mail")(send_async if is_async else send)
    memory.enqueue("mail", 1)
    memory.courier().run(until_idle=True)
    (record,) = [one for one in warnings.records if "cannot be kept" in one.getMessage()]
    assert record.getMessage().startswith("mail#") and "(object)" in record.getMessage()


def test_an_attempt_that_succeeds_is_not_a_warning(memory: Ledger, warnings: pytest.LogCaptureFixture) -> None:
    memory.enqueue("mail", 1)
    memory.courier({"mail": lambda number: number}).run(until_idle=True)
    time.sleep(0.2)
    assert not warnings.records


def test_generators_are_refused(memory: Ledger) -> None:
    def sends(_payload: int) -> Iterator[int]:
        yield 1

    async def sends_async(_payload: int) -> AsyncIterator[int]:
        yield 1

    class Sends:
        def __call__(self, _payload: int) -> Iterator[int]:
            yield 1

    for wrong in (sends, sends_async, Sends()):
        with pytest.raises(InvalidCall, match="generator"):
            memory.deliver("mail")(wrong)
        with pytest.raises(InvalidCall, match="generator"):
            memory.courier({"mail": wrong})
    with pytest.raises(InvalidCall, match="generator"):
        memory.deliver("mail", probe=sends)(lambda _payload: None)
    # Nothing was registered.
    memory.deliver("mail")(lambda _payload: None)


# Another process reads the file: a process that closes a file drops all its locks on it.
HAS_NOTES = """
import pathlib, sys
store = pathlib.Path(sys.argv[1])
text = b"".join(file.read_bytes() for file in store.parent.glob(store.name + "*"))
print(b"onceward/breaker" in text)
"""


def test_the_notes_of_breakers_are_not_listed(ledger: Ledger, store: str) -> None:
    """Couriers keep the state of a breaker as a record of the ledger. It is not an intent."""

    def refuses(_payload: int) -> None:
        raise onceward.NotSent("no route")

    for number in range(20):
        ledger.enqueue("mail", number)
    with ledger.courier({"mail": refuses}):
        scene.wait_until(lambda: scene.check(HAS_NOTES, store) == "True\n", 30)
    for limit in (1, 5, 20, None):
        listed = ledger.list(limit=limit)
        assert {one.operation for one in listed} == {"mail"} and len(listed) == (limit or 20)
