"""Runs the vectors that every language runs, as far as they apply to Python values."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from dataclasses import make_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import onceward
import pytest
import scene
from onceward import _native

# What a dict of Python cannot hold, or Python's own JSON reader loses.
LOST_IN_PYTHON = {"duplicate_member", "inexact_number", "too_large"}


def vectors(file: str) -> dict[str, Any]:
    return json.loads((scene.ROOT / "spec/vectors" / f"{file}.json").read_text())


def cases(file: str, member: str) -> list[Any]:
    found = vectors(file)[member]
    assert found
    return [pytest.param(case, id=str(case.get("name", index))) for index, case in enumerate(found)]


def parsed(text: str) -> Any:
    # Larger numbers than Python reads by default.
    return json.loads(text, parse_int=whole)


def whole(digits: str) -> int:
    sign, value = (-1, 0) if digits.startswith("-") else (1, 0)
    digits = digits.lstrip("-")
    for part in range(0, len(digits), 500):
        piece = digits[part : part + 500]
        value = value * 10 ** len(piece) + int(piece)
    return sign * value


@pytest.mark.parametrize("case", cases("canonical-json", "accepted"))
def test_canonical_json(case: dict[str, str]) -> None:
    assert _native.canonical(parsed(case["input"])) == case["canonical"]


@pytest.mark.parametrize("case", cases("canonical-json", "refused"))
def test_refused_json(case: dict[str, Any]) -> None:
    if "input_hex" in case:
        text = bytes.fromhex(case["input_hex"])
    elif "input_repeat" in case:
        text = (case["input_repeat"]["text"] * case["input_repeat"]["times"]).encode()
    else:
        text = case["input"].encode("utf-8", "surrogatepass")
    try:
        value = json.loads(text.decode(), parse_int=whole)
    except (ValueError, RecursionError):
        return
    if case["error"] in LOST_IN_PYTHON and "inf" not in repr(value):
        # Python's own reader has lost what is refused, so what it read is accepted.
        assert _native.canonical(value)
        return
    with pytest.raises((ValueError, TypeError)):
        _native.canonical(value)


@pytest.mark.parametrize("case", cases("keys", "derived"))
def test_derived_keys(case: dict[str, str], memory: onceward.Ledger) -> None:
    intent = parsed(case["intent"])
    assert _native.canonical(intent) == case["canonical"]
    assert _native.derived_key(case["session"], case["operation"], intent) == case["key"]
    call = memory.call(case["operation"], intent=intent, session=case["session"] or None)
    if intent:
        assert call.key == case["key"]


@pytest.mark.parametrize("case", cases("keys", "identities"))
def test_identities(case: dict[str, str], memory: onceward.Ledger) -> None:
    names = {name: case[name] for name in ("tenant", "operation", "key")}
    assert _native.identity_digest(**names) == case["digest"]
    memory.call(case["operation"], key=case["key"], tenant=case["tenant"]).run(lambda: None)
    seen = memory.get(case["operation"], case["key"], tenant=case["tenant"])
    assert seen is not None and seen.record["record"]["id"] == case["digest"]


@pytest.mark.parametrize("case", cases("keys", "downstream"))
def test_downstream_keys(case: dict[str, Any], memory: onceward.Ledger) -> None:
    names = {name: case[name] for name in ("tenant", "operation", "key")}
    assert _native.downstream_key(**names, sink=case["sink"], generation=case["generation"]) == case["downstream_key"]
    if not case["sink"] and case["generation"] == 0:
        call = memory.call(case["operation"], key=case["key"], tenant=case["tenant"])
        assert call.run(lambda: onceward.claim().downstream_key) == case["downstream_key"]


@pytest.mark.parametrize("case", cases("recipes", "applied"))
def test_recipes(case: dict[str, Any]) -> None:
    intent = parsed(case["intent"])
    recipe = json.dumps(case["recipe"])
    found = json.loads(_native.apply_recipe(recipe, case["session"], case["operation"], intent, case["now_ms"]))
    assert found == case["expect"]


@pytest.mark.parametrize("case", cases("recipes", "applied"))
def test_recipes_as_settings(case: dict[str, Any], memory: onceward.Ledger) -> None:
    recipe, intent = dict(case["recipe"]), parsed(case["intent"])
    is_of_now = (recipe.get("window") or {}).get("of") == "now"
    call = memory.call(
        case["operation"], fields=recipe.pop("key"), intent=intent, session=case["session"] or None, **recipe
    )
    # The clock of the ledger is not ours.
    assert (call.key != case["expect"]["key"]) if is_of_now else (call.key == case["expect"]["key"])


@pytest.mark.parametrize("case", cases("recipes", "refused_recipes"))
def test_refused_recipes(case: dict[str, Any], memory: onceward.Ledger) -> None:
    with pytest.raises(ValueError) as caught:
        _native.apply_recipe(json.dumps(case["recipe"]), "", "refused", {}, 0)
    assert str(caught.value) == case["error"]
    recipe = dict(case["recipe"])
    fields = recipe.pop("key", [])
    # Names of arguments are pointers without a slash.
    if case["error"] != "bad_pointer":
        with pytest.raises(onceward.InvalidCall):
            memory.call("refused", fields=fields, intent={}, **recipe)


@pytest.mark.parametrize("case", cases("recipes", "refused_intents"))
def test_refused_intents(case: dict[str, Any]) -> None:
    with pytest.raises(ValueError) as caught:
        _native.apply_recipe(json.dumps(case["recipe"]), "", "refused", parsed(case["intent"]), 0)
    assert str(caught.value) == case["error"]


def test_evidence() -> None:
    found = vectors("errors")
    names = {None: None}
    for member, read in (("texts", _native.evidence_in_text), ("messages", _native.evidence)):
        for case in found[member]:
            said = read(case["text"])
            assert (said is None) == (case["evidence"] is None), case["name"]
            # The vectors have names, and messages have words: each name has its words.
            assert names.setdefault(case["evidence"], said) == said, case["name"]
    assert len(set(names.values())) == len(names) > 3


class Refused(Exception):
    """A case of a type that Python does not have."""


def made(value: dict[str, Any]) -> Any:
    """The Python value of a typed value."""
    text = value.get("text")
    if "utf16" in value:
        text = b"".join(unit.to_bytes(2, "little") for unit in value["utf16"]).decode("utf-16-le", "surrogatepass")
    builders: dict[str, Callable[[], Any]] = {
        "null": lambda: None,
        "boolean": lambda: {"true": True, "false": False}[text],
        "integer": lambda: whole(text),
        "float": lambda: float(text),
        "string": lambda: text,
        "date": lambda: date.fromisoformat(text),
        "datetime": lambda: datetime.fromisoformat(text),
        "time": lambda: time.fromisoformat(text),
        "duration": lambda: timedelta(seconds=int(text)),
        "decimal": lambda: Decimal(text),
        "uuid": lambda: UUID(text),
        "bytes": lambda: bytes.fromhex(value["hex"]),
        "enum": lambda: enum.Enum("Made", {"ONE": made(value["of"])})["ONE"],  # type: ignore[misc]
        "list": lambda: [made(one) for one in value["items"]],
        "tuple": lambda: tuple(made(one) for one in value["items"]),
        "set": lambda: {made(one) for one in value["items"]},
        "object": lambda: object_of(value),
        "record": lambda: make_dataclass("Made", value["members"])(**object_of(value)),
        "function": lambda: len,
        "opaque": object,
        "cycle": cycle,
    }
    return builders[value["type"]]()


def object_of(value: dict[str, Any]) -> dict[Any, Any]:
    if "entries" in value:
        return {made(name): made(one) for name, one in value["entries"]}
    return {name: made(one) for name, one in value["members"].items()}


def cycle() -> list[Any]:
    value: list[Any] = []
    value.append({"again": value})
    return value


REFUSALS = {
    "not_finite": (ValueError, "infinite or not a number"),
    "too_large": (ValueError, "too many digits"),
    "no_time_zone": (ValueError, "without a time zone"),
    "bad_time": (ValueError, "outside the years"),
    "bad_name": (TypeError, "must be a str"),
    "lone_surrogate": (ValueError, "surrogate"),
    "too_deep": (ValueError, "deeper than"),
    "unsupported_type": (TypeError, "cannot be part of a key"),
}


@pytest.mark.parametrize("case", cases("types", "accepted"))
def test_typed_values(case: dict[str, Any]) -> None:
    assert _native.canonical(made(case["value"])) == case["canonical"]
    assert _native.canonical(json.loads(case["canonical"])) == case["canonical"]


@pytest.mark.parametrize("case", cases("types", "refused"))
def test_refused_typed_values(case: dict[str, Any]) -> None:
    kind, says = REFUSALS[case["error"]]
    with pytest.raises(kind, match=says):
        _native.canonical(made(case["value"]))
