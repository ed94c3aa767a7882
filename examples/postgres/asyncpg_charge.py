#!/usr/bin/env python3
"""Charges an invoice once with asyncpg: the row and the record of it commit together.

DATABASE_URL=postgres://… asyncpg_charge.py charge|rollback|stale INVOICE [CENTS]
"""

import asyncio
import hashlib
import json
import os
import sys

import asyncpg

# Longer than a transaction should be open, in all.
TRIES, PAUSE_SECONDS = 40, 0.25


async def charge(connection, invoice, cents):
    """Charges inside the caller's transaction. Returns what happened, and the receipt."""
    # The same invoice with another amount is a mismatch, and not a repeat.
    fingerprint = hashlib.sha256(str(cents).encode()).digest()
    begin = "SELECT * FROM onceward.claim('charge', $1, tier => 'payment', fingerprint => $2)"
    answer = await connection.fetchrow(begin, invoice, fingerprint)
    if answer["decision"] != "acquired":
        return answer["decision"], answer["body"]
    receipt = json.dumps({"receipt": f"{invoice}/{cents}"}).encode()
    await connection.execute("INSERT INTO charge (invoice, cents) VALUES ($1, $2)", invoice, cents)
    await connection.execute("SELECT onceward.finish('charge', $1, $2, $3)", invoice, answer["fence"], receipt)
    return "charged", receipt


async def charge_once(connection, invoice, cents):
    """Runs the transaction again where PostgreSQL aborted it to resolve a conflict, or another one has the invoice now."""
    for _ in range(TRIES):
        try:
            async with connection.transaction():
                happened, receipt = await charge(connection, invoice, cents)
        except (asyncpg.SerializationError, asyncpg.DeadlockDetectedError, asyncpg.LockNotAvailableError):
            happened = "aborted"
        if happened not in ("in_flight", "aborted"):
            return happened, receipt
        await asyncio.sleep(PAUSE_SECONDS)
    raise TimeoutError(f"{invoice} is still {happened}")


async def roll_back(connection, invoice, cents):
    """A transaction that rolls back leaves neither the row nor the record."""
    transaction = connection.transaction()
    await transaction.start()
    await charge(connection, invoice, cents)
    await transaction.rollback()
    return await connection.fetchval("SELECT decision FROM onceward.status('charge', $1)", invoice)


async def finish_late(connection, invoice, cents):
    """A claim that is not valid any more cannot be finished, and what was written beside it cannot commit."""
    # Outside of a transaction, each statement commits by itself: the claim outlives its transaction, and is given back.
    fence = await connection.fetchval("SELECT fence FROM onceward.claim('charge', $1)", invoice)
    await connection.execute("SELECT onceward.release('charge', $1, $2)", invoice, fence)
    try:
        async with connection.transaction():
            await connection.execute("INSERT INTO charge (invoice, cents) VALUES ($1, $2)", invoice, cents)
            await connection.execute("SELECT onceward.finish('charge', $1, $2)", invoice, fence)
    except asyncpg.PostgresError as error:
        return error.sqlstate
    return "committed"


async def main():
    action, invoice, cents = sys.argv[1], sys.argv[2], int((sys.argv[3:] or ["1999"])[0])
    connection = await asyncpg.connect(os.environ["DATABASE_URL"])
    try:
        if action == "rollback":
            print(f"after the rollback: {await roll_back(connection, invoice, cents)}")
        elif action == "stale":
            print(f"refused: {await finish_late(connection, invoice, cents)}")
        else:
            happened, receipt = await charge_once(connection, invoice, cents)
            words = {"charged": "charged:", "replay": "replayed:"}
            print(f"{words[happened]} {receipt.decode()}" if happened in words else f"not charged: {happened}")
    finally:
        await connection.close()


if __name__ == "__main__":
    asyncio.run(main())
