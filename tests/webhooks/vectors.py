#!/usr/bin/env python3
"""Writes spec/vectors/webhooks.json: signed webhooks, made by the providers' own libraries.

Needs `pip install stripe==16.1.0 slack_sdk==3.47.0 standardwebhooks==1.1.0`. Where no library signs, Python's hmac does. What the
providers publish is written down as they publish it, and is checked here too.
"""

import base64
import hashlib
import hmac
import json
import pathlib
from datetime import datetime, timezone

import stripe
from slack_sdk.signature import SignatureVerifier
from standardwebhooks import Webhook

VECTORS = pathlib.Path(__file__).parents[2] / "spec" / "vectors" / "webhooks.json"
TIME = 1763500000
STRIPE_SECRETS = ["whsec_5f2b0c9a7d3e4f61", "whsec_older_0123456789"]
SLACK_SECRET = "0123456789abcdef0123456789abcdef"
STANDARD_SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
OTHER_SECRET = "a secret of another shop"

STRIPE_EVENT = '{"id":"evt_1","object":"event","pending_webhooks":2,"type":"charge.succeeded"}'
SLACK_EVENT = '{"type":"event_callback","event_id":"Ev08MFMKH6","event":{"type":"message","text":"größe"}}'
SLACK_COMMAND = (
    "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar"
    "&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
    "&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    "&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)


def mac(secret: str, message: str, algorithm: str = "sha256") -> bytes:
    return hmac.new(secret.encode(), message.encode(), getattr(hashlib, algorithm)).digest()


def case(name, made_by, scheme, secrets, headers, body, now, key, event_id=None, at=None, challenge=None, **more):
    """`key` is `id` if the signed id identifies the event, and `body` if the digest of its body does."""
    digest = "sha256:" + hashlib.sha256(body.encode()).hexdigest()
    expect = {
        "key": event_id if key == "id" else digest,
        "event_id": event_id,
        "id_is_signed": key == "id",
        "at": at,
        "challenge": challenge,
    }
    return {
        "name": name, "made_by": made_by, "scheme": scheme, **more, "secrets": secrets, "headers": headers, "body": body,
        "now": now, "expect": expect,
    }  # fmt: skip


def stripe_cases():
    by = f"stripe {stripe.VERSION}"
    header = stripe.WebhookSignature.generate_signature_header
    signed = header(STRIPE_EVENT, STRIPE_SECRETS[0], TIME)
    yield case("stripe: an event", by, "stripe", STRIPE_SECRETS[:1], {"Stripe-Signature": signed}, STRIPE_EVENT, TIME + 1,
               "id", "evt_1", TIME)  # fmt: skip
    redelivered = STRIPE_EVENT.replace('"pending_webhooks":2', '"pending_webhooks":1')
    headers = {"Stripe-Signature": header(redelivered, STRIPE_SECRETS[0], TIME + 3600)}
    yield case("stripe: the same event, delivered again", by, "stripe", STRIPE_SECRETS[:1], headers, redelivered, TIME + 3601,
               "id", "evt_1", TIME + 3600)  # fmt: skip
    older = header(STRIPE_EVENT, STRIPE_SECRETS[1], TIME).partition(",")[2]
    headers = {"Stripe-Signature": f"{signed},{older},v0={'0' * 64}"}
    yield case("stripe: signed with two secrets, of which one is known", by, "stripe", STRIPE_SECRETS[1:], headers, STRIPE_EVENT,
               TIME, "id", "evt_1", TIME)  # fmt: skip
    thin = '{"id":"evt_test_65R9Ijk8dKEYZcXeRWn16R9A7j1FSQ3w3TGDPLLGSM4CW0","object":"v2.core.event","type":"v1.billing.meter.x"}'
    headers = {"Stripe-Signature": header(thin, STRIPE_SECRETS[0], TIME)}
    yield case("stripe: a thin event", by, "stripe", STRIPE_SECRETS[:1], headers, thin, TIME, "id",
               json.loads(thin)["id"], TIME)  # fmt: skip


def github_cases():
    headers = {
        "X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
        "X-Hub-Signature": "sha1=0000000000000000000000000000000000000000",
        "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
    }
    secret = "It's a Secret to Every" "body"
    assert headers["X-Hub-Signature-256"] == "sha256=" + mac(secret, "Hello, World!").hex()
    by = "https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries"
    yield case("github: the published test values", by, "github", [secret], headers, "Hello, World!", TIME, "body",
               headers["X-GitHub-Delivery"])  # fmt: skip


