#!/usr/bin/env python3
"""TLS and HTTP/2 on both sides of the gateway: curl as the client, an API with its own certificate as the upstream.

tests/http/tls.py --binary target/debug/onceward
"""

import http.server
import json
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

import checks
import guide
from certificates import Certificates
from checks import is_equal, until
from frames import DATA, END_HEADERS, GOOD, HEADERS, PREFACE, SETTINGS, frame, header, request
from gateway import Gateway

RST_STREAM, CANCEL = 3, (8).to_bytes(4)

# Longer than the time-out of the impatient client.
SLOW = 1.0


class Api:
    """Counts a charge for every POST. At `/slow` the charge takes a while; at `/long` the response does."""

    def __init__(self, context=None):
        self.charges, self.heads = 0, []
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                self.rfile.read(int(self.headers.get("content-length", 0)))
                api.charges += 1
                api.heads.append(self.headers)
                answer = json.dumps({"charge": api.charges}).encode()
                if "/slow" in self.path:
                    time.sleep(SLOW)
                self.send_response(201)
                if "/long" in self.path:
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    for piece in (answer[:3], answer[3:]):
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                        self.wfile.flush()
                        time.sleep(SLOW / 2)
                    self.wfile.write(b"0\r\n\r\n")
                    return
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # Clients that refuse the certificate are expected.
        self.server.handle_error = lambda *_: None
        if context:
            # The handshake runs in the connection's thread, so that a client that refuses does not delay others.
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def curl(url, *options, key="k", credential="sk_7"):
    """The status, the HTTP version, whether it is a replay, and the body."""
    command = ["curl", "--silent", "--show-error", "--noproxy", "*", "--max-time", str(checks.TIMEOUT), *options]
    command += ["-H", f"Authorization: Bearer {credential}", "-H", f"Idempotency-Key: {key}", "-d", "{}", "--include"]
    command += ["-H", "Content-Type: application/json", "-w", "\n%{http_code} %{http_version}"]
    done = subprocess.run([*command, url], capture_output=True, check=False)
    assert done.returncode == 0, f"curl ended with {done.returncode}: {done.stderr}"
    answer, told = done.stdout.decode().rsplit("\n", 1)
    head, body = answer.split("\r\n\r\n", 1)
    status, version = told.split(" ")
    return int(status), version, "idempotent-replayed: true" in head.lower(), body


def every_version_of_http_is_spoken_over_tls_and_a_repeat_may_come_with_another():
    with tempfile.TemporaryDirectory() as folder:
        known, api = Certificates(folder), Api()
        with Gateway(BINARY, f"http://127.0.0.1:{api.port}", ("--tls-chain", known.chain, "--tls-key", known.key)) as started:
            url = f"{started.url}/v1/charges"
            for number, (option, version) in enumerate((("--http2", "2"), ("--http1.1", "1.1"), ("--no-alpn", "1.1"))):
                is_equal(curl(url, option, "--cacert", known.authority), (201, version, number > 0, '{"charge": 1}'))
            is_equal(api.charges, 1)
            is_equal(api.heads[0]["X-Forwarded-Proto"], "https")
            is_equal(api.heads[0]["Forwarded"].split(";")[1], "proto=https")
            refused = subprocess.run(["curl", "-s", "--noproxy", "*", url], capture_output=True, check=False)
            is_equal(refused.returncode, 60)


def http2_is_spoken_without_tls_too():
    api = Api()
    with Gateway(BINARY, f"http://127.0.0.1:{api.port}") as started:
        url = f"{started.url}/v1/charges"
        is_equal([curl(url, "--http2-prior-knowledge")[:3] for _ in range(2)], [(201, "2", False), (201, "2", True)])
        is_equal(curl(url, "--http1.1")[:3], (201, "1.1", True))
    is_equal(api.charges, 1)


def an_untrusted_certificate_is_refused_before_anything_is_sent():
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as ledger:
        known = Certificates(folder)
        api = Api(known.server())
        url = f"https://127.0.0.1:{api.port}"
        with Gateway(BINARY, url, folder=ledger) as started:
            got = curl(f"{started.url}/v1/charges")
            is_equal((got[0], json.loads(got[3])["type"]), (502, "/.well-known/onceward/problems/unreachable"))
            errors = started.errors()
        assert "certificate" in errors, f"the log does not say why: {errors}"
        is_equal(api.charges, 0)
        # Nothing is in doubt: once the authority is trusted, the same key runs.
        with Gateway(BINARY, url, ("--upstream-ca", known.authority), folder=ledger) as started:
            is_equal([curl(f"{started.url}/v1/charges")[::3] for _ in range(2)], [(201, '{"charge": 1}')] * 2)
        is_equal(api.charges, 1)


def an_authority_is_named_in_the_file_too():
    with tempfile.TemporaryDirectory() as folder:
        known = Certificates(folder)
        api = Api(known.server())
        route = f'[[gateway.route]]\nupstream = "https://localhost:{api.port}"\n'
        # A relative path starts at the folder of the configuration file.
        with Gateway(BINARY, None, folder=folder, configuration=f'upstream_ca = "ca.pem"\n{route}') as started:
            is_equal(curl(f"{started.url}/v1/charges")[0], 201)


def a_certificate_for_another_name_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        known = Certificates(folder)
        context = known.server()
        api = Api(context)
        listener = socket.create_server(("127.0.0.2", 0))
        threading.Thread(target=relay, args=(listener, api.port), daemon=True).start()
        url = f"https://127.0.0.2:{listener.getsockname()[1]}"
        with Gateway(BINARY, url, ("--upstream-ca", known.authority)) as started:
            is_equal((curl(f"{started.url}/v1/charges")[0], api.charges), (502, 0))


