#!/usr/bin/env python3
"""Real clients that give up on a call of 6 s after 5 s, over stdio and HTTP: what they send again acts once, and a call
that is made afterwards runs.

tests/mcp/giving_up.py --binary target/debug/onceward [--all]
"""

import json
import os
import subprocess
import sys

import checks
import install
from checks import Skipped, is_equal
from judge import MARK
from meant_place import HTTP, OLD, STDIO, Scene
from place import HERE

# Longer than the clients wait.
TAKES = {"name": "x", "value": "a", "delay_ms": 6000}
SLOW = {"call": "set_value", "arguments": TAKES}
QUICK = {"call": "set_value", "arguments": {"name": "x", "value": "a"}}
GIVES_UP = SLOW | {"timeout": 5}
PATIENCE = 90

# Clients that have a time-out for each call, by the environment that has them.
TIMED = {"mcp1": "mcp1", "mcp2": "mcp2", "fastmcp": "fastmcp", "sdk": None, "client": None}


def play(scene, client, steps):
    """What came of each step."""
    place = scene.place
    command = [str(part) for part in scene.command()]
    if scene.kind == HTTP:
        command = [f"http://127.0.0.1:{scene.address()}/mcp"]
    place.started += 1
    environment = place.environment() | {"PATH": os.environ["PATH"]}
    if client in ("sdk", "client"):
        programs, missing = install.node()
        program = [programs and programs / "node", HERE / "giving_up_client.mjs", programs and programs.parent, client]
        program += command
        plan, environment = steps, environment | {"HOME": str(place.folder)}
    else:
        python, missing = install.python(client.removesuffix("-again"))
        program = [python, HERE / "giving_up_client.py", client]
        plan, environment = {"command": command, "environment": environment, "steps": steps}, None
    if missing:
        raise Skipped(missing)
    done = subprocess.run(
        [str(part) for part in program],
        input=json.dumps(plan),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=place.folder,
        env=environment,
        check=False,
    )
    with open(place.folder / "errors", "a") as file:
        file.write(done.stderr)
    assert done.returncode == 0, f"{client} ended with {done.returncode}: {done.stdout}"
    return json.loads(done.stdout.splitlines()[-1])


def is_replay(outcome):
    assert MARK in json.dumps(outcome) and "result" in outcome, outcome


def ran(outcome):
    assert MARK not in json.dumps(outcome) and "result" in outcome, outcome


def a_call_that_is_made_again_shares_the_one_that_runs(scene, client):
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


def what_it_sends_again_by_itself_acts_once_and_a_second_call_runs(scene, client):
    first, second = play(scene, client, [SLOW, SLOW])
    is_replay(first)
    assert "result" in second, second
    is_equal(scene.effects(), 2, "effects")


def what_its_model_calls_again_acts_once(scene, client):
    """Without attempts of its own the client tells the model of the time-out, and the model calls again."""
    gave_up, _, again = play(scene, client, [SLOW, {"sleep": 2.5}, SLOW])
    assert "error" in gave_up, gave_up
    is_replay(again)
    is_equal(scene.effects(), 1, "effects")


def its_calls_are_all_meant(scene, client):
    """Each in a process, or a session, of its own."""
    for outcome in play(scene, client, [QUICK] * 4):
        ran(outcome)
    is_equal(scene.effects(), 4, "effects")


# The later call is the harder case: nothing runs any more that it could share.
LATE = (a_call_that_is_made_again_later_gets_the_late_answer, a_call_that_is_made_again_shares_the_one_that_runs)


def cases(is_all):
    """Checks, clients and transports. Without `is_all`, each client once where it differs from the others."""
    by_itself = what_it_sends_again_by_itself_acts_once_and_a_second_call_runs
    chosen = [(LATE[0], "mcp1", STDIO), (LATE[0], "mcp2", HTTP), (LATE[1], "sdk", HTTP), (LATE[1], "client", STDIO)]
    chosen += [(by_itself, "agents-again", STDIO), (by_itself, "agents1-again", STDIO), (by_itself, "agents1-again", HTTP)]
    chosen += [(what_its_model_calls_again_acts_once, client, STDIO) for client in ("agents1", "pydantic")]
    chosen += [(its_calls_are_all_meant, "langchain", STDIO)]
    if not is_all:
        return chosen
    every = [(check, client, kind) for client in TIMED for check in LATE for kind in (STDIO, HTTP)]
    every += [(by_itself, "agents-again", HTTP)]
    for kind in (STDIO, HTTP):
        every += [(what_its_model_calls_again_acts_once, client, kind) for client in ("agents", "agents1", "pydantic")]
        every += [(its_calls_are_all_meant, client, kind) for client in ("langchain", "pydantic")]
    return chosen + [case for case in every if case not in chosen]


def check_of(check, client, kind):
    def checked(place):
        scene = Scene(place, kind, OLD)
        try:
            check(scene, client)
        finally:
            scene.end()

    checked.__name__ = f"{client} · {kind} · {check.__name__}"
    return checked


if __name__ == "__main__":
    is_all = "--all" in sys.argv
    sys.argv = [one for one in sys.argv if one != "--all"]
    sys.exit(checks.run([check_of(*case) for case in cases(is_all)], checks.arguments_of(__doc__)))
