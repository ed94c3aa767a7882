"""One library under test. Reads commands from standard input (`pairs SECONDS`, `replays SECONDS`) and answers with JSON.

sdk/python/benchmarks/worker.py PEER FOLDER CALLERS
"""

import asyncio
import json
import os
import sys
import threading
import time

RESULT = {"id": "ch_1", "text": "a" * 200}


def percentile(samples, share):
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1e3 if ordered else 0.0


class Peer:
    """Runs calls for a while, with several callers at once."""

    def __init__(self, callers):
        self.callers, self.runs = callers, 0
        self.next = [0] * callers

    def key(self, caller):
        self.next[caller] += 1
        return self.nth_key(caller, self.next[caller])

    def nth_key(self, caller, number):
        # Redis also has the keys of runs with another number of callers.
        return f"{self.callers}-{caller}-{number}"

    def measure(self, command, seconds):
        samples, runs, cpu, start = [], self.runs, time.process_time(), time.perf_counter()
        self.many(command, seconds, samples)
        lasted, cpu = time.perf_counter() - start, time.process_time() - cpu
        if command == "pairs" and self.runs - runs != len(samples):
            raise RuntimeError(f"{self.runs - runs} runs for {len(samples)} calls")
        if command == "replays" and self.runs != runs:
            raise RuntimeError("a repeat ran")
        return {"count": len(samples), "lasted": lasted, "cpu": cpu, "p50_us": percentile(samples, 0.5)}


class Threads(Peer):
    """Callers are threads, or this thread if there is one."""

    def many(self, command, seconds, samples):
        if self.callers == 1:
            return self.one(command, 0, time.perf_counter() + seconds, samples)
        until = time.perf_counter() + seconds
        threads = [threading.Thread(target=self.one, args=(command, caller, until, samples)) for caller in range(self.callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def one(self, command, caller, until, samples):
        # At least one call, so that every caller has something to repeat.
        start = 0
        while start / 1e9 < until:
            start = time.perf_counter_ns()
            self.effect(self.key(caller) if command == "pairs" else self.nth_key(caller, 1))
            samples.append(time.perf_counter_ns() - start)


class Tasks(Peer):
    """Callers are tasks of one event loop."""

    def __init__(self, callers):
        super().__init__(callers)
        self.loop = asyncio.new_event_loop()

    def many(self, command, seconds, samples):
        until = time.perf_counter() + seconds
        every = (self.one(command, caller, until, samples) for caller in range(self.callers))

        async def all_of_them():
            await asyncio.gather(*every)

        self.loop.run_until_complete(all_of_them())

    async def one(self, command, caller, until, samples):
        # At least one call, so that every caller has something to repeat.
        start = 0
        while start / 1e9 < until:
            start = time.perf_counter_ns()
            await self.effect(self.key(caller) if command == "pairs" else self.nth_key(caller, 1))
            samples.append(time.perf_counter_ns() - start)


def onceward(folder, callers, store, is_async):
    import onceward

    ledger = onceward.Ledger("memory:" if store == "memory" else os.path.join(folder, "onceward.db"))
    peer = (Tasks if is_async else Threads)(callers)
    if is_async:

        @ledger.once(operation="charge", key=["key"])
        async def effect(key: str) -> dict:
            peer.runs += 1
            return RESULT
    else:

        @ledger.once(operation="charge", key=["key"])
        def effect(key: str) -> dict:
            peer.runs += 1
            return RESULT

    peer.effect = effect
    return peer


def idemkit(folder, callers, store, _is_async):
    from idemkit import InMemoryBackend, MethodConfig, RedisBackend, idempotent
    from idemkit.core.exceptions import StorageUnavailable

    backend = InMemoryBackend() if store == "memory" else RedisBackend.from_url(os.environ["REDIS_URL"])
    peer = Tasks(callers)

    @idempotent(
        backend=backend, config=MethodConfig(key_fields=["key"], scope=lambda _arguments: "bench", use_local_cache=True)
    )
    async def guarded(*, key):
        peer.runs += 1
        return RESULT

    async def effect(key):
        for _ in range(3):
            try:
                return await guarded(key=key)
            except StorageUnavailable:
                # Its limit for an answer of Redis is short, and a sync of the disk takes long now and then.
                await asyncio.sleep(0.05)
        return await guarded(key=key)

    peer.effect = effect
    return peer


POLICY = """schema: ctrlrun.policy/v2
actions:
  bench.charge:
    effect: "charge:{key}"
    rules:
      - decision: allow
"""


def ctrlrun(folder, callers, _store, _is_async):
    os.chdir(folder)
    with open("ctrlrun.yaml", "w") as file:
        file.write(POLICY)
    import ctrlrun

    peer = Threads(callers)

    @ctrlrun.protect("bench.charge", effect="charge:{key}")
    def guarded(key: str) -> dict:
        peer.runs += 1
        return RESULT

    def effect(key):
        with ctrlrun.context(agent="bench"):
            return guarded(key=key)

    peer.effect = effect
    return peer


def main():
    name, folder, callers = sys.argv[1], sys.argv[2], int(sys.argv[3])
    library, store, *rest = name.split("-")
    peer = {"onceward": onceward, "idemkit": idemkit, "ctrlrun": ctrlrun}[library](folder, callers, store, "async" in rest)
    print("ready", flush=True)
    for line in sys.stdin:
        command, seconds = line.split()
        print(json.dumps(peer.measure(command, float(seconds))), flush=True)


if __name__ == "__main__":
    main()
