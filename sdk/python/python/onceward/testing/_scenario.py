"""The scenarios: what can go wrong around a call, and the steps of a call at which it can be stopped."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace


class Kind(enum.Enum):
    """The kinds of scenarios."""

    ONCE = "once"
    REPEATS = "repeats"
    AT_ONCE = "at_once"
    LOST_ANSWER = "lost_answer"
    REFUSED = "refused"
    GIVEN_UP = "given_up"
    KILLED = "killed"


# What a call does at a step, and how the step is named.
_STEPS = {
    "claim": ("the claim", " is written"),
    "sent": ("`sent`", " is marked"),
    "effect": ("the effect", ""),
    "not_found": ('"not found"', " is written"),
    "outcome": ("the outcome", " is written"),
    "failure": ("the failure", " is written"),
    "release": ("the claim", " is released"),
}


@dataclass(frozen=True)
class Step:
    """A point in a call at which its process may die or its caller may give up."""

    side: str
    kind: str
    # Which effect or operation, if the tool has several.
    of: str | None
    # The count, from 1, if a call passes the same step more than once.
    nth: int = 1

    def __str__(self) -> str:
        what, done = _STEPS[self.kind]
        of = f" ({self.of})" if self.of else ""
        nth = f" for the {self.nth}. time" if self.nth > 1 else ""
        return f"{self.side} {what}{of}{done}{nth}"


def named(trace: Sequence[Step]) -> list[Step]:
    """The steps of one undisturbed call, with the shortest names that are distinct."""
    steps = list(trace)
    for is_effect in (True, False):
        names = {step.of for step in steps if (step.kind == "effect") == is_effect}
        if len(names) == 1:
            steps = [replace(step, of=None) if (step.kind == "effect") == is_effect else step for step in steps]
    found: list[Step] = []
    for step in steps:
        same = [one for one in found if (one.side, one.kind, one.of) == (step.side, step.kind, step.of)]
        found.append(replace(step, nth=len(same) + 1))
    return found


@dataclass(frozen=True)
class Scenario:
    """One way to call a tool, with or without a disturbance. Each is one line of the report."""

    kind: Kind
    times: int = 1
    # Which effect, where the tool has several.
    of: str | None = None
    step: Step | None = None

    @property
    def is_undisturbed(self) -> bool:
        """Nothing is disturbed in this scenario, so nothing can be in doubt."""
        return self.kind in (Kind.ONCE, Kind.REPEATS, Kind.AT_ONCE)

    def __str__(self) -> str:
        of = f" ({self.of})" if self.of else ""
        return {
            Kind.ONCE: "called once",
            Kind.REPEATS: f"called {self.times} times",
            Kind.AT_ONCE: f"called {self.times} times at once",
            Kind.LOST_ANSWER: f"the provider acts{of} and its answer is lost",
            Kind.REFUSED: f"the provider refuses before it acts{of}",
            Kind.GIVEN_UP: f"given up {self.step}",
            Kind.KILLED: f"killed {self.step}",
        }[self.kind]
