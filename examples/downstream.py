"""A provider that honours idempotency keys: a POST is an effect, unless its key has been seen. GET counts the effects.

Acts first and answers later, so that a client that is killed in between does not know what happened. Used by the examples of the
outbox.
"""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT, SECONDS = int(sys.argv[1]), float(sys.argv[2])

effects = {}
requests = []
lock = threading.Lock()


class Provider(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        with lock:
            requests.append(body)
            number, _ = effects.setdefault(self.headers["Idempotency-Key"], (len(effects) + 1, body))
        time.sleep(SECONDS)
        self.answer(201, {"id": f"eff_{number}"})

    def do_GET(self):
        with lock:
            different = len({body for _, body in effects.values()})
            self.answer(200, {"effects": len(effects), "different": different, "requests": len(requests)})

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """A client that was killed is not worth a message."""


server = Server(("127.0.0.1", PORT), Provider)
print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
server.serve_forever()
