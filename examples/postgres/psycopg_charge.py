#!/usr/bin/env python3
"""Charges an invoice once with psycopg 3: the row and the record of it commit together.

DATABASE_URL=postgres://… psycopg_charge.py charge|rollback|stale INVOICE [CENTS]
"""

import hashlib
import json
import os
import sys
import time

import psycopg
from psycopg import errors
from psycopg.rows import namedtuple_row

# Longer than a transaction should be open, in all.
TRIES, PAUSE_SECONDS = 40, 0.25


def charge(connection, invoice, cents):
    """Charges inside the caller's transaction. Returns what happened, and the receipt."""
    # The same invoice with another amount is a mismatch, and not a repeat.
    fingerprint = hashlib.sha256(str(cents).encode()).digest()
    begin = "SELECT * FROM onceward.claim('charge', %s, tier => 'payment', fingerprint => %s)"
    answer = connection.execute(begin, (invoice, fingerprint)).fetchone()
    if answer.decision != "acquired":
        return answer.decision, answer.body
    receipt = json.dumps({"receipt": f"{invoice}/{cents}"}).encode()
    connection.execute("INSERT INTO charge (invoice, cents) VALUES (%s, %s)", (invoice, cents))
    connection.execute("SELECT onceward.finish('charge', %s, %s, %s)", (invoice, answer.fence, receipt))
    return "charged", receipt


def charge_once(connection, invoice, cents):
    """Runs the transaction again where PostgreSQL aborted it to resolve a conflict, or another one has the invoice now."""
    for _ in range(TRIES):
        try:
            with connection.transaction():
                happened, receipt = charge(connection, invoice, cents)
        except (errors.SerializationFailure, errors.DeadlockDetected, errors.LockNotAvailable):
            happened = "aborted"
        if happened not in ("in_flight", "aborted"):
            return happened, receipt
        time.sleep(PAUSE_SECONDS)
    raise TimeoutError(f"{invoice} is still {happened}")


def roll_back(connection, invoice, cents):
    """A transaction that rolls back leaves neither the row nor the record."""
    with connection.transaction():
        charge(connection, invoice, cents)
        raise psycopg.Rollback
    return connection.execute("SELECT decision FROM onceward.status('charge', %s)", (invoice,)).fetchone().decision


def finish_late(connection, invoice, cents):
    """A claim that is not valid any more cannot be finished, and what was written beside it cannot commit."""
    # Outside of a transaction, each statement commits by itself: the claim outlives its transaction, and is given back.
    fence = connection.execute("SELECT fence FROM onceward.claim('charge', %s)", (invoice,)).fetchone().fence
    connection.execute("SELECT onceward.release('charge', %s, %s)", (invoice, fence))
    try:
        with connection.transaction():
            connection.execute("INSERT INTO charge (invoice, cents) VALUES (%s, %s)", (invoice, cents))
            connection.execute("SELECT onceward.finish('charge', %s, %s)", (invoice, fence))
    except psycopg.Error as error:
        return error.sqlstate
    return "committed"


def main():
    action, invoice, cents = sys.argv[1], sys.argv[2], int((sys.argv[3:] or ["1999"])[0])
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True, row_factory=namedtuple_row) as connection:
        if action == "rollback":
            print(f"after the rollback: {roll_back(connection, invoice, cents)}")
        elif action == "stale":
            print(f"refused: {finish_late(connection, invoice, cents)}")
        else:
            happened, receipt = charge_once(connection, invoice, cents)
            words = {"charged": "charged:", "replay": "replayed:"}
            print(f"{words[happened]} {bytes(receipt).decode()}" if happened in words else f"not charged: {happened}")


if __name__ == "__main__":
    main()
