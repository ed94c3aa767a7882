"""Tools under test, good and bad. Only the functions named `pay` and `mail` act; the kit replaces them."""

from __future__ import annotations

import time
import uuid
from typing import Any

import onceward
from onceward.testing import RequestRefused

ledger = onceward.Ledger("memory:")


def pay(invoice: int, key: str | None = None, headers: dict[str, str] | None = None) -> str:
    raise AssertionError("the real provider was called")


async def pay_async(invoice: int) -> str:
    raise AssertionError("the real provider was called")


def mail(to: str) -> None:
    raise AssertionError("the real provider was called")


def unguarded(invoice: int) -> str:
    return pay(invoice)


@ledger.once(operation="released", key=["invoice"])
def released(invoice: int) -> str:
    """Without a tier, an error that says nothing about the effect releases the claim."""
    return pay(invoice)


@ledger.once(operation="held", key=["invoice"], tier="payment")
def held(invoice: int) -> str:
    return pay(invoice)


@ledger.once(operation="not_sent", key=["invoice"], tier="payment", on_error={RequestRefused: "retry"})
def classified(invoice: int) -> str:
    return pay(invoice)


@ledger.once(operation="kept", key=["invoice"], tier="payment", on_error="keep")
def kept(invoice: int) -> str:
    return pay(invoice)


@ledger.once(operation="waits", key=["invoice"], tier="payment")
def refused_for_a_while(invoice: int) -> str:
    try:
        return pay(invoice)
    except RequestRefused as error:
        raise onceward.Refused("later", retry_after=0.3) from error


@ledger.once(operation="stamped", key=lambda invoice: f"{invoice}-{int(time.time())}", tier="payment")
def stamped(invoice: int) -> str:
    return pay(invoice)


@ledger.once(operation="random", key=lambda invoice: f"{invoice}-{uuid.uuid4()}", tier="payment")
def random_key(invoice: int) -> str:
    return pay(invoice)


@ledger.once(operation="retried", key=["invoice"], tier="payment", in_doubt="retry")
def retried(invoice: int) -> str:
    return pay(invoice, key=onceward.claim().downstream_key)


@ledger.once(operation="retried_header", key=["invoice"], tier="payment", in_doubt="retry")
def retried_with_header(invoice: int) -> str:
    return pay(invoice, headers={"Idempotency-Key": onceward.claim().downstream_key})


@ledger.once(operation="retried_blindly", key=["invoice"], tier="payment", in_doubt="retry")
def retried_blindly(invoice: int) -> str:
    return pay(invoice)


@ledger.once(operation="retried_new_key", key=["invoice"], tier="payment", in_doubt="retry")
def retried_with_new_keys(invoice: int) -> str:
    return pay(invoice, key=str(uuid.uuid4()))


@ledger.once(operation="twice", key=["invoice"], tier="payment")
def retries_inside(invoice: int) -> str:
    try:
        return pay(invoice)
    except Exception:
        return pay(invoice)


@ledger.once(operation="marked", key=["invoice"], tier="payment", marks_sent=True)
def marked(invoice: int) -> str:
    onceward.claim().sent()
    return pay(invoice)


@ledger.once(operation="unmarked", key=["invoice"], tier="payment", marks_sent=True)
def unmarked(invoice: int) -> str:
    return pay(invoice)


@ledger.once(operation="inner", key=["invoice"], tier="payment")
def note(invoice: int) -> str:
    return "noted"


def before_claim(invoice: int) -> str:
    pay(invoice)
    return note(invoice)


def after_outcome(invoice: int) -> str:
    note(invoice)
    return pay(invoice)


def acts_anyway(invoice: int) -> str:
    try:
        return held(invoice)
    except onceward.InDoubt:
        return pay(invoice)


def skips_after_record(invoice: int) -> str:
    """Acts only in the call that made the record, which may die before it acts."""
    found = ledger.get("inner", onceward.key_of(note, invoice))
    note(invoice)
    return pay(invoice) if found is None else "done"


def opens_a_ledger(invoice: int) -> str:
    own = onceward.Ledger("memory:")
    return own.call("charge", key=str(invoice), tier="payment").run(pay, invoice)


@ledger.once(operation="in_session", key=["invoice"], tier="payment", session=True)
def in_session(invoice: int) -> str:
    return pay(invoice)


@ledger.once(operation="both", key=["invoice"], tier="payment")
def pay_and_mail(invoice: int) -> str:
    receipt = pay(invoice)
    mail("a@example.com")
    return receipt


@ledger.once(operation="async", key=["invoice"], tier="payment")
async def held_async(invoice: int) -> str:
    return await pay_async(invoice)


async def unguarded_async(invoice: int) -> str:
    return await pay_async(invoice)


def calls(invoice: int) -> str:
    return ledger.call("calls", key=str(invoice), tier="payment").run(pay, invoice)


def block(invoice: int) -> Any:
    try:
        with ledger.begin("block", key=str(invoice), tier="payment") as claim:
            claim.finish(pay(invoice))
            return claim.result
    except onceward.AlreadyDone as done:
        return done.value


EARLY = ledger.call("early", key="7", tier="payment")


def made_too_early(invoice: int) -> str:
    return EARLY.run(pay, invoice)


class Till:
    """A tool that is a method, and a client that it has."""

    def __init__(self, client: Client) -> None:
        self.client = client

    @ledger.once(operation="method", key=["invoice"], tier="payment")
    def charge(self, invoice: int) -> str:
        return self.client.create(invoice)


class Client:
    def create(self, invoice: int) -> str:
        raise AssertionError("the real provider was called")

    @staticmethod
    def create_static(invoice: int) -> str:
        raise AssertionError("the real provider was called")

    @classmethod
    def create_for_class(cls, invoice: int) -> str:
        raise AssertionError("the real provider was called")


client = Client()
