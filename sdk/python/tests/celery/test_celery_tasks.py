"""Guarded Celery tasks on a real worker in a thread of this process, with a broker in memory."""

import contextlib
import importlib
import pathlib
import re
import sys
import threading
import time
import types
import uuid
from decimal import Decimal

import celery
import pytest
from celery import signals
from celery.contrib.testing.worker import start_worker
from celery.exceptions import Ignore, Reject
from pydantic import BaseModel

import onceward
from onceward.celery import once

GUIDE = pathlib.Path(__file__).resolve().parents[4] / "docs" / "guides" / "celery.md"

# Nothing here takes a tenth of this on an idle machine.
LIMIT = 30


class Bench:
    """An app, its ledger and what its tasks did."""

    def __init__(self):
        self.ledger = onceward.Ledger("memory:")
        self.app = celery.Celery("bench", broker="memory://", backend="cache+memory://")
        # Queues and results in memory belong to the process, not to the app.
        self.name = str(uuid.uuid4())
        self.app.conf.update(task_acks_late=True, task_default_queue=self.name)
        self.app.conf.broker_transport_options = {"polling_interval": 0.02}
        self.effects, self.keys, self.linked = [], [], []
        self.effect_count = threading.Semaphore(0)

        @self.app.task(name="link", shared=False)
        def link(result):
            self.linked.append(result)

        self.link = link

    def task(self, body=None, bind=False, guarded=True, **options):
        """A task that counts its effects and then does what `body` does."""
        settings = options.pop("once", {})

        def act(*args, **kwargs):
            self.effects.append(args[1:] if bind else args)
            if guarded:
                self.keys.append(onceward.claim().downstream_key)
            self.effect_count.release()
            return body(*args, **kwargs) if body else "receipt"

        base = once(self.ledger, **settings) if guarded else None
        return self.app.task(name="charge", base=base, bind=bind, shared=False, **options)(act)

    def deliver(self, task, *args, task_id="id-1", **options):
        """Sends a message; a second one with the same id is what a broker delivers again."""
        return task.apply_async(args, task_id=self.id(task_id), **options)

    def id(self, task_id="id-1"):
        return f"{self.name}-{task_id}"

    @contextlib.contextmanager
    def worker(self, concurrency=1):
        options = {"perform_ping_check": False, "shutdown_timeout": LIMIT, "loglevel": "ERROR"}
        has_ended = threading.Event()
        wake = threading.Thread(target=self.wake, args=[has_ended])
        with contextlib.ExitStack() as stack:
            stack.callback(has_ended.set)
            stack.enter_context(start_worker(self.app, pool="threads", concurrency=concurrency, **options))
            yield
            wake.start()
        wake.join()

    def wake(self, has_ended):
        """Sends messages until the worker has ended. It looks for the end only between messages, or after seconds."""
        while not has_ended.wait(0.05):
            self.app.send_task("celery.backend_cleanup")


@pytest.fixture
def bench():
    made = Bench()
    yield made
    made.ledger.close()


def until(condition, what="it"):
    end = time.monotonic() + LIMIT
    while not (found := condition()):
        assert time.monotonic() < end, f"{what} takes too long"
        time.sleep(0.02)
    return found


def outcome(result):
    """The state and the value of a task that has ended."""
    until(result.ready, "the task")
    return result.state, result.result


def test_a_message_that_is_delivered_again_acts_once_and_sends_its_callback_once(bench):
    task = bench.task()
    with bench.worker():
        for _ in range(3):
            result = bench.deliver(task, "inv-7", link=bench.link.s())
        other = bench.deliver(task, "inv-8", task_id="id-2")
        assert outcome(result) == outcome(other) == ("SUCCESS", "receipt")
        until(lambda: bench.linked)
    assert bench.effects == [("inv-7",), ("inv-8",)]
    assert bench.linked == ["receipt"]


def test_without_the_guard_that_message_acts_three_times(bench):
    task = bench.task(guarded=False)
    with bench.worker():
        for _ in range(3):
            bench.deliver(task, "inv-7")
        until(lambda: len(bench.effects) == 3)


