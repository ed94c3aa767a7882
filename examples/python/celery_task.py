"""A Celery task that charges each invoice once, although its worker dies and the broker delivers the message again.

    pip install onceward celery
    python3 celery_task.py

It needs no broker: messages are files in a temporary folder. It starts a worker, kills it in the middle of a charge,
and starts another one.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from celery import Celery

import onceward
from onceward.celery import once

FOLDER = pathlib.Path(os.environ.get("EXAMPLE_FOLDER") or tempfile.mkdtemp(prefix="onceward-celery-"))
CHARGED, QUEUE, TAKEN = FOLDER / "charged", FOLDER / "queue", FOLDER / "taken"

# The longest wait for a worker, also on a busy machine.
LIMIT = 60

for folder in (QUEUE, TAKEN):
    folder.mkdir(parents=True, exist_ok=True)

app = Celery("celery_task", broker="filesystem://", backend=f"file://{FOLDER}/results")
(FOLDER / "results").mkdir(exist_ok=True)
app.conf.broker_transport_options = {
    "data_folder_in": str(QUEUE),
    "data_folder_out": str(QUEUE),
    "control_folder": str(FOLDER / "control"),
    "processed_folder": str(TAKEN),
    "store_processed": True,
}
ledger = onceward.Ledger(FOLDER / "onceward.db")


@app.task(base=once(ledger, tier="payment"), acks_late=True)
def charge(invoice, cents, seconds=0):
    # A real provider would get this key too: onceward.claim().downstream_key
    with CHARGED.open("a") as charges:
        charges.write(f"{invoice} {cents}\n")
    time.sleep(seconds)
    return f"receipt for {invoice}"


def worker():
    command = [sys.executable, "-m", "celery", "--app", "celery_task", "worker", "--pool", "solo"]
    return subprocess.Popen(
        [*command, "--without-gossip", "--without-mingle"],
        cwd=pathlib.Path(__file__).resolve().parent,
        env=os.environ | {"EXAMPLE_FOLDER": str(FOLDER)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def charges():
    return CHARGED.read_text().splitlines() if CHARGED.exists() else []


def until(condition):
    end = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > end:
            sys.exit("the worker takes too long")
        time.sleep(0.05)


def redeliver():
    """What a broker does with a message that was not acknowledged. The broker of files leaves that to us."""
    for message in TAKEN.glob("*.celery.msg"):
        message.rename(QUEUE / message.name)


def main():
    slow = charge.delay("inv-7", 1999, seconds=300)
    first = worker()
    try:
        # Not the file itself: it is there before the charge is in it.
        until(charges)
    finally:
        first.kill()
        first.wait()
    print("the worker was killed in the middle of a charge; the message is delivered again")
    redeliver()
    quick = charge.delay("inv-8", 500)
    second = worker()
    try:
        until(lambda: slow.ready() and quick.ready())
    finally:
        second.terminate()
        second.wait()
    print("inv-7:", slow.state, str(slow.result).splitlines()[0])
    print("inv-8:", quick.state, quick.result)
    print("charged:", charges())


if __name__ == "__main__":
    try:
        main()
    finally:
        ledger.close()
        shutil.rmtree(FOLDER)
