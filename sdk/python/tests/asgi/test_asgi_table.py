"""The table of HTTP cases that the gateway and the Tower layer pass, on the ASGI middleware: the same requests, the
same responses, and the same number of effects."""

import asyncio
import contextlib
import json
import pathlib
import re
import sqlite3
import threading

import asgi_server
import asgi_table_keys
import asgi_table_responses
import httpx
import pytest
from asgi_cases import (
    STATUSES,
    Exchange,
    GivesUp,
    LedgerBreaks,
    PieceByPiece,
    StreamTakes,
    Together,
    Unfinished,
    Wait,
)
from asgi_script import Script
from asgi_server import Response, serving

import onceward
from onceward.asgi import IdempotencyMiddleware

ROOT = pathlib.Path(__file__).resolve().parents[4]
TABLE = [*asgi_table_keys.CASES, *asgi_table_responses.CASES]

# Cases of the gateway and the layer that cannot occur here.
EXCUSED = {
    "a new key over the quota of its tenant is refused, and everything else keeps working": "there are no quotas here",
    "a request that did not reach the upstream did nothing, and the retry runs": "an app is always reachable",
    "a response that pauses for too long is in doubt": "an app has no time-out",
    "a response that takes too long is in doubt": "an app has no time-out",
    "a response that starts and does not continue is in doubt": "an app has no time-out",
    "a web page of another origin is refused": "the app checks origins",
    "paths of the gateway itself, and paths with dot segments": "the app has the routes",
}

# Problems that cannot occur here, or have tests of their own.
EXCUSED_PROBLEMS = {
    "dead": "only queued intents can be dead",
    "no-route": "the app has the routes",
    "overloaded": "the server limits connections",
    "queued": "nothing can be queued before the outbox exists",
    "quota": "ledgers here have no quota",
    "tenant-unknown": "no upstream is asked for the tenant",
    "timed-out": "an app has no time-out",
    "unreachable": "an app says so by raising onceward.NotSent: test_asgi_endings.py",
    "wrong-host": "the app checks hosts",
}


@contextlib.contextmanager
def guarded(case, folder):
    """The script behind the middleware, as the case sets it up."""
    script = Script(case.script)
    with onceward.Ledger(folder / "ledger.db") as ledger:
        yield script, IdempotencyMiddleware(script, ledger=ledger, **case.settings)


# Of uvicorn's two parsers, the second one plays what depends on connections.
SERVED = [("httptools", case) for case in TABLE] + [("h11", case) for case in TABLE if case.needs_a_connection()]


@pytest.mark.parametrize(("http", "case"), SERVED, ids=lambda one: getattr(one, "name", one))
def test_a_real_server_passes_the_table(http, case, tmp_path):
    with guarded(case, tmp_path) as (script, app), serving(app, http=http) as port:
        for number, step in enumerate(case.steps, 1):
            faults = take(step, script, port, tmp_path)
            assert not faults, f"step {number}: {faults}"
        assert script.effects == len(case.script)


@pytest.mark.parametrize("case", [case for case in TABLE if not case.needs_a_connection()], ids=lambda case: case.name)
def test_the_table_in_process(case, tmp_path):
    async def play():
        with guarded(case, tmp_path) as (script, app):
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                for number, step in enumerate(case.steps, 1):
                    faults = await take_in_process(step, script, client, tmp_path)
                    assert not faults, f"step {number}: {faults}"
            assert script.effects == len(case.script)

    asyncio.run(play())


def take(step, script, port, folder):
    """Takes a step over real connections. Returns everything unexpected."""
    match step:
        case Exchange(request, expect):
            return differences(sent(port, request), expect)
        case Unfinished(request, expect):
            return differences(sent(port, request, length=len(request.body) + 1), expect)
        case Together(exchanges):
            faults, threads, before = [], [], script.effects
            for one in exchanges:
                thread = threading.Thread(
                    target=lambda one=one: faults.extend(differences(sent(port, one.request), one.expect))
                )
                thread.start()
                threads.append(thread)
                # The first one has to reach the app before the others are sent.
                script.wait_for(before + 1)
            for thread in threads:
                thread.join()
            return faults
        case GivesUp(request):
            before = script.effects
            made = asgi_server.connection(port, request.method, request.path, request.headers, request.body)
            script.wait_for(before + 1)
            made.close()
            return []
        case PieceByPiece(request, pieces):
            seen = []

            def see(piece):
                seen.append(piece)
                script.pieces.release()

            whole = sent(port, request, seen=see).whole
            return [] if whole and tuple(seen) == pieces else [f"{seen}, whole: {whole}"]
        case Wait(seconds):
            threading.Event().wait(seconds)
        case _:
            change_ledger(step, folder)
    return []


