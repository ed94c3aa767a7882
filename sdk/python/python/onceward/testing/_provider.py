"""A stand-in for a provider that counts its effects. As the scenario demands, it acts and loses its answer, refuses
before it acts, or is slow."""

from __future__ import annotations

from typing import Any

from ._bench import Faults, current
from ._log import read


class Provider:
    """A stand-in for the service that a tool calls. It works inside a check only.

    The errors say what the client of a real provider would know: `RequestRefused` proves that nothing happened,
    `NoAnswer` proves nothing. A receipt is a dict with an `id`, such as `effect-1`, and the name of the effect, `what`.
    """

    def act(self, what: str) -> dict[str, Any]:
        """Performs an effect. `what` names it in the report; a tool with several effects gives them different names."""
        return current().act(what, None, Faults()).receipt

    async def act_async(self, what: str) -> dict[str, Any]:
        """`act` for async code."""
        return (await current().act_async(what, None, Faults())).receipt

    def act_with_key(self, what: str, key: str) -> dict[str, Any]:
        """Performs an effect once for each key, like a provider that honours idempotency keys: pass
        `onceward.claim().downstream_key`."""
        return current().act(what, key, Faults()).receipt

    async def act_with_key_async(self, what: str, key: str) -> dict[str, Any]:
        """`act_with_key` for async code."""
        return (await current().act_async(what, key, Faults())).receipt

    def find(self, what: str) -> dict[str, Any] | None:
        """Looks up whether an effect has happened: a probe."""
        effects = [entry.fields for entry in read(current().plan.folder) if entry.is_new_effect(what)]
        return {"id": f"effect-{effects[0]['number']}", "what": what} if effects else None

    def happened(self, what: str) -> None:
        """Reports an effect of your own test double. It is only counted: answers are not lost and requests are not
        refused, so scenarios that need this are reported as not tried."""
        bench = current()
        bench.perform(what, None)
        bench.passes("after", "effect", what)
