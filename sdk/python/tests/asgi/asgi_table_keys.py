"""The table: where keys are, how they are written, whose they are, which requests need one, and cookies."""

from asgi_cases import Reply, Wait, again, bare, case, fresh, post, problem, replies

MALFORMED = [b"", b'""', b'"k', b"a b", "schl\u00fcssel".encode(), b"k" * 256]


def written():
    refused = [bare("POST").having("idempotency-key", key).gets(problem("key-malformed")) for key in MALFORMED]
    refused.append(post("a").having("idempotency-key", "b").gets(problem("key-malformed")))
    return [
        case(
            "a quoted key and a bare one are the same",
            [replies(201, "one")],
            [post('"8e03-40d5"').gets(fresh(201, "one")), post("8e03-40d5").gets(again(201, "one"))],
        ),
        retried_as("a retry of a quoted key goes upstream quoted", '"abc"', "abc"),
        retried_as("a retry of a bare key goes upstream bare", "abc", '"abc"'),
        case(
            "a key in another spelling is still compared with its request",
            [replies(201, "one")],
            [
                post('"abc"').gets(fresh(201, "one")),
                post("abc").of("{}").gets(problem("mismatch")),
                post('"abc"').of("{}").gets(problem("mismatch")),
                post("abc").gets(again(201, "one")),
            ],
        ),
        case(
            "255 characters are a key",
            [replies(201, "one")],
            [post("k" * 255).gets(fresh(201, "one")), post("k" * 255).gets(again(201, "one"))],
        ),
        case("an invalid key is refused, and nothing runs", [], refused),
    ]


def retried_as(name, first, other):
    """An app that honours keys gets the same bytes on every attempt."""
    return case(
        name,
        [replies(502, "lost"), replies(502, "lost again"), Reply(echoes="idempotency-key")],
        [
            post(first).gets(fresh(502, "lost")),
            post(other).gets(fresh(502, "lost again")),
            post(other).gets(fresh(201, first)),
            post(first).gets(again(201, first)),
            post(other).gets(again(201, first)),
        ],
        honours_key=True,
    )


def modes():
    def missing(name, profile, expect):
        return case(name, [], [bare("POST").gets(expect)], profile=profile)

    one_two = [replies(201, "one"), replies(201, "two")]
    return [
        missing("no key where one is required", "ietf", problem("key-missing")),
        missing(
            "no key, under the profile stripe", "stripe", problem("key-missing").member("code", "idempotency_error")
        ),
        missing(
            "no key, under the profile acp", "acp", problem("key-missing").member("code", "idempotency_key_required")
        ),
        case(
            "with optional keys, only requests with a key are guarded",
            [*one_two, replies(201, "three")],
            [
                bare("POST").gets(fresh(201, "one").no_header("idempotency-expires")),
                bare("POST").gets(fresh(201, "two")),
                post("k").gets(fresh(201, "three").header("idempotency-expires", "*")),
                post("k").gets(again(201, "three")),
            ],
            key_mode="optional",
        ),
        case(
            "a derived key does not depend on the spelling of the request",
            one_two,
            [
                bare("POST").of('{"amount":1,"to":"a"}').gets(fresh(201, "one")),
                bare("POST").of('{ "to" : "a", "amount" : 1 }').gets(again(201, "one")),
                bare("POST").of('{"amount":2,"to":"a"}').gets(fresh(201, "two")),
            ],
            key_mode="derived",
        ),
        case(
            "a key of the client takes precedence over a derived one",
            one_two,
            [
                post("a").gets(fresh(201, "one")),
                post("b").gets(fresh(201, "two")),
                post("a").gets(again(201, "one")),
            ],
            key_mode="derived",
        ),
        case(
            "with derived keys, a key of the client is held as long as usual, and is forwarded unchanged",
            [Reply(echoes="idempotency-key"), Reply(echoes="idempotency-key")],
            [
                post("order-7").gets(fresh(201, "order-7")),
                bare("POST").gets(fresh(201, "ours")),
                Wait(0.6),
                post("order-7").gets(again(201, "order-7")),
            ],
            key_mode="derived",
            honours_key=True,
            window=0.3,
        ),
        case(
            "after its window, a request with a derived key is new",
            one_two,
            [
                bare("POST").gets(fresh(201, "one")),
                bare("POST").gets(again(201, "one")),
                Wait(3.3),
                bare("POST").gets(fresh(201, "two")),
            ],
            key_mode="derived",
            # Long enough for a repeat on a busy machine.
            window=3,
        ),
        case(
            "PATCH is guarded, and idempotent methods are not",
            [replies(200, "patched"), replies(200, "1"), replies(200, "2"), replies(200, "3"), replies(204, "")],
            [
                bare("PATCH").having("idempotency-key", "k").gets(fresh(200, "patched")),
                bare("PATCH").having("idempotency-key", "k").gets(again(200, "patched")),
                bare("GET").having("idempotency-key", "k").of("").gets(fresh(200, "1")),
                bare("GET").without("authorization").of("").gets(fresh(200, "2")),
                bare("PUT").gets(fresh(200, "3")),
                bare("DELETE").having("idempotency-key", "k").of("").gets(fresh(204, "")),
            ],
        ),
        case(
            "one key is a different intent for each path and method",
            [*one_two, replies(201, "three")],
            [
                post("k").gets(fresh(201, "one")),
                post("k").to("/v1/%63harges").gets(again(201, "one")),
                post("k").to("/v1/refunds").gets(fresh(201, "two")),
                bare("PATCH").having("idempotency-key", "k").gets(fresh(201, "three")),
                post("k").gets(again(201, "one")),
            ],
        ),
    ]


