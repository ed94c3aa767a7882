#!/usr/bin/env python3
"""Tests of the fault proxy, with a real PostgreSQL, a real Redis and the clients that users have."""

import asyncio
import contextlib
import pathlib
import socket
import subprocess
import sys
import threading
import time
import unittest

import suite

suite.enter()

import asyncpg  # noqa: E402
import fault_proxy  # noqa: E402
import postgres_servers  # noqa: E402
import psycopg  # noqa: E402
import redis  # noqa: E402
import servers  # noqa: E402
from framing import FRAMINGS  # noqa: E402

# Longer than anything here takes on a busy machine.
WAIT_SECONDS = 20

LOGIN = {"user": postgres_servers.USER, "password": postgres_servers.PASSWORD}


def setUpModule():
    home = servers.Home()
    unittest.addModuleCleanup(home.close)
    Case.postgres, Case.redis = servers.Postgres(home).start(), servers.Redis(home).start()
    with psycopg.connect(Case.postgres.url(), autocommit=True) as direct:
        direct.execute("CREATE DATABASE proxied")
    with psycopg.connect(Case.postgres.url(database="proxied"), autocommit=True) as direct:
        direct.execute("CREATE TABLE entry (id int)")


class Case(unittest.TestCase):
    postgres = redis = None

    def rows(self, identity):
        with psycopg.connect(self.postgres.url(database="proxied")) as direct:
            return direct.execute("SELECT count(*) FROM entry WHERE id = %s", (identity,)).fetchone()[0]

    def arrives(self, identity):
        """Waits for a row whose commit was not acknowledged."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not self.rows(identity):
            self.assertLess(time.monotonic(), deadline, f"row {identity} is not there")
            time.sleep(0.02)

    def proxy(self, framing="postgres"):
        port = self.postgres.port if framing == "postgres" else self.redis.port
        made = fault_proxy.Proxy(("127.0.0.1", port), framing)
        self.addCleanup(made.close)
        return made


class Postgres(Case):
    def setUp(self):
        self.between = self.proxy()
        self.identity = next(self.identities)

    identities = iter(range(1, 1_000_000))

    def connect(self):
        made = psycopg.connect(host="127.0.0.1", port=self.between.port, dbname="proxied", autocommit=True, **LOGIN)
        self.addCleanup(made.close)
        return made

    def insert(self, connection):
        """Inserts the row of this test. Returns whether that was acknowledged."""
        try:
            connection.execute(f"INSERT INTO entry VALUES ({self.identity})")
            return True
        except psycopg.OperationalError:
            return False

    def test_messages_pass_and_are_seen(self):
        connection = self.connect()
        self.assertEqual(self.between.trace()[0], ("client", "startup"))
        self.assertTrue(self.insert(connection))
        self.assertEqual(self.rows(self.identity), 1)
        self.assertEqual(self.between.trace(), [("client", "Q"), ("server", "C"), ("server", "Z")])
        connection.execute("SELECT repeat('x', 5000000)", prepare=True)
        self.assertEqual(self.between.count(), 1)

    def test_a_statement_cut_before_it_is_forwarded_has_no_effect(self):
        connection = self.connect()
        rule = self.between.add("cut-before", "client")
        self.assertFalse(self.insert(connection))
        self.assertTrue(rule.struck.is_set())
        self.assertEqual(self.rows(self.identity), 0)

    def test_a_statement_cut_after_it_is_forwarded_takes_effect_without_an_answer(self):
        connection = self.connect()
        self.between.add("cut-after", "client")
        self.assertFalse(self.insert(connection))
        self.arrives(self.identity)

    def test_a_commit_whose_answer_is_cut_is_there(self):
        connection = self.connect()
        self.between.add("cut-before", "server", kind="C")
        self.assertFalse(self.insert(connection))
        self.assertEqual(self.rows(self.identity), 1)

    def test_an_answer_cut_after_it_is_forwarded_reaches_the_client(self):
        connection = self.connect()
        self.between.add("cut-after", "server", kind="Z")
        self.assertTrue(self.insert(connection))
        with self.assertRaises(psycopg.OperationalError):
            connection.execute("SELECT 1")

    def test_a_connection_can_be_cut_at_every_message(self):
        connection = self.connect()
        self.between.trace()
        self.insert(connection)
        steps = self.between.trace()
        for number, (side, _) in enumerate(steps, 1):
            for action in ("cut-before", "cut-after"):
                with self.subTest(f"{action} {number}"):
                    self.identity = next(self.identities)
                    connection = self.connect()
                    rule = self.between.add(action, "any", number)
                    acknowledged = self.insert(connection)
                    self.assertTrue(rule.struck.wait(WAIT_SECONDS))
                    self.between.clear()
                    # The answer is complete with the last message.
                    self.assertEqual(acknowledged, (action, number) == ("cut-after", len(steps)))
                    if (action, side) == ("cut-before", "client"):
                        self.assertEqual(self.rows(self.identity), 0)
                    else:
                        self.arrives(self.identity)

    def test_rules_count_over_all_connections_and_strike_once(self):
        first, second = self.connect(), self.connect()
        self.between.add("cut-before", "client", 2, "Q")
        self.assertTrue(self.insert(first))
        self.assertFalse(self.insert(second))
        self.assertTrue(self.insert(first))
        self.assertEqual(self.rows(self.identity), 2)

    def test_a_swallowed_answer_leaves_the_connection_open(self):
        async def insert():
            connection = await asyncpg.connect(host="127.0.0.1", port=self.between.port, database="proxied", **LOGIN)
            self.between.add("swallow", "server")
            with self.assertRaises(asyncio.TimeoutError):
                await connection.execute(f"INSERT INTO entry VALUES ({self.identity})", timeout=0.3)
            self.assertEqual(self.between.count(), 1)
            connection.terminate()

        asyncio.run(insert())
        self.assertEqual(self.rows(self.identity), 1)

    def test_a_delayed_answer_arrives_later(self):
        connection = self.connect()
        self.between.add("delay", "server", seconds=0.4)
        started = time.monotonic()
        self.assertTrue(self.insert(connection))
        self.assertGreaterEqual(time.monotonic() - started, 0.4)

    def test_a_stalled_statement_waits_and_goes_on(self):
        connection = self.connect()
        rule = self.between.add("stall", "client")
        acknowledged = []
        thread = threading.Thread(target=lambda: acknowledged.append(self.insert(connection)))
        thread.start()
        self.assertTrue(rule.struck.wait(WAIT_SECONDS))
        time.sleep(0.2)
        self.assertEqual((self.rows(self.identity), acknowledged), (0, []))
        self.between.resume()
        thread.join(WAIT_SECONDS)
        self.assertEqual((self.rows(self.identity), acknowledged), (1, [True]))

    def test_connections_are_refused_and_accepted_again(self):
        self.between.refuse()
        with self.assertRaises(psycopg.OperationalError):
            self.connect()
        self.between.refuse(False)
        self.assertTrue(self.insert(self.connect()))

    def test_open_connections_are_cut(self):
        connection = self.connect()
        self.between.cut()
        self.assertFalse(self.insert(connection))
        self.assertEqual(self.rows(self.identity), 0)

    def test_a_new_target_gets_new_connections(self):
        with socket.create_server(("127.0.0.1", 0)) as nothing:
            port = nothing.getsockname()[1]
        self.between.target = ("127.0.0.1", port)
        with self.assertRaises(psycopg.OperationalError):
            self.connect()
        self.between.target = ("127.0.0.1", self.postgres.port)
        self.assertTrue(self.insert(self.connect()))


class Redis(Case):
    def client(self, between):
        made = redis.Redis(port=between.port, retry=None, socket_timeout=WAIT_SECONDS)
        self.addCleanup(made.close)
        made.ping()
        return made

    def test_a_command_is_cut_before_and_after_it_is_forwarded(self):
        for action in ("cut-before", "cut-after"):
            between = self.proxy("redis")
            client = self.client(between)
            between.add(action, "client")
            with self.assertRaises(redis.ConnectionError):
                client.set(action, 1)
        deadline = time.monotonic() + WAIT_SECONDS
        while self.redis.ask("GET", "cut-after") != "1":
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        # The other one was sent before.
        self.assertEqual(self.redis.ask("GET", "cut-before"), "")

    def test_each_command_and_answer_is_a_message(self):
        between = self.proxy("redis")
        client = self.client(between)
        between.trace()
        with client.pipeline(transaction=False) as pipeline:
            for number in range(5):
                pipeline.rpush("list", "x" * 100_000)
            pipeline.lrange("list", 0, -1)
            pipeline.get("missing")
            self.assertEqual(len(pipeline.execute()[5]), 5)
        seen = between.trace()
        self.assertEqual([kind for side, kind in seen if side == "client"], ["*"] * 7)
        # The answer to a missing key is `$-1` in version 2 of the protocol and `_` in version 3.
        self.assertIn([kind for side, kind in seen if side == "server"], ([*":::::*$"], [*":::::*_"]))


class Framing(unittest.TestCase):
    def test_messages_are_found_however_they_are_split(self):
        postgres = b"\0\0\0\x08\x04\xd2\x16\x2f" + b"\0\0\0\x09\0\3\0\0\0" + b"Q\0\0\0\x06x\0" + b"X\0\0\0\x04"
        values = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n" + b"+OK\r\n" + b"$-1\r\n" + b"%1\r\n+a\r\n*-1\r\n" + b"|1\r\n+a\r\n:1\r\n:2\r\n"
        for framing, stream, kinds in (
            ("postgres", postgres, ["encryption", "startup", "Q", "X"]),
            ("redis", values, ["*", "+", "$", "%", "|"]),
        ):
            for size in range(1, len(stream) + 1):
                framer = FRAMINGS[framing][0]()
                pieces = [stream[start:start + size] for start in range(0, len(stream), size)]
                found = [message for piece in pieces for message in framer.feed(piece)]
                self.assertEqual([message.kind for message in found], kinds)
                self.assertEqual(b"".join(message.data for message in found), stream)


class Command(Case):
    def test_orders_are_carried_out(self):
        script = pathlib.Path(fault_proxy.__file__)
        process = subprocess.Popen(
            [sys.executable, str(script), "--to", f"127.0.0.1:{self.postgres.port}", "--control"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        )
        self.addCleanup(process.stdout.close)
        listens, control = (process.stdout.readline().split(":")[1].strip() for _ in range(2))
        with contextlib.closing(socket.create_connection(("127.0.0.1", int(control)), WAIT_SECONDS)) as client:
            lines = client.makefile("rw")

            def order(text):
                lines.write(f"{text}\n")
                lines.flush()
                return lines.readline().rstrip("\n")

            connection = psycopg.connect(host="127.0.0.1", port=int(listens), dbname="proxied", autocommit=True, **LOGIN)
            self.assertEqual(order("connections"), "ok 1")
            order("trace")
            connection.execute("SELECT 1")
            self.assertEqual(order("trace"), "ok client:Q server:T server:D server:C server:Z")
            self.assertEqual(order("cut-before client 1 Q"), "ok 1")
            self.assertEqual(order("wait 1 0.05"), "not yet")
            with self.assertRaises(psycopg.OperationalError):
                connection.execute("SELECT 1")
            self.assertEqual(order("wait 1 5"), "ok")
            for wrong in ("cut-before network 1", "cut-after client", "wait 7 1", "explode"):
                self.assertTrue(order(wrong).startswith("error "), wrong)
        # The end of its input ends it.
        process.stdin.close()
        self.assertEqual(process.wait(WAIT_SECONDS), 0)


if __name__ == "__main__":
    suite.main()
