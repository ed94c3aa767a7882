"""Drivers of the real clients: one interface to call them, and one form for their results.

Every client gets the retries and time-outs that its users get, through its own settings; only the first pause between
tries is shortened, so that a whole run takes seconds.
"""

import collections
import dataclasses
import itertools
import json
import os
import pathlib
import queue
import re
import subprocess
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
FIRST_PAUSE = 0.05


@dataclasses.dataclass(frozen=True)
class Got:
    """What the caller of a client gets: an object with an id, or an error; and the status, if a response came."""

    id: str | None = None
    error: str | None = None
    status: int | None = None
    replayed: bool = False
    text: str = ""

    def __str__(self):
        what = self.id or f"{self.error}({self.status or 'no status'})"
        return f"{what}{' replayed' if self.replayed else ''}{' in doubt' if self.in_doubt else ''}"

    @property
    def in_doubt(self):
        return self.status == 409 and "doubt" in self.text.lower()


def replayed(headers):
    return {name.lower(): value for name, value in (headers or {}).items()}.get("idempotent-replayed") == "true"


class StripePython:
    name = "stripe-python"

    def __init__(self):
        import stripe
        from stripe import _http_client

        _http_client.HTTPClient.INITIAL_DELAY = FIRST_PAUSE
        self.stripe = stripe

    def call(self, url, words, key, retries, timeout):
        stripe = self.stripe
        client = stripe.StripeClient(
            "sk_test_clients",
            base_addresses={"api": url},
            max_network_retries=retries,
            http_client=stripe.RequestsClient(timeout=timeout),
        )
        options = {"idempotency_key": key} if key else {}
        try:
            customer = client.v1.customers.create({"description": words}, options)
        except stripe.StripeError as error:
            text = f"{error.http_body} {error}"
            return Got(None, type(error).__name__, error.http_status, replayed(error.headers), text)
        response = customer.last_response
        return Got(customer.id, None, response.code, replayed(response.headers), response.body)


class StripeNode:
    name = "stripe-node"

    def __init__(self, programs):
        command = [f"{programs}/node", str(HERE / "stripe_node.mjs"), str(pathlib.Path(programs).parent)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.numbers = itertools.count()
        self.lock = threading.Lock()
        self.waiting = {}
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            answer = json.loads(line)
            with self.lock:
                waiting = self.waiting.pop(answer["number"])
            waiting.put(answer)

    def call(self, url, words, key, retries, timeout):
        answered = queue.Queue()
        asked = {"port": int(url.rsplit(":", 1)[1]), "timeout": int(timeout * 1000)}
        with self.lock:
            number = next(self.numbers)
            self.waiting[number] = answered
            asked |= {"number": number, "retries": retries, "key": key, "words": words}
            self.process.stdin.write(json.dumps(asked) + "\n")
            self.process.stdin.flush()
        got = answered.get(timeout=60)
        text = got.get("text") or ""
        return Got(got.get("id"), got.get("error"), got.get("status"), replayed(got.get("headers")), text)

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)


class Stainless:
    """The common part of the OpenAI and Anthropic clients, which come from one generator."""

    def __init__(self, module, pause):
        pause.INITIAL_RETRY_DELAY = FIRST_PAUSE
        self.module = module
        self.clients = {}
        self.lock = threading.Lock()

    def call(self, url, words, key, retries, timeout):
        assert key is None, "these clients send no key"
        with self.lock:
            if url not in self.clients:
                self.clients[url] = self.client(url)
            client = self.clients[url].with_options(max_retries=retries, timeout=timeout)
        try:
            response = self.create(client, words)
        except self.module.APIStatusError as error:
            headers = error.response.headers
            return Got(None, type(error).__name__, error.status_code, replayed(headers), error.response.text)
        except self.module.APIError as error:
            return Got(None, type(error).__name__, None, False, str(error))
        try:
            thing = response.parse()
        except Exception as error:  # a broken stream raises whatever the transport raises
            return Got(None, type(error).__name__, None, False, str(error))
        return Got(thing.id, None, response.status_code, replayed(response.headers), "")