def test_a_worker_that_died_before_it_stored_success_sends_the_callback_at_the_next_delivery(bench):
    task = bench.task()
    bench.ledger.call("charge", key=bench.id()).run(lambda: "receipt")
    with bench.worker():
        assert outcome(bench.deliver(task, "inv-7", link=bench.link.s())) == ("SUCCESS", "receipt")
        until(lambda: bench.linked)
    assert bench.effects == []


def test_two_deliveries_two_milliseconds_apart_act_once(bench):
    task = bench.task(lambda *_: time.sleep(0.5) or "receipt")
    with bench.worker(concurrency=2):
        first = bench.deliver(task, "inv-7")
        time.sleep(0.002)
        bench.deliver(task, "inv-7")
        assert outcome(first) == ("SUCCESS", "receipt")
        # The second message comes back after a second and finds that all is done.
        time.sleep(1.5)
        assert first.state == "SUCCESS"
    assert len(bench.effects) == 1


def test_a_delivery_during_a_long_task_comes_back_and_gets_its_result(bench):
    task = bench.app.task(name="long", base=once(bench.ledger, key=["invoice"]), shared=False)(long_task(bench))
    with bench.worker(concurrency=2):
        first = bench.deliver(task, "inv-7", task_id="id-1")
        bench.effect_count.acquire(timeout=LIMIT)
        second = bench.deliver(task, "inv-7", task_id="id-2")
        until(lambda: second.state == "RETRY", "the second message")
        assert outcome(first) == outcome(second) == ("SUCCESS", "receipt")
    assert len(bench.effects) == 1


def long_task(bench):
    def run(invoice):
        bench.effects.append(invoice)
        bench.effect_count.release()
        time.sleep(1.2)
        return "receipt"

    return run


def test_a_task_that_retries_runs_again_with_the_same_downstream_key(bench):
    def body(self, invoice):
        if self.request.retries == 0:
            raise self.retry(countdown=2)
        return "receipt"

    task = bench.task(body, bind=True, once={"tier": "payment"})
    retries = []

    def remember(**_):
        retries.append(1)

    signals.task_retry.connect(remember)
    with bench.worker():
        result = bench.deliver(task, "inv-7")
        until(lambda: result.state == "RETRY")
        state = bench.ledger.get("charge", bench.id()).record["record"]["state"]
        assert state["open"]["not_before"] > time.time() * 1000, "not before the countdown"
        assert outcome(result) == ("SUCCESS", "receipt")
    assert len(bench.effects) == 2 and len(set(bench.keys)) == 1
    assert len(retries) == 1, "the retry did not come too early"


def test_a_retry_because_nothing_was_sent_runs_after_its_countdown(bench):
    def body(self, invoice):
        raise self.retry(exc=onceward.NotSent("connection refused"), countdown=3600)

    task = bench.task(body, bind=True, once={"tier": "payment"})
    with bench.worker():
        result = bench.deliver(task, "inv-7")
        until(lambda: result.state == "RETRY")
    state = bench.ledger.get("charge", bench.id()).record["record"]["state"]
    assert state["open"]["not_before"] > (time.time() + 3500) * 1000


@pytest.mark.parametrize(
    ("error", "tier", "effects"),
    [
        (ValueError("no such invoice"), None, 2),
        (ValueError("no such invoice"), "payment", 1),
        (TimeoutError("timed out"), None, 1),
        (onceward.NotSent("connection refused"), "payment", 2),
        (onceward.Unknown("no answer"), None, 1),
    ],
    ids=["no tier", "tier", "evidence", "not sent", "unknown"],
)
@pytest.mark.parametrize("is_automatic", [False, True], ids=["self.retry", "autoretry_for"])
def test_a_retry_is_as_safe_as_its_cause(bench, error, tier, effects, is_automatic):
    def body(self, invoice):
        try:
            if self.request.retries == 0:
                raise error
        except Exception as cause:
            if is_automatic:
                raise
            raise self.retry(exc=cause, countdown=0) from None
        return "receipt"

    automatic = {"autoretry_for": (Exception,), "retry_kwargs": {"countdown": 0}} if is_automatic else {}
    task = bench.task(body, bind=True, once={"tier": tier}, **automatic)
    with bench.worker():
        state, value = outcome(bench.deliver(task, "inv-7"))
    assert len(bench.effects) == effects
    if effects == 2:
        assert (state, value) == ("SUCCESS", "receipt")
    else:
        assert state == "FAILURE" and isinstance(value, onceward.InDoubt), value


