"""Keys that clients send over HTTP."""

import http.client
import json

from checks import all_of, is_equal
from results import is_fresh, is_replay, is_state
from remote_sandbox import BOTH, Remote, with_remote

KEY = "Idempotency-Key"


def keyed(remote, arguments, key, headers=None):
    message = remote.message("send_email", arguments)
    message["params"]["_meta"] = {"onceward/key": key}
    return remote.post(message, headers=headers)


@with_remote
def a_key_in_a_header_says_which_call_it_is(remote):
    first = remote.call(to="bob", headers={KEY: "order-1"})
    is_fresh(first)
    for spelling in ("order-1", '"order-1"', " order-1 "):
        is_replay(remote.call(to="bob", headers={KEY.upper(): spelling}), first)
    is_state(remote.call(to="eve", headers={KEY: "order-1"}), "mismatch")
    is_fresh(remote.call(to="bob", headers={KEY: "order-2"}))
    is_equal(remote.effects(), 2, "effects")


@with_remote
def a_key_in_the_message_and_in_a_header_have_to_agree(remote):
    status, _, (answer,) = keyed(remote, {"to": "bob"}, "a", {KEY: "b"})
    is_equal(status, 200)
    is_state(answer["result"], "refused")
    is_equal(remote.effects(), 0, "effects")
    _, _, (answer,) = keyed(remote, {"to": "bob"}, "a", {KEY: '"a"'})
    is_fresh(answer["result"])
    is_replay(remote.call(to="bob", headers={KEY: "a"}), answer["result"])
    is_equal(remote.effects(), 1, "effects")


@with_remote
def a_header_with_an_invalid_key_is_refused(remote):
    for value in ("", "x" * 300, '"open', "two words", "ta\tb"):
        status, _, (answer,) = remote.post(remote.message("send_email", {"to": "bob"}), headers={KEY: value})
        is_equal((status, answer["error"]["code"]), (400, -32600), repr(value))
        words = answer["error"]["message"]
        assert KEY in words and (not value or value not in words), words
    connection = http.client.HTTPConnection("127.0.0.1", remote.port, timeout=20)
    body = json.dumps(remote.message("send_email", {"to": "bob"})).encode()
    connection.putrequest("POST", "/mcp")
    for name, value in (
        ("Content-Type", "application/json"),
        ("Accept", BOTH),
        ("Content-Length", str(len(body))),
        (KEY, "a"),
        (KEY.lower(), "a"),
    ):
        connection.putheader(name, value)
    connection.endheaders(body)
    is_equal(connection.getresponse().status, 400, "twice")
    connection.close()
    is_equal(remote.effects(), 0, "effects")


@with_remote
def the_server_gets_the_same_key_on_every_attempt_and_another_one_for_a_repeat(remote):
    def passed():
        calls = [one for one in remote.received() if "tools/call" in one["body"]]
        return [one["head"].get(KEY.lower()) for one in calls]

    for _ in range(2):
        remote.post(remote.message("send_email", {"to": "bob", "how": "gone"}), headers={KEY: "order-1"})
    first, second = passed()
    assert first == second and first.startswith("once_v1_"), (first, second)
    is_fresh(remote.call(to="eve", headers={KEY: "order-2"}))
    is_fresh(remote.call(to="eve", onceward_repeat=2, headers={KEY: "order-2"}))
    assert len(set(passed())) == 3, passed()
    # Without a header the gateway adds none, and its own requests have none.
    remote.call(to="ada")
    is_equal(passed()[-1], None)
    lists = [one["head"].get(KEY.lower()) for one in remote.received() if "tools/list" in one["body"]]
    is_equal(set(lists), {None}, "keys of requests for the list")


@with_remote
def a_key_of_one_caller_does_not_count_for_another(remote):
    for who in ("alice", "bob"):
        is_fresh(remote.call(to="eve", headers={KEY: "order-1", "Authorization": f"Bearer {who}"}))
    is_equal(remote.effects(), 2, "effects")


def an_argument_for_a_key_is_filled_over_http_too(sandbox):
    schema = {"properties": {"to": {"type": "string"}, "idempotencyKey": {"type": "string", "format": "uuid"}}}
    sandbox.offer(pay={"inputSchema": {"type": "object"} | schema})
    remote = Remote(sandbox)
    try:
        first = remote.call("pay", to="bob", idempotencyKey="made up 1")
        is_replay(remote.call("pay", to="bob", idempotencyKey="made up 2"), first)
        is_replay(remote.call("pay", to="bob", headers={"Mcp-Session-Id": "s-1"}), first)
        (effect,) = sandbox.effects()
        is_equal(len(effect["arguments"]["idempotencyKey"]), 36, "characters")
    finally:
        remote.end()


CHECKS = all_of(globals())
