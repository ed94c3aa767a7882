"""Guarded Celery tasks on worker processes that are killed in the middle of a task."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

import onceward

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLE = HERE.parents[3] / "examples" / "python" / "celery_task.py"

# A worker needs two seconds to start; the rest is for busy machines.
LIMIT = 90

# Longer than any test.
LONG = 600


@pytest.fixture
def crew(tmp_path, monkeypatch):
    monkeypatch.setenv("FOLDER", str(tmp_path))
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.delitem(sys.modules, "guarded_tasks", raising=False)
    import guarded_tasks

    made = Crew(tmp_path, guarded_tasks)
    yield made
    made.leave()


class Crew:
    """Workers on one queue of files."""

    def __init__(self, folder, tasks):
        self.folder, self.tasks = folder, tasks
        self.workers = []

    def start(self, pool="solo"):
        command = [sys.executable, "-m", "celery", "--app", "guarded_tasks", "worker", "--pool", pool]
        with (self.folder / "log").open("a") as log:
            worker = subprocess.Popen(
                [*command, "--concurrency", "1", "--without-gossip", "--without-mingle", "--without-heartbeat"],
                cwd=HERE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.workers.append(worker)
        return worker

    def effects(self):
        """The process and the key of each effect."""
        try:
            return [line.split() for line in self.tasks.EFFECTS.read_text().splitlines()]
        except FileNotFoundError:
            return []

    def redeliver(self):
        """What a broker does with a message that was not acknowledged; the broker of files leaves it to its users."""
        for message in self.tasks.TAKEN.glob("*.celery.msg"):
            message.rename(self.tasks.QUEUE / message.name)

    def kill(self, worker):
        """Kills the whole worker, without a chance to give its messages back."""
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()

    def until(self, condition, what):
        end = time.monotonic() + LIMIT
        while not (found := condition()):
            assert time.monotonic() < end, f"{what} takes too long\n{(self.folder / 'log').read_text()[-3000:]}"
            time.sleep(0.05)
        return found

    def now(self, result):
        """The state and the value as they are now: a result remembers the first end that it sees."""
        fresh = self.tasks.app.AsyncResult(result.id)
        return fresh.state, fresh.result

    def outcome(self, result):
        self.until(lambda: self.now(result)[0] in ("SUCCESS", "FAILURE"), "the task")
        return self.now(result)

    def leave(self):
        for worker in self.workers:
            try:
                os.killpg(worker.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it has ended
            worker.wait()
        self.tasks.ledger.close()


def test_a_killed_worker_leaves_a_doubt_and_no_second_effect(crew):
    result = crew.tasks.charge.delay(LONG)
    first = crew.start()
    crew.until(crew.effects, "the effect")
    crew.kill(first)
    crew.redeliver()
    crew.start()
    state, value = crew.outcome(result)
    assert state == "FAILURE" and isinstance(value, onceward.InDoubt), value
    assert "onceward resolve" in str(value), "the result says how to settle it"
    assert len(crew.effects()) == 1
    # A person finds out that it happened.
    crew.tasks.ledger.resolve("guarded_tasks.charge", result.id, happened=True, result="receipt")
    crew.redeliver()
    crew.until(lambda: crew.now(result) == ("SUCCESS", "receipt"), "the settled task")
    assert len(crew.effects()) == 1


def test_without_the_guard_the_effect_happens_twice(crew):
    result = crew.tasks.unguarded.delay(LONG)
    first = crew.start()
    crew.until(crew.effects, "the effect")
    crew.kill(first)
    crew.redeliver()
    crew.start()
    assert crew.outcome(result) == ("SUCCESS", "receipt")
    assert len(crew.effects()) == 2


def test_with_retry_a_killed_task_runs_again_with_the_same_key(crew):
    result = crew.tasks.charge_with_key.delay(LONG)
    first = crew.start()
    crew.until(crew.effects, "the effect")
    crew.kill(first)
    crew.redeliver()
    crew.start()
    assert crew.outcome(result) == ("SUCCESS", "receipt")
    keys = [key for _, key in crew.effects()]
    assert len(keys) == 2 and len(set(keys)) == 1, "a provider that honours keys acts once"


def test_a_killed_child_whose_message_celery_queues_again_leaves_a_doubt(crew):
    result = crew.tasks.charge.delay(LONG)
    parent = crew.start(pool="prefork")
    [[child, _]] = crew.until(crew.effects, "the effect")
    assert int(child) != parent.pid
    os.kill(int(child), signal.SIGKILL)
    state, value = crew.outcome(result)
    assert state == "FAILURE" and isinstance(value, onceward.InDoubt), value
    assert len(crew.effects()) == 1


def test_a_soft_time_limit_interrupts_the_work_and_leaves_a_doubt(crew):
    result = crew.tasks.limited.delay(LONG)
    crew.start(pool="prefork")
    state, value = crew.outcome(result)
    assert state == "FAILURE" and type(value).__name__ == "SoftTimeLimitExceeded"
    assert crew.tasks.ledger.get("guarded_tasks.limited", result.id).status == "in_doubt"
    crew.redeliver()
    crew.until(lambda: isinstance(crew.now(result)[1], onceward.InDoubt), "the repeat")
    assert len(crew.effects()) == 1


def test_a_message_that_is_delivered_again_while_the_task_runs_waits_for_its_end(crew):
    result = crew.tasks.charge_until_told.delay()
    crew.start()
    crew.until(crew.effects, "the effect")
    crew.redeliver()
    crew.start()
    crew.until(lambda: crew.now(result)[0] == "RETRY", "the second delivery")
    crew.tasks.END.touch()
    assert crew.outcome(result) == ("SUCCESS", "receipt")
    assert len(crew.effects()) == 1


def test_the_example_charges_each_invoice_once():
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, check=False, timeout=2 * LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr
    killed, doubt, other, charged = done.stdout.splitlines()
    assert "killed" in killed
    assert doubt.startswith("inv-7: FAILURE") and "is in doubt" in doubt
    assert other == "inv-8: SUCCESS receipt for inv-8"
    assert charged == "charged: ['inv-7 1999', 'inv-8 500']"
