"""A payments API without protection against retries: every POST is a charge. Used by the gateway example."""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

charges = []


class Api(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        charges.append(order)
        time.sleep(order.get("seconds", 0))
        self.answer(201, {"id": f"ch_{len(charges)}", "amount": order["amount"]})

    def do_GET(self):
        self.answer(200, {"charges": len(charges)})

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), Api)
print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
server.serve_forever()
