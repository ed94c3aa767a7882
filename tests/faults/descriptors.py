"""File descriptors run out (EMFILE): no request is lost or duplicated, no process spins, and service resumes when descriptors
are free again."""

import http.client
import json
import resource
import socket
import subprocess
import time
import urllib.parse

from checks import is_equal, until
from results import is_fresh, is_replay
from upstream import Upstream
from fault_sandbox import api, call, charge, is_ready, outcome

# Acceptable processor time for each second in which the process can do nothing.
BUSY = 0.4


class Crowd:
    """Clients that connect and send nothing."""

    def __init__(self, url, count):
        to = urllib.parse.urlsplit(url)
        self.sockets = [socket.create_connection((to.hostname, to.port), timeout=5) for _ in range(count)]

    def leave(self):
        for one in self.sockets:
            one.close()


def does_not_spin(process):
    before = process.processor_time()
    time.sleep(2)
    spent = (process.processor_time() - before) / 2
    assert spent < BUSY, f"{spent:.2f} s of processor time a second, while no descriptor is free"


def crowded(process, url, more=4):
    """Uses up all descriptors. Returns the clients that hold them."""
    process.limit_descriptors(more)
    crowd = Crowd(url, more + 20)
    until(lambda: "too many open files" in process.errors().lower(), "the last descriptor")
    return crowd


def a_gateway_without_descriptors_goes_on_when_some_are_free(sandbox):
    upstream = Upstream(sandbox, holding=True)
    gateway = sandbox.gateway(upstream)
    # One request is in flight when descriptors run out; it is finished.
    client = sandbox.later(charge, gateway, "k", amount=1)
    until(lambda: upstream.has(1), "the effect")
    crowd = crowded(gateway, gateway.url)
    does_not_spin(gateway)
    upstream.let_go()
    is_equal(outcome(client).status, 200)
    # Clients that wait to be accepted are served later, and each request has one effect.
    waiting = [sandbox.later(charge, gateway, f"w{number}", amount=1) for number in range(8)]
    time.sleep(0.3)
    crowd.leave()
    gateway.limit_descriptors(None)
    answers = [outcome(one) for one in waiting]
    is_equal([one.status for one in answers], [200] * 8)
    is_equal(charge(gateway, "k", amount=1).body, outcome(client).body)
    is_equal(sorted(upstream.requests), sorted(["k", *(f"w{number}" for number in range(8))]))
    assert is_ready(gateway)
    is_equal({one["state"] for one in sandbox.intents()}, {"done"})
    is_equal(gateway.stop(), 0)


def a_gateway_that_cannot_connect_for_want_of_descriptors_has_sent_nothing(sandbox):
    upstream = Upstream(sandbox)
    gateway = sandbox.gateway(upstream)
    # The client is already connected; the connection to the upstream gets no descriptor.
    to = urllib.parse.urlsplit(gateway.url)
    connection = http.client.HTTPConnection(to.hostname, to.port, timeout=20)
    connection.request("GET", "/.well-known/onceward/ready")
    connection.getresponse().read()
    crowd = crowded(gateway, gateway.url)
    headers = {"Idempotency-Key": "k", "Content-Type": "application/json"}
    connection.request("POST", "/v1/charges", json.dumps({"amount": 1}), headers)
    refused = connection.getresponse()
    refused.read()
    assert refused.status in (502, 503), refused.status
    is_equal(upstream.requests, [])
    crowd.leave()
    gateway.limit_descriptors(None)
    connection.request("POST", "/v1/charges", json.dumps({"amount": 1}), headers)
    is_equal(connection.getresponse().status, 200)
    is_equal((sandbox.state(), upstream.requests), ("done", ["k"]))


def an_api_without_descriptors_goes_on_when_some_are_free(sandbox):
    server = sandbox.serve('[api]\nlisten = "127.0.0.1:0"\n')
    begun = api(server, "begin", operation="op", key="k").json()
    is_equal(begun["decision"], "acquired")
    crowd = crowded(server, server.api)
    does_not_spin(server)
    waiting = [sandbox.later(api, server, "begin", operation="op", key=f"w{number}") for number in range(4)]
    time.sleep(0.3)
    crowd.leave()
    server.limit_descriptors(None)
    is_equal([outcome(one).json()["decision"] for one in waiting], ["acquired"] * 4)
    done = {"verdict": "success", "status": 200, "content_type": "text/plain", "body": {"text": "done"}}
    finished = api(server, "finish", operation="op", key="k", fence=begun["fence"], outcome=done).json()
    is_equal(finished["result"], "written")
    assert is_ready(server)
    is_equal(server.stop(), 0)


def an_mcp_gateway_over_http_without_descriptors_goes_on_when_some_are_free(sandbox):
    server = sandbox.remote()
    gateway = sandbox.mcp_over_http(server)
    client = sandbox.later(call, gateway, to="k", delay_ms=3000)
    until(sandbox.effects, "the effect")
    crowd = crowded(gateway, gateway.url)
    does_not_spin(gateway)
    is_fresh(outcome(client))
    waiting = [sandbox.later(call, gateway, to=f"w{number}") for number in range(4)]
    time.sleep(0.3)
    crowd.leave()
    gateway.limit_descriptors(None)
    for one in waiting:
        is_fresh(outcome(one))
    is_replay(call(gateway, to="k", delay_ms=3000))
    is_equal(sorted(one["arguments"]["to"] for one in sandbox.effects()), ["k", "w0", "w1", "w2", "w3"])
    is_equal(gateway.stop(), 0)


def an_mcp_gateway_over_stdio_without_descriptors_still_guards(sandbox):
    agent = sandbox.agent()
    agent.call("send_email", {"to": "before"})
    pid = agent.process.pid
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    # No more than it has now.
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, hard))
    results = [agent.call("send_email", {"to": str(number)}) for number in range(5)]
    for result in results:
        is_fresh(result)
    is_replay(agent.call("send_email", {"to": "0"}))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))
    is_equal(len(sandbox.effects()), 6, "effects")
    is_equal({one["state"] for one in sandbox.intents()}, {"done"})


def a_command_without_descriptors_is_not_run_or_run_once(sandbox):
    command = ["sh", "-c", "echo x >> effects"]
    codes = []
    # With fewer than 8 the runtime does not start.
    for limit in range(8, 32):
        arguments = [sandbox.binary, "run", "--operation", "job", "--key", "k", "--store", str(sandbox.ledger), "--", *command]
        limited = ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", *arguments]
        codes.append(subprocess.run(limited, cwd=sandbox.folder, capture_output=True, timeout=60).returncode)
    effects = (sandbox.folder / "effects").read_text().count("x")
    is_equal((codes[-1], effects), (0, 1))
    # Either the store or the command cannot be opened, or the command has run.
    assert set(codes) <= {0, 69, 126}, codes
