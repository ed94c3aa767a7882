"""Processes that fork after the ledger was opened: parent and children use it at once. Each program is a process."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest
import scene
from onceward import InDoubt, Ledger

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

SETUP = """
import asyncio, os, signal, sys, threading, time, onceward, scene
store, effects = sys.argv[1], scene.Effects(sys.argv[2])
ledger = onceward.Ledger(store)

@ledger.once(operation="pay", key=["n"], wait="30s")
def pay(n: int) -> str:
    effects.add(n)
    return f"paid {n}"

@ledger.once(operation="pay", key=["n"], wait="30s")
async def pay_async(n: int) -> str:
    effects.add(n)
    await asyncio.sleep(0)
    return f"paid {n}"

def child(work):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return pid

def ended(pid, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "it hangs"
"""


def check(code: str, *arguments: object) -> str:
    return scene.check(SETUP + code, *arguments, options=scene.QUIET_FORKS)


def test_parent_and_children_use_a_ledger_at_once(store: str, effects: scene.Effects) -> None:
    check(
        """
pay(0)
def work():
    for n in range(60):
        assert pay(n) == f"paid {n}", n
pids = [child(work) for _ in range(4)]
work()
assert [ended(pid) for pid in pids] == [0] * 4
""",
        store,
        effects.path,
    )
    assert sorted(map(int, effects.all())) == list(range(60))


def test_a_child_of_a_child(store: str, effects: scene.Effects) -> None:
    check(
        """
pay(0)
def grandchild():
    for n in range(20):
        assert pay(n) == f"paid {n}"
    assert asyncio.run(pay_async(21)) == "paid 21"
def work():
    assert pay(0) == "paid 0"
    pids = [child(grandchild) for _ in range(2)]
    grandchild()
    assert [ended(pid) for pid in pids] == [0, 0]
pid = child(work)
for n in range(20):
    pay(n)
assert ended(pid) == 0
""",
        store,
        effects.path,
    )
    assert effects.repeated() == {} and effects.count() == 21


def test_a_ledger_that_was_never_used_can_be_used_in_a_child(store: str, effects: scene.Effects) -> None:
    check(
        """
pids = [child(lambda: pay(1)) for _ in range(5)]
assert [ended(pid) for pid in pids] == [0] * 5
pay(1)
""",
        store,
        effects.path,
    )
    assert effects.all() == ["1"]


def test_a_fork_while_other_threads_are_calling(store: str, effects: scene.Effects) -> None:
    """Locks that another thread holds at the moment of the fork must not stop the child."""
    check(
        """
stop = threading.Event()
def spin(base):
    n = base
    while not stop.is_set():
        pay(n)
        n += 1
async def spin_async(base):
    n = base
    while not stop.is_set():
        await asyncio.gather(*[pay_async(n + i) for i in range(4)])
        n += 4
threads = [threading.Thread(target=spin, args=(10**7 * k,)) for k in range(1, 4)]
threads += [threading.Thread(target=lambda: asyncio.run(spin_async(10**8)))]
for thread in threads:
    thread.start()
try:
    for index in range(int(sys.argv[3])):
        time.sleep(0.003)
        def work():
            first = 10**9 + index * 10
            assert pay(first) == f"paid {first}"
            assert asyncio.run(pay_async(first + 1)) == f"paid {first + 1}"
        code = ended(child(work), 20)
        assert code == 0, (index, code)
finally:
    stop.set()
for thread in threads:
    thread.join()
""",
        store,
        effects.path,
        15 * scene.ROUNDS,
    )
    assert effects.repeated() == {}


def test_a_child_that_ends_like_a_program_does_not_hang(store: str, effects: scene.Effects) -> None:
    """The child runs exit handlers, although threads of the parent were using the interpreter when it was made."""
    check(
        """
stop = threading.Event()
async def spin():
    n = 10**8
    while not stop.is_set():
        await asyncio.gather(*[pay_async(n + i) for i in range(8)])
        n += 8
thread = threading.Thread(target=lambda: asyncio.run(spin()))
thread.start()
try:
    for index in range(int(sys.argv[3])):
        pid = os.fork()
        if pid == 0:
            if index % 2:
                pay(10**9 + index)
            stop.set()
            sys.exit(5)
        code = ended(pid, 20)
        assert code == 5, (index, code)
finally:
    if threading.current_thread() is threading.main_thread():
        stop.set()
""",
        store,
        effects.path,
        15 * scene.ROUNDS,
    )
    assert effects.repeated() == {}


@pytest.mark.parametrize("kind", ["Pool", "Process", "Executor"])
def test_multiprocessing_with_fork(store: str, effects: scene.Effects, kind: str) -> None:
    check(
        """
import concurrent.futures, multiprocessing
context = multiprocessing.get_context("fork")
pay(0)
def run(n):
    return pay(n)
numbers = [n for n in range(20) for _ in range(3)]
if sys.argv[3] == "Pool":
    with context.Pool(3) as pool:
        results = pool.map(run, numbers)
elif sys.argv[3] == "Executor":
    with concurrent.futures.ProcessPoolExecutor(3, mp_context=context) as pool:
        results = list(pool.map(run, numbers))
else:
    processes = [context.Process(target=run, args=(n,)) for n in range(20)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
        assert process.exitcode == 0
    results = [pay(n) for n in numbers]
assert results == [f"paid {n}" for n in numbers]
""",
        store,
        effects.path,
        kind,
    )
    assert sorted(map(int, effects.all())) == list(range(20))


def test_claims_of_a_parent_that_is_killed_are_in_doubt_at_once(
    ledger: Ledger, store: str, effects: scene.Effects
) -> None:
    """Although its child lives, and has the files of the parent open."""
    code = (
        SETUP
        + """
def work():
    if sys.argv[3] == "used":
        pay(1)
    print(os.getpid(), flush=True)
    time.sleep(30)
def owns():
    pid = child(work)
    time.sleep(30)
ledger.call("own", key=sys.argv[3]).run(owns)
"""
    )
    for how in ("used", "unused"):
        process = scene.start(code, store, effects.path, how, options=scene.QUIET_FORKS)
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
        process.wait()
        os.kill(pid, 0)
        start = time.monotonic()
        try:
            with pytest.raises(InDoubt):
                ledger.call("own", key=how).run(lambda: 1)
            assert time.monotonic() - start < 2
        finally:
            os.kill(pid, signal.SIGKILL)
        process.communicate()


def test_claims_of_a_child_that_is_killed_are_in_doubt_at_once(store: str, effects: scene.Effects) -> None:
    check(
        """
pay(0)
ready, told = os.pipe()
def work():
    def owned():
        os.write(told, b"x")
        time.sleep(30)
    ledger.call("own", key="a").run(owned)
pid = child(work)
assert os.read(ready, 1) == b"x"
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)
start = time.monotonic()
try:
    ledger.call("own", key="a").run(lambda: 1)
    raise AssertionError("it ran twice")
except onceward.InDoubt:
    assert time.monotonic() - start < 2
""",
        store,
        effects.path,
    )


def test_a_claim_belongs_to_the_process_that_made_it(store: str, effects: scene.Effects) -> None:
    """A child that is made in the middle of the work can neither end nor lose the claim of its parent."""
    check(
        """
import logging
logging.disable(logging.CRITICAL)
def sync_work():
    claim = onceward.claim()
    pid = os.fork()
    if pid == 0:
        for use in (claim.sent, claim.not_found):
            try:
                use()
            except onceward.InvalidCall as error:
                assert "parent process" in str(error)
            else:
                os._exit(3)
        # Goes through the guard, as an exception or a result.
        if int(sys.argv[3]):
            raise SystemExit(5)
        return "child"
    assert ended(pid) == 5
    return "parent"
def outer():
    try:
        return ledger.call("own", key="a", in_doubt="retry").run(sync_work)
    except onceward.InvalidCall:
        sys.exit(5)
assert outer() == "parent"
assert ledger.get("own", "a").status == "done"

async def async_work():
    pid = os.fork()
    if pid == 0:
        raise SystemExit(5)
    assert ended(pid) == 5
    return "parent"
async def outer_async():
    try:
        return await ledger.call("own", key="b", in_doubt="retry").run_async(async_work)
    except SystemExit:
        # The loop itself belongs to the parent.
        os._exit(5)
assert asyncio.run(outer_async()) == "parent"
assert ledger.get("own", "b").status == "done"
""",
        store,
        effects.path,
        1,
    )


def test_a_ledger_in_memory_belongs_to_its_process() -> None:
    scene.check(
        SETUP.replace("store, effects = sys.argv[1], scene.Effects(sys.argv[2])", "store = 'memory:'")
        + """
def work():
    for use in (lambda: ledger.call("pay", key="a").run(lambda: 1), ledger.list, lambda: ledger.get("pay", "a")):
        try:
            use()
        except onceward.StoreUnavailable as error:
            assert "in memory" in str(error)
        else:
            raise AssertionError("it was not refused")
assert ledger.call("pay", key="a").run(lambda: 1) == 1
assert ended(child(work)) == 0
assert ledger.call("pay", key="a").run(lambda: 2) == 1
""",
        options=scene.QUIET_FORKS,
    )


def test_a_daemon_that_changes_its_folder_uses_the_same_file(tmp_path, effects: scene.Effects) -> None:
    code = f"import os; os.chdir({str(tmp_path)!r}); os.mkdir('elsewhere')\n" + SETUP
    for store in ("relative.db", "file:other.db"):
        scene.check(
            code
            + """
pay(1)
def work():
    os.chdir("elsewhere")
    assert pay(1) == "paid 1"
    assert os.listdir() == []
assert ended(child(work)) == 0
os.chdir("elsewhere")
assert ended(child(lambda: pay(1))) == 0
""",
            store,
            effects.path,
            options=scene.QUIET_FORKS,
        )
        os.rmdir(tmp_path / "elsewhere")
    assert effects.all() == ["1", "1"]


def test_closing_in_a_child_does_not_close_the_parent(store: str, effects: scene.Effects) -> None:
    check(
        """
pay(1)
def work():
    with ledger:
        if int(sys.argv[3]):
            pay(2)
    try:
        pay(3)
    except onceward.StoreUnavailable as error:
        assert "closed" in str(error)
    else:
        raise AssertionError("it was not closed")
assert ended(child(work)) == 0
sys.argv[3] = "0"
assert ended(child(work)) == 0
pay(4)
ledger.close()
assert ended(child(lambda: None)) == 0
""",
        store,
        effects.path,
        1,
    )
    assert effects.all() == ["1", "2", "4"]


def test_many_children_leave_no_files_open(store: str, effects: scene.Effects) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("needs /proc")
    check(
        """
pay(0)
def open_files():
    found = 0
    for one in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{one}").startswith(store)
        except OSError:
            pass
    return found
before = open_files()
assert before > 2
def chain(levels):
    pay(levels)
    assert open_files() == before, (levels, open_files(), before)
    if levels:
        assert ended(child(lambda: chain(levels - 1))) == 0
    # Before it uses the ledger, a child has none of its files open.
    assert ended(child(lambda: pay(0) if open_files() == 0 else os._exit(4))) == 0
chain(5)
assert open_files() == before
""",
        store,
        effects.path,
    )


def test_subprocesses_can_be_started_while_a_ledger_is_open(store: str, effects: scene.Effects) -> None:
    check(
        """
import subprocess
def work():
    for _ in range(3):
        assert subprocess.run(["true"]).returncode == 0
        assert subprocess.run(["true"], preexec_fn=lambda: None).returncode == 0
    return 1
assert ledger.call("own", key="a").run(work) == 1 and pay(1) == "paid 1"
""",
        store,
        effects.path,
    )


def test_a_fork_that_python_does_not_know_of_gets_a_clear_error(store: str, effects: scene.Effects) -> None:
    """Such a child has none of the threads, and the locks as they were."""
    check(
        """
import ctypes, logging
fork = ctypes.PyDLL(None).fork
# The claim of the parent cannot be ended in the child, which is logged.
logging.disable(logging.CRITICAL)
pay(1)
def refused():
    asyncs = (lambda: asyncio.run(pay_async(1)), lambda: asyncio.run(pay_async(2)))
    for use in (lambda: pay(1), lambda: pay(2), lambda: onceward.Ledger(store), ledger.list, *asyncs):
        try:
            use()
        except onceward.StoreUnavailable as error:
            assert "os.fork()" in str(error), error
        else:
            raise AssertionError("it was not refused")
def work():
    claim = onceward.claim()
    pid = fork()
    if pid == 0:
        refused()
        # A child of this one is in the same state, and both end like programs.
        if (pid := os.fork()) == 0:
            refused()
        else:
            assert ended(pid) == 0
        sys.exit(0)
    assert ended(pid) == 0
    return "parent"
assert ledger.call("own", key="a").run(work) == "parent"
assert ledger.get("own", "a").status == "done" and pay(3) == "paid 3"
""",
        store,
        effects.path,
    )
    assert effects.all() == ["1", "3"]


def test_a_ledger_may_be_opened_after_a_fork_that_python_does_not_know_of(store: str, effects: scene.Effects) -> None:
    code = """
import ctypes, os, sys, onceward
pid = ctypes.PyDLL(None).fork()
assert onceward.Ledger(sys.argv[1]).call("own", key="a", wait="20s").run(lambda: 1) == 1
if pid:
    assert os.waitpid(pid, 0)[1] == 0
"""
    scene.check(code, store, options=scene.QUIET_FORKS)


def test_a_package_that_is_imported_twice_forks_once(store: str, effects: scene.Effects) -> None:
    check(
        """
for name in [name for name in sys.modules if name.split(".")[0] == "onceward" and not name.endswith("_native")]:
    del sys.modules[name]
import onceward as again
assert again is not onceward
assert ended(child(lambda: pay(1))) == 0
pid = os.fork()
if pid == 0:
    assert pay(2) == "paid 2"
    sys.exit(0)
assert ended(pid) == 0 and pay(2) == "paid 2"
""",
        store,
        effects.path,
    )
    assert effects.all() == ["1", "2"]
