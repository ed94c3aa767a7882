#!/usr/bin/env python3
"""Breaks Redis under processes that share it, and judges what they were told: faults_redis.py --binary ONCEWARD-SIM [TEST…]

The test command makes 50 cuts and 50 stops. More of each: --cuts 500 --stops 500.
"""

import argparse
import pathlib
import signal
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

import fault_judge  # noqa: E402
import servers  # noqa: E402
import suite  # noqa: E402
from fault_load import Load  # noqa: E402
from fault_proxy import Proxy  # noqa: E402
from faults import GIVEN, Case, acknowledged, every_test  # noqa: E402

# So that a lost answer costs little.
QUICK = "?timeout=2s"

# More than the time after which the other nodes call a node down, and the time limit of a call.
NODE_DOWN_SECONDS = 4


class RedisCase(Case):
    def load_at(self, url):
        load = self.stack.enter_context(Load(GIVEN.binary, url, GIVEN.plant))
        load.migrate()
        return load


class Durable(RedisCase):
    """A single server that syncs every write to disk before it answers."""

    def setUp(self):
        super().setUp()
        self.redis = servers.Redis(self.home).start()

    def test_cuts_lose_and_double_nothing(self):
        proxy = self.stack.enter_context(Proxy(("127.0.0.1", self.redis.port), "redis"))
        load = self.load_at(self.redis.url().replace(f":{self.redis.port}", f":{proxy.port}") + QUICK)
        workers = [load.start(600) for _ in range(3)]
        load.wait_until_all_work()
        struck, deadline = 0, time.monotonic() + 60 + GIVEN.cuts
        while struck < GIVEN.cuts and time.monotonic() < deadline:
            action = self.rng.choice(["cut-before", "cut-after"] * 6 + ["swallow"])
            rule = proxy.add(action, self.rng.choice(["client", "server"]), self.rng.randint(1, 30))
            struck += rule.struck.wait(5)
            proxy.clear()
        time.sleep(1)
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
        self.assertEqual(struck, GIVEN.cuts)
        history = self.assert_sound(load, self.redis.url() + QUICK)
        self.assertGreater(len(acknowledged(history)), 50)

    def test_a_killed_server_loses_nothing_that_it_acknowledged(self):
        load = self.load_at(self.redis.url() + QUICK)
        workers = [load.start(600) for _ in range(3)]
        load.wait_until_all_work()
        for _ in range(GIVEN.kills * 2):
            time.sleep(0.8)
            self.redis.kill()
            self.redis.start()
        restarted = time.clock_gettime(time.CLOCK_MONOTONIC)
        time.sleep(2)
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
        history = self.assert_sound(load)
        self.assertTrue(acknowledged(history, since=restarted), "nothing was written after the last kill")

    def test_owners_that_stop_past_their_lease_overwrite_nothing(self):
        self.assert_stops_overwrite_nothing(self.load_at(self.redis.url() + QUICK))

    def test_clocks_of_clients_do_not_matter(self):
        self.assert_clocks_do_not_matter(self.load_at(self.redis.url() + QUICK))

    def test_a_flushed_server_grants_nothing(self):
        load = self.load_at(self.redis.url() + QUICK)
        worker = load.start(600)
        load.wait_until_all_work()
        time.sleep(1)
        self.redis.ask("FLUSHALL")
        # Answers that were on their way.
        time.sleep(0.3)
        flushed = time.clock_gettime(time.CLOCK_MONOTONIC)
        time.sleep(1.5)
        worker.send_signal(signal.SIGKILL)
        load.wait()
        history = load.history()
        self.assertTrue(acknowledged(history, until=flushed))
        self.assertEqual(acknowledged(history, since=flushed), [], "a server without its records granted work")
        self.assertTrue([call for call in history.calls if call.began > flushed and call.answer == "error" and call.detail])


