"""A kit for testing your own tools: does the charge happen once, however often the tool is called and wherever the
process dies?

    def test_charge_happens_once(once):
        once(charge, 42, effect="shop.stripe.charge").check()

The kit calls the tool repeatedly and concurrently, with a provider whose answer is lost or that refuses, with callers
that give up, and in real processes that are killed at every step: before and after each write of the ledger and each
effect. Each scenario has its own store. The report says how often the effect happened, and for each failure the cause
and how to fix it. See `docs/guides/testing-python.md`.

With pytest, `once` is a fixture; with any other test runner, `once = onceward.testing.Once()`.

Layout:

- `_once`, `_check`: name the effects and check tools. `_scenario`: the scenarios. `_process`, `_child`: the processes
  of a scenario.
- `_bench`: the state of one process. `_effects`, `_provider`: stand-ins that count. `_tracing`: the ledgers. `_log`:
  what happened.
- `_verdict`, `_cause`: how scenarios ended, and why. `_report`: the report.
"""

from ._cause import Cause
from ._check import Check, Options
from ._effects import RECEIPT
from ._errors import InvalidCheck, KeyReused, NoAnswer, NotOnce, ProviderError, RequestRefused
from ._once import Counter, Once
from ._provider import Provider
from ._report import Report, Reports, ScenarioReport
from ._scenario import Kind, Scenario, Step
from ._verdict import CallResult, Verdict

__all__ = [
    "RECEIPT",
    "CallResult",
    "Cause",
    "Check",
    "Counter",
    "InvalidCheck",
    "KeyReused",
    "Kind",
    "NoAnswer",
    "NotOnce",
    "Once",
    "Options",
    "Provider",
    "ProviderError",
    "Report",
    "Reports",
    "RequestRefused",
    "Scenario",
    "ScenarioReport",
    "Step",
    "Verdict",
]
