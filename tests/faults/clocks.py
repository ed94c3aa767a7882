"""The system clock jumps forward and back, by an hour and by ten years, while a guarded call runs."""

import glob
import json
import subprocess
import sys
import time

from checks import Skipped, is_equal, until
from results import is_fresh, is_state
from sandbox import SERVER
from upstream import Upstream
from fault_sandbox import api, charge, outcome, without_settings

HOUR = 3600
YEARS = 10 * 365 * 24 * HOUR
LIBRARY = "/usr/lib/*/faketime/libfaketimeMT.so.1"


def library():
    """Debian's libfaketime."""
    found = glob.glob(LIBRARY)
    if not found:
        raise Skipped("libfaketime is not installed")
    return found[0]


class Clock:
    """The wall clock of every process that is started with `environment`. The monotonic clock does not change, as when an
    operator sets the clock."""

    def __init__(self, sandbox):
        self.file = sandbox.folder / "clock"
        self.set(0)
        self.environment = {
            "LD_PRELOAD": library(),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, seconds):
        """Sets the clock to this many seconds ahead of the real time."""
        aside = self.file.with_suffix(".new")
        aside.write_text(f"{seconds:+d}")
        aside.rename(self.file)


def intent(sandbox, clock):
    """The only intent, seen by a process with the same clock."""
    command = [sandbox.binary, "list", "--json", "--store", str(sandbox.ledger)]
    environment = without_settings() | clock.environment
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=30)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["intents"]
    assert len(found) == 1, found
    return found[0]


def the_clock_that_a_process_sees_can_be_set(sandbox):
    clock = Clock(sandbox)
    for step, years in ((0, 0), (YEARS, 10), (-YEARS, -10)):
        clock.set(step)
        sandbox.ledger = sandbox.folder / f"{years}.db"
        is_equal(sandbox.run("k", "true", environment=clock.environment).wait(20), 0)
        off = int(intent(sandbox, clock)["created_at"][:4]) - time.gmtime().tm_year
        assert abs(off - years) <= 1, (step, off)


def set_in_flight(sandbox, steps):
    """Sets the clock while a request runs and repeats the request at each step. It has one effect, and its response is kept."""
    clock, upstream = Clock(sandbox), Upstream(sandbox, holding=True)
    gateway = sandbox.gateway(upstream, "--wait", "0s", environment=clock.environment)
    client = sandbox.later(charge, gateway, "k", amount=1)
    until(lambda: upstream.has(1), "the effect")
    for step in steps:
        clock.set(step)
        is_equal(charge(gateway, "k", amount=1).status, 409, f"in flight, {step} s ahead: ")
    upstream.let_go()
    answer = outcome(client)
    is_equal(answer.status, 200)
    is_equal(intent(sandbox, clock)["state"], "done")
    # Back to the real time: the outcome is still kept.
    is_equal(charge(gateway, "k", amount=1).body, answer.body)
    clock.set(0)
    for _ in range(2):
        is_equal(charge(gateway, "k", amount=1).body, answer.body)
        gateway.stop()
        gateway = sandbox.gateway(upstream, "--wait", "0s", environment=clock.environment)
    is_equal(upstream.requests, ["k"])
    # Other requests still work.
    is_equal(charge(gateway, "next", amount=1).status, 200)


def a_gateway_whose_clock_is_set_forward_by_an_hour_acts_once(sandbox):
    set_in_flight(sandbox, [HOUR])


def a_gateway_whose_clock_is_set_back_by_an_hour_acts_once(sandbox):
    set_in_flight(sandbox, [-HOUR])


def a_gateway_whose_clock_is_set_forward_by_ten_years_acts_once(sandbox):
    set_in_flight(sandbox, [YEARS])


def a_gateway_whose_clock_is_set_back_by_ten_years_acts_once(sandbox):
    set_in_flight(sandbox, [-YEARS])


def a_gateway_whose_clock_jumps_about_acts_once(sandbox):
    set_in_flight(sandbox, [HOUR, -HOUR, YEARS, -YEARS, HOUR])