def places():
    def paypal(key):
        return bare("POST").having("paypal-request-id", key)

    def square(body):
        return bare("POST").of(body)

    return [
        case(
            "the key is in PayPal's header",
            [replies(201, "one")],
            [
                paypal("k").gets(fresh(201, "one")),
                paypal("k").gets(again(201, "one")),
                post("k").gets(problem("key-missing")),
            ],
            key_from="header:PayPal-Request-Id",
        ),
        case(
            "the key is in the body, as with Square",
            [replies(201, "one"), replies(201, "two")],
            [
                square('{"idempotency_key":"k","amount":1}').gets(fresh(201, "one")),
                square('{"amount":1,"idempotency_key":"k"}').gets(again(201, "one")),
                square('{"idempotency_key":"k","amount":2}').gets(problem("mismatch")),
                square('{"idempotency_key":17,"amount":1}').gets(fresh(201, "two")),
                square('{"amount":1}').gets(problem("key-missing")),
                square('{"idempotency_key":["k"]}').gets(problem("key-malformed")),
                square("{").gets(problem("body-malformed")),
                square("{}").without("content-type").gets(problem("body-malformed")),
            ],
            key_from="body:/idempotency_key",
        ),
    ]


def accounts():
    def of(account):
        return post("k").having("stripe-account", account)

    return [
        case(
            "a key of one Stripe account is separate from that of another",
            [replies(201, "one")],
            [
                of("acct_1").gets(fresh(201, "one")),
                of("acct_2").gets(problem("mismatch")),
                post("k").gets(problem("mismatch")),
                of("acct_1").gets(again(201, "one")),
                of("acct_1").having("connection", "stripe-account").gets(problem("key-malformed")),
            ],
            profile="stripe",
        ),
        case(
            "equal requests for two Stripe accounts are two intents",
            [replies(201, "one"), replies(201, "two")],
            [
                bare("POST").having("stripe-account", "acct_1").gets(fresh(201, "one")),
                bare("POST").having("stripe-account", "acct_2").gets(fresh(201, "two")),
            ],
            profile="stripe",
            key_mode="derived",
        ),
        case(
            "a derived key is sent in the configured header",
            [Reply(echoes="paypal-request-id")],
            [bare("POST").gets(fresh(201, "ours"))],
            key_from="header:PayPal-Request-Id",
            key_mode="derived",
            honours_key=True,
        ),
    ]


def recipes():
    """A recipe is about the body. The rest of the request counts as without a recipe."""
    body, other_memo = '{"invoice":7,"amount":1,"memo":"a"}', '{"memo":"b","amount":1,"invoice":7}'
    other_amount = '{"invoice":7,"amount":2,"memo":"a"}'
    recipe = {"key": ["/invoice"], "match": ["/amount"]}
    keyed, derived = post("k").of(body), bare("POST").of(body)

    def typed(kind):
        return derived.without("content-type").having("content-type", kind)

    return [
        case(
            "with a recipe, query and content type must match too",
            [replies(201, "dry")],
            [
                keyed.to("/v1/charges?dry_run=true").gets(fresh(201, "dry")),
                keyed.to("/v1/charges").gets(problem("mismatch")),
                keyed.to("/v1/charges?dry_run=false").gets(problem("mismatch")),
                keyed.to("/v1/charges?dry_run=true").of(other_memo).gets(again(201, "dry")),
                keyed.to("/v1/charges?dry_run=true")
                .without("content-type")
                .having("content-type", "application/merge-patch+json")
                .gets(problem("mismatch")),
            ],
            operation=recipe,
        ),
        case(
            "a key derived by a recipe includes the query, and the content type must match",
            [replies(201, "dry"), replies(201, "paid"), replies(201, "other")],
            [
                derived.to("/v1/charges?dry_run=true").gets(fresh(201, "dry")),
                derived.gets(fresh(201, "paid")),
                derived.to("/v1/charges?account=2").gets(fresh(201, "other")),
                derived.to("/v1/charges?").of(other_memo).gets(again(201, "paid")),
                derived.to("/v1/charges?dry_run=true").of(other_amount).gets(problem("mismatch")),
                typed("application/json; charset=utf-8").gets(again(201, "paid")),
                typed("application/merge-patch+json").gets(problem("mismatch")),
            ],
            operation=recipe,
            key_mode="derived",
        ),
    ]


