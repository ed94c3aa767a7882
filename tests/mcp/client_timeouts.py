#!/usr/bin/env python3
"""Real clients that time out after 5 s on a call of 6 s, over stdio and HTTP: their retry has no second effect, and a later
call runs.

tests/mcp/client_timeouts.py --binary target/debug/onceward [--all]
"""

import json
import os
import subprocess
import sys

import checks
import install
from checks import Skipped, is_equal
from results import MARK
from repeats_scene import HTTP, OLD, STDIO, Scene
from sandbox import HERE

# Longer than the clients wait.
TAKES = {"name": "x", "value": "a", "delay_ms": 6000}
SLOW = {"call": "set_value", "arguments": TAKES}
QUICK = {"call": "set_value", "arguments": {"name": "x", "value": "a"}}
GIVES_UP = SLOW | {"timeout": 5}
TIMEOUT = 90

# Clients with a time-out for each call.
TIMED = {"mcp1": "mcp1", "mcp2": "mcp2", "fastmcp": "fastmcp", "sdk": None, "client": None}


def play(scene, client, steps):
    """The result of each step."""
    sandbox = scene.sandbox
    command = [str(part) for part in scene.command()]
    if scene.kind == HTTP:
        command = [f"http://127.0.0.1:{scene.address()}/mcp"]
    sandbox.started += 1
    environment = sandbox.environment() | {"PATH": os.environ["PATH"]}
    if client in ("sdk", "client"):
        programs, missing = install.node()
        program = [programs and programs / "node", HERE / "timeout_client.mjs", programs and programs.parent, client]
        program += command
        plan, environment = steps, environment | {"HOME": str(sandbox.folder)}
    else:
        python, missing = install.python(client.removesuffix("-again"))
        program = [python, HERE / "timeout_client.py", client]
        plan, environment = {"command": command, "environment": environment, "steps": steps}, None
    if missing:
        raise Skipped(missing)
    done = subprocess.run(
        [str(part) for part in program],
        input=json.dumps(plan),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        cwd=sandbox.folder,
        env=environment,
        check=False,
    )
    with open(sandbox.folder / "errors", "a") as file:
        file.write(done.stderr)
    assert done.returncode == 0, f"{client} ended with {done.returncode}: {done.stdout}"
    return json.loads(done.stdout.splitlines()[-1])


def is_replay(outcome):
    assert MARK in json.dumps(outcome) and "result" in outcome, outcome


def ran(outcome):
    assert MARK not in json.dumps(outcome) and "result" in outcome, outcome


def a_repeated_call_shares_the_running_one(scene, client):
    gave_up, again, meant = play(scene, client, [GIVES_UP, SLOW | {"timeout": 30}, SLOW | {"timeout": 30}])
    assert "error" in gave_up, gave_up
    is_replay(again)
    ran(meant)
    is_equal(scene.effects(), 2, "effects")


def a_call_that_is_made_again_later_gets_the_late_answer(scene, client):
    steps = [GIVES_UP, {"sleep": 2.5}, SLOW | {"timeout": 30}, SLOW | {"timeout": 30}]
    gave_up, _, again, meant = play(scene, client, steps)
    assert "error" in gave_up, gave_up
    is_replay(again)
    ran(meant)
    is_equal(scene.effects(), 2, "effects")


def its_own_retry_has_no_second_effect_and_a_second_call_runs(scene, client):
    first, second = play(scene, client, [SLOW, SLOW])
    is_replay(first)
    assert "result" in second, second
    is_equal(scene.effects(), 2, "effects")


def a_retry_of_its_model_has_no_second_effect(scene, client):
    """The client does not retry; it reports the time-out to the model, and the model calls again."""
    gave_up, _, again = play(scene, client, [SLOW, {"sleep": 2.5}, SLOW])
    assert "error" in gave_up, gave_up
    is_replay(again)
    is_equal(scene.effects(), 1, "effects")


def all_its_calls_are_new_ones(scene, client):
    """Each call in its own process or session."""
    for outcome in play(scene, client, [QUICK] * 4):
        ran(outcome)
    is_equal(scene.effects(), 4, "effects")


# The later call is the harder case: the first one no longer runs, so it cannot be shared.
LATE = (a_call_that_is_made_again_later_gets_the_late_answer, a_repeated_call_shares_the_running_one)


def cases(is_all):
    """Checks, clients and transports. Without `is_all`, each client once where it differs from the others."""
    by_itself = its_own_retry_has_no_second_effect_and_a_second_call_runs
    chosen = [(LATE[0], "mcp1", STDIO), (LATE[0], "mcp2", HTTP), (LATE[1], "sdk", HTTP), (LATE[1], "client", STDIO)]
    chosen += [(by_itself, "agents-again", STDIO), (by_itself, "agents1-again", STDIO), (by_itself, "agents1-again", HTTP)]
    chosen += [(a_retry_of_its_model_has_no_second_effect, client, STDIO) for client in ("agents1", "pydantic")]
    chosen += [(all_its_calls_are_new_ones, "langchain", STDIO)]
    if not is_all:
        return chosen
    every = [(check, client, kind) for client in TIMED for check in LATE for kind in (STDIO, HTTP)]
    every += [(by_itself, "agents-again", HTTP)]
    for kind in (STDIO, HTTP):
        every += [(a_retry_of_its_model_has_no_second_effect, client, kind) for client in ("agents", "agents1", "pydantic")]
        every += [(all_its_calls_are_new_ones, client, kind) for client in ("langchain", "pydantic")]
    return chosen + [case for case in every if case not in chosen]


def check_of(check, client, kind):
    def checked(sandbox):
        scene = Scene(sandbox, kind, OLD)
        try:
            check(scene, client)
        finally:
            scene.end()

    checked.__name__ = f"{client} · {kind} · {check.__name__}"
    return checked


if __name__ == "__main__":
    # A client takes two seconds of processor time to start, and gives the gateway five seconds of real time to answer.
    checks.THREADS = 4
    is_all = "--all" in sys.argv
    sys.argv = [one for one in sys.argv if one != "--all"]
    sys.exit(checks.run([check_of(*case) for case in cases(is_all)], checks.arguments_of(__doc__)))