async def take_in_process(step, script, client, folder):
    async def exchanged(one):
        headers = [(name.encode(), value) for name, value in one.request.headers]
        answer = await client.request(one.request.method, one.request.path, headers=headers, content=one.request.body)
        return differences(Response(answer.status_code, dict(answer.headers), answer.content), one.expect)

    match step:
        case Exchange():
            return await exchanged(step)
        case Together(exchanges):
            running, before = [], script.effects
            for one in exchanges:
                running.append(asyncio.ensure_future(exchanged(one)))
                while script.effects == before:
                    await asyncio.sleep(0.005)
            return [fault for faults in await asyncio.gather(*running) for fault in faults]
        case Wait(seconds):
            await asyncio.sleep(seconds)
        case _:
            await asyncio.to_thread(change_ledger, step, folder)
    return []


def change_ledger(step, folder):
    match step:
        case LedgerBreaks():
            with contextlib.closing(sqlite3.connect(folder / "ledger.db", timeout=10)) as store:
                store.execute("ALTER TABLE intent RENAME TO gone")
        case StreamTakes(stream):
            with onceward.Ledger(folder / "ledger.db") as ledger:
                ledger.call("POST /v1/charges", item=(stream, 1), tenant="acme").run(lambda: None)
        case _:
            raise TypeError(step)


def sent(port, request, **more):
    return asgi_server.send(port, request.method, request.path, request.headers, request.body, **more)


def differences(response, expect):
    """The differences from the expected response."""
    faults = []

    def check(name, found, expected):
        if found != expected:
            faults.append(f"{name} is {found!r} instead of {expected!r}")

    check("status", response.status, expect.status)
    check("replayed", response["idempotent-replayed"] == "true", expect.replayed)
    if expect.replayed:
        check("has idempotency-expires", response["idempotency-expires"] is not None, True)
    check("is a problem", response["content-type"] == "application/problem+json", expect.problem is not None)
    check("whole", response.whole, expect.body is not None or expect.problem is not None)
    if expect.body is not None:
        check("body", response.body, expect.body)
    for name, value in expect.headers.items():
        check(name, response[name] if value != "*" or response[name] is None else "*", value)
    for name in expect.absent:
        check(name, response[name], None)
    if expect.problem is not None:
        members = json.loads(response.body) if response.body else {}
        check("type", members.get("type"), f"/.well-known/onceward/problems/{expect.problem}")
        check("the member status", members.get("status"), response.status)
        for name, value in expect.members.items():
            found = members.get(name)
            check(name, str(found) if value != "*" or found is None else "*", value)
    return [*faults, f"in {response}"] if faults else []


def test_the_table_has_every_case_of_the_gateway_and_the_layer():
    folder = ROOT / "crates/onceward-cli/tests/it/http_cases"
    literal = re.compile(r'\b(?:case|retried_as|missing)\(\s*"((?:[^"\\]|\\.)*)"')
    theirs = {name for file in folder.glob("*.rs") for name in literal.findall(file.read_text())}
    assert len(theirs) > 40
    ours = {case.name for case in TABLE}
    assert len(ours) == len(TABLE)
    assert theirs - ours == set(EXCUSED)
    # These are made in loops there.
    made = {f"every status, {profile}" for profile in ("ietf", "stripe", "acp")}
    made |= {f"a mismatch under the profile {profile}" for profile in ("stripe", "acp")}
    assert ours - theirs == made


def test_every_problem_has_a_case():
    source = (ROOT / "crates/onceward/src/http/problem_kind.rs").read_text()
    every = set(re.findall(r'Self::\w+ => (?:\{\s*)?\(\s*"([a-z-]+)"', source))
    assert len(every) > 20
    expected = set().union(*(case.problems() for case in TABLE))
    assert expected == set(STATUSES)
    assert every - expected == set(EXCUSED_PROBLEMS)
