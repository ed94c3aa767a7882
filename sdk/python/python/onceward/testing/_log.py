"""The log of one scenario: a file to which all of its processes append what the ledger wrote and what the provider did.
It outlives a process that is killed."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ._scenario import Step

_NAME = "log.jsonl"


@dataclass(frozen=True)
class Entry:
    """An event, and the number of the call that caused it, from 1."""

    call: int
    event: str
    fields: dict[str, Any] = field(default_factory=dict)

    def is_new_effect(self, what: str | None = None) -> bool:
        """Whether an effect happened here; of this name, if one is given."""
        return self.event == "effect" and self.fields["is_new"] and what in (None, self.fields["what"])


class Log:
    """The log, as one process writes to it."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, _NAME)
        # Each event is one write at the end of the file, so that events of several processes do not mix.
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def add(self, call: int, event: str, **fields: Any) -> None:
        os.write(self._file, (json.dumps([call, event, fields]) + "\n").encode())

    def perform(self, call: int, what: str, key: str | None) -> Entry:
        """Adds an effect, unless the provider knows its key; then the earlier one is returned."""
        with open(self._path, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            effects = [entry for entry in read(os.path.dirname(self._path)) if entry.is_new_effect()]
            known = next((entry for entry in effects if key is not None and entry.fields["key"] == key), None)
            number = known.fields["number"] if known else len(effects) + 1
            self.add(call, "effect", what=what, key=key, is_new=known is None, number=number)
            return known or Entry(call, "effect", {"what": what, "key": key, "is_new": True, "number": number})


def read(folder: str) -> list[Entry]:
    """The events so far. A line that a killed process did not finish is left out."""
    path = pathlib.Path(folder, _NAME)
    text = path.read_text() if path.exists() else ""
    return [Entry(*json.loads(line)) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def steps(log: Iterable[Entry]) -> list[Step]:
    """The steps that the calls passed."""
    return [Step(**entry.fields) for entry in log if entry.event == "step"]


def happened(log: Iterable[Entry]) -> Counter[str]:
    """How often each effect happened."""
    return Counter(entry.fields["what"] for entry in log if entry.is_new_effect())
