"""Runs the code of the guides, block by block."""

import pathlib
import re
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