def a_gateway_killed_while_its_clock_was_ten_years_ahead_leaves_nothing_wedged(sandbox):
    clock, upstream = Clock(sandbox), Upstream(sandbox, holding=True)
    clock.set(YEARS)
    gateway = sandbox.gateway(upstream, "--honours-key", "--wait", "0s", environment=clock.environment)
    sandbox.later(charge, gateway, "k", amount=1)
    until(lambda: upstream.has(1), "the effect")
    gateway.kill()
    clock.set(0)
    upstream.let_go()
    # The first attempt has a time stamp in the future, so it is unknown how long the upstream has known the key.
    gateway = sandbox.gateway(upstream, "--honours-key", "--wait", "0s", environment=clock.environment)
    is_equal(charge(gateway, "k", amount=1).status, 409)
    is_equal((intent(sandbox, clock)["state"], upstream.requests), ("in_doubt", ["k"]))
    # An operator can resolve it today.
    settled = sandbox.ask("resolve", "--tenant", "acme", "--operation", "POST /v1/charges", "--key", "k", "--did-not-happen")
    is_equal(settled[0], 0, settled[2])
    is_equal(charge(gateway, "k", amount=1).status, 200)
    is_equal(upstream.requests, ["k", "k"])


def a_claim_of_the_api_is_finished_after_any_step(sandbox):
    clock = Clock(sandbox)
    server = sandbox.serve('[api]\nlisten = "127.0.0.1:0"\n', clock.environment)
    done = {"verdict": "success", "status": 200, "content_type": "text/plain", "body": {"text": "done"}}
    for step in (HOUR, -HOUR, YEARS, -YEARS):
        clock.set(0)
        names = {"operation": "op", "key": f"k{step}"}
        begun = api(server, "begin", **names).json()
        is_equal(begun["decision"], "acquired")
        clock.set(step)
        # A lease that has lapsed by the clock is in doubt and grants nothing.
        decision = api(server, "begin", **names).json()["decision"]
        assert decision in ("in_flight", "in_doubt"), decision
        finished = api(server, "finish", fence=begun["fence"], outcome=done, **names).json()
        is_equal(finished["result"], "written")
        clock.set(0)
        is_equal(api(server, "begin", **names).json()["decision"], "replay", f"after {step} s: ")


# Commands and servers have the real clock.
REAL = ("env", "-u", "LD_PRELOAD")
COMMAND = """
import pathlib, sys, time
with open(sys.argv[1], "a") as effects:
    effects.write('{"tool": "job"}\\n')
while not pathlib.Path(sys.argv[2]).exists():
    time.sleep(0.02)
print("sent")
"""


def a_command_that_runs_while_the_clock_is_set_is_run_once(sandbox):
    clock = Clock(sandbox)
    for number, step in enumerate((HOUR, -HOUR, YEARS, -YEARS)):
        clock.set(0)
        go = sandbox.folder / f"go-{number}"
        command = (*REAL, sys.executable, "-c", COMMAND, sandbox.folder / "effects", go)
        key = f"k{number}"
        run = sandbox.run(key, *command, environment=clock.environment)
        until(lambda expected=number + 1: len(sandbox.effects()) == expected, "the effect")
        clock.set(step)
        other = sandbox.run(key, *command, environment=clock.environment)
        assert other.wait(20) in (75, 76), other.errors()
        go.touch()
        is_equal((run.wait(20), run.output()), (0, "sent"))
        clock.set(0)
        again = sandbox.run(key, *command, environment=clock.environment)
        is_equal((again.wait(20), again.output(), len(sandbox.effects())), (0, "sent", number + 1), f"after {step} s: ")


def an_mcp_gateway_whose_clock_is_set_acts_once(sandbox):
    clock = Clock(sandbox)
    agent = sandbox.agent(session="s", environment=clock.environment, behind=[*REAL, *SERVER])
    for number, step in enumerate((HOUR, -HOUR, YEARS, -YEARS)):
        clock.set(0)
        arguments = {"to": str(step), "delay_ms": 1000}
        first = agent.start_call("send_email", arguments)
        until(lambda expected=number + 1: len(sandbox.effects()) == expected, "the effect")
        clock.set(step)
        second = agent.start_call("send_email", arguments)
        is_fresh(agent.wait(first)["result"])
        # It waited for the first one, or was refused because the lease had lapsed by the clock.
        result = agent.wait(second)["result"]
        if result.get("isError"):
            is_state(result, "in_doubt", "running", "attempt_unknown")
        is_equal(len(sandbox.effects()), number + 1, "effects")
        clock.set(0)
        again = agent.call("send_email", arguments)
        assert not again.get("isError"), again
        is_equal(len(sandbox.effects()), number + 1, "effects")