def test_a_failed_task_in_doubt_can_be_settled_from_its_result(bench):
    def body(invoice):
        raise ConnectionResetError("connection reset by peer")

    task = bench.task(body)
    with bench.worker():
        first = outcome(bench.deliver(task, "inv-7"))
        assert first[0] == "FAILURE" and isinstance(first[1], ConnectionResetError)
        state, doubt = until(lambda: redelivered(bench, task, onceward.InDoubt))
        assert "is in doubt" in str(doubt)
        bench.ledger.resolve("charge", bench.id(), happened=True, result="receipt")
        assert outcome(bench.deliver(task, "inv-7")) is not None
        until(lambda: bench.app.AsyncResult(bench.id()).state == "SUCCESS")
        assert bench.app.AsyncResult(bench.id()).result == "receipt"
    assert len(bench.effects) == 1


def redelivered(bench, task, kind):
    result = bench.deliver(task, "inv-7")
    time.sleep(0.2)
    return (result.state, result.result) if isinstance(result.result, kind) else None


def test_a_task_that_ends_with_ignore_does_not_run_again(bench):
    def body(invoice):
        raise Ignore

    task = bench.task(body)
    with bench.worker():
        bench.deliver(task, "inv-7")
        bench.deliver(task, "inv-7")
        outcome(bench.deliver(bench.link, "the queue is empty", task_id="id-2"))
    assert len(bench.effects) == 1
    assert bench.app.AsyncResult(bench.id()).state == "PENDING", "Celery records no state"


def test_a_message_that_is_rejected_and_queued_again_runs_again(bench):
    def body(invoice):
        if len(bench.effects) == 1:
            raise Reject("not now", requeue=True)
        return "receipt"

    task = bench.task(body, once={"tier": "payment"})
    with bench.worker():
        assert outcome(bench.deliver(task, "inv-7")) == ("SUCCESS", "receipt")
    assert len(bench.effects) == 2 and len(set(bench.keys)) == 1


def test_a_message_that_is_rejected_because_of_a_lost_answer_is_a_doubt(bench):
    def body(invoice):
        try:
            raise ConnectionResetError("connection reset by peer")
        except ConnectionResetError as error:
            raise Reject(error, requeue=True) from error

    task = bench.task(body)
    with bench.worker():
        state, value = outcome(bench.deliver(task, "inv-7"))
    assert state == "FAILURE" and isinstance(value, onceward.InDoubt)
    assert len(bench.effects) == 1


def test_a_producer_that_sends_twice_is_caught_by_a_key_of_arguments(bench):
    def charge(invoice, cents, memo=""):
        bench.effects.append(invoice)
        return "receipt"

    guard = once(bench.ledger, key=["invoice"], match=["cents"])
    task = bench.app.task(name="charge", base=guard, shared=False)(charge)
    with bench.worker():
        first = bench.deliver(task, "inv-7", 1999, task_id="id-1")
        same = bench.deliver(task, "inv-7", 1999, "again", task_id="id-2")
        other = bench.deliver(task, "inv-7", 1, task_id="id-3")
        assert outcome(first) == outcome(same) == ("SUCCESS", "receipt")
        state, value = outcome(other)
    assert state == "FAILURE" and isinstance(value, onceward.Mismatch)
    assert len(bench.effects) == 1


