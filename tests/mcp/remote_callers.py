"""Who calls over HTTP: which headers tell callers apart."""

import re
import subprocess

from checks import all_of, is_equal
from judge import is_fresh, is_replay
from remote_place import Remote, with_remote


def listed(of):
    """The tenants and operations of the ledger, as `onceward list` shows them."""
    command = [of.binary, "list", "--store", str(of.folder / "ledger.db"), "--json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout


def names_made_from_hashes_have_128_bits(place):
    remote = Remote(place)
    try:
        remote.post(remote.message("send_email", {"to": "bob"}), headers={"Authorization": "Bearer a"}, path="/mcp?a=1")
        text = listed(place)
        assert re.search(r"credential-[0-9a-f]{32}\b", text), text
        assert re.search(r"mcp:remote\?[0-9a-f]{32}/send_email", text), text
    finally:
        remote.end()
    # A server without a name, and one whose name holds in one folder.
    for number, name in enumerate(([], ["--server", "mail", "--here"])):
        ledger = place.folder / f"{number}.db"
        command = [place.binary, "mcp", "--store", str(ledger), *name, "--", *place.command()[-2:]]
        place.open(command).call("send_email", {"to": "bob"})
        shown = [place.binary, "list", "--store", str(ledger), "--json"]
        text = subprocess.run(shown, capture_output=True, text=True, timeout=20, check=True).stdout
        assert re.search(r"mcp:(server|mail)-[0-9a-f]{32}/send_email", text), text


@with_remote
def a_header_that_looks_like_a_credential_is_refused_until_it_is_listed(remote):
    for name in ("DD-API-KEY", "X_Api_Key", "Cookie", "X-Session"):
        status, _, (answer,) = remote.post(remote.message("send_email", {"to": "bob"}), headers={name: "sesame"})
        is_equal((status, answer["error"]["code"]), (400, -32600), name)
        words = answer["error"]["message"]
        assert name.lower() in words and "[mcp.server.remote]" in words and "sesame" not in words, words
    is_equal((remote.effects(), remote.received()), (0, []), "what the server got")


def listed_headers_tell_callers_apart_or_do_not(place):
    place.configure('[mcp.server.remote]\nidentity_headers = ["DD-API-KEY"]\nignored_headers = ["cookie", "X-Api-Key"]\n')
    remote = Remote(place)
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


def listed_headers_count_beside_what_tenant_says(place):
    place.configure('[mcp.server.remote]\nidentity_headers = ["X-Team"]\n')
    remote = Remote(place, "--tenant", "fixed:me")
    try:
        for team in ("a", "b"):
            is_fresh(remote.call(to="bob", headers={"X-Team": team, "X-Api-Key": team}))
            is_replay(remote.call(to="bob", headers={"X-Team": team, "X-Api-Key": "other"}))
        is_equal(remote.effects(), 2, "effects")
    finally:
        remote.end()


def lists_that_contradict_each_other_are_refused_at_start(place):
    for lists in ('identity_headers = ["A-Key"]\nignored_headers = ["a-key"]', 'identity_headers = ["a b"]'):
        place.configure(f"[mcp.server.remote]\n{lists}\n")
        command = [place.binary, "mcp", "--server", "remote", "--config", str(place.folder / "settings.toml")]
        command += ["--store", str(place.folder / "l.db"), "--upstream", "http://127.0.0.1:1/mcp"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        is_equal((ended.returncode, "mcp.server.remote.i" in ended.stderr), (78, True), ended.stderr)


CHECKS = all_of(globals())
