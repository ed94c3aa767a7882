"""How effects are named, replaced and counted, and that the process of the test stays as it is."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import shop
import shop_front

import onceward
from onceward.testing import InvalidCheck, Kind, NoAnswer, Once, Provider, RequestRefused, Verdict


@pytest.mark.parametrize(
    "target",
    [
        "shop.Client.create",
        "shop.client.create",
        shop.client.create,
        shop.Client.create,
    ],
)
def test_an_effect_is_a_path_or_a_function(kit: Once, target: Any) -> None:
    report = kit(shop.Till(shop.client).charge, 42, effect=target).three_times()
    assert report.lines[-1].happened == 1


@pytest.mark.parametrize("name", ["create_static", "create_for_class"])
def test_static_and_class_methods_are_replaced(kit: Once, name: str) -> None:
    call = shop.ledger.call
    kit.effect(f"shop.Client.{name}", answer=lambda invoice: f"paid {invoice}")
    report = kit(lambda: call("charge", key="1").run(lambda: getattr(shop.client, name)(42))).three_times()
    assert report.lines[-1].replayed == 2


def test_a_function_is_replaced_wherever_a_module_holds_it(kit: Once) -> None:
    kit(shop_front.charge, 42, effect="shop.pay").three_times()
    kit(shop_front.charge, 42, effect=shop.pay).three_times()


def test_the_body_of_a_guarded_function_can_be_the_effect(kit: Once) -> None:
    for target in ("shop.note", shop.note):
        report = kit(shop.note, 42, effect=target).settings(repeats=2).report(Kind.REPEATS, Kind.LOST_ANSWER)
        assert [line.happened for line in report.lines] == [1, 1, 1]
        assert report.lines[1].replayed == 1


def test_the_process_of_the_test_is_not_changed(kit: Once, tmp_path: pathlib.Path) -> None:
    pay, native = shop.pay, shop.ledger._native
    with onceward.Ledger(tmp_path / "real.db") as real:
        assert real.call("before", key="1").run(lambda: 7) == 7
        tool = real.once(operation="local", key=["invoice"])(lambda invoice: shop.pay(invoice))
        kit(tool, 42, effect="shop.pay").killed_at_every_step()
        assert shop.pay is pay and shop.ledger._native is native
        assert [one.operation for one in real.list()] == ["before"] and shop.ledger.list() == []
        # The real ledger still works here.
        assert real.call("after", key="1").run(lambda: 8) == 8


def test_answers_are_values_or_functions_and_receipts_fit_the_annotation(kit: Once) -> None:
    seen: list[Any] = []

    def tool(expected: Any) -> None:
        got = shop.pay(42)
        assert got == expected, got

    for answer, expected in (({"id": 7}, {"id": 7}), (lambda invoice: invoice + 1, 43)):
        kit = Once(pause=0)
        kit.effect("shop.pay", answer=answer)
        seen.append(kit(tool, expected).report(Kind.ONCE).lines[0].failed)
    kit = Once(pause=0)
    kit.effect("shop.pay")
    seen.append(kit(tool, "effect-1").report(Kind.ONCE).lines[0].failed)
    seen.append(kit(tool, "wrong").report(Kind.ONCE).lines[0].failed)
    assert seen == [0, 0, 0, 1]


def test_wrapped_functions_act_and_are_counted(
    kit: Once, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acted = tmp_path / "acted"

    def pay(invoice: int) -> str:
        with acted.open("a") as file:
            file.write(f"{invoice}\n")
        return "real"

    # A patch of the test is there in the processes of the scenario.
    monkeypatch.setattr(shop, "pay", pay)
    kit.effect("shop.pay", wraps=True)
    report = kit(shop.held, 42).report(Kind.REPEATS)
    assert report.is_once and acted.read_text() == "42\n42\n", "one effect in each of the two scenarios"
    acted.unlink()
    report = kit(shop.held, 42).report(Kind.LOST_ANSWER, Kind.REFUSED)
    assert [line.happened for line in report.lines] == [1, 1, 0]
    assert acted.read_text() == "42\n42\n", "a refused request does not reach the real function"


def test_the_errors_of_the_client_can_be_named(kit: Once) -> None:
    kit.effect("shop.pay", lost=TimeoutError("read timed out"), refusal=ConnectionRefusedError("port 443"))
    # The ledger knows the phrase, so that even without a tier the claim is not released.
    report = kit(shop.released, 42).report(Kind.LOST_ANSWER, Kind.REFUSED)
    lost, refused = report.lines[1:]
    assert (lost.verdict, lost.results[0].error) == (Verdict.ONCE, "TimeoutError: read timed out")
    assert (refused.verdict, refused.results[0].error) == (Verdict.ONCE, "ConnectionRefusedError: port 443")


def test_the_default_errors_give_the_ledger_no_evidence() -> None:
    for error in (NoAnswer(), RequestRefused()):
        assert onceward._native.evidence(f"{type(error).__name__}: {error}") is None


def test_a_provider_can_be_passed_to_a_tool(kit: Once) -> None:
    def charge(ledger: onceward.Ledger, provider: Provider, invoice: int) -> Any:
        return ledger.call("charge", key=str(invoice), tier="payment").run(provider.act, "charge")

    report = kit(charge, kit.ledger, kit.provider, 42).report(Kind.LOST_ANSWER, Kind.REFUSED).assert_once()
    assert [line.verdict for line in report.lines] == [Verdict.ONCE, Verdict.ONCE, Verdict.HELD]


def test_a_provider_honours_keys_and_can_be_probed(kit: Once) -> None:
    def with_key(ledger: onceward.Ledger, provider: Provider) -> Any:
        call = ledger.call("charge", key="1", tier="payment", in_doubt="retry")
        return call.run(lambda: provider.act_with_key("charge", onceward.claim().downstream_key))

    def probed(ledger: onceward.Ledger, provider: Provider) -> Any:
        def probe(what: str) -> Any:
            return provider.find(what) or onceward.NOT_FOUND

        return ledger.call("charge", key="1", tier="payment", probe=probe).run(provider.act, "charge")

    def probed_wrongly(ledger: onceward.Ledger, provider: Provider) -> Any:
        call = ledger.call("charge", key="1", tier="payment", probe=lambda _: onceward.NOT_FOUND)
        return call.run(provider.act, "charge")

    for tool in (with_key, probed):
        report = kit(tool, kit.ledger, kit.provider).report(Kind.LOST_ANSWER, Kind.KILLED)
        report.assert_once().assert_held(0)
    report = kit(probed_wrongly, kit.ledger, kit.provider).report(Kind.KILLED)
    assert {line.cause.name for line in report.violations if line.cause} == {"PROBE_WRONG"}


def test_a_counter_counts_an_own_test_double(kit: Once, monkeypatch: pytest.MonkeyPatch) -> None:
    happened = kit.counter("pay")

    def pay(invoice: int) -> str:
        happened()
        return "double"

    monkeypatch.setattr(shop, "pay", pay)
    report = kit(shop.held, 42).report(Kind.REFUSED, Kind.KILLED).assert_once()
    assert report.verdict("the provider refuses before it acts") is Verdict.NOT_TRIED
    assert report.verdict("killed after the effect") is Verdict.ONCE
    assert "not tried: the tool's own test double only counts" in str(report)
    assert not kit(shop.unguarded, 42).report(Kind.REPEATS).is_once
    with pytest.raises(InvalidCheck, match="a counter only counts"):
        kit(shop.held, 42).answer_lost()


def test_the_stand_ins_work_only_inside_a_check(kit: Once) -> None:
    with pytest.raises(InvalidCheck, match="only inside a check"):
        kit.provider.act("charge")
    with pytest.raises(InvalidCheck, match="only inside a check"):
        kit.counter("charge")()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("shop.maill", "there is no `maill`; did you mean `mail`"),
        ("shop.Client.creat", "did you mean `create`"),
        ("shopp.pay", "there is no `shopp`"),
        ("pay", "is not a dotted path"),
        ("shop.EARLY", "is not a function"),
        (lambda: None, "give its dotted path"),
    ],
)
def test_a_wrong_effect_is_refused_with_a_hint(kit: Once, target: Any, message: str) -> None:
    with pytest.raises(InvalidCheck, match=message):
        kit(shop.held, 42, effect=target).check()


def test_a_tool_without_an_effect_is_not_called(kit: Once, tmp_path: pathlib.Path) -> None:
    called = tmp_path / "called"
    with pytest.raises(InvalidCheck, match="no effect is named"):
        kit(called.touch).check()
    assert not called.exists()


def test_an_argument_named_effect_is_refused(kit: Once) -> None:
    def tool(effect: str) -> str:
        return shop.pay(1)

    with pytest.raises(InvalidCheck, match="functools.partial"):
        kit(tool, effect="shop.pay")


def test_a_call_that_was_made_before_the_check_is_refused(kit: Once) -> None:
    with pytest.raises(InvalidCheck, match="inside the tool"):
        kit(shop.made_too_early, 42, effect="shop.pay").check()
