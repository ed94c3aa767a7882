"""Runs the code of the guides, block by block."""

import asyncio
import inspect
import pathlib
import re
import sys
import types

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[4]
GUIDE = ROOT / "docs" / "guides" / "python.md"


class Mail:
    def __init__(self):
        self.sent = []

    def send(self, *what):
        self.sent.append(what)
        return f"mail {len(self.sent)}"


class Provider:
    """A provider that honours keys."""

    def __init__(self):
        self.charges = {}

    def charge(self, cents, idempotency_key):
        return self.charges.setdefault(idempotency_key, f"receipt {len(self.charges) + 1}")

    def find(self, key):
        return self.charges.get(key)


class AsyncMail(Mail):
    async def send(self, *what):
        return super().send(*what)


@pytest.mark.parametrize("page", ["README.md", "sdk/python/README.md"])
def test_the_first_example_sends_once_and_a_repeat_gets_the_result(tmp_path, monkeypatch, page):
    monkeypatch.chdir(tmp_path)
    block = re.search(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)[1]
    module = types.ModuleType("readme")
    exec(compile(block, page, "exec"), module.__dict__)
    is_async = inspect.iscoroutinefunction(module.send_email)
    module.mail = AsyncMail() if is_async else Mail()
    for body in ("Hello Ada", "Hi Ada!"):
        sent = module.send_email("ada@example.org", "welcome", "2026-11-18", body)
        assert (asyncio.run(sent) if is_async else sent) == "mail 1"
    assert len(module.mail.sent) == 1


def test_every_block_of_the_guide_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(blocks) >= 9
    module = types.ModuleType("guide")
    module.mail, module.provider = Mail(), Provider()
    for number, block in enumerate(blocks):
        exec(compile(block, f"block {number} of {GUIDE.name}", "exec"), module.__dict__)
    assert len(module.mail.sent) == 1, "the second email"
    with pytest.raises(module.onceward.Mismatch):
        module.charge("c7", {"id": 42}, 2000)
    assert "onceward resolve" in capsys.readouterr().out


class OutboxProvider(Provider):
    def __init__(self):
        super().__init__()
        self.mails = {}

    def send(self, to, template, idempotency_key):
        return self.mails.setdefault(idempotency_key, f"mail {len(self.mails) + 1}")

    def find(self, invoice):
        return None


def test_every_block_of_the_guide_to_the_outbox_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "guides" / "python-outbox.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 2 and text.count("```python no-run") == 1
    module = types.ModuleType("outbox_guide")
    module.provider = OutboxProvider()
    # Dataclasses look up their module.
    monkeypatch.setitem(sys.modules, "outbox_guide", module)
    for number, block in enumerate(blocks):
        exec(compile(block, f"block {number}", "exec"), module.__dict__)
    assert len(module.provider.mails) == len(module.provider.charges) == 1
    assert {one.status for one in module.ledger.list()} == {"done"}
