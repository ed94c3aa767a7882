"""Workers on one store, as processes that a test stops and kills, and what they leave behind."""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

import fault_judge

# How long a worker may take to end after its time is over: a write that was sent is repeated for 15 seconds, an owner tries four
# times.
END_SECONDS = 90

# A claim lasts this long, and some owners finish later.
LEASE_SECONDS = 0.5


class Load:
    """Workers with a journal each and one file of effects."""

    def __init__(self, binary, url, plant=None):
        self.binary, self.url, self.plant = binary, url, plant
        self.folder = tempfile.TemporaryDirectory(prefix="onceward-faults-")
        self.path = pathlib.Path(self.folder.name)
        self.workers, self.journals = [], []
        self.began = time.monotonic()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.kill()
                worker.wait()
        self.folder.cleanup()

    def command(self, name, *options, url=None):
        planted = ["--plant", self.plant] if self.plant else []
        return [str(self.binary), name, "--store", url or self.url, *map(str, options), *planted]

    def migrate(self):
        subprocess.run(self.command("store-migrate"), check=True, timeout=END_SECONDS)

    def start(self, seconds, callers=6, late=20, url=None, environment=None, width=6, turn=0.25):
        """Starts a worker that uses the same keys at the same time as the others."""
        number = len(self.workers)
        journal = self.path / f"journal-{number}"
        self.journals.append(journal)
        journal.touch()
        options = {
            "--journal": journal, "--effects": self.path / "effects", "--number": number, "--seed": number + 1,
            "--callers": callers, "--time": int(seconds * 1000), "--lease": int(LEASE_SECONDS * 1000), "--late": late,
            "--width": width, "--turn": int(turn * 1000), "--origin": int((time.monotonic() - self.began) / turn),
        }
        flat = [word for pair in options.items() for word in pair]
        worker = subprocess.Popen(
            self.command("store-worker", *flat, url=url), env=os.environ | (environment or {}), stdin=subprocess.DEVNULL,
        )
        self.workers.append(worker)
        return worker

    def wait_until_all_work(self):
        """Waits until every worker has an answer."""
        deadline = time.monotonic() + END_SECONDS
        while not all('"return"' in journal.read_text() for journal in self.journals):
            if time.monotonic() > deadline:
                raise AssertionError("a worker got no answer")
            time.sleep(0.05)

    def wait(self):
        """Waits for every worker. One that was killed does not count as failed."""
        deadline = time.monotonic() + END_SECONDS
        for worker in self.workers:
            code = worker.wait(max(1, deadline - time.monotonic()))
            if code not in (0, -signal.SIGKILL):
                raise AssertionError(f"a worker ended with {code}")

    def effects(self):
        """The fences under which each key had its effect."""
        found = {}
        if (self.path / "effects").exists():
            for line in (self.path / "effects").read_text().splitlines():
                key, fence = line.split()
                found.setdefault(key, []).append(fence)
        return found

    def state(self, keys, url=None):
        """What the store has about keys, and what it promises."""
        done = subprocess.run(
            self.command("store-state", url=url), input="".join(f"{key}\n" for key in keys), capture_output=True, text=True,
            check=True, timeout=END_SECONDS,
        )
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return {line["key"]: line for line in lines[:-1]}, lines[-1]["durability"]

    def history(self):
        return fault_judge.read(self.journals)

    def judged(self, url=None, without=lambda call: False):
        """Everything that is wrong, and the history."""
        history = self.history()
        history.calls = [call for call in history.calls if not without(call)]
        keys = sorted({call.key for call in history.calls})
        state, _ = self.state(keys, url)
        return fault_judge.judge(history, self.effects(), state, LEASE_SECONDS), history