def relay(listener, port):
    """Forwards bytes between a listener and a port in both directions."""

    def copy(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass

    while True:
        one, _ = listener.accept()
        other = socket.create_connection(("127.0.0.1", port))
        for pair in ((one, other), (other, one)):
            threading.Thread(target=copy, args=pair, daemon=True).start()


def the_api_has_tls_too_and_speaks_one_http():
    with tempfile.TemporaryDirectory() as folder:
        known = Certificates(folder)
        tls = f'tls = {{ chain = "{known.chain}", key = "{known.key}" }}'
        (pathlib.Path(folder) / "onceward.toml").write_text(f'store = "l.db"\n[api]\nlisten = "127.0.0.1:0"\n{tls}\n')
        server = subprocess.Popen([BINARY, "serve"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            url = server.stdout.readline().split(" listens on ")[1].strip()
            assert url.startswith("https://"), url
            begin = ("--cacert", known.authority, "--http2", "-d", '{"operation": "op", "key": "k"}')
            done = subprocess.run(
                ["curl", "-s", "--noproxy", "*", *begin, "-H", "Content-Type: application/json", "-w", " %{http_version}"]
                + [f"{url}/v1/begin"],
                capture_output=True, text=True, check=False,
            )
            assert '"decision":"acquired"' in done.stdout and done.stdout.endswith(" 1.1"), done
        finally:
            server.kill()
            server.wait()


def files_without_a_certificate_are_reported():
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("empty.pem", ""), ("gone.pem", None)):
            path = pathlib.Path(folder) / name
            if text is not None:
                path.write_text(text)
            command = [BINARY, "gateway", "--upstream", "https://127.0.0.1:9", "--listen", "127.0.0.1:0", "--upstream-ca", path]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 78 and name in done.stderr, f"{done.returncode}: {done.stderr}"


def a_stream_that_is_reset_after_it_was_sent_comes_to_its_end():
    """RST_STREAM while the upstream works, and while its response arrives."""
    for path in ("/slow", "/long"):
        api = Api()
        with Gateway(BINARY, f"http://127.0.0.1:{api.port}") as started:
            with socket.create_connection(("127.0.0.1", port_of(started))) as connection:
                connection.sendall(request({":path": path}, body=b"{}")(lambda value: value))
                until(lambda: api.charges == 1, "the request at the upstream")
                if path == "/long":
                    time.sleep(SLOW / 4)
                connection.sendall(frame(RST_STREAM, 0, 1, CANCEL))
                # The retry uses another connection.
                is_equal(curl(f"{started.url}{path}", key="KEY", credential="token")[::3], (201, '{"charge": 1}'))
        is_equal(api.charges, 1)


def a_stream_that_is_reset_before_all_of_it_came_has_not_begun():
    api = Api()
    with Gateway(BINARY, f"http://127.0.0.1:{api.port}") as started:
        with socket.create_connection(("127.0.0.1", port_of(started))) as connection:
            block = b"".join(header(name, "/v1" if name == ":path" else value) for name, value in GOOD)
            opened = PREFACE + frame(SETTINGS, 0, 0, b"") + frame(HEADERS, END_HEADERS, 1, block)
            connection.sendall(opened + frame(DATA, 0, 1, b"{") + frame(RST_STREAM, 0, 1, CANCEL))
            time.sleep(0.3)
            is_equal(api.charges, 0)
            is_equal(curl(f"{started.url}/v1", key="KEY", credential="token")[:3], (201, "1.1", False))
    is_equal(api.charges, 1)


def the_example_of_the_guide_charges_once():
    with tempfile.TemporaryDirectory() as folder:
        api = Api(Certificates(folder).server())
        upstream = {"api.internal:8443": f"localhost:{api.port}"}
        start, _ = guide.commands("TLS and HTTP/2", upstream | {"127.0.0.1:8443": "127.0.0.1:0"})
        with Gateway(BINARY, None, folder=folder, command=start) as started:
            at = {"https://localhost:8443": f"https://localhost:{port_of(started)}"}
            _, ask = guide.commands("TLS and HTTP/2", at)
            told = ["--silent", "--show-error", "--noproxy", "*", "-w", " %{http_code} %{http_version}"]
            for _ in range(2):
                done = subprocess.run([*ask, *told], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
                is_equal((done.stdout, done.stderr), ('{"charge": 1} 201 2', ""))
        is_equal(api.charges, 1)


def port_of(started):
    return int(started.url.rsplit(":", 1)[1])


CHECKS = [
    every_version_of_http_is_spoken_over_tls_and_a_repeat_may_come_with_another,
    http2_is_spoken_without_tls_too,
    an_untrusted_certificate_is_refused_before_anything_is_sent,
    an_authority_is_named_in_the_file_too,
    a_certificate_for_another_name_is_refused,
    the_api_has_tls_too_and_speaks_one_http,
    files_without_a_certificate_are_reported,
    a_stream_that_is_reset_after_it_was_sent_comes_to_its_end,
    a_stream_that_is_reset_before_all_of_it_came_has_not_begun,
    the_example_of_the_guide_charges_once,
]

if __name__ == "__main__":
    BINARY = checks.binary(__doc__)
    absent = [name for name in ("curl", "openssl") if not shutil.which(name)]
    sys.exit(checks.run(CHECKS, f"{' and '.join(absent)} not installed" if absent else None))
