#!/usr/bin/env python3
"""Runs the examples of transactions of one's own (examples/postgres) against PostgreSQL: three times, ten at once, killed, and
with conflicts. Each invoice has one business row at the end.

    tests/stores/examples.py --binary target/debug/onceward [NAME…]     starts servers of its own unless the test command has
"""

import argparse
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import suite

if "ONCEWARD_TEST_POSTGRES" not in os.environ:
    own = [sys.executable, str(suite.PACKAGES.parent / "stores" / "servers.py"), "--only", "postgres,pgbouncer", "--"]
    os.execv(sys.executable, [*own, sys.executable, *sys.argv])

suite.enter()

import postgres_servers  # noqa: E402
import psycopg  # noqa: E402

sys.path.insert(0, str(suite.PACKAGES))
import install  # noqa: E402

ROOT = suite.PACKAGES.parents[1]
EXAMPLES, GUIDE = ROOT / "examples" / "postgres", ROOT / "docs" / "guides" / "postgres.md"

# Longer than anything here takes on a busy machine. The first build of sqlx takes about a minute on two idle cores.
WAIT_SECONDS, BUILD_SECONDS = 60, 600

# An invoice whose name says so meets a trigger: it waits in the insert or in the commit while the test holds a lock, or fails
# twice with the errors that PostgreSQL gives to transactions that must run again. A sequence counts, because it is not rolled
# back.
TRIGGERS = """
CREATE FUNCTION wait_for_test() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF starts_with(NEW.invoice, TG_ARGV[0]) THEN
        PERFORM pg_advisory_xact_lock_shared(1, 1);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER in_insert AFTER INSERT ON charge FOR EACH ROW EXECUTE FUNCTION wait_for_test('held in insert');
CREATE CONSTRAINT TRIGGER in_commit AFTER INSERT ON charge DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    EXECUTE FUNCTION wait_for_test('held in commit');

CREATE SEQUENCE conflicts;
CREATE FUNCTION fail_twice() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF to_jsonb(NEW) ->> TG_ARGV[0] = TG_ARGV[1] THEN
        CASE nextval('public.conflicts')
            WHEN 1 THEN RAISE EXCEPTION 'planned' USING ERRCODE = '40001';
            WHEN 2 THEN RAISE EXCEPTION 'planned' USING ERRCODE = '40P01';
            ELSE NULL;
        END CASE;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER conflict BEFORE INSERT ON charge FOR EACH ROW EXECUTE FUNCTION fail_twice('invoice', 'conflict in insert');
CREATE TRIGGER conflict BEFORE UPDATE ON onceward.intent FOR EACH ROW EXECUTE FUNCTION fail_twice('key', 'conflict in finish');
"""


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "target" / "debug" / "onceward")
    given, sys.argv[1:] = parser.parse_known_args()
    return given.binary.absolute()


BINARY = options()


class Database:
    """A database with a ledger and a shop, in which tests may do as they like."""

    def __init__(self, name):
        self.name, self.server = name, os.environ["ONCEWARD_TEST_POSTGRES"]
        self.url, self.admin = self.of(self.server), self.of(os.environ["ONCEWARD_TEST_POSTGRES_ADMIN"])
        self.run(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)', self.server)
        self.run(f'CREATE DATABASE "{name}"', self.server)
        # The role of the tests has the name of the schema, which is where its tables would go otherwise.
        self.run(f'ALTER DATABASE "{name}" SET search_path = public')
        self.run("GRANT CREATE ON SCHEMA public TO onceward", self.admin)
        done = onceward("migrate", "--store", self.url)
        assert done.returncode == 0, done.stderr
        self.run((EXAMPLES / "shop.sql").read_text())
        self.run(TRIGGERS)

    def of(self, url):
        return f"{url.rpartition('/')[0]}/{self.name}"

    def as_role(self, role):
        return re.sub(r"//[^:]+:", f"//{role}:", self.url)

    def run(self, statement, url=None):
        """Runs a statement by itself. Returns the first value of its first row."""
        with psycopg.connect(url or self.url, autocommit=True, connect_timeout=WAIT_SECONDS) as connection:
            found = connection.execute(statement)
            row = found.fetchone() if found.description else None
            return row and row[0]

    def rows(self, invoice):
        return self.run(f"SELECT count(*) FROM charge WHERE invoice = '{invoice}'")

    def decision(self, function, invoice):
        return self.run(f"SELECT decision FROM onceward.{function}('charge', '{invoice}')")

    def drop(self):
        self.run(f'DROP DATABASE "{self.name}" WITH (FORCE)', self.server)


