"""The table: which responses are kept, repeats, bodies and faults."""

from asgi_cases import (
    GivesUp,
    LedgerBreaks,
    PieceByPiece,
    Reply,
    StreamTakes,
    Together,
    Unfinished,
    again,
    bare,
    broken,
    case,
    fresh,
    post,
    problem,
    replies,
)

REPLAYED = (200, 201, 202, 302, 400, 402, 404, 410, 422)
RELEASED = (401, 403, 407, 409, 425, 429)
IN_DOUBT = (408, 499, 502, 503, 504, 524, 529, 599)
SERVER_ERRORS = (500, 501, 505)
RELEASED_UNTIL = (429, 503, 529)


def every_status(profile):
    """Every row of the table of statuses."""
    told = problem("in-doubt").header("stripe-should-retry", "false").header("x-should-retry", "false")
    told = told.member("since", "*").member("operation", "POST /v1/charges").member("tenant", "*").member("intent", "*")
    if profile == "acp":
        told = told.member("code", "idempotency_in_flight")
    later = problem("in-flight").header("retry-after", "60").header("x-should-retry", "true")
    # ACP forbids keeping a 5xx, which does not prove that nothing happened.
    kept, doubted = (REPLAYED, IN_DOUBT + SERVER_ERRORS) if profile == "acp" else (REPLAYED + SERVER_ERRORS, IN_DOUBT)
    script, steps = [], []

    def row(status, second, extra=(), retry_after=None):
        key, reply = f"k{len(steps)}", replies(status, f"first {status}")
        script.extend([reply.header("retry-after", retry_after) if retry_after else reply, *extra])
        steps.extend([post(key).gets(fresh(status, f"first {status}")), post(key).gets(second)])

    for status in kept:
        row(status, again(status, f"first {status}"))
    for status in RELEASED:
        row(status, fresh(201, "second"), extra=[replies(201, "second")])
    for status in doubted:
        row(status, told)
    for status in RELEASED_UNTIL:
        row(status, later, retry_after="60")
    return case(f"every status, {profile}", script, steps, profile=profile)


def kept():
    no_yes = [replies(503, "no"), replies(201, "yes")]
    return [
        *map(every_status, ("ietf", "stripe", "acp")),
        case(
            "a status in refusals proves that nothing happened",
            no_yes,
            [post("k").gets(fresh(503, "no")), post("k").gets(fresh(201, "yes"))],
            refusals=[503],
        ),
        case(
            "a 408 frees the key only if the route lists it as a refusal",
            [replies(408, "no"), replies(201, "yes")],
            [post("k").gets(fresh(408, "no")), post("k").gets(fresh(201, "yes"))],
            refusals=[408],
        ),
        case(
            "a 500 under acp is sent again only if the upstream honours the key",
            [replies(500, "broken"), replies(201, "yes")],
            [
                post("k").gets(fresh(500, "broken")),
                post("k").gets(fresh(201, "yes")),
                post("k").gets(again(201, "yes")),
            ],
            profile="acp",
            honours_key=True,
        ),
        case(
            "a kept response has no Retry-After",
            [replies(500, "broken").header("retry-after", "1").header("x-should-retry", "true")],
            [
                post("k").gets(fresh(500, "broken").header("retry-after", "1")),
                post("k").gets(again(500, "broken").no_header("retry-after").no_header("x-should-retry")),
            ],
        ),
        case(
            "a request with an unknown outcome is sent again if the upstream honours the key",
            [replies(502, "lost"), Reply(fails=True), replies(201, "yes")],
            [
                post("k").gets(fresh(502, "lost")),
                post("k").gets(problem("no-answer").header("x-should-retry", "true")),
                post("k").gets(fresh(201, "yes")),
                post("k").gets(again(201, "yes")),
            ],
            honours_key=True,
        ),
    ]


def repeats():
    in_flight = problem("in-flight").header("retry-after", "*").member("retry_after", "*")

    def mismatch(profile, code):
        told = problem("mismatch").member("code", code).member("message", "*")
        steps = [post("k").gets(fresh(201, "one")), post("k").of("{}").gets(told)]
        return case(f"a mismatch under the profile {profile}", [replies(201, "one")], steps, profile=profile)

    return [
        case(
            "two spellings of one request are the same, and another amount is a mismatch",
            [replies(201, "one")],
            [
                post("k").of('{"a":1,"b":2}').gets(fresh(201, "one")),
                post("k").of('{ "b": 2, "a": 1 }').gets(again(201, "one")),
                post("k")
                .of('{"a":1,"b":3}')
                .gets(problem("mismatch").header("stripe-should-retry", "false").header("x-should-retry", "false")),
                post("k").to("/v1/charges?dry=1").of('{"a":1,"b":2}').gets(problem("mismatch")),
            ],
        ),
        case(
            "repeats of a running request wait and get its response",
            [replies(201, "one", after=0.4)],
            [
                Together((
                    post("k").gets(fresh(201, "one")),
                    post("k").gets(again(201, "one")),
                    post("k").gets(again(201, "one")),
                    post("k").of("{}").gets(problem("mismatch")),
                ))
            ],
        ),
        case(
            "a repeat that has waited long enough is told when to retry",
            [replies(201, "one", after=2)],
            [
                Together((
                    post("k").gets(fresh(201, "one")),
                    post("k").gets(in_flight.header("stripe-should-retry", "true").header("x-should-retry", "true")),
                ))
            ],
            wait=0.3,
        ),
        case(
            "a request in flight has the status that the route configures",
            [replies(201, "one", after=2)],
            [Together((post("k").gets(fresh(201, "one")), post("k").gets(in_flight.having_status(425))))],
            wait="300ms",
            in_flight_status=425,
        ),
        case(
            "callers that waited for a released attempt do not run one after the other",
            [replies(429, "later", after=0.4)],
            [
                Together((
                    post("k").gets(fresh(429, "later")),
                    post("k").gets(problem("attempt-failed").header("retry-after", "1")),
                    post("k").gets(problem("attempt-failed").header("x-should-retry", "true")),
                ))
            ],
        ),
        case(
            "a request runs to its end after its client gave up, and the retry gets its response",
            [replies(201, "one", after=0.4)],
            [GivesUp(post("k")), post("k").gets(again(201, "one"))],
        ),
        case(
            "a key that a stream uses is refused",
            [],
            [StreamTakes("s"), post("s/head").gets(problem("collision"))],
            tenant="fixed:acme",
        ),
        mismatch("stripe", "idempotency_error"),
        mismatch("acp", "idempotency_conflict"),
    ]


