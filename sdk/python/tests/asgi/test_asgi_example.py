"""Runs the example of the guide."""

import contextlib
import json
import pathlib
import subprocess
import sys

import httpx
from asgi_server import bound_socket, until

ROOT = pathlib.Path(__file__).resolve().parents[4]
EXAMPLE = ROOT / "examples" / "python" / "fastapi_payments.py"
GUIDE = ROOT / "docs" / "guides" / "fastapi.md"


def test_the_guide_shows_the_example():
    assert f"```python\n{EXAMPLE.read_text()}```" in GUIDE.read_text()


def test_the_example_charges_a_card_once(tmp_path):
    with contextlib.closing(bound_socket()) as free:
        port = free.getsockname()[1]
    output = tmp_path / "output"
    with output.open("w") as written:
        server = subprocess.Popen([sys.executable, EXAMPLE, str(port)], cwd=tmp_path, stdout=written, stderr=written)
    try:
        until(lambda: "running on" in output.read_text(), "the server started")

        def charge(key, cents):
            headers = {"authorization": "Bearer sk_test_7", "idempotency-key": key}
            body = {"customer": "cus_7", "cents": cents}
            return httpx.post(f"http://127.0.0.1:{port}/charges", headers=headers, json=body)

        first, second = charge("order-17", 4200), charge("order-17", 4200)
        assert (first.status_code, second.status_code, second.content) == (201, 201, first.content)
        assert second.headers["idempotent-replayed"] == "true"
        assert charge("order-17", 4300).status_code == 422
        assert [charge("order-18", 2_000_000).status_code for _ in range(2)] == [402, 402]
        assert json.loads(charge("order-18", 2_000_000).content) == {"detail": "over the limit"}
    finally:
        server.terminate()
        server.wait(20)
    assert output.read_text().count("charging cus_7") == 1


def test_without_a_port_the_example_says_how_to_use_it(tmp_path):
    done = subprocess.run([sys.executable, EXAMPLE], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage")
