"""The fixture `once`: names the effects of tools, and makes checks of them."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

from .._ledger import Ledger
from ._bench import Faults
from ._check import Check, Options, changed
from ._child import Tool
from ._effects import RECEIPT, Effect, name_of
from ._errors import InvalidCheck
from ._provider import Provider
from ._report import Report, Reports


class Counter:
    """Counts an effect of your own test double: call it at the moment of the effect."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self) -> None:
        Provider().happened(self.name)


class Once:
    """Checks that tools act once: `once(charge, 42).check()`."""

    def __init__(
        self,
        *,
        on_report: Callable[[Report], None] = lambda _report: None,
        **settings: Any,
    ) -> None:
        """`on_report` gets every report. `settings` are those of the method `settings`."""
        self._on_report = on_report
        self._options = changed(Options(), settings)
        self._effects: list[Effect] = []
        self._counts_itself = False
        self._ledger: Ledger | None = None

    def __call__(
        self,
        tool: Callable[..., Any],
        /,
        *args: Any,
        effect: str | Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> Check:
        """The check of a tool. Each call of it with these arguments means the same intent.

        `effect` names the function that acts, for this check only; see `effect`.
        """
        effects = list(self._effects)
        if effect is not None:
            with contextlib.suppress(TypeError, ValueError):
                if "effect" in inspect.signature(tool).parameters:
                    raise InvalidCheck(
                        "the tool has an argument `effect` of its own: name the function that acts with "
                        "once.effect(...), and pass the argument with functools.partial(tool, effect=...)"
                    )
            effects.append(_effect(effect, effects))
        made = Tool(tool, args, kwargs, effects)
        return Check(made, self._options, self._counts_itself, self._on_report)

    def effect(
        self,
        target: str | Callable[..., Any],
        *,
        name: str | None = None,
        answer: Any = RECEIPT,
        honours_key: str | Callable[..., str | None] | None = None,
        lost: BaseException | None = None,
        refusal: BaseException | None = None,
        wraps: bool = False,
    ) -> None:
        """Names a function that acts, for all checks of this test: a dotted path such as `shop.stripe.charge`, or the
        function.

        In the processes of a scenario, a stand-in takes its place. It counts, and returns `answer`: a value, or a
        function of the arguments; by default a receipt such as `{"id": "effect-1", "what": "charge"}`. With
        `wraps=True` the real function runs and is counted. `honours_key` says that the provider honours idempotency
        keys: the name of the argument with the key, or a function of the arguments. `lost` and `refusal` are the errors
        of your client for an answer that did not arrive, and for a request that was refused before anything happened.
        """
        chosen = _effect(target, self._effects)
        chosen.name = name or chosen.name
        chosen.answer, chosen.honours_key, chosen.wraps = answer, honours_key, wraps
        given = {name: error for name, error in (("lost", lost), ("refusal", refusal)) if error is not None}
        chosen.faults = dataclasses.replace(Faults(), **given)
        self._effects.append(chosen)

    def counter(self, name: str) -> Counter:
        """Counts an effect of your own test double, which calls it at the moment of the effect."""
        self._counts_itself = True
        return Counter(name)

    @property
    def provider(self) -> Provider:
        """A stand-in for a provider, for tools that take their provider as an argument."""
        self._counts_itself = True
        return Provider()

    @property
    def ledger(self) -> Ledger:
        """A ledger, for tools that take their ledger as an argument. Each scenario has its own store, as for every
        ledger."""
        if self._ledger is None:
            self._ledger = Ledger("memory:")
        return self._ledger

    def settings(self, **settings: Any) -> None:
        """Changes settings for all checks of this test.

        `repeats`: calls one after the other, 3. `at_once`: concurrent calls, 8. `retries`: repeats after a disturbed
        call, 2. `pause`: seconds before the first repeat, 1.1. `timeout`: seconds for a call, 30. `processes`:
        `"fork"`, or `"fresh"` for fresh interpreters.
        """
        self._options = changed(self._options, settings)

    def tools(self, *checks: Check) -> Reports:
        """Runs all scenarios of several tools, prints a line for each, and fails unless the effect of each happens
        once."""
        __tracebackhide__ = True
        reports = Reports(tuple(check.report() for check in checks))
        print(f"{reports}\n")
        return reports.assert_once()


def _effect(target: str | Callable[..., Any], known: list[Effect]) -> Effect:
    name = name_of(target)
    if any(effect.name == name for effect in known):
        name = target if isinstance(target, str) else f"{target.__module__}.{target.__qualname__}"
    return Effect(target, name)
