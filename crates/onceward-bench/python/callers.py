"""Callers of a function that idemkit guards. Reads commands, one per line: `pairs SECONDS` or `replays SECONDS`.

One guarded call is idemkit's pair: it claims, runs the function (which only returns), and stores the result. The claim ends
when the function starts to run.
"""

import asyncio
import hashlib
import json
import sys
import time

import asyncpg
import uvloop
from idemkit import MethodConfig, PostgresBackend, RedisBackend, idempotent
from idemkit.backends.postgres import init_pg

# The default size of idemkit's in-process cache.
CACHED = 1_024


def percentile(samples, share):
    """The value at this percentile (nearest rank), in microseconds."""
    ordered = sorted(samples)
    rank = -int(-share * len(ordered) // 1)
    return ordered[min(max(rank, 1), len(ordered)) - 1] / 1e3


class Callers:
    """All callers and their finished keys."""

    def __init__(self, backend, callers, outcome):
        self.callers = range(callers)
        self.remembered = max(CACHED // callers, 1)
        self.next = [0] * callers
        self.finished = [[] for _ in self.callers]
        self.runs = 0
        # Like an API response: a small object whose JSON has the wanted length.
        answer = {"id": "ch_1", "text": ""}
        answer["text"] = "a" * (outcome - len(json.dumps(answer)))
        self.answer = answer

        # Onceward's replays come from a cache, so idemkit's cache is on as well. It caches a result when it is first repeated.
        config = MethodConfig(key_fields=["key"], scope=lambda arguments: "bench", use_local_cache=True)

        @idempotent(backend=backend, config=config)
        async def effect(*, key, mark):
            self.runs += 1
            mark(time.perf_counter_ns())
            return answer

        self.effect = effect

    def key(self, caller):
        self.next[caller] += 1
        digest = hashlib.sha256(f"{caller} {self.next[caller]}".encode()).hexdigest()
        return f"idem_v1_{digest[:32]}"

    async def pairs(self, seconds):
        claims, pairs = [], []

        async def caller(number):
            while time.perf_counter() < until:
                key = self.key(number)
                start = time.perf_counter_ns()
                await self.effect(key=key, mark=lambda now, start=start: claims.append(now - start))
                pairs.append(time.perf_counter_ns() - start)
                if len(self.finished[number]) < self.remembered:
                    self.finished[number].append(key)

        runs, start = self.runs, time.perf_counter()
        until = start + seconds
        await asyncio.gather(*(caller(number) for number in self.callers))
        lasted = time.perf_counter() - start
        if self.runs - runs != len(pairs):
            raise RuntimeError(f"{self.runs - runs} runs for {len(pairs)} calls")
        return {
            "count": len(pairs),
            "lasted": lasted,
            "claim_p50_us": percentile(claims, 0.50),
            "claim_p99_us": percentile(claims, 0.99),
            "pair_p50_us": percentile(pairs, 0.50),
            "pair_p99_us": percentile(pairs, 0.99),
        }

    async def replays(self, seconds):
        async def repeat(key):
            answer = await self.effect(key=key, mark=None)
            if answer != self.answer:
                raise RuntimeError(f"a repeat got {answer}")

        async def first(number):
            for key in self.finished[number]:
                await repeat(key)

        async def caller(number):
            count, keys = 0, self.finished[number]
            while time.perf_counter() < until and keys:
                await repeat(keys[count % len(keys)])
                count += 1
                # A replay from the cache never waits, and would starve the other callers.
                if count % 64 == 0:
                    await asyncio.sleep(0)
            return count

        runs = self.runs
        await asyncio.gather(*(first(number) for number in self.callers))
        start = time.perf_counter()
        until = start + seconds
        counts = await asyncio.gather(*(caller(number) for number in self.callers))
        if self.runs != runs:
            raise RuntimeError(f"{self.runs - runs} repeats ran again")
        return {"count": sum(counts), "lasted": time.perf_counter() - start}


async def forget(url):
    """Drops the tables of earlier runs, so that autovacuum has nothing else to do."""
    connection = await asyncpg.connect(url)
    await connection.execute("DROP TABLE IF EXISTS idemkit_records, intent")
    await connection.close()


async def main():
    kind, url, callers, outcome = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    if kind == "redis":
        backend = RedisBackend.from_url(url)
    else:
        await forget(url)
        await init_pg(url)
        # One connection per caller, like the others.
        backend = PostgresBackend.from_url(url, min_size=callers, max_size=callers)
    crowd = Callers(backend, callers, outcome)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order, seconds = line.split()
        act = {"pairs": crowd.pairs, "replays": crowd.replays}[order]
        print(json.dumps(await act(float(seconds))), flush=True)
    await backend.aclose()


if __name__ == "__main__":
    uvloop.run(main())