def onceward(*arguments):
    return subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)


def eventually(holds, what):
    deadline = time.monotonic() + WAIT_SECONDS
    while not (found := holds()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {WAIT_SECONDS} s: {what}")
        time.sleep(0.02)
    return found


class Example:
    """The tests of one example; its class says how to start it."""

    @classmethod
    def setUpClass(cls):
        cls.command = cls.program()
        cls.database = Database(f"examples_{os.getpid()}_{cls.__name__.lower()}")
        cls.addClassCleanup(cls.database.drop)

    def start(self, *arguments, url=None):
        path = os.pathsep.join([str(postgres_servers.programs()), os.environ["PATH"]])
        variables = os.environ | {"PATH": path, "DATABASE_URL": url or self.database.url}
        return subprocess.Popen(
            [*self.command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables,
            start_new_session=True,
        )

    def output(self, *arguments, url=None):
        return self.ended(self.start(*arguments, url=url))

    def ended(self, process):
        said, error = process.communicate(timeout=WAIT_SECONDS)
        self.assertEqual(process.returncode, 0, f"{said}{error}")
        return re.sub(r'": +"', '":"', said.strip()).replace('" : "', '":"')

    def receipt(self, invoice):
        return f'{{"receipt":"{invoice}/1999"}}'

    def test_three_runs_charge_once_and_two_get_the_receipt(self):
        said = [self.output("charge", "invoice-1") for _ in range(3)]
        receipt = self.receipt("invoice-1")
        self.assertEqual(said, [f"charged: {receipt}", f"replayed: {receipt}", f"replayed: {receipt}"])
        self.assertEqual(self.database.rows("invoice-1"), 1)
        self.assertEqual(self.output("charge", "invoice-1", "5"), "not charged: mismatch")
        self.assertEqual(self.database.rows("invoice-1"), 1)

    def test_ten_runs_at_once_charge_once(self):
        self.ten_at_once("invoice-2")

    def test_ten_serializable_runs_at_once_charge_once(self):
        self.database.run(f"ALTER DATABASE {self.database.name} SET default_transaction_isolation = 'serializable'")
        try:
            self.ten_at_once("invoice-3")
        finally:
            self.database.run(f"ALTER DATABASE {self.database.name} RESET default_transaction_isolation")

    def ten_at_once(self, invoice):
        said = sorted(self.ended(process) for process in [self.start("charge", invoice) for _ in range(10)])
        self.assertEqual(said, [f"charged: {self.receipt(invoice)}"] + 9 * [f"replayed: {self.receipt(invoice)}"])
        self.assertEqual(self.database.rows(invoice), 1)

    def test_a_run_that_is_killed_between_its_insert_and_its_commit_leaves_nothing(self):
        invoice = "held in insert"
        with self.killed_while_it_waits(invoice):
            # The transaction is open: others are told so, and do not wait for it.
            self.assertEqual(self.database.decision("claim", invoice), "in_flight")
        self.assertEqual(self.database.rows(invoice), 0)
        self.assertEqual(self.database.decision("status", invoice), "absent")
        self.assertEqual(self.output("charge", invoice), f"charged: {self.receipt(invoice)}")
        self.assertEqual(self.database.rows(invoice), 1)

    def test_a_run_that_is_killed_in_its_commit_has_charged(self):
        invoice = "held in commit"
        with self.killed_while_it_waits(invoice):
            self.assertEqual(self.database.decision("claim", invoice), "in_flight")
        self.assertEqual(self.database.rows(invoice), 1)
        self.assertEqual(self.output("charge", invoice), f"replayed: {self.receipt(invoice)}")
        self.assertEqual(self.database.rows(invoice), 1)

    @contextlib.contextmanager
    def killed_while_it_waits(self, invoice):
        """Kills a run while its transaction waits for a lock of this test, and then lets the transaction go on."""
        waiting = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = 1 AND objid = 1 AND NOT granted"
        with psycopg.connect(self.database.url, autocommit=True) as connection:
            connection.execute("SELECT pg_advisory_lock(1, 1)")
            process = self.start("charge", invoice)
            backend = eventually(lambda: self.database.run(waiting), "the example waits in its transaction")
            yield
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=WAIT_SECONDS)
        gone = f"SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = {backend}"
        eventually(lambda: self.database.run(gone), "the transaction of the killed example has ended")

    def test_conflicts_are_run_again(self):
        for invoice in ("conflict in insert", "conflict in finish"):
            with self.subTest(invoice):
                self.database.run("ALTER SEQUENCE conflicts RESTART")
                self.assertEqual(self.output("charge", invoice), f"charged: {self.receipt(invoice)}")
                self.assertEqual(self.database.run("SELECT last_value FROM conflicts"), 3)
                self.assertEqual(self.database.rows(invoice), 1)

    def test_a_rollback_leaves_neither_row_nor_record(self):
        self.assertEqual(self.output("rollback", "invoice-4"), "after the rollback: absent")
        self.assertEqual(self.database.rows("invoice-4"), 0)
        self.assertEqual(self.output("charge", "invoice-4"), f"charged: {self.receipt('invoice-4')}")

    def test_a_claim_that_is_not_valid_any_more_cannot_commit_a_row(self):
        self.assertRegex(self.output("stale", "invoice-5"), "^refused: (OW003$|.*the claim is not valid any more)")
        self.assertEqual(self.database.rows("invoice-5"), 0)


class Psql(Example, unittest.TestCase):
    @staticmethod
    def program():
        return [EXAMPLES / "psql" / "run.sh"]


class Psycopg(Example, unittest.TestCase):
    @staticmethod
    def program():
        return [sys.executable, EXAMPLES / "psycopg_charge.py"]

    def test_it_also_works_behind_a_pooler_in_transaction_mode(self):
        pooled = self.database.of(os.environ["ONCEWARD_TEST_PGBOUNCER"])
        said = [self.output("charge", "invoice-6", url=pooled) for _ in range(2)]
        self.assertEqual([line.split(":")[0] for line in said], ["charged", "replayed"])
        self.assertEqual(self.database.rows("invoice-6"), 1)


class Asyncpg(Example, unittest.TestCase):
    @staticmethod
    def program():
        return [sys.executable, EXAMPLES / "asyncpg_charge.py"]


class NodePostgres(Example, unittest.TestCase):
    @staticmethod
    def program():
        programs, why = install.node()
        if why:
            raise unittest.SkipTest(why)
        return ["env", f"NODE_MODULES={programs.parent}", programs / "node", EXAMPLES / "node_postgres_charge.mjs"]


class TokioPostgres(Example, unittest.TestCase):
    @staticmethod
    def program():
        return [BINARY.parent / "examples" / "postgres_transaction"]

    def test_without_a_database_it_says_what_it_needs(self):
        variables = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
        done = subprocess.run(self.command, capture_output=True, text=True, env=variables, timeout=WAIT_SECONDS, check=False)
        self.assertEqual(done.returncode, 0)
        self.assertIn("set DATABASE_URL", done.stdout)


class Sqlx(Example, unittest.TestCase):
    @staticmethod
    def program():
        folder = install.FOLDER / "sqlx"
        command = ["cargo", "build", "--quiet", "--locked", "--target-dir", folder]
        done = subprocess.run(
            command, cwd=EXAMPLES / "sqlx", capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
        assert done.returncode == 0, done.stderr
        return [folder / "debug" / "onceward-sqlx-example"]


class Guide(unittest.TestCase):
    """What docs/guides/postgres.md says about roles, run as it stands there, and its first example."""

    ROLES = ("onceward_owner", "onceward_server", "onceward_reader", "shop")

    @classmethod
    def setUpClass(cls):
        cls.name = f"examples_{os.getpid()}_guide"
        server = os.environ["ONCEWARD_TEST_POSTGRES_ADMIN"]
        as_administrator, as_owner = (cls.block("sql", start) for start in ("-- As an administrator", "-- As onceward_owner"))
        cls.sql(server, f"CREATE DATABASE {cls.name}")
        drop_roles = [f"DROP ROLE IF EXISTS {role}" for role in cls.ROLES]
        cls.addClassCleanup(cls.sql, server, f"DROP DATABASE {cls.name} WITH (FORCE)", *drop_roles)
        cls.admin = f"{server.rpartition('/')[0]}/{cls.name}"
        cls.sql(cls.admin, as_administrator.replace("DATABASE app", f"DATABASE {cls.name}"))
        cls.planned = onceward("migrate", "--store", cls.url("onceward_owner"), "--dry-run").stdout
        done = onceward("migrate", "--store", cls.url("onceward_owner"))
        assert done.returncode == 0, done.stderr
        cls.sql(cls.url("onceward_owner"), as_owner)
        cls.sql(cls.admin, (EXAMPLES / "shop.sql").read_text(), "GRANT SELECT, INSERT ON charge TO shop")

    @staticmethod
    def sql(url, *statements):
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    @classmethod
    def url(cls, role):
        return re.sub(r"//[^@]+@", f"//{role}:change-me@", cls.admin)

    @staticmethod
    def block(language, start):
        found = re.findall(rf"^```{language}\n({re.escape(start)}.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
        assert len(found) == 1, f"{start}: {len(found)} blocks"
        return found[0]

    def test_the_first_example_charges_once(self):
        names = {}
        exec(self.block("python", "def charge"), names)
        with psycopg.connect(self.url("shop"), autocommit=True) as connection:
            said = [names["charge"](connection, "invoice-1", 1999) for _ in range(3)]
            self.assertEqual(said, [("acquired", b'{"receipt": "r-1"}')] + 2 * [("replay", b'{"receipt": "r-1"}')])
            self.assertEqual(connection.execute("SELECT count(*) FROM charge").fetchone()[0], 1)

    def test_a_program_may_call_every_function_and_nothing_else(self):
        with psycopg.connect(self.url("shop"), autocommit=True) as connection:
            for call in (
                "release('o', 'k', fence) FROM onceward.claim('o', 'k')",
                "finish('o', 'k', fence) FROM onceward.claim('o', 'k')",
                "status('o', 'k')",
                "enqueue('o', 'queued', 'payload')",
            ):
                connection.execute(f"SELECT onceward.{call}")
            for table in ("audit", "operation", "high_water_mark", "ledger"):
                with self.assertRaises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(f"DELETE FROM onceward.{table}")

    def test_a_server_may_do_all_that_it_does(self):
        store = ["--store", self.url("onceward_server")]
        intent = [*store, "--operation", "pay", "--key", "invoice-1"]
        killed = onceward("run", *intent, "--", "sh", "-c", "kill -9 $$")
        self.assertIn("in doubt", killed.stderr)
        for arguments in (["resolve", *intent, "--happened"], ["get", *intent], ["purge", *store]):
            done = onceward(*arguments)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_server_may_move_a_ledger_into_the_database(self):
        name = f"{self.name}_copy"
        self.sql(self.admin, f"CREATE DATABASE {name} OWNER onceward_owner")
        self.addCleanup(self.sql, self.admin, f"DROP DATABASE {name} WITH (FORCE)")
        target = self.url("onceward_owner").replace(self.name, name)
        self.assertEqual(onceward("migrate", "--store", target).returncode, 0)
        self.sql(target, self.block("sql", "-- As onceward_owner"))
        with tempfile.TemporaryDirectory() as folder:
            source = f"{folder}/ledger.db"
            self.assertEqual(onceward("run", "--store", source, "--operation", "pay", "--key", "1", "--", "true").returncode, 0)
            done = onceward("copy", "--from", source, "--to", self.url("onceward_server").replace(self.name, name))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_reader_may_look_and_not_write(self):
        store = ["--store", self.url("onceward_reader")]
        self.assertEqual(onceward("list", *store).returncode, 0)
        refused = onceward("run", *store, "--operation", "read", "--key", "1", "--", "true")
        self.assertIn("permission denied", refused.stderr)

    def test_a_dry_run_prints_the_schema_and_a_second_migration_does_nothing(self):
        self.assertIn("CREATE TABLE onceward.intent", self.planned)
        store = ["--store", self.url("onceward_owner")]
        self.assertIn("nothing to do", onceward("migrate", *store).stdout)
        self.assertIn("nothing to do", onceward("migrate", *store, "--dry-run").stdout)


if __name__ == "__main__":
    suite.main()
