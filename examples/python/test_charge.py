"""Does the charge happen once, however often it is called and wherever the process dies? Run it:

    pip install onceward pytest
    pytest examples/python/test_charge.py --onceward-report
"""

import onceward
from onceward.testing import Once, Verdict

# In production, a file that all processes share. The test kit moves the ledger to a store of its own.
ledger = onceward.Ledger("memory:")


def create_charge(invoice: int, cents: int, idempotency_key: str | None = None) -> str:
    """The client of the payment provider. The test kit replaces it, so that no test charges a card."""
    raise NotImplementedError


@ledger.once(operation="charge_invoice", key=["invoice"], match=["cents"])
def charge(invoice: int, cents: int) -> str:
    """A tool with a bug: it is guarded, and passes every test in which nothing fails."""
    return create_charge(invoice, cents)


@ledger.once(operation="charge_invoice_with_key", key=["invoice"], match=["cents"], tier="payment", in_doubt="retry")
def charge_with_key(invoice: int, cents: int) -> str:
    """The corrected tool: the provider gets the key of the intent and recognises a repeat."""
    return create_charge(invoice, cents, idempotency_key=onceward.claim().downstream_key)


def test_a_charge_happens_once(once: Once) -> None:
    once.effect(create_charge, honours_key="idempotency_key")
    once(charge_with_key, 42, 1999).check().assert_held(0)


def test_the_kit_finds_the_bug(once: Once) -> None:
    once.effect(create_charge)
    once(charge, 42, 1999).three_times()
    once(charge, 42, 1999).killed_at_every_step()
    report = once(charge, 42, 1999).report()
    assert [str(line.scenario) for line in report.violations] == ["the provider acts and its answer is lost"]
    assert report.violations[0].verdict is Verdict.AGAIN
