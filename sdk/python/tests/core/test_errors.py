"""Exceptions: they can be pickled, a model may read them, and the command that they name settles a doubt."""

from __future__ import annotations

import copy
import inspect
import os
import pathlib
import pickle
import re
import shlex
import subprocess
from typing import Any

import onceward
import pytest
import scene
from onceward import Error, InDoubt, Ledger, Unknown

FIELDS = {
    "intent": "pay#12ab",
    "operation": "pay",
    "tenant": "acme-tenant",
    "key": "invoice-4711-secret",
    "store": "/var/lib/secret.db",
    "retry_after": 3.5,
    "since_ms": 1_794_000_000_000,
    "expected": 4,
    "given": 6,
    "reason": "card 4111111111111111 declined",
    "result_json": b'{"secret":1}',
    "value": {"secret": 1},
    "most": 5,
}

KINDS = [one for one in vars(onceward).values() if inspect.isclass(one) and issubclass(one, Error)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_can_be_pickled_and_copied(kind: type[Error]) -> None:
    error = kind("it did not work", **FIELDS)
    if hasattr(error, "add_note"):
        error.add_note("seen by a person")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is kind and str(again) == str(error)
        left, right = vars(again), vars(error)
        assert left == right


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_text_for_a_model_has_no_secrets(kind: type[Error]) -> None:
    text = kind("the arguments were 4111111111111111", **FIELDS).for_model()
    assert "pay" in text or "The call" in text
    for secret in ("4711", "secret", "/var", "4111", "acme", "12ab"):
        assert secret not in text
    without = kind("4111111111111111").for_model()
    assert "The call" in without and "4111" not in without


def test_every_error_of_the_native_module_is_known() -> None:
    from onceward import _errors

    for name in _errors._KINDS:
        assert getattr(onceward, name) is _errors._KINDS[name]
        assert isinstance(_errors.make(name, "x", {}), Error)
    source = scene.ROOT / "sdk/python/src/error.rs"
    kinds = set(re.findall(r'"([A-Z][a-zA-Z]+)"', source.read_text()))
    assert len(kinds) > 15 and kinds <= set(_errors._KINDS)


@pytest.mark.parametrize("failure", [onceward.NotSent, onceward.Permanent, onceward.Unknown])
def test_a_failure_can_be_pickled(failure: type[onceward.Failure]) -> None:
    again = pickle.loads(pickle.dumps(failure("a", 1)))
    assert type(again) is failure and again.args == ("a", 1)
    refused = pickle.loads(pickle.dumps(onceward.Refused("busy", retry_after=5)))
    assert refused.retry_after == 5 and refused.args == ("busy",)


def lost() -> None:
    raise Unknown("no answer")


def doubted(ledger: Ledger, operation: str, key: str, **call: Any) -> InDoubt:
    with pytest.raises(Unknown):
        ledger.call(operation, key=key, **call).run(lost)
    with pytest.raises(InDoubt) as caught:
        ledger.call(operation, key=key, **call).run(lost)
    return caught.value


def test_real_errors_can_be_pickled(memory: Ledger) -> None:
    error = doubted(memory, "pay", "a")
    again = pickle.loads(pickle.dumps(error))
    assert (again.since, again.key, again.intent, str(again)) == (error.since, "a", error.intent, str(error))
    assert len(str(doubted(memory, "pay", "b")).splitlines()) == 1, "there is no file to settle it in"


def program() -> str:
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or scene.ROOT / "target")
    for profile in ("debug", "release"):
        found = target / profile / "onceward"
        if found.exists():
            return str(found)
    pytest.skip("the command onceward is not built")


def settle(command: str) -> None:
    words = shlex.split(command)
    assert words[:2] == ["onceward", "resolve"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ONCEWARD_")}
    subprocess.run([program(), *words[1:]], check=True, capture_output=True, env=clean, timeout=30)


@pytest.mark.parametrize(
    ("operation", "key", "tenant"),
    [
        ("pay", "invoice-7", None),
        ("pay", "--happened", None),
        ("-pay", "-k", "acme"),
        ("pay it", "it's \"quoted\" $HOME `id` \\ *", "a tenant"),
        ("pay", "schlüssel=ü;rm -rf", None),
    ],
)
def test_the_command_that_an_error_names_settles_the_doubt(
    tmp_path: pathlib.Path, operation: str, key: str, tenant: str | None
) -> None:
    store = tmp_path / "it's a ledger.db"
    with Ledger(store, tenant=tenant) as ledger:
        error = doubted(ledger, operation, key)
        settle(error.settle)
        assert ledger.call(operation, key=key).run(lost) is None
        error = doubted(ledger, operation, f"{key}2")
        commands = str(error).splitlines()[1:]
        assert commands[0].strip() == error.settle and len(commands) == 2
        settle(commands[1].strip())
        assert ledger.call(operation, key=f"{key}2").run(lambda: 5) == 5


def test_an_event_in_doubt_can_be_settled_with_its_command(tmp_path: pathlib.Path) -> None:
    with Ledger(tmp_path / "onceward.db") as ledger:
        ledger.consume_event("billing", "order-1", 1).run(lambda: None)
        with pytest.raises(Unknown):
            ledger.consume_event("billing", "order-1", 2).run(lost)
        with pytest.raises(InDoubt) as caught:
            ledger.consume_event("billing", "order-1", 2).run(lost)
        settle(caught.value.settle)
        ledger.consume_event("billing", "order-1", 3).run(lambda: None)


def test_a_derived_key_is_settled_with_its_command(tmp_path: pathlib.Path) -> None:
    with Ledger(tmp_path / "onceward.db") as ledger:

        @ledger.once(operation="pay")
        def pay(card: str) -> str:
            raise Unknown("no answer")

        for kind in (Unknown, InDoubt):
            with pytest.raises(kind) as caught:
                pay("4111111111111111")
        assert "4111" not in str(caught.value)
        settle(caught.value.settle + " --value '\"receipt 7\"'")
        assert pay("4111111111111111") == "receipt 7"
