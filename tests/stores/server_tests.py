#!/usr/bin/env python3
"""Tests of the servers that tests of stores use: they are durable, fail as told, and leave nothing behind."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import suite

suite.enter()

import postgres_servers  # noqa: E402
import processes  # noqa: E402
import psycopg  # noqa: E402
import redis  # noqa: E402
import servers  # noqa: E402

# Longer than anything here takes on a busy machine.
WAIT_SECONDS = 40

PROGRAM = str(pathlib.Path(servers.__file__))


def eventually(holds, what):
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {WAIT_SECONDS} s: {what}")
        time.sleep(0.05)


def run(server, statement, database="postgres"):
    """Runs a statement as the role that tests have."""
    with psycopg.connect(server.url(database=database), autocommit=True, connect_timeout=10) as connection:
        found = connection.execute(statement)
        return found.fetchone()[0] if found.description else None


class Case(unittest.TestCase):
    """Each test has servers of its own, in one folder: a fresh database cluster is then made once and copied."""

    names = iter(f"server-{number}" for number in range(1, 1000))

    @classmethod
    def setUpClass(cls):
        cls.home = servers.Home()
        cls.addClassCleanup(cls.home.close)

    def certificates(self):
        folder = self.home.folder / next(self.names)
        folder.mkdir()
        return servers.Certificates(folder)


class Postgres(Case):
    def start(self, **options):
        return servers.Postgres(self.home, next(self.names), **options).start()

    def test_a_commit_survives_kill_9_and_a_stop_in_order(self):
        server = self.start()
        self.assertEqual((run(server, "SHOW fsync"), run(server, "SHOW synchronous_commit")), ("on", "on"))
        run(server, "CREATE DATABASE own")
        run(server, "CREATE TABLE entry AS SELECT 1 AS id", "own")
        family = server.family()
        self.assertGreater(len(family), 3)
        server.kill()
        self.assertEqual([pid for pid in family if processes.has_memory(pid)], [])
        server.start()
        run(server, "INSERT INTO entry VALUES (2)", "own")
        server.restart()
        self.assertEqual(run(server, "SELECT count(*) FROM entry", "own"), 2)

    def test_the_role_is_not_a_superuser_and_has_to_give_its_password(self):
        server = self.start()
        self.assertEqual(run(server, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"), False)
        for wrong in (server.url().replace(postgres_servers.PASSWORD, "wrong"), server.url("onceward_unknown")):
            with self.assertRaises(psycopg.OperationalError):
                psycopg.connect(wrong)

    def test_a_synchronous_standby_has_every_commit_and_can_be_promoted(self):
        primary = self.start()
        standby = primary.add_standby()
        primary.sql("CREATE TABLE entry (id int); GRANT ALL ON entry TO public")
        self.assertEqual(run(standby, "SELECT pg_is_in_recovery()"), True)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            standby.pause()
            waiting = pool.submit(run, primary, "INSERT INTO entry VALUES (1)")
            time.sleep(0.5)
            self.assertFalse(waiting.done(), "a commit did not wait for the standby")
            standby.resume()
            waiting.result(WAIT_SECONDS)
        primary.kill()
        standby.promote()
        # It does not wait for a standby of its own.
        run(standby, "INSERT INTO entry VALUES (2)")
        self.assertEqual(run(standby, "SELECT count(*) FROM entry"), 2)

    def test_an_asynchronous_standby_does_not_delay_commits(self):
        primary = self.start()
        standby = primary.add_standby(synchronous=False)
        standby.pause()
        primary.sql("CREATE TABLE entry (id int)")

    def test_a_paused_server_answers_when_it_is_resumed(self):
        server = self.start()
        with psycopg.connect(server.url(), autocommit=True) as open_before, concurrent.futures.ThreadPoolExecutor() as pool:
            server.pause()
            waiting = pool.submit(lambda: open_before.execute("SELECT 7").fetchone()[0])
            time.sleep(0.3)
            self.assertFalse(waiting.done())
            server.resume()
            self.assertEqual(waiting.result(WAIT_SECONDS), 7)

    def test_tls_is_verified_and_required_of_its_role(self):
        certificates = self.certificates()
        server = self.start(certificates=certificates)
        with psycopg.connect(f"{server.tls_url()}&sslrootcert={certificates.authority}") as connection:
            self.assertTrue(connection.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone()[0])
        for wrong in (server.tls_url().replace("verify-full", "disable"), f"{server.tls_url()}&sslrootcert=system"):
            with self.assertRaises(psycopg.OperationalError):
                psycopg.connect(wrong)

    def test_pgbouncer_shares_connections_between_transactions(self):
        server = self.start()
        bouncer = servers.PgBouncer(self.home, server, pool=2).start()
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(psycopg.connect(bouncer.url(), autocommit=True)) for _ in range(6)]
            backends = {client.execute("SELECT pg_backend_pid()").fetchone()[0] for client in clients}
        self.assertLessEqual(len(backends), 2)
        bouncer.kill()
        bouncer.start()
        self.assertEqual(run(bouncer, "SELECT 1"), 1)


class Redis(Case):
    def test_a_write_survives_kill_9(self):
        server = servers.Redis(self.home, next(self.names)).start()
        self.assertEqual(server.ask("CONFIG", "GET", "appendfsync"), "appendfsync\nalways")
        self.assertEqual(server.ask("SET", "key", "value"), "OK")
        server.kill()
        server.start()
        self.assertEqual(server.ask("GET", "key"), "value")

    def test_a_password_and_tls_are_required(self):
        certificates = self.certificates()
        server = servers.Redis(self.home, next(self.names), password="secret", certificates=certificates).start()
        self.assertTrue(redis.Redis.from_url(server.url(), ssl_ca_certs=certificates.authority).ping())
        no_password = server.url().replace("default:secret@", "")
        for client in (
            redis.Redis.from_url(server.url()),
            redis.Redis.from_url(no_password, ssl_ca_certs=certificates.authority),
            redis.Redis.from_url(server.url().replace("rediss:", "redis:")),
        ):
            with self.assertRaises(redis.RedisError):
                client.ping()

    def test_a_cluster_serves_every_slot_and_notices_a_lost_node(self):
        cluster = servers.RedisCluster(self.home).start()
        node = cluster.nodes[0]
        client = redis.RedisCluster(host="127.0.0.1", port=node.port)
        self.assertTrue(all(client.set(f"key-{number}", number) for number in range(50)))
        self.assertEqual({node.port for node in client.get_nodes()}, {node.port for node in cluster.nodes})
        cluster.nodes[2].kill()
        eventually(lambda: "cluster_state:fail" in node.ask("CLUSTER", "INFO"), "the lost node is noticed")
        cluster.nodes[2].start()
        eventually(lambda: "cluster_state:ok" in node.ask("CLUSTER", "INFO"), "the node is back")

    def test_sentinels_make_the_replica_the_primary(self):
        group = servers.RedisSentinel(self.home).start()
        addresses = [("127.0.0.1", sentinel.port) for sentinel in group.sentinels]
        client = redis.Sentinel(addresses).master_for("ledger")
        client.set("key", "value")
        self.assertEqual(client.execute_command("WAIT", 1, 5000), 1)
        group.primary.kill()
        self.assertIs(group.failed_over(WAIT_SECONDS), group.replica)
        self.assertEqual(client.get("key"), b"value")


class Ending(unittest.TestCase):
    def setUp(self):
        self.own = tempfile.TemporaryDirectory()
        self.addCleanup(self.own.cleanup)
        self.folder = pathlib.Path(self.own.name)
        self.folder.chmod(0o711)

    def processes(self):
        """The processes that work below the folder of this test."""
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.readlink(folder / "cwd").startswith(f"{self.folder.resolve()}/"):
                    found.append(folder.name)
        return found

    def start(self, *command):
        environment = os.environ | {"TMPDIR": str(self.folder), "ONCEWARD_TEST_SERVERS": str(self.folder)}
        options = [sys.executable, PROGRAM, "--only", "postgres,redis"]
        # A session of its own, so that a signal reaches this process alone.
        return subprocess.Popen([*options, *command], env=environment, stderr=subprocess.DEVNULL, start_new_session=True)

    def nothing_is_left(self):
        eventually(lambda: not self.processes(), "no process is left")
        eventually(lambda: not list(self.folder.glob("onceward-stores-*")), "no folder is left")

    def test_a_command_gets_the_addresses_and_its_exit_code_is_kept(self):
        process = self.start("--", "sh", "-c", 'test -n "$ONCEWARD_TEST_POSTGRES" && test -n "$ONCEWARD_TEST_REDIS" && exit 7')
        self.assertEqual(process.wait(WAIT_SECONDS), 7)
        self.assertEqual((self.processes(), list(self.folder.iterdir())), ([], []))

    def test_signals_end_the_servers_and_the_command(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            mark = self.folder / f"started-{number}"
            process = self.start("--", "sh", "-c", f"echo $$ >{mark}; exec sleep 300")
            eventually(lambda mark=mark: mark.exists() and mark.read_text(), "the command runs")
            self.assertGreater(len(self.processes()), 5)
            process.send_signal(number)
            process.wait(WAIT_SECONDS)
            self.nothing_is_left()
            command = pathlib.Path(f"/proc/{mark.read_text().strip()}")
            eventually(lambda command=command: not (command / "exe").exists(), "the command ends")

    def test_a_signal_while_the_servers_start_ends_them(self):
        process = self.start("--", "true")
        eventually(lambda: list(self.folder.glob("onceward-stores-*/postgres")), "the start has begun")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(WAIT_SECONDS), 128 + signal.SIGTERM)
        self.nothing_is_left()

    def test_variables_are_written_for_a_developer(self):
        file = self.folder / "env"
        process = self.start("--env", str(file))
        eventually(file.exists, "the variables are written")
        said = subprocess.run(["sh", "-c", f". {file}; redis-cli -u $ONCEWARD_TEST_REDIS PING"], capture_output=True, check=True)
        self.assertEqual(said.stdout, b"PONG\n")
        process.send_signal(signal.SIGINT)
        process.wait(WAIT_SECONDS)
        self.nothing_is_left()

    def test_a_harness_kills_pauses_and_promotes_by_name(self):
        command = [sys.executable, PROGRAM, "--only", "postgres-sync,redis", "--control"]
        environment = os.environ | {"TMPDIR": str(self.folder), "ONCEWARD_TEST_SERVERS": str(self.folder)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, env=environment, **pipes) as process:
            def order(text):
                print(text, file=process.stdin, flush=True)
                return process.stdout.readline().rstrip("\n")

            variables = json.loads(process.stdout.readline())
            self.assertEqual(sorted(order("servers").split()[1:]), ["postgres-sync", "postgres-sync-standby1", "redis"])
            client = redis.Redis.from_url(variables["ONCEWARD_TEST_REDIS"], retry=None)
            for text, is_up in (("kill redis", False), ("start redis", True), ("stop redis", False), ("restart redis", True)):
                self.assertEqual(order(text), "ok")
                with contextlib.nullcontext() if is_up else self.assertRaises(redis.ConnectionError):
                    client.ping()
            self.assertEqual((order("pause redis"), order("resume redis")), ("ok", "ok"))
            for text in ("kill postgres-sync", "promote postgres-sync-standby1"):
                self.assertEqual(order(text), "ok")
            with psycopg.connect(variables["ONCEWARD_TEST_POSTGRES_STANDBY"]) as promoted:
                self.assertFalse(promoted.execute("SELECT pg_is_in_recovery()").fetchone()[0])
            for wrong in ("promote redis", "kill unknown", "family redis", "start redis", "kill"):
                self.assertTrue(order(wrong).startswith("error "), wrong)
        self.nothing_is_left()

    def test_an_exception_ends_the_servers(self):
        with self.assertRaises(KeyError), servers.Home() as home:
            server = servers.Redis(home).start()
            raise KeyError
        self.assertFalse(server.is_running() or home.folder.exists())

    def test_a_server_that_cannot_start_says_why(self):
        with servers.Home() as home:
            with self.assertRaisesRegex(servers.Failed, "FATAL CONFIG FILE ERROR"):
                servers.Redis(home, settings={"no-such-setting": 1}).start()
            with self.assertRaisesRegex(servers.Failed, "unrecognized configuration parameter"):
                servers.Postgres(home, settings={"no_such_setting": 1}).start()


if __name__ == "__main__":
    suite.main()
