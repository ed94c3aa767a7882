"""An API that counts its effects and responds when the test lets it."""

import http.server
import json
import threading
import time


class Upstream:
    """One effect for each request, or for each key if it `honours` keys. The effect comes before the response.

    `holding` delays responses until `let_go`; a body can ask for a delay of `before_ms` before the effect.
    """

    def __init__(self, sandbox, honours=False, holding=False):
        self.honours = honours
        self.lock = threading.Lock()
        self.requests, self.effects = [], []
        self.answers = threading.Event()
        self.is_closed = False
        if not holding:
            self.answers.set()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                outer.answer(self, {"reads": True})

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.take(self, self.headers.get("Idempotency-Key"), json.loads(body or b"{}"))

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        sandbox.upstreams.append(self)

    def take(self, handler, key, body):
        with self.lock:
            self.requests.append(key)
            number = len(self.requests)
        time.sleep(body.get("before_ms", 0) / 1000)
        with self.lock:
            if not (self.honours and key in self.effects):
                self.effects.append(key)
        self.answers.wait(60)
        self.answer(handler, {"number": number, "key": key})

    def answer(self, handler, said):
        if self.is_closed:
            handler.close_connection = True
            return
        text = json.dumps(said).encode()
        try:
            handler.send_response(200)
            handler.send_header("Content-Type", "application/json")
            handler.send_header("Content-Length", str(len(text)))
            handler.end_headers()
            handler.wfile.write(text)
        except OSError:
            pass  # the gateway is gone; the effect has happened

    def hold(self):
        self.answers.clear()

    def let_go(self):
        self.answers.set()

    def has(self, effects):
        return len(self.effects) == effects

    def close(self):
        self.is_closed = True
        self.answers.set()
        self.server.shutdown()
        self.server.server_close()