def slack_cases():
    headers = {
        "X-Slack-Signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
        "X-Slack-Request-Timestamp": "1531420618",
    }
    secret = "8f742231b10e8888abcd99yyyzzz85a5"
    assert headers["X-Slack-Signature"] == "v0=" + mac(secret, f"v0:1531420618:{SLACK_COMMAND}").hex()
    by = "https://docs.slack.dev/authentication/verifying-requests-from-slack"
    yield case("slack: the published example, a command", by, "slack", [secret], headers, SLACK_COMMAND, 1531420618, "body",
               at=1531420618)  # fmt: skip
    by = "slack_sdk 3.47.0"

    def signed(body):
        signature = SignatureVerifier(SLACK_SECRET).generate_signature(timestamp=str(TIME), body=body)
        return {"X-Slack-Signature": signature, "X-Slack-Request-Timestamp": str(TIME)}

    yield case("slack: an event", by, "slack", [SLACK_SECRET], signed(SLACK_EVENT), SLACK_EVENT, TIME + 300, "id", "Ev08MFMKH6",
               TIME)  # fmt: skip
    body = '{"token":"x","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P","type":"url_verification"}'
    yield case("slack: an address is set up", by, "slack", [SLACK_SECRET], signed(body), body, TIME, "body", at=TIME,
               challenge=json.loads(body)["challenge"])  # fmt: skip
    body = '{"type":"app_rate_limited","minute_rate_limited":1518467820}'
    yield case("slack: a notice without an id", by, "slack", [SLACK_SECRET], signed(body), body, TIME, "body", at=TIME)


def standard_cases():
    by = "https://docs.svix.com/receiving/verifying-payloads/how-manual"
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", '{"test": 2432232314}'
    headers = {
        "svix-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "svix-timestamp": "1614265330",
        "svix-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }

    def sign(secret, message_id, at, body):
        return Webhook(secret).sign(message_id, datetime.fromtimestamp(at, timezone.utc), body)

    assert headers["svix-signature"] == sign(secret, headers["svix-id"], 1614265330, body)
    yield case("standard webhooks: the published example of Svix", by, "standard_webhooks", [secret], headers, body, 1614265330,
               "id", headers["svix-id"], 1614265330)  # fmt: skip
    by = "standardwebhooks 1.1.0"
    right = sign(STANDARD_SECRET, "msg_1", TIME, body)
    headers = {"webhook-id": "msg_1", "webhook-timestamp": str(TIME), "webhook-signature": right}
    yield case("standard webhooks: an event", by, "standard_webhooks", [STANDARD_SECRET], headers, body, TIME, "id", "msg_1", TIME)
    other = sign(secret, "msg_1", TIME, body)
    headers = {**headers, "webhook-signature": f"v1a,{'A' * 86}== {other} {right}"}
    yield case("standard webhooks: signed with two secrets and a key pair", by, "standard_webhooks", [STANDARD_SECRET], headers,
               body, TIME, "id", "msg_1", TIME)  # fmt: skip
    unpadded = {**headers, "webhook-signature": sign("c2VjcmV0IHdpdGhvdXQgcGFkZGluZw", "msg_2", TIME, ""), "webhook-id": "msg_2"}
    yield case("standard webhooks: an unpadded secret and an empty body", by, "standard_webhooks",
               ["c2VjcmV0IHdpdGhvdXQgcGFkZGluZw"], unpadded, "", TIME, "id", "msg_2", TIME)  # fmt: skip


def hmac_cases():
    by, body = "Python's hmac", '{"order":{"id":"o-7","total":"10.00"}}'
    header = {"X-Shop-Hmac": base64.b64encode(mac(OTHER_SECRET, body)).decode()}
    shop = {"header": "X-Shop-Hmac", "encoding": "base64"}
    yield case("hmac: base64 over the body", by, "hmac", [OTHER_SECRET], header, body, TIME, "body", hmac=shop)
    headers = {"X-Time": str(TIME), "X-Sign": "t512:" + mac(OTHER_SECRET, f"{TIME}\n{body}", "sha512").hex()}
    settings = {
        "header": "X-Sign", "hash": "sha512", "prefix": "t512:", "timestamp_header": "X-Time", "separator": "\n",
        "id": "/order/id",
    }  # fmt: skip
    yield case("hmac: SHA-512 over time and body, with an id", by, "hmac", [OTHER_SECRET], headers, body, TIME, "id", "o-7", TIME,
               hmac=settings)  # fmt: skip


CASES = [*stripe_cases(), *github_cases(), *slack_cases(), *standard_cases(), *hmac_cases()]
VECTORS.write_text(json.dumps({"genuine": CASES}, indent=2, ensure_ascii=False) + "\n")
