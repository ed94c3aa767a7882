"""Hooks for schemathesis: a request that waits for work would use up the time of the test."""

import schemathesis

LONGEST_WAIT_MS = 20


@schemathesis.hook
def map_body(context, body):
    """Shortens a valid wait of a worker. Invalid ones stay what they are."""
    if context.operation.path == "/v1/lease" and isinstance(body, dict):
        wait = body.get("wait_ms")
        if isinstance(wait, int | float) and not isinstance(wait, bool) and LONGEST_WAIT_MS < wait <= 60_000:
            body["wait_ms"] = LONGEST_WAIT_MS
    return body
