#!/usr/bin/env python3
"""Breaks PostgreSQL under processes that share it, and judges what they were told: faults.py --binary ONCEWARD-SIM [TEST…]

The test command makes 50 cuts and 50 stops. More of each: --cuts 500 --stops 500.
"""

import argparse
import concurrent.futures
import contextlib
import glob
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

import fault_judge  # noqa: E402
import servers  # noqa: E402
import suite  # noqa: E402
from fault_load import END_SECONDS, LEASE_SECONDS, Load  # noqa: E402
from fault_proxy import Proxy  # noqa: E402

# So that a lost answer costs a second.
QUICK = "?timeout=1"

DATABASE = "ledger"

FAKETIME = "/usr/lib/*/faketime/libfaketimeMT.so.1"

GIVEN = argparse.Namespace(binary=None, cuts=50, stops=50, kills=3, seed=1, plant=None)

# Tests at a time: they wait more than they compute.
JOBS = 4

# Longer than the longest test takes with the numbers of a long run.
TEST_SECONDS = 1800


def with_database(server):
    server.sql(f"CREATE DATABASE {DATABASE} OWNER {servers.postgres_servers.USER}")
    return server


def url(server, port=None):
    made = server.url(database=DATABASE) + QUICK
    return made if port is None else made.replace(f":{server.port}/", f":{port}/")


def acknowledged(history, since=0.0, until=float("inf")):
    """Calls that the store answered as written between two moments."""
    return [call for call in history.calls if call.answer in ("acquired", "written") and since <= call.ended <= until]


