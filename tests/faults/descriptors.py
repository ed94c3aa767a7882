"""File descriptors run out (EMFILE): nothing is lost, doubled or busy, and service resumes when some are free again."""

import http.client
import json
import resource
import socket
import subprocess
import time
import urllib.parse

from checks import is_equal, until
from judge import is_fresh, is_replay
from upstream import Upstream
from world import api, call, charge, is_ready, outcome

# Processor time that is acceptable for each second in which nothing can be done.
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


def a_gateway_without_descriptors_goes_on_when_some_are_free(place):
    upstream = Upstream(place, holding=True)
    gateway = place.gateway(upstream)
    # One request is in flight when descriptors run out, and is finished all the same.
    client = place.later(charge, gateway, "k", amount=1)
    until(lambda: upstream.has(1), "the effect")
    crowd = crowded(gateway, gateway.url)
    does_not_spin(gateway)
    upstream.let_go()
    is_equal(outcome(client).status, 200)
    # Clients that wait to be accepted are served later, and each request acts once.
    waiting = [place.later(charge, gateway, f"w{number}", amount=1) for number in range(8)]
    time.sleep(0.3)
    crowd.leave()
    gateway.limit_descriptors(None)
    answers = [outcome(one) for one in waiting]
    is_equal([one.status for one in answers], [200] * 8)
    is_equal(charge(gateway, "k", amount=1).body, outcome(client).body)
    is_equal(sorted(upstream.requests), sorted(["k", *(f"w{number}" for number in range(8))]))
    assert is_ready(gateway)
    is_equal({one["state"] for one in place.intents()}, {"done"})
    is_equal(gateway.stop(), 0)


def a_gateway_that_cannot_connect_for_want_of_descriptors_has_sent_nothing(place):
    upstream = Upstream(place)
    gateway = place.gateway(upstream)
    # The client is connected already; the connection to the upstream has no descriptor.
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
    is_equal((place.state(), upstream.requests), ("done", ["k"]))


def an_api_without_descriptors_goes_on_when_some_are_free(place):
    server = place.serve('[api]\nlisten = "127.0.0.1:0"\n')
    begun = api(server, "begin", operation="op", key="k").json()
    is_equal(begun["decision"], "acquired")
    crowd = crowded(server, server.api)
    does_not_spin(server)
    waiting = [place.later(api, server, "begin", operation="op", key=f"w{number}") for number in range(4)]
    time.sleep(0.3)
    crowd.leave()
    server.limit_descriptors(None)
    is_equal([outcome(one).json()["decision"] for one in waiting], ["acquired"] * 4)
    done = {"verdict": "success", "status": 200, "content_type": "text/plain", "body": {"text": "done"}}
    finished = api(server, "finish", operation="op", key="k", fence=begun["fence"], outcome=done).json()
    is_equal(finished["result"], "written")
    assert is_ready(server)
    is_equal(server.stop(), 0)


def an_mcp_gateway_over_http_without_descriptors_goes_on_when_some_are_free(place):
    server = place.remote()
    gateway = place.mcp_over_http(server)
    client = place.later(call, gateway, to="k", delay_ms=3000)
    until(place.effects, "the effect")
    crowd = crowded(gateway, gateway.url)
    does_not_spin(gateway)
    is_fresh(outcome(client))
    waiting = [place.later(call, gateway, to=f"w{number}") for number in range(4)]
    time.sleep(0.3)
    crowd.leave()
    gateway.limit_descriptors(None)
    for one in waiting:
        is_fresh(outcome(one))
    is_replay(call(gateway, to="k", delay_ms=3000))
    is_equal(sorted(one["arguments"]["to"] for one in place.effects()), ["k", "w0", "w1", "w2", "w3"])
    is_equal(gateway.stop(), 0)


def an_mcp_gateway_over_stdio_without_descriptors_still_guards(place):
    agent = place.agent()
    agent.call("send_email", {"to": "before"})
    pid = agent.process.pid
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    # Not one more than it has.
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, hard))
    results = [agent.call("send_email", {"to": str(number)}) for number in range(5)]
    for result in results:
        is_fresh(result)
    is_replay(agent.call("send_email", {"to": "0"}))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))
    is_equal(len(place.effects()), 6, "effects")
    is_equal({one["state"] for one in place.intents()}, {"done"})


def a_command_without_descriptors_is_not_run_or_run_once(place):
    command = ["sh", "-c", "echo x >> effects"]
    codes = []
    # Below 8 not even the runtime starts.
    for limit in range(8, 32):
        arguments = [place.binary, "run", "--operation", "job", "--key", "k", "--store", str(place.ledger), "--", *command]
        limited = ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", *arguments]
        codes.append(subprocess.run(limited, cwd=place.folder, capture_output=True, timeout=60).returncode)
    effects = (place.folder / "effects").read_text().count("x")
    is_equal((codes[-1], effects), (0, 1))
    # The store cannot be used, the command cannot be started, or it is done.
    assert set(codes) <= {0, 69, 126}, codes