class Cluster(RedisCase):
    """Three nodes, each of which syncs every write to disk before it answers."""

    def test_a_lost_node_loses_nothing_and_the_others_go_on(self):
        self.lose_nodes(GIVEN.kills, "no")

    def test_a_lost_node_stops_a_cluster_that_requires_all_slots(self):
        self.lose_nodes(1, "yes")

    def lose_nodes(self, times, requires_all_slots):
        cluster = servers.RedisCluster(self.home).start()
        for node in cluster.nodes:
            node.ask("CONFIG", "SET", "cluster-require-full-coverage", requires_all_slots)
        load = self.load_at(cluster.url() + QUICK)
        workers = [load.start(600) for _ in range(3)]
        load.wait_until_all_work()
        for number in range(times):
            node = cluster.nodes[number % len(cluster.nodes)]
            time.sleep(0.8)
            node.kill()
            # What was on its way is answered. Where all slots are required, the other nodes have to know first.
            time.sleep(NODE_DOWN_SECONDS if requires_all_slots == "yes" else 0.3)
            down = time.clock_gettime(time.CLOCK_MONOTONIC)
            # All workers use the same keys at the same time, so that they wait together at a key of the lost node.
            time.sleep(2 if requires_all_slots == "yes" else NODE_DOWN_SECONDS + 2)
            up = time.clock_gettime(time.CLOCK_MONOTONIC)
            node.start()
            for other in cluster.nodes:
                other.wait_for(lambda other=other: "cluster_state:ok" in other.ask("CLUSTER", "INFO"), "in the cluster")
            restarted = time.clock_gettime(time.CLOCK_MONOTONIC)
            time.sleep(2)
            self.assert_answers(load.history(), down, up, restarted, requires_all_slots)
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
        self.assert_sound(load, least=0.2)

    def assert_answers(self, history, down, up, restarted, requires_all_slots):
        """While a node was down, calls were answered or failed with a reason, and work went on after its restart."""
        meanwhile = [call for call in acknowledged(history, down, up) if call.began >= down]
        self.assertEqual(bool(meanwhile), requires_all_slots == "no", meanwhile[:3])
        failed = [call for call in history.calls if down <= call.began <= up and call.answer == "error" and call.detail]
        self.assertTrue(failed, "no caller was told that a node is lost")
        self.assertEqual([call.detail for call in failed if "cannot be reached" not in call.detail][:3], [])
        self.assertTrue(acknowledged(history, since=restarted), "nothing was written after the restart")
        print(f"  {len(meanwhile)} written and {len(failed)} refused without the node: {failed[0].detail}", flush=True)


class BestEffort(RedisCase):
    def fail_over(self, parameters):
        """Kills the replica, lets the workers go on, and makes the replica the primary. Returns what is wrong with which calls."""
        redis = servers.RedisSentinel(self.home).start()
        load = self.load_at(redis.url() + QUICK + parameters)
        declared = load.state([])[1]
        self.assertEqual(declared["level"], "best_effort", declared)
        workers = [load.start(600) for _ in range(2)]
        load.wait_until_all_work()
        redis.replica.kill()
        time.sleep(0.7)
        redis.primary.kill()
        redis.replica.start()
        redis.failed_over()
        over = time.clock_gettime(time.CLOCK_MONOTONIC)
        time.sleep(4)
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
        load.wait()
        wrong, history = load.judged()
        # A primary without a replica cannot confirm what has to be on one.
        granted = acknowledged(history, since=over)
        self.assertEqual(bool(granted), "replicas=0" in parameters, granted[:3])
        # What the new primary has acknowledged stays.
        before = {call.key for call in history.calls if call.began <= over}
        self.assertEqual([what for what in wrong if what.partition(":")[0] not in before], [])
        print(f"  {len(wrong)} keys lost, as declared; {fault_judge.counts(history)}", flush=True)
        return wrong

    def test_a_failover_by_sentinel_loses_what_no_replica_had(self):
        self.assertTrue(self.fail_over("&replicas=0"), "nothing was lost, so this proves nothing")

    def test_nothing_is_acknowledged_that_the_only_replica_lacks(self):
        # Shorter than the time in which the primary is alone: an answer that falls short must arrive to be tested.
        self.assertEqual(self.fail_over("&replicas=1&wait_ms=100"), [])


class Plants(RedisCase):
    """Bugs that are planted in the store are found. Not part of the test command: each repeats a test from above."""

    def test_leases_by_the_clock_of_the_client_are_found(self):
        self.assert_found("client-clock", "Durable.test_clocks_of_clients_do_not_matter", r"\d+ violations")

    def test_an_epoch_that_is_not_checked_is_found(self):
        test = "Durable.test_a_flushed_server_grants_nothing"
        self.assert_found("epoch-not-checked", test, "a server without its records granted work")

    def test_replicas_that_are_not_counted_are_found(self):
        test = "BestEffort.test_nothing_is_acknowledged_that_the_only_replica_lacks"
        self.assert_found("replicas-not-counted", test, r"AssertionError: .*")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, type=pathlib.Path, help="the program onceward-sim")
    for name in ("cuts", "stops", "kills", "seed"):
        parser.add_argument(f"--{name}", type=int, default=getattr(GIVEN, name))
    parser.add_argument("--plant", help="break the product on purpose")
    parser.add_argument("tests", nargs="*", help="only these")
    parser.parse_args(namespace=GIVEN)
    if not servers.redis_servers.is_installed():
        print("skipped: redis-server is not installed\n0 passed, 0 failed, 1 skipped")
        return
    sys.argv[1:] = GIVEN.tests or every_test()
    suite.main()


if __name__ == "__main__":
    main()
