#!/usr/bin/env python3
"""The Claude Agent SDK's whole loop, with a model that calls the same tool again, and the gateway in between.

tests/mcp/claude.py --binary target/debug/onceward
"""

import json
import os
import subprocess
import sys

import clients
import install
from checks import is_equal, until
from clients import MAIL, PATIENCE, Skipped, name_of
from fake_model import FakeModel, call
from place import HERE, SERVER

SEND = ("send_email", MAIL)


def prompt(place, turns, command=None):
    """Runs the loop, and gives back the texts of what the model heard from its tools."""
    python, missing = install.python("claude")
    if missing:
        raise Skipped(missing)
    place.started += 1
    model = FakeModel([[call(*one) for one in turn] for turn in turns])
    plan = {
        "command": [str(part) for part in command or place.command(session="s")],
        "environment": place.environment() | {"PATH": os.environ["PATH"]},
        "tools": sorted({name for turn in turns for name, _ in turn}),
        "folder": str(place.folder),
        "model": model.url,
    }
    try:
        done = subprocess.run(
            [str(python), str(HERE / "claude_client.py")],
            input=json.dumps(plan),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            cwd=place.folder,
            env={name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC", "CLAUDE"))},
            check=False,
        )
    finally:
        model.stop()
    with open(place.folder / "errors", "a") as file:
        file.write(done.stderr)
    assert done.returncode == 0, f"it ended with {done.returncode}"
    return [text for text, _ in model.told()]


def a_model_that_says_it_again_in_the_next_turn_acts_once(place, client):
    heard = prompt(place, [[SEND], [SEND]])
    is_equal(len(heard), 2, "results that the model heard")
    assert "[onceward]" not in heard[0] and "[onceward]" in heard[1], heard
    is_equal(len(place.effects()), 1, "effects")


def a_model_that_says_it_twice_at_once_acts_once(place, client):
    heard = prompt(place, [[SEND, SEND]])
    is_equal(len(heard), 2, "results that the model heard")
    is_equal(sum("[onceward]" in one for one in heard), 1, "replays")
    is_equal(len(place.effects()), 1, "effects")


def a_model_that_is_asked_again_in_a_resumed_session_acts_once(place, client):
    prompt(place, [[SEND]])
    heard = prompt(place, [[SEND]])
    assert "[onceward]" in heard[0], heard
    is_equal(len(place.effects()), 1, "effects")


def a_deliberate_repeat_of_the_model_acts_again(place, client):
    again = ("send_email", MAIL | {"onceward_repeat": 2})
    prompt(place, [[SEND], [again], [again]])
    is_equal(len(place.effects()), 2, "effects")


def a_model_hears_of_a_doubt_in_plain_words(place, client):
    place.configure('[mcp.server.fixture.tool.fail]\ntier = "payment"\n')
    heard = prompt(place, [[("fail", {})], [("fail", {})]])
    assert "unknown whether fail took effect" in heard[1], heard
    is_equal(len(place.effects()), 1, "effects")


def without_the_gateway_the_model_acts_twice(place, client):
    prompt(place, [[SEND], [SEND]], SERVER)
    until(lambda: len(place.effects()) == 2, "two effects: what the cases above are worth")


CASES = [
    a_model_that_says_it_again_in_the_next_turn_acts_once,
    a_model_that_says_it_twice_at_once_acts_once,
    a_model_that_is_asked_again_in_a_resumed_session_acts_once,
    a_deliberate_repeat_of_the_model_acts_again,
    a_model_hears_of_a_doubt_in_plain_words,
    without_the_gateway_the_model_acts_twice,
]


if __name__ == "__main__":
    sys.exit(clients.run([(f"claude · {name_of(check)}", check, None) for check in CASES], __doc__))
