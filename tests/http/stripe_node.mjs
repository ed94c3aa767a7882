// Calls Stripe's client for Node: reads one JSON line for each call and prints the caller's result.

import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

// The folder of the installed modules is the first argument.
const Stripe = createRequire(`${process.argv[2]}/`)('stripe');

// Shortens the first pause between the client's attempts, so that a run takes seconds.
Stripe.prototype.getInitialNetworkRetryDelay = () => 0.05;

const clients = new Map();

function client(port, timeout) {
    const name = `${port} ${timeout}`;
    if (!clients.has(name)) {
        const options = { host: '127.0.0.1', port, protocol: 'http', timeout, telemetry: false };
        clients.set(name, new Stripe('sk_test_clients', options));
    }
    return clients.get(name);
}

async function call({ port, timeout, retries, key, words }) {
    const options = { maxNetworkRetries: retries };
    if (key) {
        options.idempotencyKey = key;
    }
    try {
        const customer = await client(port, timeout).customers.create({ description: words }, options);
        const { statusCode, headers } = customer.lastResponse;
        return { id: customer.id, status: statusCode, headers, text: JSON.stringify(customer) };
    } catch (error) {
        const text = `${JSON.stringify(error.raw)} ${error.message}`;
        return { error: error.constructor.name, status: error.statusCode, headers: error.headers, text };
    }
}

for await (const line of createInterface({ input: process.stdin })) {
    const asked = JSON.parse(line);
    call(asked).then((got) => process.stdout.write(`${JSON.stringify({ number: asked.number, ...got })}\n`));
}
