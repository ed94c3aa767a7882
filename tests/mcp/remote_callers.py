"""Callers over HTTP: which headers tell callers apart, and the limits for unknown callers."""

import re
import socket
import subprocess

from checks import all_of, is_equal
from results import is_fresh, is_replay
from remote_sandbox import Remote, with_remote

MEBIBYTE = 1024 * 1024
# A caller's message may have 64 MiB.
LARGE = 64 * MEBIBYTE
CONNECTIONS = 16


def listed(of):
    """The tenants and operations of the ledger, as `onceward list` shows them."""
    command = [of.binary, "list", "--store", str(of.folder / "ledger.db"), "--json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout


def names_made_from_hashes_have_128_bits(sandbox):
    remote = Remote(sandbox)
    try:
        remote.post(remote.message("send_email", {"to": "bob"}), headers={"Authorization": "Bearer a"}, path="/mcp?a=1")
        text = listed(sandbox)
        assert re.search(r"credential-[0-9a-f]{32}\b", text), text
        assert re.search(r"mcp:remote\?[0-9a-f]{32}/send_email", text), text
    finally:
        remote.end()
    # A server without a name, and one whose name is valid in one folder.
    for number, name in enumerate(([], ["--server", "mail", "--here"])):
        ledger = sandbox.folder / f"{number}.db"
        command = [sandbox.binary, "mcp", "--store", str(ledger), *name, "--", *sandbox.command()[-2:]]
        sandbox.open(command).call("send_email", {"to": "bob"})
        shown = [sandbox.binary, "list", "--store", str(ledger), "--json"]
        text = subprocess.run(shown, capture_output=True, text=True, timeout=20, check=True).stdout
        assert re.search(r"mcp:(server|mail)-[0-9a-f]{32}/send_email", text), text


@with_remote
def a_header_that_looks_like_a_credential_is_refused_until_it_is_listed(remote):
    for name in ("DD-API-KEY", "X_Api_Key", "Cookie", "X-PAT"):
        status, _, (answer,) = remote.post(remote.message("send_email", {"to": "bob"}), headers={name: "sesame"})
        is_equal((status, answer["error"]["code"]), (400, -32600), name)
        words = answer["error"]["message"]
        assert name.lower() in words and "[mcp.server.remote]" in words and "sesame" not in words, words
    is_equal((remote.effects(), remote.received()), (0, []), "what the server got")


def accounts_under_one_token_are_different_callers(sandbox):
    sandbox.configure('[mcp.server.remote]\nignored_headers = ["X-Session-Id"]\n')
    for number, tenant in enumerate(([], ["--tenant", "authorization"])):
        remote = Remote(sandbox, *tenant)
        try:
            call = {"to": f"bob{number}"}
            for account in ("acct_A", "acct_B"):
                headers = {"Authorization": "Bearer a", "Stripe-Account": account}
                first = remote.call(**call, headers={**headers, "X-Session-Id": "1", "X-Hub-Signature": "1"})
                is_fresh(first)
                is_replay(remote.call(**call, headers={**headers, "X-Session-Id": "2", "X-Hub-Signature": "2"}), first)
            is_equal(remote.effects(), 2 * number + 2, "effects")
        finally:
            remote.end()


@with_remote
def addresses_that_may_name_an_account_are_different_callers(remote):
    addresses = ["/?account=a", "/?account=b", "/mcp;account=a", "/mcp;account=b", "/mcp/a", "/mcp//a"]
    for path in addresses:
        message = remote.message("send_email", {"to": "bob"})
        is_fresh(remote.post(message, path=path)[2][-1]["result"])
    is_equal(remote.effects(), len(addresses), "effects")
    sent = {one["path"] for one in remote.received()}
    is_equal(sent, {path.replace("/?", "/mcp?") for path in addresses}, "the addresses that the server got")


def listed_headers_tell_callers_apart_or_do_not(sandbox):
    sandbox.configure('[mcp.server.remote]\nidentity_headers = ["DD-API-KEY"]\nignored_headers = ["cookie", "X-Api-Key"]\n')
    remote = Remote(sandbox)
    try:
        first = remote.call(to="bob", headers={"dd-api-key": "a", "Cookie": "lb=1"})
        is_fresh(first)
        is_replay(remote.call(to="bob", headers={"DD-Api-Key": "a", "Cookie": "lb=2", "X-Api-Key": "1"}), first)
        is_fresh(remote.call(to="bob", headers={"DD-API-KEY": "b"}))
        is_fresh(remote.call(to="bob"))
        is_fresh(remote.call(to="bob", headers={"DD-API-KEY": "a", "Authorization": "Bearer a"}))
        is_equal(remote.effects(), 4, "effects")
    finally:
        remote.end()


def listed_headers_count_beside_what_tenant_says(sandbox):
    sandbox.configure('[mcp.server.remote]\nidentity_headers = ["X-Team"]\n')
    remote = Remote(sandbox, "--tenant", "fixed:me")
    try:
        for team in ("a", "b"):
            is_fresh(remote.call(to="bob", headers={"X-Team": team, "X-Api-Key": team}))
            is_replay(remote.call(to="bob", headers={"X-Team": team, "X-Api-Key": "other"}))
        is_equal(remote.effects(), 2, "effects")
    finally:
        remote.end()


def lists_that_contradict_each_other_are_refused_at_start(sandbox):
    for lists in ('identity_headers = ["A-Key"]\nignored_headers = ["a-key"]', 'identity_headers = ["a b"]'):
        sandbox.configure(f"[mcp.server.remote]\n{lists}\n")
        command = [sandbox.binary, "mcp", "--server", "remote", "--config", str(sandbox.folder / "settings.toml")]
        command += ["--store", str(sandbox.folder / "l.db"), "--upstream", "http://127.0.0.1:1/mcp"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        is_equal((ended.returncode, "mcp.server.remote.i" in ended.stderr), (78, True), ended.stderr)


def most_memory(process):
    """The peak resident memory of a process, in MiB."""
    with open(f"/proc/{process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) // 1024


def halves(remote, headers=""):
    """Connections that each send nearly all of a large message, as far as the gateway reads it, and their responses."""
    head = f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {LARGE}\r\n"
    piece = b" " * MEBIBYTE
    connections = []
    for _ in range(CONNECTIONS):
        connection = socket.create_connection(("127.0.0.1", remote.port), timeout=5)
        connections.append(connection)
        try:
            connection.sendall(f"{head}{headers}\r\n".encode())
            for _ in range(LARGE // MEBIBYTE - 1):
                connection.sendall(piece)
        except OSError:
            pass
    return connections


def status_of(connection):
    try:
        connection.settimeout(0.2)
        return int(connection.recv(100).split(b" ")[1])
    except (OSError, IndexError):
        return None


def messages_that_never_end_take_a_bounded_share_of_memory(sandbox):
    remote = Remote(sandbox)
    connections = []
    try:
        remote.call(to="bob")
        before = most_memory(remote.gateway)
        connections = halves(remote)
        taken = most_memory(remote.gateway) - before
        assert taken < 300, f"{taken} MiB"
        assert 503 in [status_of(connection) for connection in connections]
        # Small messages have their own memory budget.
        is_fresh(remote.call(to="eve"))
    finally:
        for connection in connections:
            connection.close()
        remote.end()


def nothing_is_read_of_a_caller_that_is_not_known(sandbox):
    remote = Remote(sandbox, "--tenant", "authorization")
    connections = []
    try:
        before = most_memory(remote.gateway)
        connections = halves(remote)
        taken = most_memory(remote.gateway) - before
        assert taken < 40, f"{taken} MiB"
        statuses = {status_of(connection) for connection in connections}
        assert statuses <= {401, None} and 401 in statuses, statuses
        # The gateway refuses any message before the server receives it.
        status, _, _ = remote.post({"jsonrpc": "2.0", "id": 1, "method": "initialize"})
        is_equal((status, remote.received()), (401, []), "without a credential")
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        assert remote.post(b"a=1&" + b"b" * MEBIBYTE, headers=form)[0] == 413
    finally:
        for connection in connections:
            connection.close()
        remote.end()


def memory_is_given_back_when_a_message_is_answered(sandbox):
    remote = Remote(sandbox)
    try:
        for number in range(4):
            # Together they exceed the memory budget.
            remote.call("look", to="bob", number=number, more="x" * (60 * MEBIBYTE), timeout=60)
    finally:
        remote.end()


CHECKS = all_of(globals())