class OpenAI(Stainless):
    name = "openai"

    def __init__(self):
        import openai
        from openai import _base_client

        super().__init__(openai, _base_client)

    def client(self, url):
        return self.module.OpenAI(api_key="sk-clients", base_url=f"{url}/v1")

    def create(self, client, words):
        messages = [{"role": "user", "content": words}]
        return client.chat.completions.with_raw_response.create(model="m", messages=messages)


class OpenAIResponses(OpenAI):
    name = "openai responses"

    def create(self, client, words):
        return client.responses.with_raw_response.create(model="m", input=words)


class OpenAIStream(OpenAI):
    """A streamed response, which can break off between two words."""

    name = "openai stream"

    def create(self, client, words):
        messages = [{"role": "user", "content": words}]
        create = client.chat.completions.with_raw_response.create
        return Streamed(create(model="m", messages=messages, stream=True))


class Streamed:
    """A stream, read to its end when the response is used."""

    def __init__(self, response):
        self.response, self.status_code, self.headers = response, response.status_code, response.headers

    def parse(self):
        pieces = list(self.response.parse())
        # The same id and the same words in the first response and in a replay.
        said = "".join(piece.choices[0].delta.content for piece in pieces)
        return Answer(f"{pieces[0].id} {said.strip()}")


Answer = collections.namedtuple("Answer", "id")


class Anthropic(Stainless):
    name = "anthropic"

    def __init__(self):
        import anthropic
        from anthropic import _base_client

        super().__init__(anthropic, _base_client)

    def client(self, url):
        return self.module.Anthropic(api_key="sk-clients", base_url=url)

    def create(self, client, words):
        messages = [{"role": "user", "content": words}]
        return client.messages.with_raw_response.create(model="m", max_tokens=9, messages=messages)


class Curl:
    """curl as a shell script would call it: with a key that the script made, and with retries after any failure."""

    name = "curl"

    # Names for the exit codes of curl that the cases produce.
    EXITS = {1: "Protocol", 7: "Refused", 18: "Partial", 28: "Timeout", 52: "Empty", 56: "Receive"}

    def call(self, url, words, key, retries, timeout):
        with tempfile.TemporaryDirectory() as folder:
            head, body = pathlib.Path(folder, "head"), pathlib.Path(folder, "body")
            command = ["curl", "--silent", "--output", str(body), "--dump-header", str(head)]
            command += ["--retry", str(retries), "--retry-all-errors", "--retry-delay", "1"]
            command += ["--max-time", str(timeout), "--header", "Authorization: Bearer clients"]
            command += ["--header", f"Idempotency-Key: {key}"] if key else []
            command += ["--header", "Content-Type: application/json", "--data", json.dumps({"description": words})]
            command += ["--write-out", "%{http_code}", f"{url}/v1/customers"]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            text = body.read_text() if body.exists() else ""
            heads = head.read_text() if head.exists() else ""
        # The file has the headers of every attempt; the last ones count.
        last = re.split(r"(?m)^(?=HTTP/)", heads)[-1].lower()
        again = "idempotent-replayed: true" in last
        if ended.returncode != 0:
            return Got(None, self.EXITS.get(ended.returncode, f"Exit{ended.returncode}"), None, False, text)
        status = int(ended.stdout[-3:])
        if status == 200:
            return Got(json.loads(text)["id"], None, status, again, text)
        return Got(None, "Status", status, again, text)


def all_of_them(programs, absent):
    """Every installed client by name; `absent` names the missing ones."""
    makers = {
        "stripe-python": StripePython,
        "stripe-node": lambda: StripeNode(programs),
        "openai": OpenAI,
        "openai responses": OpenAIResponses,
        "openai stream": OpenAIStream,
        "anthropic": Anthropic,
        "curl": Curl,
    }
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            del os.environ[name]
    return {name: make() for name, make in makers.items() if name not in absent}