def test_a_key_can_be_a_function_of_the_arguments(bench):
    guard = once(bench.ledger, key=lambda invoice, cents: invoice.upper(), match=["cents"])

    def charge(invoice, cents):
        bench.effects.append(invoice)

    task = bench.app.task(name="charge", base=guard, shared=False)(charge)
    assert task("inv-7", 1999) is None and task("INV-7", cents=1999) is None
    with pytest.raises(onceward.Mismatch):
        task("inv-7", 1)
    assert len(bench.effects) == 1


def test_a_ledger_that_cannot_be_used_makes_celery_retry(bench):
    task = bench.task(default_retry_delay=60)
    bench.ledger.close()
    with bench.worker():
        result = bench.deliver(task, "inv-7")
        until(lambda: result.state == "RETRY")
    assert bench.effects == []


def test_the_first_result_and_its_repeat_have_the_same_type(bench):
    def total(cents) -> Decimal:
        bench.effects.append(cents)
        return Decimal(cents) / 100

    task = bench.app.task(name="total", base=once(bench.ledger), shared=False)(total)
    first, second = (task.apply((1999,), task_id="id-1").get() for _ in range(2))
    assert first == second == Decimal("19.99") and type(second) is Decimal
    assert len(bench.effects) == 1


def test_an_eager_retry_runs_at_once(bench):
    def body(self, invoice):
        if self.request.retries == 0:
            raise self.retry(countdown=60)
        return "receipt"

    assert bench.task(body, bind=True).apply(("inv-7",), task_id="id-1").get() == "receipt"
    assert len(bench.effects) == 2


def test_a_direct_call_has_no_task_id(bench):
    task = bench.task()
    with pytest.raises(onceward.InvalidCall, match="called directly"):
        task("inv-7")
    assert bench.effects == []


def test_a_direct_call_inside_the_task_is_not_the_task_itself(bench):
    def again(self, invoice):
        bench.effects.append(invoice)
        return self(invoice)

    task = bench.app.task(name="again", base=once(bench.ledger), bind=True, shared=False)(again)
    with pytest.raises(onceward.InvalidCall, match="called directly"):
        task.apply(("inv-7",)).get()
    assert len(bench.effects) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": "invoice"},
        {"key": []},
        {"match": ["cents"]},
        {"key": str, "match": "cents"},
        {"teir": "payment"},
        {"tier": "gold"},
    ],
)
def test_a_wrong_setting_is_refused(bench, wrong):
    with pytest.raises(onceward.InvalidCall):
        once(bench.ledger, **wrong)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"key": ["invoice"], "match": ["cent"]}, "no argument `cent`; did you mean `cents`"),
        ({"key": ["invoce"]}, "no argument `invoce`"),
        ({"key": lambda invoice, cents: invoice, "match": ["cent"]}, "no argument `cent`"),
        ({"key": ["invoice"], "window": {"of": "at", "every": "day"}}, "no argument `at`"),
    ],
)
@pytest.mark.parametrize("is_bound", [True, False])
def test_a_name_that_the_task_does_not_have_is_refused_when_the_task_is_made(bench, wrong, reason, is_bound):
    def charge(invoice, cents): ...

    def charge_bound(self, invoice, cents): ...

    options = {"name": "charge", "shared": False, "lazy": False, "bind": is_bound}
    with pytest.raises(onceward.InvalidCall, match=reason):
        bench.app.task(base=once(bench.ledger, **wrong), **options)(charge_bound if is_bound else charge)

    class Charge(once(bench.ledger, **wrong)):
        name = "charge_in_class"

        def run(self, invoice, cents): ...

    with pytest.raises(onceward.InvalidCall, match=reason):
        bench.app.register_task(Charge())


def test_match_names_arguments_of_any_kind(bench):
    base = once(bench.ledger, operation="open", key=["invoice"], match=["cents"])

    @bench.app.task(base=base, shared=False, name="open")
    def charge(invoice, **others):
        return "receipt"

    assert charge.apply(["inv-7"], {"cents": 1}).get() == "receipt"
    with pytest.raises(onceward.Mismatch):
        charge.apply(["inv-7"], {"cents": 2}).get()


