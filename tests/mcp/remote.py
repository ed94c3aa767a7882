#!/usr/bin/env python3
"""Incidents over streamable HTTP, with a server that counts: one effect each, or the in-doubt result.

tests/mcp/remote.py --binary target/debug/onceward
"""

import http.client
import json
import signal
import subprocess
import sys
import threading
import time

import checks
import remote_callers
import remote_keys
import remote_passthrough
import remote_results
from checks import all_of, is_equal, until
from results import about, is_fresh, is_replay, is_state, without_ours
from remote_sandbox import BOTH, SERVER, Remote, swallowed, with_remote


@with_remote
def a_repeat_gets_the_stored_result_however_it_came(remote):
    for how in ("json", "sse"):
        first = remote.call(to="bob", how=how)
        is_fresh(first)
        is_replay(remote.call(to="bob", how=how), first)
    is_equal(remote.effects(), 2, "effects")


@with_remote
def a_result_with_nan_is_passed_on_and_not_kept(remote):
    first = remote.call(to="bob", how="nan")
    assert first["structuredContent"]["ratio"] != first["structuredContent"]["ratio"], first
    again = remote.call(to="bob", how="nan")
    is_equal((about(again)["replayed"], without_ours(again)["structuredContent"]), (True, {"ratio": None}))
    is_equal(remote.effects(), 1, "effects")


@with_remote
def two_calls_at_once_act_once(remote):
    results = []
    calls = [threading.Thread(target=lambda: results.append(remote.call(to="bob", delay_ms=400))) for _ in range(5)]
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    is_equal(sum(one.get("_meta", {}).get("onceward", {}).get("replayed", False) for one in results), 4, "replays")
    is_equal(remote.effects(), 1, "effects")


@with_remote
def messages_before_the_result_are_passed_on(remote):
    message = remote.message("send_email", {"to": "bob", "how": "sse"})
    _, _, messages = remote.post(message)
    is_equal([one.get("method", one.get("id")) for one in messages], ["notifications/progress", message["id"]])


@with_remote
def a_client_that_gives_up_gets_the_late_answer_when_it_asks_again(remote):
    try:
        remote.call(timeout=0.3, to="bob", how="late", delay_ms=1200)
        raise AssertionError("it was to be too late")
    except TimeoutError:
        pass
    again = remote.call(to="bob", how="late", delay_ms=1200)
    assert again["_meta"]["onceward"]["replayed"] is True, again
    is_equal(remote.effects(), 1, "effects")


@with_remote
def a_stream_that_breaks_off_is_reported_to_the_model_as_a_doubt(remote):
    is_state(remote.call(to="bob", how="cut"), "in_doubt")
    is_state(remote.call(to="bob", how="cut"), "in_doubt")
    is_equal(remote.effects(), 1, "effects")


def a_server_that_only_pings_is_in_doubt_after_the_deadline_and_may_still_answer(sandbox):
    sandbox.configure('[mcp.server.remote.tool.send_email]\ndeadline = "500ms"\n')
    remote = Remote(sandbox)
    results = []
    try:
        call = threading.Thread(target=lambda: results.append(remote.call(to="bob", how="pings")))
        call.start()
        until(lambda: remote.effects() == 1, "the effect")
        ledger = ("--store", str(sandbox.folder / "ledger.db"), "--state", "in_doubt")
        listing = [sandbox.binary, "list", *ledger]
        until(lambda: b"in_doubt" in subprocess.run(listing, capture_output=True).stdout, "the doubt")
        is_state(remote.call(to="bob", how="pings"), "in_doubt")
        (sandbox.folder / "effects.go").touch()
        call.join()
        is_fresh(results[0])
        is_replay(remote.call(to="bob", how="pings"), results[0])
        is_equal(remote.effects(), 1, "effects")
    finally:
        remote.end()


@with_remote
def a_status_of_500_is_a_doubt(remote):
    is_state(remote.call(to="bob", how="error"), "in_doubt")
    is_state(remote.call(to="bob", how="error"), "in_doubt")
    is_equal(remote.effects(), 1, "effects")


@with_remote
def a_refusal_of_the_server_is_passed_on_and_may_be_retried(remote):
    for how, status in (("gone", 404), ("moved", 307)):
        for _ in range(2):
            got, headers, messages = remote.post(remote.message("send_email", {"to": "bob", "how": how}))
            is_equal((got, messages), (status, [{"why": how}]))
        is_equal(headers.get("Location"), "/elsewhere" if how == "moved" else None)
    is_equal(remote.effects(), 0, "effects")


