"""A server that answers what a test says, for answers that the real one does not give."""

import http.server
import json
import threading


class FakeServer:
    """`answer` gets the path and the JSON of each request. It returns status, headers and body; or None to hang up."""

    def __init__(self, answer):
        self.requests = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}")
                outer.requests.append((self.path, body, dict(self.headers)))
                answered = answer(self.path, body)
                if answered is None:
                    self.close_connection = True
                    return
                status, headers, content = answered
                content = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                for name, value in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST

            def log_message(self, *_):
                pass

            def handle(self):
                try:
                    super().handle()
                except OSError:
                    # The client has closed the connection.
                    pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def bodies(self, path):
        return [body for found, body, _ in self.requests if found == path]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()


def acquired(key, **more):
    answer = {
        "key": key, "decision": "acquired", "fence": "0" * 32, "attempt": 1, "downstream_key": "once_v1_x",
        "lease_until": "2026-11-16T08:03:00.000Z", "lease_ms": 60_000, "phase": "sent", "probe_first": False,
        "when_in_doubt": "hold",
    }  # fmt: skip
    return 200, {}, answer | more


WRITTEN = (200, {}, {"result": "written", "state": "done", "version": 2, "lease_until": None, "expires_at": None})
