"""An API that fails in each way, and counts its effects."""

from __future__ import annotations

import http.server
import pathlib
import sys
import threading
from collections.abc import Iterator

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "core")]
try:
    import onceward
except ImportError:
    sys.path.insert(0, str(HERE.parents[1] / "python"))
    import onceward


class Api:
    """Does each request as `plan` says, one word for each: a status, `503+1` with Retry-After, `lost` (acts, and hangs up),
    `cut` (acts, and stops in the middle of the answer). When the plan is over, it acts. With a known key it does not act again."""

    def __init__(self, honours_key: bool = True) -> None:
        self.honours_key, self.plan = honours_key, []
        self.requests, self.effects, self.answers = [], [], {}
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                api.requests.append((self.path, dict(self.headers), body))
                word = api.plan.pop(0) if api.plan else ""
                status, _, retry_after = word.partition("+")
                if status.isdigit():
                    return self.answer(int(status), b'{"error": {"message": "planned"}}', retry_after)
                content = api.act(self.headers.get("Idempotency-Key"), body)
                if word == "lost":
                    self.close_connection = True
                    return None
                return self.answer(200, content, "", is_cut=word == "cut")

            do_GET = do_POST

            def answer(self, status: int, content: bytes, retry_after: str, is_cut: bool = False) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Set-Cookie", "session=secret")
                self.send_header("Content-Length", str(len(content) + (9 if is_cut else 0)))
                if retry_after:
                    self.send_header("Retry-After", retry_after)
                self.end_headers()
                self.wfile.write(content)
                self.close_connection = is_cut

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def act(self, key: str | None, body: bytes) -> bytes:
        if self.honours_key and key in self.answers:
            return self.answers[key]
        self.effects.append(body)
        self.answers[key] = b'{"id": "ch_%d", "object": "charge"}' % len(self.effects)
        return self.answers[key]

    @property
    def keys(self) -> list[str | None]:
        return [headers.get("Idempotency-Key") for _, headers, _ in self.requests]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def api() -> Iterator[Api]:
    api = Api()
    yield api
    api.close()


@pytest.fixture
def store(tmp_path: pathlib.Path) -> str:
    return str(tmp_path / "onceward.db")


@pytest.fixture
def ledger(store: str) -> Iterator[onceward.Ledger]:
    with onceward.Ledger(store) as opened:
        yield opened
