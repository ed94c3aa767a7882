"""Fixtures of the tests of the test kit. Without an installed package, they use the one in this repository."""

from __future__ import annotations

import importlib.metadata
import pathlib
import sys
from typing import Any

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
try:
    import onceward  # noqa: F401
except ImportError:
    sys.path.insert(0, str(HERE.parents[1] / "python"))

from onceward.testing import Once  # noqa: E402


@pytest.fixture
def kit() -> Once:
    """The kit without pytest's fixture, and without the pause that only keys with a time need."""
    return Once(pause=0)


@pytest.fixture
def plugin() -> list[str]:
    """What makes pytest load the plugin: nothing where the package is installed."""
    found: Any = importlib.metadata.entry_points(group="pytest11")
    return [] if any(one.name == "onceward" for one in found) else ["-p", "onceward.pytest_plugin"]
