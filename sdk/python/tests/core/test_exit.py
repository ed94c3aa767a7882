"""The end of the interpreter with work in flight, and its beginning. Every program is a process of its own. It runs
repeatedly, because what goes wrong at the end depends on timing."""

from __future__ import annotations

import pathlib
import sys
import time

import pytest
import scene
from onceward import Ledger

SETUP = """
import asyncio, atexit, os, sys, threading, time
if sys.argv[3:] == ["early"]:
    atexit.register(lambda: at_exit())
import onceward, scene
effects = scene.Effects(sys.argv[2])
ledger = onceward.Ledger(sys.argv[1])

@ledger.once(operation="pay", key=["n"])
def pay(n: int) -> str:
    effects.add(n)
    return f"paid {n}"

@ledger.once(operation="pay", key=["n"])
async def pay_async(n: int) -> str:
    effects.add(n)
    await asyncio.sleep(0)
    return f"paid {n}"
"""

# What a program does, its exit code, and what may be on its stderr.
PROGRAMS = {
    "daemon threads that call": (
        """
def spin(base):
    n = base
    while True:
        pay(n)
        n += 1
for k in range(4):
    threading.Thread(target=spin, args=(k * 10**6,), daemon=True).start()
time.sleep(0.05)
""",
        0,
    ),
    "daemon threads with loops": (
        """
async def spin(base):
    n = base
    while True:
        await asyncio.gather(*[pay_async(n + i) for i in range(4)])
        n += 4
for k in range(3):
    threading.Thread(target=lambda: asyncio.run(spin(k * 10**6)), daemon=True).start()
time.sleep(0.05)
""",
        0,
    ),
    "a daemon thread in its work": (
        """
began = threading.Event()
def work():
    began.set()
    time.sleep(60)
threading.Thread(target=ledger.call("pay", key="long").run, args=(work,), daemon=True).start()
began.wait()
""",
        0,
    ),
    "a daemon thread that waits": (
        """
began = threading.Event()
def work():
    began.set()
    time.sleep(60)
threading.Thread(target=ledger.call("pay", key="long").run, args=(work,), daemon=True).start()
began.wait()
for _ in range(3):
    threading.Thread(target=ledger.call("pay", key="long", wait="60s").run, args=(work,), daemon=True).start()
time.sleep(0.05)
""",
        0,
    ),
    "tasks that nothing waits for": (
        """
async def main():
    tasks = [asyncio.ensure_future(pay_async(n)) for n in range(20)]
    await asyncio.sleep(0)
asyncio.run(main())
""",
        0,
    ),
    "a loop that is left as it is": (
        """
loop = asyncio.new_event_loop()
tasks = [loop.create_task(pay_async(n)) for n in range(20)]
for task in tasks:
    task._log_destroy_pending = False
loop.call_soon(loop.stop)
loop.run_forever()
""",
        0,
    ),
    "a coroutine that is never awaited": (
        """
import warnings
warnings.simplefilter("ignore")
pay_async(1)
pay(2)
""",
        0,
    ),
    "sys.exit in the work": (
        """
ledger.call("pay", key="a").run(sys.exit, 3)
""",
        3,
    ),
    "sys.exit in a task": (
        """
async def leave():
    sys.exit(3)
async def main():
    others = [asyncio.ensure_future(pay_async(n)) for n in range(5)]
    await ledger.call("pay", key="a").run_async(leave)
asyncio.run(main())
""",
        3,
    ),
    "os._exit in the work": (
        """
ledger.call("pay", key="a").run(os._exit, 3)
""",
        3,
    ),
    "os._exit while others call": (
        """
def spin(base):
    for n in range(10**6):
        pay(base + n)
for k in range(3):
    threading.Thread(target=spin, args=(k * 10**6,), daemon=True).start()
time.sleep(0.03)
os._exit(3)
""",
        3,
    ),
    "claims in a cycle": (
        """
class Keeps: pass
keeps = Keeps()
keeps.me, keeps.block = keeps, ledger.begin("pay", key="a")
keeps.claim = keeps.block.__enter__()
del keeps
""",
        0,
    ),
    "a claim in a global variable": (
        """
block = ledger.begin("pay", key="a")
claim = block.__enter__()
""",
        0,
    ),
    "threads that still call when the main thread ends": (
        """
for k in range(4):
    threading.Thread(target=lambda k=k: [pay(k * 100 + n) for n in range(20)]).start()
""",
        0,
    ),
    "a closed ledger": (
        """
pay(1)
ledger.close()
""",
        0,
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_interpreter_ends_without_a_hang_or_a_crash(tmp_path: pathlib.Path, name: str) -> None:
    code, expected = PROGRAMS[name]
    for index in range(scene.ROUNDS):
        store, effects = tmp_path / f"{index}.db", scene.Effects(tmp_path / f"{index}")
        done = scene.run(SETUP + code, store, effects.path)
        assert (done.returncode, done.stderr) == (expected, ""), f"{done.returncode}\n{done.stderr}"
        assert effects.repeated() == {}
        with Ledger(store) as ledger:
            assert not ledger.list(state="running"), "its owner is gone"


def test_an_error_that_ends_the_program_does_not_delay_it(tmp_path: pathlib.Path) -> None:
    """Its traceback holds the claim, which has ended."""
    code = """
@ledger.once(operation="pay", key=["n"])
def refuse(n: int) -> None:
    claim = onceward.claim()
    raise ValueError("declined")
refuse(1)
"""
    taken = []
    for index in range(3):
        start = time.monotonic()
        done = scene.run(SETUP + code, tmp_path / f"{index}.db", tmp_path / "effects")
        taken.append(time.monotonic() - start)
        assert done.returncode == 1 and done.stderr.rstrip().endswith("ValueError: declined")
    assert min(taken) < 0.9


AT_EXIT = """
def at_exit():
    assert pay(7) == "paid 7"
    assert asyncio.run(pay_async(8)) == "paid 8"
    with ledger.begin("pay", key="block") as claim:
        claim.finish(1)
    print("recorded")
pay(1)
"""


@pytest.mark.parametrize("when", ["early", "late"])
def test_an_exit_handler_may_call_guarded_functions(tmp_path: pathlib.Path, when: str) -> None:
    """Handlers run in reverse order: one from before the import runs after the handler of the package."""
    code = SETUP + AT_EXIT + ("atexit.register(at_exit)\n" if when == "late" else "")
    for index in range(scene.ROUNDS):
        effects = scene.Effects(tmp_path / f"{index}")
        assert scene.check(code, tmp_path / f"{index}.db", effects.path, when) == "recorded\n"
        assert sorted(effects.all()) == ["1", "7", "8"]


def test_what_was_written_last_is_recorded(ledger: Ledger, store: str, effects: scene.Effects) -> None:
    code = """
async def main(n):
    task = asyncio.ensure_future(pay_async(n))
    while not effects.count(n):
        await asyncio.sleep(0)
    # Done, and perhaps not recorded yet.
    task.cancel()
for n in range(20):
    asyncio.run(main(n))
"""
    scene.check(SETUP + code, store, effects.path)
    assert effects.repeated() == {} and effects.count() == 20
    states = {one.status for one in ledger.list(limit=200)}
    assert states <= {"done", "in_doubt"}


def test_an_import_starts_no_thread_and_opens_no_file() -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("needs /proc")
    code = """
    import os
    def state():
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
    before = state()
    import onceward
    assert state() == before, (before, state())
    onceward.Ledger("memory:")
    assert state()[0] > before[0]
    """
    scene.check(code)


def test_a_process_that_never_opens_a_ledger_may_fork() -> None:
    code = """
    import os, onceward
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            os._exit(onceward.Ledger("memory:").call("pay", key="a").run(lambda: 7))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    """
    scene.check(code)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 cannot tell")
def test_the_import_is_quick() -> None:
    code = """
    import sys, time
    import asyncio, json, decimal, uuid, dataclasses, inspect, logging, difflib, typing, base64, enum, shlex, weakref
    start = time.perf_counter()
    import onceward
    taken = time.perf_counter() - start
    print(f"{1000 * taken:.1f}")
    assert "zoneinfo" not in sys.modules and "pydantic" not in sys.modules
    """
    assert min(float(scene.check(code)) for _ in range(3)) < 300


def test_a_second_interpreter_gets_a_clear_error() -> None:
    code = """
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    import onceward
    ledger = onceward.Ledger("memory:")
    assert ledger.call("pay", key="a").run(lambda: 1) == 1
    one = interpreters.create()
    script = '''if True:
        try:
            import onceward
        except ImportError as error:
            print(type(error).__name__, error)
        else:
            print("no error")
    '''
    interpreters.run_string(one, script)
    interpreters.destroy(one)
    assert ledger.call("pay", key="a").run(lambda: 2) == 1
    """
    done = scene.run(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ImportError") and "interpreter" in done.stdout, done.stdout


def test_other_threads_begin_nothing_once_the_interpreter_is_ending(store: str, effects: scene.Effects) -> None:
    """They may be stopped at any moment, and what they had begun would be in doubt."""
    code = """
from onceward import _native
began, ended = set(), []
def mark(n):
    began.add(f"k{n}")
def spin(base):
    for n in range(base, base + 10**6):
        try:
            ledger.call("mark", key=f"k{n}").run(mark, n)
        except onceward.StoreUnavailable as error:
            assert "ending" in str(error)
            ended.append(error)
            return
def spin_in_loop(base):
    async def mark_async(n):
        mark(n)
    async def main():
        for n in range(base, base + 10**6):
            await ledger.call("mark", key=f"k{n}").run_async(mark_async, n)
    asyncio.run(main())
threads = [threading.Thread(target=spin, args=(k * 10**6,), daemon=True) for k in range(3)]
# Results no longer reach this one, or it is refused: it may wait for ever.
threading.excepthook = lambda _: None
threading.Thread(target=spin_in_loop, args=(10**9,), daemon=True).start()
for thread in threads:
    thread.start()
scene.wait_until(lambda: len(began) > 3)
# What runs at the end, while this thread can still look.
_native.shut_down()
for thread in threads:
    thread.join(30)
assert len(ended) == 3, ended
assert pay(1) == "paid 1"
scene.wait_until(lambda: not ledger.list(state="running"), 30)
assert not ledger.list(state="in_doubt")
assert {one.key for one in ledger.list(state="done", limit=None) if one.operation == "mark"} == began
"""
    scene.check(SETUP + code, store, effects.path)
