"""A module that imported a function that acts under a name of its own."""

from shop import ledger
from shop import pay as charge_card


@ledger.once(operation="front", key=["invoice"], tier="payment")
def charge(invoice: int) -> str:
    return charge_card(invoice)