def owners():
    def of(credential):
        return post("k").without("authorization").having("authorization", credential)

    def named(name):
        return post("k").having("x-tenant", name)

    return [
        case(
            "customers neither affect nor see each other",
            [replies(201, "one"), replies(201, "two")],
            [
                of("Bearer sk_1").gets(fresh(201, "one")),
                of("Bearer sk_2").of("{}").gets(fresh(201, "two")),
                of("bearer  sk_1").gets(again(201, "one")),
            ],
        ),
        case(
            "a request without valid credentials is refused, and nothing runs",
            [],
            [
                post("k").without("authorization").gets(problem("no-credential")),
                post("k").having("authorization", "Bearer other").gets(problem("bad-credential")),
                of("Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln").gets(problem("bad-credential")),
            ],
        ),
        case(
            "a proxy on this machine names the tenant",
            [replies(201, "one"), replies(201, "two")],
            [
                named("acme").gets(fresh(201, "one")),
                named("globex").gets(fresh(201, "two")),
                named("acme").gets(again(201, "one")),
                post("k").gets(problem("no-credential")),
                named("t" * 300).gets(problem("bad-request")),
            ],
            tenant="header:x-tenant",
            trusted_peers=["127.0.0.1"],
        ),
        case(
            "all callers are one tenant if configured so",
            [replies(201, "one")],
            [
                of("Bearer sk_1").gets(fresh(201, "one")),
                of("Bearer sk_2").gets(again(201, "one")),
                post("k").without("authorization").gets(again(201, "one")),
            ],
            tenant="fixed:hooks",
        ),
    ]


def cookies():
    def of(cookie):
        return bare("POST").having("cookie", cookie)

    return [
        case(
            "with derived keys, a cookie is refused until it is listed",
            [replies(201, "one"), replies(201, "two")],
            [
                of("session=ann").gets(problem("cookie-not-listed")),
                of("session=bob").gets(problem("cookie-not-listed")),
                bare("POST").gets(fresh(201, "one")),
                post("k").having("cookie", "session=ann").gets(fresh(201, "two")),
                post("k").having("cookie", "session=bob").gets(again(201, "two")),
            ],
            key_mode="derived",
        ),
        case(
            "a cookie in identity_headers distinguishes users",
            [replies(201, "ann's"), replies(201, "bob's"), replies(201, "of no session")],
            [
                of("session=ann; lang=en").gets(fresh(201, "ann's")),
                of("session=bob; lang=en").gets(fresh(201, "bob's")),
                of("session=ann; lang=en").gets(again(201, "ann's")),
                of("session=ann").having("cookie", "lang=en").gets(again(201, "ann's")),
                bare("POST").gets(fresh(201, "of no session")),
            ],
            key_mode="derived",
            identity_headers=["Cookie"],
        ),
        case(
            "a cookie in ignored_headers does not distinguish users",
            [replies(201, "one")],
            [of("lb=1").gets(fresh(201, "one")), of("lb=2").gets(again(201, "one"))],
            key_mode="derived",
            ignored_headers=["cookie"],
        ),
        case(
            "with a recipe too, a cookie is refused until it is listed",
            [],
            [of("session=ann").of('{"invoice":7,"amount":1}').gets(problem("cookie-not-listed"))],
            key_mode="derived",
            operation={"key": ["/invoice"], "match": ["/amount"]},
        ),
        case(
            "identity headers are part of the tenant if clients send keys",
            [replies(201, "one"), replies(201, "two")],
            [
                post("k").having("x-user", "ann").gets(fresh(201, "one")),
                post("k").having("x-user", "bob").gets(fresh(201, "two")),
                post("k").having("x-user", "ann").gets(again(201, "one")),
                post("k").having("x-user", "ann").having("connection", "x-user").gets(problem("key-malformed")),
            ],
            identity_headers=["x-user"],
        ),
    ]


CASES = [*written(), *modes(), *places(), *accounts(), *recipes(), *owners(), *cookies()]
