// Charges an invoice once with node-postgres: the row and the record of it commit together.
//
// DATABASE_URL=postgres://… node node_postgres_charge.mjs charge|rollback|stale INVOICE [CENTS]
// With `pg` in another folder: NODE_MODULES=/path/to/node_modules

import { createHash } from 'node:crypto';
import { createRequire } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';

const { Client } = createRequire(process.env.NODE_MODULES ? `${process.env.NODE_MODULES}/` : import.meta.url)('pg');

// Longer than a transaction should be open, in all.
const TRIES = 40;
const PAUSE_MILLISECONDS = 250;

// PostgreSQL aborted the transaction to resolve a conflict: it may simply run again.
const CONFLICTS = ['40001', '40P01', '55P03'];

/** Runs some work in a transaction. An error rolls it back. */
async function inTransaction(client, work) {
    await client.query('BEGIN');
    try {
        const result = await work();
        await client.query('COMMIT');
        return result;
    } catch (error) {
        await client.query('ROLLBACK');
        throw error;
    }
}

/** Charges inside the caller's transaction. Returns what happened, and the receipt. */
async function charge(client, invoice, cents) {
    // The same invoice with another amount is a mismatch, and not a repeat.
    const fingerprint = createHash('sha256').update(String(cents)).digest();
    const begin = "SELECT * FROM onceward.claim('charge', $1, tier => 'payment', fingerprint => $2)";
    const { decision, fence, body } = (await client.query(begin, [invoice, fingerprint])).rows[0];
    if (decision !== 'acquired') {
        return { happened: decision, receipt: body };
    }
    const receipt = Buffer.from(JSON.stringify({ receipt: `${invoice}/${cents}` }));
    await client.query('INSERT INTO charge (invoice, cents) VALUES ($1, $2)', [invoice, cents]);
    await client.query("SELECT onceward.finish('charge', $1, $2, $3)", [invoice, fence, receipt]);
    return { happened: 'charged', receipt };
}

/** Runs the transaction again where PostgreSQL aborted it to resolve a conflict, or another one has the invoice now. */
async function chargeOnce(client, invoice, cents) {
    for (let tries = 0; tries < TRIES; tries += 1) {
        try {
            const { happened, receipt } = await inTransaction(client, () => charge(client, invoice, cents));
            if (happened !== 'in_flight') {
                return { happened, receipt };
            }
        } catch (error) {
            if (!CONFLICTS.includes(error.code)) {
                throw error;
            }
        }
        await sleep(PAUSE_MILLISECONDS);
    }
    throw new Error(`${invoice} is still in flight`);
}

/** A transaction that rolls back leaves neither the row nor the record. */
async function rollBack(client, invoice, cents) {
    await client.query('BEGIN');
    await charge(client, invoice, cents);
    await client.query('ROLLBACK');
    return (await client.query("SELECT decision FROM onceward.status('charge', $1)", [invoice])).rows[0].decision;
}

/** A claim that is not valid any more cannot be finished, and what was written beside it cannot commit. */
async function finishLate(client, invoice, cents) {
    // Outside of a transaction, each statement commits by itself: the claim outlives its transaction, and is given back.
    const { fence } = (await client.query("SELECT fence FROM onceward.claim('charge', $1)", [invoice])).rows[0];
    await client.query("SELECT onceward.release('charge', $1, $2)", [invoice, fence]);
    try {
        await inTransaction(client, async () => {
            await client.query('INSERT INTO charge (invoice, cents) VALUES ($1, $2)', [invoice, cents]);
            await client.query("SELECT onceward.finish('charge', $1, $2)", [invoice, fence]);
        });
    } catch (error) {
        return error.code;
    }
    return 'committed';
}

const [action, invoice, cents = '1999'] = process.argv.slice(2);
const client = new Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
try {
    if (action === 'rollback') {
        console.log(`after the rollback: ${await rollBack(client, invoice, Number(cents))}`);
    } else if (action === 'stale') {
        console.log(`refused: ${await finishLate(client, invoice, Number(cents))}`);
    } else {
        const { happened, receipt } = await chargeOnce(client, invoice, Number(cents));
        const words = { charged: 'charged:', replay: 'replayed:' };
        console.log(words[happened] ? `${words[happened]} ${receipt}` : `not charged: ${happened}`);
    }
} finally {
    await client.end();
}
