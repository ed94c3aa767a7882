"""Over streamable HTTP: the gateway passes decisions of the server on unchanged."""

import http.client
import json
import urllib.parse

from checks import all_of, is_equal
from results import about, is_fresh, is_state
from remote_sandbox import BOTH, with_remote

VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "plain", "version": "1"},
}


def modern(remote, tool="send_email", **arguments):
    """A call in the newest protocol version."""
    message = remote.message(tool, arguments)
    message["params"]["_meta"] = META
    return message


def headers(version=VERSION, method="tools/call", name="send_email"):
    return {"Mcp-Protocol-Version": version, "Mcp-Method": method, "Mcp-Name": name}


@with_remote
def a_stream_that_the_server_ends_without_an_answer_ends_for_the_client_too(remote):
    message = remote.message("send_email", {"to": "bob", "how": "ended"})
    status, _, messages = remote.post(message)
    is_equal((status, [one.get("method") for one in messages]), (200, ["notifications/progress"]))
    # The client that retries did not get a response, and now gets the known state.
    is_state(remote.call(to="bob", how="ended"), "in_doubt")
    is_equal(remote.effects(), 1, "effects")


@with_remote
def headers_that_are_missing_are_for_the_server_to_miss(remote):
    status, _, (answer,) = remote.post(modern(remote, to="bob"))
    is_equal(status, 200)
    is_fresh(answer["result"])
    _, _, (again,) = remote.post(modern(remote, to="bob"))
    is_equal((about(again["result"])["replayed"], remote.effects()), (True, 1))


@with_remote
def headers_that_disagree_are_for_the_server_to_refuse(remote):
    for wrong in (headers(name="look"), headers(method="tools/list"), headers(version="2025-11-25")):
        message = modern(remote, to=json.dumps(wrong))
        status, _, (answer,) = remote.post(message, headers=wrong)
        # This server ignores them.
        is_equal((status, answer["id"]), (200, message["id"]))
        is_fresh(answer["result"])
        seen = remote.received()[-1]["head"]
        is_equal({name.lower(): value for name, value in wrong.items()}.items() <= seen.items(), True, str(seen))
    is_equal(remote.effects(), 3, "effects")


@with_remote
def headers_that_disagree_with_a_call_that_does_not_reach_the_server_are_refused(remote):
    remote.post(modern(remote, to="bob"), headers=headers())
    status, _, (answer,) = remote.post(modern(remote, to="bob"), headers=headers(name="look"))
    is_equal((status, answer["error"]["code"]), (400, -32020))
    _, _, (again,) = remote.post(modern(remote, to="bob"), headers=headers())
    is_equal((about(again["result"])["replayed"], remote.effects()), (True, 1))


def raw(url, message, extra=None):
    """The status, the content headers and the bytes of a response."""
    address = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=20)
    head = {"Content-Type": "application/json", "Accept": BOTH, **(extra or {})}
    try:
        connection.request("POST", address.path, json.dumps(message), head)
        response = connection.getresponse()
        told = {name: response.headers.get(name) for name in ("Content-Type", "Content-Length", "Location")}
        return response.status, told, response.read()
    finally:
        connection.close()


@with_remote
def a_first_call_is_answered_as_by_the_server_byte_for_byte(remote):
    gateway = f"http://127.0.0.1:{remote.port}/mcp"
    hows = ("json", "sse", "nan", "odd", "gone", "moved", "refused", "ended", "polled")
    for tool in ("send_email", "look"):
        for how in hows:
            message = remote.message(tool, {"to": "bob", "how": how, "later_ms": 0})
            got, expected = raw(gateway, message), raw(remote.upstream, message)
            if (tool, how) == ("send_email", "refused"):
                # The call may have had an effect: the error message says so, and the rest is unchanged.
                error, plain = json.loads(got[2])["error"], json.loads(expected[2])["error"]
                is_equal((got[0], error["code"], error["message"].startswith(plain["message"])), (400, plain["code"], True))
                continue
            is_equal(got, expected, f"{tool} {how}")


@with_remote
def other_requests_are_answered_as_by_the_server_byte_for_byte(remote):
    gateway = f"http://127.0.0.1:{remote.port}/mcp"
    for method in ("initialize", "ping", "resources/list", "prompts/get", "completion/complete", "of/tomorrow"):
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"b": 1.5, "a": None}}
        is_equal(raw(gateway, message), raw(remote.upstream, message), method)


@with_remote
def a_server_that_packs_its_answers_is_asked_not_to(remote):
    packs = {"Accept-Encoding": "gzip"}
    is_fresh(remote.call(to="bob", how="packed", headers=packs))
    is_equal(remote.effects(), 1, "effects")


@with_remote
def a_list_that_is_changed_keeps_the_rest_of_its_event(remote):
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {"numbered": True}}
    _, _, got = raw(f"http://127.0.0.1:{remote.port}/mcp", message)
    _, _, expected = raw(remote.upstream, message)
    lines, plain = got.split(b"\n"), expected.split(b"\n")
    is_equal([line for line in lines if not line.startswith(b"data")], [line for line in plain if not line.startswith(b"data")])
    assert b"onceward_status" in got, got


CHECKS = all_of(globals())
