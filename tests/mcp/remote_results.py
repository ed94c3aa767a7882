"""Over streamable HTTP: late responses, unusual statuses, callers, and the shutdown of the gateway."""

import signal
import threading

from checks import all_of, is_equal, until
from results import about, is_fresh, is_replay, is_state
from remote_sandbox import swallowed, with_remote


@with_remote
def an_answer_long_after_a_cancellation_settles_the_doubt(remote):
    headers, arguments = {"Mcp-Session-Id": "s-1"}, {"to": "bob", "how": "late", "delay_ms": 12500}
    message = remote.message("send_email", arguments)
    call = threading.Thread(target=lambda: swallowed(lambda: remote.post(message, headers=headers)))
    call.start()
    until(lambda: remote.effects() == 1, "the effect")
    params = {"requestId": message["id"], "reason": "the user pressed stop"}
    remote.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}, headers=headers)
    call.join()
    # By now the call is in doubt, and the result says why.
    doubt = remote.call(headers=headers, **arguments)
    is_state(doubt, "in_doubt")
    assert "cancelled" in doubt["content"][0]["text"], doubt

    def settled():
        result = remote.call(headers=headers, **arguments)
        return result if about(result).get("replayed") else None

    is_replay(until(settled, "the late answer"))
    is_equal(remote.effects(), 1, "effects")


@with_remote
def what_a_tool_says_under_a_status_of_500_counts(remote):
    message = remote.message("send_email", {"to": "bob", "how": "odd"})
    status, _, (answer,) = remote.post(message)
    is_equal((status, answer["result"]["content"][0]["text"]), (500, "done send_email"))
    is_replay(remote.call(to="bob", how="odd"), answer["result"])
    is_equal(remote.effects(), 1, "effects")


@with_remote
def accounts_in_other_headers_do_not_meet(remote):
    for name in ("X-Api-Key", "Api-Key", "X-Auth-Token"):
        for who in ("alice", "bob"):
            is_fresh(remote.call(to=name, headers={name: who}))
            is_replay(remote.call(to=name, headers={name: who}))
    is_equal(remote.effects(), 6, "effects")


@with_remote
def a_gateway_that_is_asked_to_stop_sees_reads_through_too(remote):
    results = []
    remote.call("look")
    for how in ("json", "sse"):
        call = threading.Thread(target=lambda how=how: results.append(remote.call("look", how=how, delay_ms=800)))
        before = len(remote.received())
        call.start()
        until(lambda before=before: len(remote.received()) > before, "the call")
        remote.gateway.send_signal(signal.SIGTERM)
        is_equal(remote.gateway.wait(20), 0, "exit code")
        call.join()
        remote.start_gateway()
    is_equal([one["content"][0]["text"] for one in results], ["done look"] * 2, "results")


@with_remote
def a_list_with_nan_has_the_gateways_additions(remote):
    for sse in (False, True):
        message = {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {"sse": sse, "nan": True}}
        _, _, (answer,) = remote.post(message)
        tools = {tool["name"]: tool for tool in answer["result"]["tools"]}
        assert "onceward_status" in tools and "onceward_repeat" in tools["send_email"]["inputSchema"]["properties"], tools


CHECKS = all_of(globals())