def bodies():
    binary = bytes(range(256)) * 20
    large = b"x" * 300 * 1024
    mebibyte = 1024 * 1024
    events = (b"data: 1\n\n", b"data: 2\n\n", b"data: 3\n\n")
    created = (
        replies(201, "one")
        .header("x-request-id", "req_7")
        .header("location", "/v1/charges/7")
        .header("set-cookie", "session=7")
    )
    return [
        case(
            "bytes are replayed unchanged",
            [replies(200, binary).header("content-type", "application/octet-stream")],
            [post("k").of(binary).gets(fresh(200, binary)), post("k").of(binary).gets(again(200, binary))],
        ),
        case(
            "an empty response is replayed empty",
            [replies(204, "")],
            [post("k").gets(fresh(204, "")), post("k").gets(again(204, ""))],
        ),
        case(
            "headers are replayed, except for cookies and hop-by-hop headers",
            [created],
            [
                post("k").gets(
                    fresh(201, "one")
                    .header("x-request-id", "req_7")
                    .header("set-cookie", "session=7")
                    .header("idempotency-expires", "*")
                ),
                post("k").gets(
                    again(201, "one")
                    .header("x-request-id", "req_7")
                    .header("location", "/v1/charges/7")
                    .header("content-type", "application/json")
                    .no_header("set-cookie")
                ),
            ],
        ),
        case(
            "a request over the limit is refused, and one at the limit is not",
            [replies(201, "one")],
            [
                post("k").of(b"x" * (mebibyte + 1)).gets(problem("body-too-large")),
                post("k").of(b"x" * mebibyte).gets(fresh(201, "one")),
            ],
        ),
        case(
            "a response that is too large to keep is delivered in full, and reported to repeats",
            [replies(201, large)],
            [
                post("k").gets(fresh(201, large)),
                post("k").gets(
                    problem("not-kept")
                    .member("original_status", "201")
                    .member("outcome_digest", "*")
                    .header("x-should-retry", "false")
                ),
                post("k").of("{}").gets(problem("mismatch")),
            ],
        ),
        case(
            "events reach the first caller as they come, and a repeat gets all of them",
            [Reply(headers=(("content-type", "text/event-stream"),), pieces=events)],
            [
                PieceByPiece(post("k"), events),
                post("k").gets(again(200, b"".join(events)).header("content-type", "text/event-stream")),
            ],
        ),
    ]


def faults():
    return [
        case(
            "a missing response is in doubt",
            [Reply(fails=True)],
            [
                post("k").gets(problem("no-answer").header("x-should-retry", "false")),
                post("k").gets(problem("in-doubt").member("since", "*").header("x-should-retry", "false")),
                post("k").of("{}").gets(problem("mismatch")),
            ],
        ),
        case(
            "callers that waited for an attempt without a response are told of the doubt",
            [replies(504, "lost", after=0.4)],
            [Together((post("k").gets(fresh(504, "lost")), post("k").gets(problem("in-doubt"))))],
        ),
        case(
            "a truncated response is not replayed, and is in doubt",
            [Reply(body=b"half", breaks_off=True)],
            [post("k").gets(broken(200)), post("k").gets(problem("in-doubt"))],
        ),
        case(
            "a client that gave up on a request without a response is told of the doubt",
            [replies(502, "lost", after=0.3)],
            [GivesUp(post("k")), post("k").gets(problem("in-doubt"))],
        ),
        case(
            "without its ledger nothing runs, but cached outcomes are replayed",
            [replies(201, "one"), replies(200, "read")],
            [
                post("k").gets(fresh(201, "one")),
                LedgerBreaks(),
                post("other").gets(problem("store-down").header("retry-after", "1").header("x-should-retry", "true")),
                post("k").gets(again(201, "one")),
                bare("GET").of("").gets(fresh(200, "read")),
            ],
        ),
        case(
            "a request body that does not arrive times out, and nothing runs",
            [replies(201, "one")],
            [
                Unfinished(post("k"), problem("too-slow").header("x-should-retry", "true")),
                post("k").gets(fresh(201, "one")),
            ],
            body_timeout=0.3,
        ),
    ]


CASES = [*kept(), *repeats(), *bodies(), *faults()]