@with_remote
def a_server_that_is_not_there_was_not_called(remote):
    remote.server.kill()
    remote.server.wait()
    is_state(remote.call(to="bob"), "not_sent")
    remote.server = remote.started([sys.executable, str(SERVER)])


@with_remote
def a_server_that_dies_in_the_middle_leaves_a_doubt(remote):
    results = []
    call = threading.Thread(target=lambda: results.append(remote.call(to="bob", how="hang")))
    call.start()
    until(lambda: remote.effects() == 1, "the effect")
    remote.server.kill()
    call.join()
    is_state(results[0], "in_doubt")
    is_state(remote.call(to="bob", how="hang"), "in_doubt")
    is_equal(remote.effects(), 1, "effects")


@with_remote
def a_gateway_that_is_killed_in_the_middle_leaves_a_doubt(remote):
    call = threading.Thread(target=lambda: swallowed(lambda: remote.call(to="bob", how="late", delay_ms=800)))
    call.start()
    until(lambda: remote.effects() == 1, "the effect")
    remote.gateway.send_signal(signal.SIGKILL)
    remote.gateway.wait()
    call.join()
    remote.start_gateway()
    is_state(remote.call(to="bob", how="late", delay_ms=800), "in_doubt")
    is_equal(remote.effects(), 1, "effects")


@with_remote
def a_gateway_that_is_asked_to_stop_sees_calls_through(remote):
    call = threading.Thread(target=lambda: swallowed(lambda: remote.call(to="bob", how="late", delay_ms=800)))
    call.start()
    until(lambda: remote.effects() == 1, "the effect")
    remote.gateway.send_signal(signal.SIGTERM)
    is_equal(remote.gateway.wait(20), 0, "exit code")
    call.join()
    remote.start_gateway()
    assert remote.call(to="bob", how="late", delay_ms=800)["_meta"]["onceward"]["replayed"] is True
    is_equal(remote.effects(), 1, "effects")


@with_remote
def a_stream_that_ends_early_is_followed_although_the_client_does_not_come_back(remote):
    message = remote.message("send_email", {"to": "bob", "how": "polled"})
    _, _, messages = remote.post(message, headers={"Mcp-Session-Id": "s-1"})
    is_equal([one.get("id") for one in messages], [None, None])
    again = remote.call(to="bob", how="polled", headers={"Mcp-Session-Id": "s-1"})
    assert again["_meta"]["onceward"]["replayed"] is True, again
    is_equal(remote.effects(), 1, "effects")


@with_remote
def a_client_that_comes_back_for_its_stream_gets_the_answer_there(remote):
    message = remote.message("send_email", {"to": "bob", "how": "polled"})
    remote.post(message, headers={"Mcp-Session-Id": "s-1"})
    connection = http.client.HTTPConnection("127.0.0.1", remote.port, timeout=20)
    head = {"Accept": "text/event-stream", "Mcp-Session-Id": "s-1", "Last-Event-ID": f"e-{message['id']}"}
    connection.request("GET", "/mcp", headers=head)
    text = connection.getresponse().read().decode()
    assert f'"id": {message["id"]}' in text, text
    # The gateway has received the result too, and does not probe.
    begun = time.monotonic()
    again = remote.call(to="bob", how="polled", headers={"Mcp-Session-Id": "s-1"})
    assert again["_meta"]["onceward"]["replayed"] is True and time.monotonic() - begun < 3, again
    is_equal(remote.effects(), 1, "effects")


def leaves_in_mid_stream(remote, message, after, headers=None):
    """Reads the response up to a given text, then disconnects."""
    connection = http.client.HTTPConnection("127.0.0.1", remote.port, timeout=20)
    head = {"Content-Type": "application/json", "Accept": BOTH, **(headers or {})}
    connection.request("POST", "/mcp", json.dumps(message), head)
    response, read = connection.getresponse(), b""
    while after not in read:
        more = response.read1()
        assert more, read
        read += more
    # The response object also holds the socket.
    response.close()
    connection.close()


@with_remote
def a_stream_that_stays_open_is_left_when_its_client_is_gone(remote):
    left = remote.sandbox.folder / "effects.left"
    listing = {"jsonrpc": "2.0", "id": "l", "method": "tools/list", "params": {"open": True}}
    for number, message in enumerate((remote.message("send_email", {"to": "bob", "how": "open"}), listing), start=1):
        leaves_in_mid_stream(remote, message, b'"result"')
        until(lambda: left.exists() and left.read_text().count("left") == number, "the end of the server's stream")  # noqa: B023
    is_equal(remote.effects(), 1, "effects")


