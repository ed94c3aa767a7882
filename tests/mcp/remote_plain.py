"""Over streamable HTTP: what the server decides itself, the gateway leaves to it."""

import json

from checks import all_of, is_equal
from judge import about, is_fresh, is_state
from remote_place import with_remote

VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "plain", "version": "1"},
}


def modern(remote, tool="send_email", **arguments):
    """A call of the newest generation."""
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
    # The client that asks again did not get an answer, and is told what is known.
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
        # This server does not look at them.
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


CHECKS = all_of(globals())
