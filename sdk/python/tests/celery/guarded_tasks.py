"""The tasks of the workers that `test_celery_crashes.py` starts and kills. Messages, results and effects are files in
FOLDER."""

import os
import pathlib
import time

from celery import Celery

import onceward
from onceward.celery import once

FOLDER = pathlib.Path(os.environ["FOLDER"])
QUEUE, TAKEN, EFFECTS = FOLDER / "queue", FOLDER / "taken", FOLDER / "effects"
END = FOLDER / "end"

for folder in (QUEUE, TAKEN, FOLDER / "results"):
    folder.mkdir(exist_ok=True)

app = Celery("guarded_tasks", broker="filesystem://", backend=f"file://{FOLDER}/results")
app.conf.update(
    broker_transport_options={
        "data_folder_in": str(QUEUE),
        "data_folder_out": str(QUEUE),
        "control_folder": str(FOLDER / "control"),
        "processed_folder": str(TAKEN),
        "store_processed": True,
    },
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
)
ledger = onceward.Ledger(FOLDER / "ledger.db")


def act(seconds, key):
    with EFFECTS.open("a") as effects:
        effects.write(f"{os.getpid()} {key}\n")
    time.sleep(seconds)
    return "receipt"


@app.task(base=once(ledger), shared=False)
def charge(seconds):
    return act(seconds, onceward.claim().downstream_key)


@app.task(base=once(ledger, in_doubt="retry"), shared=False)
def charge_with_key(seconds):
    return act(seconds if onceward.claim().attempt == 1 else 0, onceward.claim().downstream_key)


@app.task(base=once(ledger), shared=False)
def charge_until_told():
    receipt = act(0, onceward.claim().downstream_key)
    while not END.exists():
        time.sleep(0.05)
    return receipt


@app.task(shared=False)
def unguarded(seconds):
    return act(seconds if not EFFECTS.exists() else 0, "none")


@app.task(base=once(ledger), soft_time_limit=1, shared=False)
def limited(seconds):
    return act(seconds, onceward.claim().downstream_key)