def test_a_missing_framework_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "celery", None)
    monkeypatch.delitem(sys.modules, "onceward.celery")
    with pytest.raises(ImportError, match="pip install 'celery>=5.4'"):
        importlib.import_module("onceward.celery")


def test_a_framework_that_is_too_old_is_named(monkeypatch):
    monkeypatch.setattr(celery, "VERSION", celery.VERSION._replace(major=4, minor=4))
    monkeypatch.delitem(sys.modules, "onceward.celery")
    with pytest.raises(ImportError, match="4.4 is installed"):
        importlib.import_module("onceward.celery")


class GuideBank:
    def __init__(self):
        self.charged = []

    def charge(self, invoice, cents, idempotency_key):
        self.charged.append(invoice)
        return "receipt"

    refund = charge


def test_the_code_of_the_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    guide = types.ModuleType("guide")
    guide.bank = GuideBank()
    exec("\n".join(blocks), guide.__dict__)
    assert [guide.charge.apply(("inv-7", 1999), task_id="id-1").get() for _ in range(2)] == ["receipt"] * 2
    assert [guide.refund("inv-8", 1999, memo) for memo in ("a", "b")] == ["receipt"] * 2
    assert guide.bank.charged == ["inv-7", "inv-8"]


def test_a_task_that_replaces_itself_goes_on(bench):
    def page(task, number):
        if number < 3:
            raise task.replace(task.s(number + 1))
        return "end"

    task = bench.task(page, bind=True)
    with bench.worker():
        result = bench.deliver(task, 1)
        assert outcome(result) == ("SUCCESS", "end")
        # Each message may be delivered again.
        bench.deliver(task, 1)
        assert outcome(bench.deliver(task, 9, task_id="id-2")) == ("SUCCESS", "end")
    assert bench.effects == [(1,), (2,), (3,), (9,)]


def test_arguments_that_are_not_part_of_the_key_may_be_anything(bench):
    task = bench.task(lambda invoice, tags: "receipt", once={"key": ["invoice"]})
    task.run = lambda invoice, tags: "receipt"
    assert task.apply(("inv-7", {"a"})).get() == task.apply(("inv-7", {object()})).get() == "receipt"
    assert len(bench.ledger.list()) == 1


@pytest.mark.parametrize("found", [None, "", 5])
def test_a_tenant_that_is_not_found_never_means_the_default_tenant(bench, found):
    task = bench.task(once={"tenant": lambda invoice: found})
    with pytest.raises(onceward.InvalidCall, match="returned no tenant"):
        task.apply(("inv-7",), throw=True)
    assert bench.effects == [] and bench.ledger.list() == []
    with pytest.raises(onceward.InvalidCall, match="not empty"):
        once(bench.ledger, tenant="")


class Receipt(BaseModel):
    number: int
    note: str = ""


class Invoice(BaseModel):
    number: str


@pytest.mark.parametrize("annotation", [Receipt, Receipt | None, list[Receipt], int])
def test_a_task_with_models_of_pydantic_has_its_result_at_the_next_delivery(bench, annotation):
    returned = {int: 1, list[Receipt]: [Receipt(number=1)]}.get(annotation, Receipt(number=1))

    def charge(invoice: Invoice) -> annotation:
        bench.effects.append(invoice)
        return returned

    settings = {"key": ["/invoice/number"], "tier": "payment"}
    task = bench.app.task(name="charge", base=once(bench.ledger, **settings), pydantic=True, shared=False)(charge)
    # Celery makes JSON of a model, and of no list of models.
    stored = {"number": 1, "note": ""} if annotation in (Receipt, Receipt | None) else returned
    for number in range(2):
        assert task.apply([{"number": "inv-7"}], task_id=f"id-{number}").get() == stored
    assert bench.effects == [Invoice(number="inv-7")]
