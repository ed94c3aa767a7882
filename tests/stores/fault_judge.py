"""Judges the journals of workers that shared one store: which calls were answered how, and whether an order of them explains it.

An intent is absent, owned under a fence, or done with an outcome. A history is accepted if every call can be put at one moment
between its beginning and its answer so that each answer is true at its moment (linearizability), and if each owner keeps its claim
for as long as its lease lasts. A call without an answer, or with an error, may have happened at any later moment, or not at all.
"""

import dataclasses
import json

ABSENT, OWNED, DONE = "absent", "owned", "done"

# Answers that change nothing.
READS = ("replay", "in flight", "in doubt", "stale", "state")

NEVER = float("inf")

# The part of a lease after which a ledger renews a claim before it hands it out. It is a third; a little less is safe.
SLOW = 0.3

# More than any history needs that the tests make. A search that takes longer proves nothing.
MAX_STEPS = 200_000


@dataclasses.dataclass
class Call:
    operation: str
    key: str
    began: float
    fence: str | None = None
    ended: float = NEVER
    answer: str = "error"
    detail: str | None = None
    owner: object = None

    def is_certain(self):
        return self.answer != "error"


@dataclasses.dataclass
class History:
    calls: list
    # What each worker said about the store at its end.
    durability: list


def read(journals):
    """The calls of all workers."""
    calls, durability = [], []
    for journal in journals:
        open_calls = {}
        for line in journal.read_text().splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                # A worker was killed while it wrote.
                continue
            if "call" in event:
                made = Call(event["operation"], event["key"], event["at"] / 1e9, event["fence"])
                open_calls[event["call"]] = made
                calls.append(made)
            elif "return" in event:
                made = open_calls[event["return"]]
                made.ended, made.answer, made.detail = event["at"] / 1e9, event["answer"], event["detail"]
                if made.answer == "error":
                    # It may still happen: a server may commit later what it was sent.
                    made.ended = NEVER
                if made.answer == "acquired":
                    made.fence = made.detail
            else:
                durability.append(event["durability"])
    return History(calls, durability)


def judge(history, effects, state, lease):
    """Everything that is wrong, one sentence each. `state` is what the store has at the end, by key; `lease` is in seconds."""
    wrong = []
    by_key = {}
    for call in history.calls:
        by_key.setdefault(call.key, []).append(call)
    for key, calls in by_key.items():
        found = state.get(key)
        wrong += [f"{key}: {what}" for what in judge_key(key, calls, found, effects.get(key, []), lease)]
    return wrong


def judge_key(key, calls, found, effects, lease):
    wrong = []
    granted = [call.fence for call in calls if call.answer == "acquired"]
    if len(granted) != len(set(granted)):
        wrong.append("one fence was granted twice")
    if key.startswith("hold") and len(effects) > 1:
        wrong.append(f"{len(effects)} effects, although nothing may run again")
    accepted = {call.fence for call in calls if call.operation == "finish" and call.answer == "written"}
    if len(accepted) > 1:
        wrong.append(f"outcomes were accepted under {len(accepted)} fences")
    outcomes = {call.detail for call in calls if call.answer == "replay"}
    if len(outcomes) > 1:
        wrong.append(f"repeats got {len(outcomes)} different outcomes")
    if found is not None and accepted and (found["status"] != DONE or found["outcome"] not in accepted):
        wrong.append(f"an acknowledged outcome is lost: {found['status']}")
    if odd := [call.detail for call in calls if call.answer == "other"]:
        wrong.append(f"an unexpected answer: {odd[0]}")
    if wrong:
        return wrong
    # A ledger whose claim has lapsed before it could be handed out begins again within the same call.
    slow = [call for call in calls if call.operation == "begin" and lease * SLOW < call.ended - call.began < NEVER]
    calls = calls + [Call("begin", key, call.began) for call in slow]
    final = [Call("state", key, 1e18, None, 1e18 + 1, "state", None)] if found is not None else []
    explained = Search(calls + final, found, lease, key.startswith("retry")).run()
    return [] if explained else ["no order of the calls explains the answers"]


class Search:
    """Looks for an order that explains the answers."""

    def __init__(self, calls, found, lease, may_take_over):
        self.calls = sorted((call for call in calls if may_matter(call)), key=lambda call: call.began)
        self.found, self.lease, self.may_take_over = found, lease, may_take_over
        self.seen, self.steps = set(), 0

    def run(self):
        everything = frozenset(range(len(self.calls)))
        stack = [(everything, (ABSENT, None, None))]
        while stack:
            left, state = self.after_reads(*stack.pop())
            if all(not self.calls[number].is_certain() for number in left):
                return True
            if (left, state) in self.seen:
                continue
            self.seen.add((left, state))
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise RuntimeError(f"{self.calls[0].key}: too many orders")
            for number in self.enabled(left):
                for after in self.after(number, state):
                    stack.append((left - {number}, after))
        return False

    def enabled(self, left):
        """The calls that may be next: none of the others ended before they began."""
        first = min((self.calls[number].ended for number in left), default=NEVER)
        return [number for number in left if self.calls[number].began <= first]

    def after_reads(self, left, state):
        """Puts every read in its place that is true now: it changes nothing, so waiting cannot help."""
        while True:
            true = {number for number in self.enabled(left) if self.is_true(self.calls[number], state)}
            if not true:
                return left, state
            left -= true

    def is_true(self, call, state):
        kind, fence, _ = state
        if call.answer == "replay":
            return kind == DONE and call.detail == fence
        if call.answer == "in flight":
            return kind == OWNED
        if call.answer == "in doubt":
            return kind == OWNED
        if call.answer == "stale":
            return fence != call.fence
        if call.answer == "state":
            return kind == DONE and fence == self.found["outcome"] if self.found["status"] == DONE else kind != DONE
        return False

    def after(self, number, state):
        """The states that a write may lead to."""
        call, (kind, fence, since) = self.calls[number], state
        if call.operation == "finish" and call.answer in ("written", "error"):
            if kind in (OWNED, DONE) and fence == call.fence:
                return [(DONE, fence, None)]
        if call.operation == "begin" and call.answer == "error":
            # A claim of which no caller knows. It is given back, or lapses.
            if kind == ABSENT or kind == OWNED and self.may_take_over and not fence.startswith("unknown"):
                return [(OWNED, f"unknown {number}", call.began)]
        if call.operation == "begin" and call.answer == "acquired":
            if kind == ABSENT or kind == OWNED and fence.startswith("unknown"):
                return [(OWNED, call.fence, call.began)]
            # Its lease began after the call, so that it ended no earlier than this.
            if kind == OWNED and self.may_take_over and call.ended >= since + self.lease:
                return [(OWNED, call.fence, call.began)]
        return []


def may_matter(call):
    return call.operation in ("begin", "finish", "state")


def counts(history):
    """How many calls had which answer."""
    found = {}
    for call in history.calls:
        found[call.answer] = found.get(call.answer, 0) + 1
    return found


def shown(history, key):
    """The calls about one key, for people."""
    calls = sorted((call for call in history.calls if call.key == key), key=lambda call: call.began)
    start = calls[0].began if calls else 0
    fence = lambda call: (call.fence or "")[:6]  # noqa: E731
    return "\n".join(
        f"  {call.began - start:8.3f} to {call.ended - start:8.3f}: {call.operation} {fence(call)} {call.answer} {call.detail or ''}"
        for call in calls
    )