@with_remote
def an_id_can_be_used_again_although_its_client_went_away_in_mid_stream(remote):
    session, arguments = {"Mcp-Session-Id": "s-1"}, {"to": "bob", "how": "slow", "delay_ms": 700}
    message = remote.message("send_email", arguments)
    leaves_in_mid_stream(remote, message, b"notifications/progress", session)
    is_replay(remote.call(headers=session, **arguments))
    for to in ("eve", "ada"):
        again = remote.message("send_email", {"to": to, "how": "sse"}) | {"id": message["id"]}
        status, _, messages = remote.post(again, headers=session)
        is_equal((status, messages[-1].get("id")), (200, message["id"]), str(messages))
    is_equal(remote.effects(), 3, "effects")


@with_remote
def a_reader_that_goes_away_leaves_the_rest_to_the_gateway(remote):
    session = {"Mcp-Session-Id": "s-1"}
    message = remote.message("send_email", {"to": "bob", "how": "polled", "later_ms": 2000})
    posting = threading.Thread(target=lambda: remote.post(message, headers=session))
    posting.start()
    until(remote.effects, "the effect")
    posting.join()
    connection = http.client.HTTPConnection("127.0.0.1", remote.port, timeout=20)
    connection.request("GET", "/mcp", headers={"Accept": BOTH, **session, "Last-Event-ID": f"e-{message['id']}"})
    connection.getresponse().close()
    connection.close()
    begun = time.monotonic()
    is_replay(remote.call(to="bob", how="polled", later_ms=2000, headers=session, timeout=50))
    assert time.monotonic() - begun < 15, "it waited for a client that is gone"
    is_equal(remote.effects(), 1, "effects")


@with_remote
def the_list_has_what_the_gateway_offers_however_it_came(remote):
    for sse in (False, True):
        message = {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {"sse": sse}}
        _, _, (answer,) = remote.post(message)
        tools = {tool["name"]: tool for tool in answer["result"]["tools"]}
        is_equal(sorted(tools), ["get_wiped", "look", "onceward_status", "send_email"])
        assert "onceward_repeat" in tools["send_email"]["inputSchema"]["properties"]


@with_remote
def reads_pass_by_with_every_header_and_byte(remote):
    body = b'{"id" : 1.0, "method":"tools/call","params":{"name":"look","arguments":{"n":1.00}},"jsonrpc":"2.0"}'
    headers = {"Mcp-Session-Id": "s-9", "Authorization": "Bearer t", "MCP-Protocol-Version": "2025-11-25", "X-Own": "1"}
    remote.post(remote.message("look", {}))
    remote.post(body, headers=headers)
    last = remote.received()[-1]
    is_equal(last["body"].encode(), body)
    for name, value in headers.items():
        is_equal(last["head"][name.lower()], value, name)


@with_remote
def a_cancellation_is_passed_on_unless_it_is_only_about_time(remote):
    headers = {"Mcp-Session-Id": "s-1"}
    message = remote.message("send_email", {"to": "bob", "how": "late", "delay_ms": 4000})
    call = threading.Thread(target=lambda: swallowed(lambda: remote.post(message, headers=headers)))
    call.start()
    until(lambda: remote.effects() == 1, "the effect")
    params = {"requestId": message["id"], "reason": "Request timed out"}
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
    is_equal(remote.post(cancelled, headers=headers)[0], 202, "status")
    params["reason"] = "the user pressed stop"
    is_equal(remote.post(cancelled, headers=headers)[0], 202, "status")
    call.join()
    passed = [one for one in remote.received() if "notifications/cancelled" in one["body"]]
    is_equal([json.loads(one["body"])["params"]["reason"] for one in passed], ["the user pressed stop"])


@with_remote
def ambiguous_messages_are_refused(remote):
    call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"send_email","arguments":{"to":"x"}}'
    for body in (call, call + b',"n":NaN}', call + b',"method":"ping"}', b"[" + call + b"}]", call.replace(b'"id":1,', b"") + b"}"):
        status, _, (answer,) = remote.post(body)
        is_equal((status, answer["error"]["code"] in (-32700, -32600)), (400, True), str(body))
    status, _, _ = remote.post(call + b"}", headers={"Content-Encoding": "gzip"})
    is_equal(status, 415)
    is_equal(remote.effects(), 0, "effects")


@with_remote
def a_call_is_guarded_on_whichever_path_it_comes(remote):
    for path in ("/mcp", "/", "/mcp/", "/%6dcp"):
        remote.post(remote.message("send_email", {"to": "bob"}), path=path)
    is_equal(remote.effects(), 1, "effects")
    # A server may see another account in this address.
    for _ in range(2):
        remote.post(remote.message("send_email", {"to": "bob"}), path="//mcp")
    is_equal(remote.effects(), 2, "effects")


