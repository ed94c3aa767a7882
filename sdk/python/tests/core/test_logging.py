"""Messages of the library reach Python's `logging`, and nothing ever waits for its handlers."""

from __future__ import annotations

import logging
import os
import pathlib
import threading
import time
from collections.abc import Iterator

import pytest
import scene
from onceward import Ledger, _logs

SIDE_FILES = "onceward.store.sqlite.side_files"

# A ledger has three files, and the library warns about each.
FILES = 3


class Records(logging.Handler):
    """Keeps the records, and waits in each one until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.may_go_on.wait(60)

    def named(self, name: str) -> list[logging.LogRecord]:
        return [record for record in self.records if record.name == name]


@pytest.fixture
def records() -> Iterator[Records]:
    handler, logger = Records(), logging.getLogger("onceward")
    logger.addHandler(handler)
    yield handler
    handler.may_go_on.set()
    logger.removeHandler(handler)


def open_to_others(store: str) -> Ledger:
    """Opens a ledger whose file others may read, about which the library warns."""
    Ledger(store).close()
    os.chmod(store, 0o644)
    return Ledger(store)


def test_a_warning_of_the_library_is_a_record(store: str, records: Records) -> None:
    with open_to_others(store):
        scene.wait_until(lambda: len(records.named(SIDE_FILES)) == FILES)
    record = records.named(SIDE_FILES)[0]
    assert record.levelno == logging.WARNING and record.threadName == "onceward-log"
    assert "other users could read this file of the ledger" in record.getMessage() and store in record.getMessage()


def test_a_message_names_the_intent_and_not_its_key(ledger: Ledger, records: Records) -> None:
    @ledger.once(operation="pay", key=lambda card: card, deadline="50ms")
    def pay(card: str) -> str:
        scene.wait_until(lambda: bool(records.records))
        return "paid"

    pay("4111-secret")
    (record,) = records.records
    assert record.name == "onceward.ledger.lease.renewal" and "past its deadline" in record.getMessage()
    assert "pay#" in record.getMessage() and "secret" not in record.getMessage()


def test_levels_and_filters_are_those_of_logging(tmp_path: pathlib.Path, records: Records) -> None:
    logging.getLogger("onceward.store").setLevel(logging.ERROR)
    try:
        with open_to_others(str(tmp_path / "quiet.db")):
            # The level counts when a message is passed on, which another thread does.
            _logs.flush()
    finally:
        logging.getLogger("onceward.store").setLevel(logging.NOTSET)
    with open_to_others(str(tmp_path / "loud.db")):
        scene.wait_until(lambda: bool(records.records))
    # Messages come in order, so the first one would be there by now.
    assert [record for record in records.records if "quiet.db" in record.getMessage()] == []


def test_calls_do_not_wait_for_a_handler_that_hangs(store: str, records: Records) -> None:
    records.may_go_on.clear()
    with open_to_others(store) as ledger:
        scene.wait_until(lambda: bool(records.records))

        @ledger.once(operation="pay", key=["n"], deadline="1ms")
        def pay(n: int) -> int:
            time.sleep(0.005)
            return n

        began = time.monotonic()
        assert [pay(n) for n in range(50)] == list(range(50))
        assert time.monotonic() - began < 30 and len(records.records) == 1
        records.may_go_on.set()
        scene.wait_until(lambda: len(records.records) > FILES)


def test_a_handler_may_use_the_ledger_itself(store: str, ledger: Ledger) -> None:
    @ledger.once(operation="audit", key=["text"])
    def audit(text: str) -> None: ...

    class Auditing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            audit(record.getMessage())
            raise_once()

    def raise_once() -> None:
        raise RuntimeError("a handler that raises does not end the thread")

    handler = Auditing()
    logging.getLogger("onceward").addHandler(handler)
    try:
        for n in range(2):
            with open_to_others(f"{store}-{n}"):
                pass
        scene.wait_until(lambda: len(ledger.list(state="done")) == 2 * FILES)
    finally:
        logging.getLogger("onceward").removeHandler(handler)


PROGRAM = """
    import logging, os, sys, threading, time
    import onceward

    def open_to_others(store):
        onceward.Ledger(store).close()
        os.chmod(store, 0o644)
        return onceward.Ledger(store)
"""


def test_what_is_said_just_before_the_end_is_not_lost(store: str) -> None:
    done = scene.run(PROGRAM + "    open_to_others(sys.argv[1])\n", store)
    assert done.returncode == 0 and done.stderr.count("other users could read this file") == FILES, done.stderr


def test_without_a_message_there_is_no_thread(store: str) -> None:
    code = PROGRAM + """
    ledger = onceward.Ledger(sys.argv[1])
    ledger.call("a", key="b").run(lambda: 1)
    print([thread.name for thread in threading.enumerate()])
    """
    assert scene.check(code, store) == "['MainThread']\n"


def test_the_interpreter_ends_while_a_handler_hangs(store: str) -> None:
    code = PROGRAM + """
    class Free:
        def acquire(self): pass
        def release(self): pass
        def __enter__(self): pass
        def __exit__(self, *_): pass

    class Hanging(logging.Handler):
        # With a lock that is always free: logging's own end would wait for another one.
        def createLock(self):
            self.lock = Free()

        def emit(self, record):
            print("hangs", flush=True)
            time.sleep(1000)

    logging.getLogger("onceward").addHandler(Hanging())
    ledger = open_to_others(sys.argv[1])
    time.sleep(0.5)
    open_to_others(sys.argv[1] + "-2")
    """
    done = scene.run(code, store)
    assert (done.returncode, done.stdout) == (0, "hangs\n"), done.stderr


def test_a_forked_child_logs_what_is_its_own(store: str) -> None:
    code = PROGRAM + """
    class Printing(logging.Handler):
        def emit(self, record):
            os.write(1, f"{'child' if os.getpid() != parent else 'parent'} {record.name}\\n".encode())

    parent = os.getpid()
    logging.getLogger("onceward").addHandler(Printing())
    ledger = open_to_others(sys.argv[1])
    time.sleep(0.2)
    for turn in range(20):
        # Some forks come while a message is on its way.
        opened = open_to_others(f"{sys.argv[1]}-{turn}") if turn % 2 else None
        child = os.fork()
        if child == 0:
            assert ledger.call("a", key=str(turn)).run(lambda: 1) == 1
            open_to_others(f"{sys.argv[1]}-child-{turn}")
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """
    done = scene.run(code, store)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    parents, children = said.count(f"parent {SIDE_FILES}"), said.count(f"child {SIDE_FILES}")
    assert (parents, children) == (11 * FILES, 20 * FILES), said




def test_the_thread_that_logs_needs_nothing_that_gevent_replaces(store: str) -> None:
    """gevent's threads and locks belong to greenlets: a thread of the library that waited for one would never end."""
    code = """
    import _thread, sys, threading, types
    start_new_thread, allocate_lock = _thread.start_new_thread, _thread.allocate_lock

    def never(*_):
        threading.Event().wait()

    gevent = types.ModuleType("gevent.monkey")
    gevent.get_original = lambda module, name: {"start_new_thread": start_new_thread, "allocate_lock": allocate_lock}[name]
    sys.modules["gevent.monkey"] = gevent
    _thread.start_new_thread = threading._start_new_thread = never
    """
    code += PROGRAM
    code += """
    ledger = open_to_others(sys.argv[1])
    time.sleep(0.5)
    child = os.fork()
    if child == 0:
        assert ledger.call("a", key="b").run(lambda: 1) == 1
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    """
    done = scene.run(code, store)
    assert done.returncode == 0 and done.stderr.count("other users could read this file") == FILES, done.stderr