class Case(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.home = self.stack.enter_context(servers.Home())
        self.rng = random.Random(GIVEN.seed)

    def server(self, **settings):
        return with_database(servers.Postgres(self.home, settings=settings).start())

    def load(self, server, port=None):
        load = self.stack.enter_context(Load(GIVEN.binary, url(server, port), GIVEN.plant))
        load.migrate()
        return load

    def proxy(self, server):
        return self.stack.enter_context(Proxy(("127.0.0.1", server.port)))

    def assert_sound(self, load, through=None, least=0.5, without=lambda call: False):
        """Nothing is wrong, and at least half of the calls were answered."""
        load.wait()
        wrong, history = load.judged(through, without)
        counts = fault_judge.counts(history)
        for what in wrong[:2]:
            print(f"{what}\n{fault_judge.shown(history, what.partition(':')[0])}")
        self.assertEqual(wrong, [], f"{len(wrong)} violations; {counts}")
        failed = counts.get("error", 0)
        self.assertGreaterEqual(len(history.calls) - failed, least * len(history.calls), counts)
        print(f"  {self.id().rpartition('.')[2]}: {counts}, 0 violations", flush=True)
        return history

    def assert_clocks_do_not_matter(self, load):
        """Nothing is wrong when the clocks of the workers are an hour ahead and an hour behind."""
        library = glob.glob(FAKETIME)
        if not library:
            self.skipTest("libfaketime is not installed")
        for shift in ("+3600", "-3600", "+0"):
            clock = {"LD_PRELOAD": library[0], "FAKETIME": f"{shift}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                     "DONT_FAKE_MONOTONIC": "1"}
            load.start(4, late=4, environment=clock)
        history = self.assert_sound(load)
        self.assertGreater(fault_judge.counts(history).get("stale", 0), 0, "no owner was late")

    def assert_stops_overwrite_nothing(self, load):
        """Nothing is wrong when owners are stopped past their leases and go on as if they still had them."""
        workers = [load.start(600, callers=6, late=10) for _ in range(4)]
        load.wait_until_all_work()
        for _ in range((GIVEN.stops + 1) // 2):
            stopped = self.rng.sample(workers, 2)
            for worker in stopped:
                worker.send_signal(signal.SIGSTOP)
            time.sleep(LEASE_SECONDS + 0.1)
            for worker in stopped:
                worker.send_signal(signal.SIGCONT)
            time.sleep(0.15)
        time.sleep(1)
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
        history = self.assert_sound(load)
        self.assertGreater(fault_judge.counts(history).get("stale", 0), 0, "no owner was late")

    def assert_found(self, plant, test, message):
        """A test of the same program fails when a bug is planted."""
        program = sys.modules[type(self).__module__].__file__
        command = [sys.executable, program, "--binary", GIVEN.binary, "--plant", plant, "--cuts", "30", test]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TEST_SECONDS)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, message)
        print(f"  {plant}: found by {test}: {re.search(message, done.stdout)[0]}", flush=True)


class Connections(Case):
    def test_cuts_between_any_two_messages_lose_and_double_nothing(self):
        server = self.server()
        proxy = self.proxy(server)
        load = self.load(server, proxy.port)
        workers = [load.start(600, callers=8) for _ in range(3)]
        load.wait_until_all_work()
        struck, deadline = 0, time.monotonic() + 60 + GIVEN.cuts
        while struck < GIVEN.cuts and time.monotonic() < deadline:
            # A lost answer shows by a time-out only, so that there are fewer of these.
            action = self.rng.choice(["cut-before", "cut-after"] * 6 + ["swallow"])
            rule = proxy.add(action, self.rng.choice(["client", "server"]), self.rng.randint(1, 60))
            struck += rule.struck.wait(5)
            proxy.clear()
        time.sleep(1)
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
        self.assertEqual(struck, GIVEN.cuts)
        history = self.assert_sound(load, url(server))
        self.assertGreater(len(acknowledged(history)), 50)


class Owners(Case):
    def test_owners_that_stop_past_their_lease_overwrite_nothing(self):
        self.assert_stops_overwrite_nothing(self.load(self.server()))

    def test_owners_that_are_killed_are_replaced_only_where_that_is_allowed(self):
        server = self.server()
        load = self.load(server)
        workers = [load.start(600) for _ in range(3)]
        for _ in range(GIVEN.kills * 2):
            load.wait_until_all_work()
            time.sleep(0.3)
            killed = self.rng.randrange(len(workers))
            workers[killed].send_signal(signal.SIGKILL)
            workers[killed] = load.start(600)
        time.sleep(0.5)
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
        self.assert_sound(load)

    def test_clocks_of_clients_do_not_matter(self):
        self.assert_clocks_do_not_matter(self.load(self.server()))

    def test_an_open_transaction_of_a_program_does_not_delay_other_keys(self):
        server = self.server()
        load = self.load(server)
        load.start(600, callers=8, late=0)
        load.wait_until_all_work()
        began = time.clock_gettime(time.CLOCK_MONOTONIC)
        # Keys that the worker has not used yet, held for longer than the worker would ever wait.
        ahead = int((time.monotonic() - load.began) / 0.25) + 4
        keys = [f"{'hold' if number % 2 == 0 else 'retry'}-{number}" for number in range(ahead * 6, ahead * 6 + 24, 3)]
        begins = "".join(f"SELECT onceward.claim('charge', '{key}');" for key in keys)
        server.sql(f"BEGIN; {begins} SELECT pg_sleep(4); ROLLBACK", DATABASE)
        time.sleep(1)
        ended = time.clock_gettime(time.CLOCK_MONOTONIC)
        load.workers[0].send_signal(signal.SIGKILL)
        # The judge does not know the program's transaction.
        self.assert_sound(load, without=lambda call: call.key in keys and call.answer == "in flight")
        history = load.history()
        during = [call for call in history.calls if began <= call.began and call.ended <= ended]
        slowest = max(call.ended - call.began for call in during)
        self.assertLess(slowest, 1.0, "a call waited for a transaction that was open on another key")
        held = [call for call in during if call.key in keys and call.operation == "begin" and call.ended < ended - 1.2]
        answers = fault_judge.counts(fault_judge.History(held, []))
        self.assertEqual(list(answers), ["in flight"], answers)


class Servers(Case):
    def test_a_killed_server_loses_nothing_that_it_acknowledged(self):
        server = self.server()
        load = self.load(server)
        workers = [load.start(600) for _ in range(3)]
        load.wait_until_all_work()
        for _ in range(GIVEN.kills):
            time.sleep(1.5)
            server.kill()
            server.start()
        time.sleep(2)
        # The last worker ends by itself, to say what it knows about the store.
        load.start(1)
        load.workers[-1].wait(END_SECONDS)
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
        history = self.assert_sound(load)
        self.assertTrue(history.durability and all(durability["level"] == "durable" for durability in history.durability), history.durability)

    def test_a_paused_server_loses_and_doubles_nothing(self):
        server = self.server()
        load = self.load(server)
        for _ in range(3):
            load.start(8)
        load.wait_until_all_work()
        for _ in range(2):
            time.sleep(0.5)
            server.pause()
            time.sleep(1.5)
            server.resume()
        self.assert_sound(load)


class Standbys(Case):
    def setUp(self):
        super().setUp()
        self.primary = self.server()
        self.behind = self.proxy(self.primary)

    def promote(self, standby):
        standby.promote()
        self.behind.target = ("127.0.0.1", standby.port)
        self.behind.cut()

    def through(self, standby):
        return url(standby)

    def test_a_promoted_synchronous_standby_has_everything_acknowledged(self):
        standby = self.primary.add_standby()
        load = self.load(self.primary, self.behind.port)
        for _ in range(3):
            load.start(8)
        load.wait_until_all_work()
        time.sleep(1)
        self.primary.kill()
        self.promote(standby)
        promoted = time.clock_gettime(time.CLOCK_MONOTONIC)
        history = self.assert_sound(load, self.through(standby))
        self.assertTrue(acknowledged(history, since=promoted), "nothing was written after the promotion")

    def test_a_url_with_both_hosts_finds_the_standby_that_was_promoted(self):
        standby = self.primary.add_standby()
        # The standby first: while it is one, it cannot be written.
        both = url(self.primary).replace(f":{self.primary.port}/", f":{standby.port},127.0.0.1:{self.primary.port}/")
        load = self.stack.enter_context(Load(GIVEN.binary, both, GIVEN.plant))
        load.migrate()
        for _ in range(2):
            load.start(8)
        load.wait_until_all_work()
        time.sleep(1)
        self.primary.kill()
        standby.promote()
        promoted = time.clock_gettime(time.CLOCK_MONOTONIC)
        history = self.assert_sound(load)
        self.assertTrue(acknowledged(history, since=promoted), "nothing was written after the promotion")

    def test_a_commit_that_waits_for_the_standby_is_not_acknowledged_and_may_be_lost(self):
        standby = self.primary.add_standby()
        load = self.load(self.primary, self.behind.port)
        for _ in range(3):
            load.start(12)
        load.wait_until_all_work()
        time.sleep(0.5)
        standby.kill()
        # What was confirmed before may still be on its way.
        time.sleep(0.3)
        alone = time.clock_gettime(time.CLOCK_MONOTONIC)
        time.sleep(4)
        waiting = self.primary.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        self.primary.kill()
        dead = time.clock_gettime(time.CLOCK_MONOTONIC)
        standby.start()
        self.promote(standby)
        history = self.assert_sound(load, self.through(standby), least=0.3)
        self.assertGreater(int(waiting), 0, "no commit waited")
        self.assertEqual(acknowledged(history, alone, dead), [], "a commit was acknowledged that no standby had")
        self.assertTrue(acknowledged(history, since=dead), "nothing was written after the promotion")

    def test_an_asynchronous_standby_beside_the_synchronous_one_is_declared(self):
        self.primary.add_standby()
        load = self.load(self.primary)
        # Only the administrator sees which standby is which; to the other role, each counts.
        roles = {name: self.primary.url(name, DATABASE) + QUICK for name in ("onceward", "postgres")}
        declared = {name: load.state([], at)[1] for name, at in roles.items()}
        self.assertEqual({name: of["level"] for name, of in declared.items()}, dict.fromkeys(roles, "durable"), declared)
        self.primary.add_standby(synchronous=False)
        for name, at in roles.items():
            self.assertRegex(str(load.state([], at)[1]), "best_effort.*1 of the 2 replicas", name)

    def test_writes_go_on_when_the_standby_comes_back(self):
        standby = self.primary.add_standby()
        load = self.load(self.primary)
        for _ in range(2):
            load.start(11, callers=16)
        load.wait_until_all_work()
        standby.kill()
        time.sleep(4)
        standby.start()
        back = time.clock_gettime(time.CLOCK_MONOTONIC)
        history = self.assert_sound(load, least=0.3)
        first = min((call.ended for call in acknowledged(history, since=back)), default=None)
        self.assertIsNotNone(first, "nothing was written after the standby came back")
        self.assertLess(first - back, 5, "the writers waited for each other")


class BestEffort(Case):
    """What these modes lose is declared before, and reported after."""

    def assert_declared(self, load, reason, through=None):
        load.wait()
        wrong, history = load.judged(through)
        self.assertTrue(wrong, "nothing was lost, so this proves nothing")
        lossy = ("acknowledged outcome is lost", "effects, although", "under", "different outcomes", "no order")
        self.assertEqual([what for what in wrong if not any(word in what for word in lossy)], [])
        reasons = [reason for durability in history.durability for reason in durability.get("reasons", [])]
        self.assertTrue(any(reason in each for each in reasons), history.durability)
        self.assertTrue(any("has lost acknowledged writes" in each for each in reasons), history.durability)
        print(f"  {self.id().rpartition('.')[2]}: {len(wrong)} keys lost, as declared", flush=True)

    def test_without_synchronous_commit_a_kill_loses_the_last_writes_and_the_mark_tells(self):
        server = self.server(synchronous_commit="off", wal_writer_delay="10s")
        load = self.load(server)
        for _ in range(2):
            load.start(7)
        load.wait_until_all_work()
        # Commits do not wait for this process, which writes them to the disk.
        os.kill(int(server.sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'")), signal.SIGSTOP)
        time.sleep(1)
        server.kill()
        server.start()
        self.assert_declared(load, "synchronous_commit is off")

    def test_a_promoted_asynchronous_replica_loses_the_last_writes_and_the_mark_tells(self):
        primary = self.server()
        behind = self.proxy(primary)
        replica = primary.add_standby(synchronous=False)
        load = self.load(primary, behind.port)
        declared = load.state([])[1]
        self.assertIn("replicas are asynchronous", str(declared))
        for _ in range(2):
            load.start(8)
        load.wait_until_all_work()
        replica.kill()
        time.sleep(1)
        primary.kill()
        replica.start()
        replica.promote()
        behind.target = ("127.0.0.1", replica.port)
        behind.cut()
        load.wait()
        self.assert_declared(load, "has lost acknowledged writes", url(replica))


class Plants(Case):
    """Bugs that are planted in the store are found. Not part of the test command: each repeats a test from above."""

    def test_a_lost_commit_that_counts_as_made_is_found(self):
        test = "Connections.test_cuts_between_any_two_messages_lose_and_double_nothing"
        self.assert_found("lost-commit-assumed", test, r"\d+ violations")

    def test_leases_by_the_clock_of_the_client_are_found(self):
        self.assert_found("client-clock", "Owners.test_clocks_of_clients_do_not_matter", r"\d+ violations")

    def test_a_batch_that_does_not_try_locks_is_found(self):
        test = "Owners.test_an_open_transaction_of_a_program_does_not_delay_other_keys"
        self.assert_found("lock-probe-skipped", test, "a call waited for a transaction")


def every_test(program="__main__"):
    """The names of the tests of the test command, the longest first."""
    names = [test.id().partition(".")[2] for group in unittest.defaultTestLoader.loadTestsFromModule(sys.modules[program])
             for test in group if type(test).__name__ not in ("Plants", "Case")]
    return sorted(names, key=lambda name: not name.startswith(("Owners", "Connections")))


def run_alone(name, options):
    """Runs one test in a process of its own."""
    command = [sys.executable, __file__, *options, name]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TEST_SECONDS)
    print(done.stdout, end="", flush=True)
    return re.findall(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", done.stdout, re.M)[-1]


def run_all(options):
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        ended = list(pool.map(lambda name: run_alone(name, options), every_test()))
    passed, failed, skipped = (sum(int(one[place]) for one in ended) for place in range(3))
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    sys.exit(bool(failed))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, type=pathlib.Path, help="the program onceward-sim")
    for name in ("cuts", "stops", "kills", "seed"):
        parser.add_argument(f"--{name}", type=int, default=getattr(GIVEN, name))
    parser.add_argument("--plant", help="break the product on purpose")
    parser.add_argument("tests", nargs="*", help="only these, one after the other; unless given, all, several at a time")
    options = sys.argv[1:]
    parser.parse_args(namespace=GIVEN)
    if servers.postgres_servers.programs() is None:
        print("skipped: postgresql is not installed\n0 passed, 0 failed, 1 skipped")
        return
    if not GIVEN.tests:
        run_all(options)
    sys.argv[1:] = GIVEN.tests
    suite.main()


if __name__ == "__main__":
    main()