@with_remote
def accounts_in_addresses_and_credentials_do_not_meet(remote):
    for path in ("/mcp?account=alice", "/mcp?account=bob"):
        for _ in range(2):
            remote.post(remote.message("send_email", {"to": "bob"}), path=path)
    is_equal(remote.effects(), 2, "effects")
    for who in ("alice", "bob"):
        for _ in range(2):
            remote.call(to="eve", headers={"Authorization": f"Bearer {who}"})
    is_equal(remote.effects(), 4, "effects")


@with_remote
def texts_that_some_servers_read_in_another_way_are_refused_everywhere(remote):
    message = json.dumps(remote.message("send_email", {"to": "bob"})).encode()
    for path in ("/mcp", "/MCP", "/mcp/"):
        for body, headers in (
            (message, {"Content-Type": "application/json; charset=utf-7"}),
            (message, {"Content-Encoding": "gzip"}),
            (b"\xef\xbb\xbf" + message, {}),
            (message.decode().encode("utf-16"), {}),
            (message.replace(b"{", b'{"n":NaN,', 1), {}),
        ):
            status, _, _ = remote.post(body, headers=headers, path=path)
            assert status in (400, 415), (status, path, body, headers)
    is_equal(remote.effects(), 0, "effects")


@with_remote
def what_a_tool_says_under_a_status_of_400_counts(remote):
    message = remote.message("send_email", {"to": "bob", "how": "refused"})
    status, _, (answer,) = remote.post(message)
    is_equal((status, answer["error"]["code"]), (400, -32603))
    is_state(remote.call(to="bob", how="refused"), "in_doubt")
    is_equal(remote.effects(), 1, "effects")


@with_remote
def a_redirect_of_the_server_does_not_bypass_the_gateway(remote):
    _, headers, _ = remote.post(remote.message("send_email", {"to": "bob", "how": "slash"}))
    is_equal(headers["Location"], "/mcp/")


@with_remote
def strangers_are_refused(remote):
    for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
        status, _, _ = remote.post(remote.message("send_email", {"to": "bob"}), headers=headers)
        is_equal(status, 403, str(headers))
    is_equal(remote.effects(), 0, "effects")


def tenants_do_not_meet(sandbox):
    remote = Remote(sandbox, "--tenant", "authorization")
    try:
        one, other = {"Authorization": "Bearer one"}, {"Authorization": "Bearer other"}
        first = remote.call(to="bob", headers=one)
        is_fresh(remote.call(to="bob", headers=other))
        is_replay(remote.call(to="bob", headers=one), first)
        is_equal(remote.effects(), 2, "effects")
        status, _, _ = remote.post(remote.message("send_email", {"to": "bob"}))
        is_equal(status, 401)
    finally:
        remote.end()


@with_remote
def the_tools_of_one_caller_are_not_those_of_another(remote):
    one, guest, bad = ({"Authorization": f"Bearer {name}"} for name in ("one", "guest", "bad"))
    message = remote.message("send_email", {"to": "bob"})
    is_equal(remote.post(message, headers=bad)[0], 401)
    is_equal(remote.post({"jsonrpc": "2.0", "id": "l", "method": "tools/list"}, headers=guest)[0], 200)
    for _ in range(2):
        is_fresh(remote.call("get_wiped", headers=guest))
    is_equal(remote.effects(), 2, "what is shown as reading passes by")
    results = []
    for _ in range(2):
        threading.Thread(target=lambda: results.append(remote.call("get_wiped", headers=one, delay_ms=500))).start()
    until(lambda: len(results) == 2, "both answers")
    replays = sum(about(result).get("replayed") is True for result in results)
    is_equal((replays, remote.effects()), (1, 3), "replays of what acts, and effects")


def other_addresses_need_a_tenant(sandbox):
    command = [sandbox.binary, "mcp", "--store", str(sandbox.folder / "l.db"), "--upstream", "http://127.0.0.1:1/mcp"]
    ended = subprocess.run([*command, "--listen", "0.0.0.0:0"], capture_output=True, timeout=20, check=False)
    is_equal((ended.returncode, b"--tenant" in ended.stderr), (64, True))


MORE = [remote_results, remote_keys, remote_callers, remote_passthrough]
CHECKS = [check for module in MORE for check in module.CHECKS] + all_of(globals())

if __name__ == "__main__":
    sys.exit(checks.run(CHECKS, checks.arguments_of(__doc__)))
