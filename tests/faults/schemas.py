"""Two processes create one ledger, and one of them is killed; files with another schema."""

import pathlib
import random
import signal
import sqlite3
import subprocess
import time

from checks import is_equal
from upstream import Upstream
from fault_sandbox import charge, is_ready, without_settings

ROUNDS = 25


def begun(sandbox, ledger, key):
    named = ["--operation", "job", "--key", key, "--store", str(ledger)]
    command = [sandbox.binary, "run", *named, "--", "sh", "-c", f"echo {key} >> effects"]
    return subprocess.Popen(
        command, cwd=sandbox.folder, env=without_settings(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
    )


def two_processes_make_one_ledger_while_one_is_killed(sandbox):
    chance = random.Random(7)
    for number in range(ROUNDS):
        ledger = sandbox.folder / f"{number}.db"
        (sandbox.folder / "effects").unlink(missing_ok=True)
        first, second = begun(sandbox, ledger, "a"), begun(sandbox, ledger, "b")
        # The process starts within milliseconds and then creates the file and its tables.
        time.sleep(chance.uniform(0.0, 0.06))
        first.send_signal(signal.SIGKILL)
        first.wait(30)
        errors = second.communicate(timeout=60)[1]
        is_equal(second.returncode, 0, f"round {number}: {errors}")
        # Whatever the killed process had created by then, the ledger is complete. Its key is done, in doubt or new.
        again = begun(sandbox, ledger, "a")
        errors = again.communicate(timeout=60)[1]
        assert again.returncode in (0, 76), f"round {number}: {again.returncode} {errors}"
        repeat = begun(sandbox, ledger, "b")
        errors = repeat.communicate(timeout=60)[1]
        is_equal(repeat.returncode, 0, f"round {number}: {errors}")
        done = (sandbox.folder / "effects").read_text().split()
        is_equal(done.count("b"), 1, f"round {number}: effects of b")
        assert done.count("a") <= 1, done
        with sqlite3.connect(ledger) as database:
            is_equal(database.execute("PRAGMA integrity_check").fetchone()[0], "ok")


def commands(sandbox, ledger, upstream):
    """Every command that opens a ledger."""
    named = ("--operation", "job", "--key", "k", "--store", str(ledger))
    store = ("--store", str(ledger))
    configuration = sandbox.folder / "api.toml"
    configuration.write_text('[api]\nlisten = "127.0.0.1:0"\n')
    return {
        "run": ("run", *named, "--", "sh", "-c", "echo x >> effects"),
        "get": ("get", *named),
        "list": ("list", *store),
        "resolve": ("resolve", *named, "--happened"),
        "purge": ("purge", *store),
        "serve": ("serve", "--config", str(configuration), *store),
        "gateway": ("gateway", "--upstream", upstream.url, "--listen", "127.0.0.1:0", *store),
    }


def is_refused_by_all(sandbox, ledger, *words):
    """Every command exits with 69 and says why, nothing runs, and the file does not change."""
    before = pathlib.Path(ledger).read_bytes()
    for name, command in commands(sandbox, ledger, Upstream(sandbox)).items():
        done = subprocess.run(
            [sandbox.binary, *command], cwd=sandbox.folder, env=without_settings(), capture_output=True, text=True, timeout=30
        )
        is_equal(done.returncode, 69, f"{name} with {done.stderr!r}: exit code")
        for word in (str(ledger), *words):
            assert word in done.stderr, f"{name}: {done.stderr!r} does not say {word!r}"
    assert not (sandbox.folder / "effects").exists()
    # An MCP gateway starts: read-only calls pass, and calls with effects are refused with an explanation.
    sandbox.ledger = ledger
    agent = sandbox.agent()
    result = agent.call("send_email", {"to": "ada@example.org"})
    assert result["isError"] and "ledger" in result["content"][0]["text"], result
    is_equal(sandbox.effects(), [])
    agent.close()
    assert any(word in sandbox.errors() for word in words), sandbox.errors()
    is_equal(pathlib.Path(ledger).read_bytes(), before, "the file")


def with_version(sandbox, version):
    """A ledger of this build whose header names another schema version."""
    is_equal(sandbox.run("k", "true").wait(20), 0)
    with sqlite3.connect(sandbox.ledger) as database:
        known = database.execute("PRAGMA user_version").fetchone()[0]
        database.execute(f"PRAGMA user_version = {version(known)}")
        database.commit()
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    return sandbox.ledger


def a_ledger_of_a_newer_schema_is_refused_by_every_command(sandbox):
    is_refused_by_all(sandbox, with_version(sandbox, lambda known: known + 1), "schema version", "upgrade onceward")


def a_ledger_of_an_older_schema_is_refused_by_every_command(sandbox):
    is_refused_by_all(sandbox, with_version(sandbox, lambda known: 2), "schema version", "start a new ledger")


def a_ledger_whose_schema_is_unknown_is_refused_by_every_command(sandbox):
    is_refused_by_all(sandbox, with_version(sandbox, lambda known: -7), "schema version", "start a new ledger")


def a_file_of_another_application_is_refused_by_every_command(sandbox):
    ledger = sandbox.folder / "other.db"
    with sqlite3.connect(ledger) as database:
        database.execute("CREATE TABLE bookmark (url TEXT)")
    database.close()
    is_refused_by_all(sandbox, ledger, "another application")


def a_file_that_is_not_a_database_is_refused_by_every_command(sandbox):
    ledger = sandbox.folder / "letter.db"
    ledger.write_text("Dear Ada,\n" * 200)
    is_refused_by_all(sandbox, ledger, "SQLite")


def a_process_that_still_runs_does_not_write_into_a_ledger_of_a_newer_schema(sandbox):
    # A newer build has changed the schema while an older one is running.
    upstream = Upstream(sandbox)
    gateway = sandbox.gateway(upstream)
    is_equal(charge(gateway, "before", amount=1).status, 200)
    with sqlite3.connect(sandbox.ledger) as database:
        known = database.execute("PRAGMA user_version").fetchone()[0]
        database.execute("ALTER TABLE intent ADD COLUMN of_a_newer_build TEXT")
        database.execute(f"PRAGMA user_version = {known + 1}")
    database.close()
    refused = charge(gateway, "after", amount=1)
    is_equal(refused.status, 503)
    assert not is_ready(gateway)
    is_equal(upstream.requests, ["before"])
