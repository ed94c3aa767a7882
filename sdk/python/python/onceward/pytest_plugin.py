"""The pytest plugin: the fixture `once`, which checks that tools act once. pytest finds it by its entry point
`onceward`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .testing import Once, Report

# The name under which a test keeps its reports; they also appear in the JUnit file.
_PROPERTY = "onceward"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("onceward", "tools that act once")
    group.addoption("--onceward-report", action="store_true", help="Print the report of every checked tool")
    parser.addini("onceward_processes", 'Processes of a scenario: "fork" or "fresh"', default="")
    parser.addini("onceward_pause", "Seconds before the first repeat of a call", default="")
    parser.addini("onceward_timeout", "Seconds that a call may take", default="")


@pytest.fixture
def once(request: pytest.FixtureRequest) -> Once:
    """Checks that a tool acts once: `once(charge, 42, effect="shop.stripe.charge").check()`."""
    # Sessions without such tests do not pay for the import.
    from .testing import Once

    def keep(report: Report) -> None:
        request.node.user_properties.append((_PROPERTY, str(report)))

    return Once(on_report=keep, **_settings(request.config))


def _settings(config: pytest.Config) -> dict[str, object]:
    settings: dict[str, object] = {}
    if processes := str(config.getini("onceward_processes")):
        settings["processes"] = processes
    for name in ("pause", "timeout"):
        text = str(config.getini(f"onceward_{name}"))
        try:
            settings |= {name: float(text)} if text else {}
        except ValueError:
            raise pytest.UsageError(f"onceward_{name} is a number of seconds, not {text!r}") from None
    return settings


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.getoption("--onceward-report"):
        return
    # With pytest-xdist, tests run in other processes, and their properties come back with their reports.
    tests = [one for kind in ("passed", "failed") for one in terminalreporter.stats.get(kind, [])]
    reports = [
        text
        for test in tests
        for name, text in getattr(test, "user_properties", [])
        if name == _PROPERTY and getattr(test, "when", "") == "call"
    ]
    if reports:
        terminalreporter.section("onceward")
    for report in reports:
        terminalreporter.write_line(report)
        terminalreporter.write_line("")
