#!/usr/bin/env python3
"""Real clients over streamable HTTP: the gateway listens in front of a server made with the official SDK.

tests/mcp/clients_http.py --binary target/debug/onceward
"""

import contextlib
import re
import subprocess
import sys
import threading
import time

import clients
import install
from checks import is_equal
from checks import Skipped
from clients import MAIL, call, name_of, play
from results import about, is_fresh, is_replay
from sandbox import HERE, without_settings

TIMEOUT = 60


@contextlib.contextmanager
def started(sandbox, command):
    """A process whose first line has the address on which it listens."""
    environment = without_settings() | sandbox.environment()
    with open(sandbox.folder / "errors", "a") as errors:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
            cwd=sandbox.folder,
        )
    said = []
    first = threading.Thread(target=lambda: said.append(process.stdout.readline()), daemon=True)
    first.start()
    first.join(TIMEOUT)
    try:
        found = re.search(r"http://\S+", said[0] if said else "")
        assert found, f"{command} said {said}"
        yield found.group(0)
    finally:
        process.terminate()
        process.wait(TIMEOUT)


@contextlib.contextmanager
def served(sandbox):
    """The addresses of the server and of the gateway in front of it."""
    python, missing = install.python("mcp2")
    if missing:
        raise Skipped(missing)
    with started(sandbox, [python, HERE / "http_server.py"]) as upstream:
        ledger = sandbox.folder / "ledger.db"
        gateway = [sandbox.binary, "mcp", "--store", ledger, "--upstream", upstream, "--listen", "127.0.0.1:0"]
        with started(sandbox, [*gateway, "--server", "fixture"]) as address:
            yield upstream, address


def it_lists_reads_and_acts_once(sandbox, client):
    with served(sandbox) as (upstream, gateway):
        send, read = call("send_email", MAIL), call("read_inbox")
        steps = [{"tools": True}, read, send, send, read]
        tools, before, first, second, after = play(sandbox, client, steps, [gateway])
        direct = play(sandbox, client, [{"tools": True}], [upstream])[0]
    is_equal([tool["name"] for tool in tools if tool["name"] != "onceward_status"], [tool["name"] for tool in direct])
    is_equal(before["result"]["content"][0]["text"], "0 so far", "before")
    is_fresh(first["result"])
    is_replay(second["result"], first["result"])
    is_equal(after["result"]["content"][0]["text"], "1 so far", "after")
    is_equal(len(sandbox.effects()), 1, "effects")


def two_calls_at_once_act_once(sandbox, client):
    with served(sandbox) as (_, gateway):
        step = call("send_email", MAIL | {"delay_ms": 300})
        outcomes = play(sandbox, client, [{"together": [step, step, step]}], [gateway])[0]
    results = [outcome["result"] for outcome in outcomes]
    is_equal(sum(about(result).get("replayed") is True for result in results), 2, "replays")
    is_equal(len(sandbox.effects()), 1, "effects")


def after_its_own_time_out_it_gets_the_late_answer(sandbox, client):
    with served(sandbox) as (_, gateway):
        steps = [call("slow", {"delay_ms": 1500}, timeout=0.5), call("slow", {"delay_ms": 1500}, timeout=20)]
        first, second = play(sandbox, client, steps, [gateway])
    assert "error" in first, first
    is_replay(second["result"])
    is_equal(len(sandbox.effects()), 1, "effects")


def progress_arrives(sandbox, client):
    with served(sandbox) as (_, gateway):
        outcome = play(sandbox, client, [call("progress", {"steps": 4})], [gateway])[0]
    is_equal(outcome["progress"], [1, 2, 3, 4], "progress")


def it_calls_again_by_itself_and_acts_once(sandbox, client):
    with served(sandbox) as (_, gateway):
        outcome = play(sandbox, client, [call("slow", {"delay_ms": 2500})], [gateway])[0]
        time.sleep(1)
    is_replay(outcome["result"])
    is_equal(len(sandbox.effects()), 1, "effects")


def without_the_gateway_it_acts_again(sandbox, client):
    with served(sandbox) as (upstream, _):
        play(sandbox, client, [call("slow", {"delay_ms": 2500})], [upstream])
        time.sleep(3)
    assert len(sandbox.effects()) > 1, "what the case above is worth"


EACH = [
    it_lists_reads_and_acts_once,
    two_calls_at_once_act_once,
    after_its_own_time_out_it_gets_the_late_answer,
    progress_arrives,
]


def cases():
    found = [(f"{client} · {name_of(check)}", check, client) for client in clients.CLIENTS for check in EACH]
    for check in (it_calls_again_by_itself_and_acts_once, without_the_gateway_it_acts_again):
        found.append((f"openai-agents · {name_of(check)}", check, "agents"))
    return found


if __name__ == "__main__":
    sys.exit(clients.run(cases(), __doc__))
