"""Tools with an argument for an idempotency key, which the gateway fills, and keys that clients send."""

import re
import sqlite3
import time

from checks import all_of, is_equal, until
from judge import is_fresh, is_replay, is_state

OURS = re.compile(r"once_v1_[0-9a-f]{32}")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
TEXT = {"type": "string"}


def paying(key=TEXT, name="idempotency_key", required=True, **more):
    """A tool that charges and asks for a key, as those of payment providers do."""
    properties = {"amount": {"type": "number"}, "delay_ms": {"type": "number"}, name: key}
    schema = {"type": "object", "properties": properties, "required": ["amount"] + [name] * required}
    return {"description": "Charges.", "inputSchema": schema | more}


def sent(place, name="idempotency_key"):
    """The keys that the server got, in order."""
    return [one["arguments"].get(name) for one in place.effects("pay")]


def listed(agent, tool="pay"):
    tools = {one["name"]: one for one in agent.request("tools/list")["result"]["tools"]}
    return tools[tool]["inputSchema"]


def a_new_key_for_every_try_is_still_one_charge(place):
    place.offer(pay=paying())
    agent = place.agent()
    first = agent.call("pay", {"amount": 10, "idempotency_key": "made up 1"})
    is_fresh(first)
    for arguments in ({"idempotency_key": "made up 2", "amount": 10}, {"amount": 10}):
        is_replay(agent.call("pay", arguments), first)
    is_fresh(agent.call("pay", {"amount": 11, "idempotency_key": "made up 1"}))
    keys = sent(place)
    assert len(set(keys)) == 2 and all(OURS.fullmatch(key) for key in keys), keys


def an_equal_call_after_the_echo_is_meant_and_has_a_key_of_its_own(place):
    place.offer(pay=paying())
    place.configure('[mcp]\necho = "300ms"\n')
    agent = place.agent()
    is_fresh(agent.call("pay", {"amount": 10}))
    # It takes up to a second until it is written that the answer was delivered.
    time.sleep(2)
    is_fresh(agent.call("pay", {"amount": 10}))
    keys = sent(place)
    assert len(keys) == 2 and keys[0] != keys[1], keys


def the_first_call_of_a_connection_is_filled_although_nothing_was_listed(place):
    place.offer(pay=paying())
    place.agent().call("pay", {"amount": 10, "idempotency_key": "made up"})
    assert OURS.fullmatch(sent(place)[0]), sent(place)


def a_model_does_not_see_the_argument_that_is_filled(place):
    place.offer(pay=paying(), other=paying(anyOf=[{"required": ["idempotency_key"]}]))
    agent = place.agent()
    schema = listed(agent)
    assert "idempotency_key" not in schema["properties"] and schema["required"] == ["amount"], schema
    # Where another part of the schema names it, clients that check arguments need it.
    assert "idempotency_key" in listed(agent, "other")["properties"]


def a_charge_that_is_meant_twice_has_two_keys(place):
    place.offer(pay=paying())
    agent = place.agent()
    arguments = {"amount": 10, "idempotency_key": "same"}
    is_fresh(agent.call("pay", arguments))
    is_fresh(agent.call("pay", arguments | {"onceward_repeat": 2}))
    is_equal(len(set(sent(place))), 2, "keys")
    is_equal([sorted(one["arguments"]) for one in place.effects()], [["amount", "idempotency_key"]] * 2, "arguments")


def a_retry_of_a_call_in_doubt_has_the_key_of_the_first_attempt(place):
    place.offer(pay=paying())
    place.configure('[mcp.server.fixture.tool.pay]\nin_doubt = "retry"\n')
    agent = place.agent()
    agent.start_call("pay", {"amount": 10, "idempotency_key": "a", "delay_ms": 20000})
    until(place.effects, "the first effect")
    agent.kill()
    again = place.agent().start_call
    again("pay", {"amount": 10, "idempotency_key": "b", "delay_ms": 20000})
    keys = until(lambda: len(sent(place)) == 2 and sent(place), "the second attempt")
    is_equal(keys[0], keys[1], "keys")


def a_key_is_written_as_its_schema_wants_it(place):
    nullable = {"anyOf": [TEXT | {"maxLength": 36}, {"type": "null"}], "default": None, "title": "Key"}
    cases = [
        (TEXT | {"maxLength": 40, "minLength": 1}, OURS),
        ({"type": ["string", "null"]}, OURS),
        (TEXT | {"format": "uuid"}, UUID),
        (TEXT | {"pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}, UUID),
        (TEXT | {"pattern": r"^[\w-]{1,36}$", "maxLength": 64}, UUID),
        (nullable, UUID),
        (TEXT | {"maxLength": 35}, re.compile(r"[0-9a-f]{32}")),
        (TEXT | {"maxLength": 30}, re.compile(r"[a-z2-7]{26}")),
        (TEXT | {"maxLength": 16}, re.compile(r"[a-z2-7]{16}")),
        (TEXT | {"minLength": 50}, re.compile(r"[0-9a-f]{64}")),
    ]
    place.offer(**{f"pay_{number}": paying(schema, "Idempotency-Key") for number, (schema, _) in enumerate(cases)})
    agent = place.agent()
    for number, (schema, expected) in enumerate(cases):
        agent.call(f"pay_{number}", {"amount": 1, "Idempotency-Key": "made up"})
        agent.call(f"pay_{number}", {"amount": 1, "onceward_repeat": 2})
        keys = [one["arguments"]["Idempotency-Key"] for one in place.effects(f"pay_{number}")]
        assert len(set(keys)) == 2 and all(expected.fullmatch(key) for key in keys), (schema, keys)


def a_key_that_cannot_be_written_is_the_models_own_and_still_no_part_of_the_call(place):
    cases = [
        {},
        True,
        {"type": "integer"},
        TEXT | {"maxLength": 15},
        TEXT | {"enum": ["a", "b"]},
        TEXT | {"const": "a"},
        TEXT | {"pattern": "^order-[0-9]+$"},
        TEXT | {"pattern": "^(?=a)"},
        TEXT | {"format": "date-time"},
        TEXT | {"format": "uuid", "maxLength": 20},
        TEXT | {"minLength": 65},
        {"$ref": "#/$defs/key"},
        {"anyOf": [TEXT, {"type": "integer"}]},
    ]
    place.offer(**{f"pay_{number}": paying(schema) for number, schema in enumerate(cases)})
    agent = place.agent()
    agent.request("tools/list")
    agent.request("tools/list")
    for number, schema in enumerate(cases):
        first = agent.call(f"pay_{number}", {"amount": 1, "idempotency_key": "a"})
        is_replay(agent.call(f"pay_{number}", {"amount": 1, "idempotency_key": "b"}), first)
        done = [one["arguments"]["idempotency_key"] for one in place.effects(f"pay_{number}")]
        is_equal(done, ["a"], f"{schema}")
        assert "idempotency_key" in listed(agent, f"pay_{number}")["properties"], schema
    # What is said on stderr is all there when the gateway has ended.
    agent.close()
    said = (place.folder / "errors").read_text()
    is_equal([said.count(f"the tool pay_{number}:") for number in range(len(cases))], [1] * len(cases), "warnings")


def two_arguments_for_a_key_are_both_left_alone(place):
    both = paying()
    both["inputSchema"]["properties"]["idempotencyKey"] = TEXT
    place.offer(pay=both)
    agent = place.agent()
    first = agent.call("pay", {"amount": 1, "idempotency_key": "a", "idempotencyKey": "b"})
    is_replay(agent.call("pay", {"amount": 1, "idempotency_key": "c"}), first)
    is_equal((sent(place), sent(place, "idempotencyKey")), (["a"], ["b"]), "keys")


def only_arguments_at_the_top_are_keys(place):
    nested = {"type": "object", "properties": {"idempotency_key": TEXT}}
    place.offer(pay=paying({"type": "number"}, "n") | {"inputSchema": {"type": "object", "properties": {"body": nested}}})
    agent = place.agent()
    for key in ("a", "b"):
        is_fresh(agent.call("pay", {"body": {"idempotency_key": key}}))
    is_equal([one["arguments"] for one in place.effects()], [{"body": {"idempotency_key": key}} for key in "ab"])


def the_configuration_can_switch_it_off_or_name_another_argument(place):
    place.offer(pay=paying(), book=paying(TEXT | {"maxLength": 36}, "client_token"), ship=paying())
    place.configure(
        "[mcp.server.fixture.tool.pay]\nkey_argument = false\n"
        '[mcp.server.fixture.tool.book]\nkey_argument = "client_token"\n'
        '[mcp.server.fixture.tool.ship]\nkey = ["/idempotency_key"]\n'
    )
    agent = place.agent()
    assert "idempotency_key" in listed(agent)["properties"]
    for key in ("a", "b"):
        is_fresh(agent.call("pay", {"amount": 1, "idempotency_key": key}))
    is_equal(sent(place), ["a", "b"], "keys")
    first = agent.call("book", {"amount": 1, "client_token": "a"})
    is_replay(agent.call("book", {"amount": 1, "client_token": "b"}), first)
    assert UUID.fullmatch(place.effects("book")[0]["arguments"]["client_token"])
    # A recipe that names it means it.
    is_fresh(agent.call("ship", {"amount": 1, "idempotency_key": "a"}))
    is_fresh(agent.call("ship", {"amount": 1, "idempotency_key": "b"}))


def a_tool_that_only_reads_gets_what_the_model_wrote(place):
    place.offer(look=paying() | {"annotations": {"readOnlyHint": True}})
    agent = place.agent()
    for key in ("a", "b"):
        agent.call("look", {"amount": 1, "idempotency_key": key})
    is_equal([one["arguments"]["idempotency_key"] for one in place.effects("look")], ["a", "b"])


def a_probe_can_look_for_the_key_that_was_sent(place):
    place.offer(pay=paying())
    place.configure(
        "[mcp.server.fixture.tool.pay]\n"
        'probe = { tool = "find_charge", arguments = { invoice = "$/idempotency_key" }, found = "/found", after = "1s" }\n'
    )
    agent = place.agent()
    agent.start_call("pay", {"amount": 10, "idempotency_key": "a", "delay_ms": 20000})
    until(place.effects, "the first effect")
    agent.kill()
    agent = place.agent()
    is_state(agent.call("pay", {"amount": 10, "idempotency_key": "b", "delay_ms": 20000}), "in_doubt")
    asked = [line for line in place.received(agent) if b"find_charge" in line]
    assert sent(place)[0].encode() in asked[0], asked


def a_client_key_outranks_the_arguments_and_a_model_key_is_none(place):
    place.offer(pay=paying())
    agent = place.agent()
    first = agent.call("pay", {"amount": 10, "idempotency_key": "order-7"}, meta={"onceward/key": "order-1"})
    is_fresh(first)
    is_replay(agent.call("pay", {"amount": 10, "idempotency_key": "b"}, meta={"onceward/key": "order-1"}), first)
    is_fresh(agent.call("pay", {"amount": 10}, meta={"onceward/key": "order-7"}))
    is_equal(len(set(sent(place))), 2, "keys")


def without_a_store_a_call_has_the_key_of_a_guarded_one(place):
    place.offer(pay=paying())
    place.configure('[mcp.server.fixture.tool.pay]\nstore_down = "open"\n')
    place.agent().call("pay", {"amount": 10, "idempotency_key": "a"})
    place.agent().call("pay", {"amount": 10, "idempotency_key": "a", "onceward_repeat": 2})
    for file in place.folder.glob("ledger.db*"):
        file.unlink()
    (place.folder / "ledger.db").mkdir()
    agent = place.agent()
    agent.call("pay", {"amount": 10, "idempotency_key": "b"})
    agent.call("pay", {"amount": 10, "idempotency_key": "b", "onceward_repeat": 2})
    keys = sent(place)
    is_equal(len(keys), 4, "effects")
    is_equal(keys[:2], keys[2:], "keys")
    assert keys[0] != keys[1], keys


def a_store_that_fails_later_changes_no_key(place):
    place.offer(pay=paying(TEXT | {"format": "uuid"}))
    place.configure('[mcp.server.fixture.tool.pay]\nstore_down = "open"\n')
    agent = place.agent()
    agent.call("pay", {"amount": 10})
    # Whatever is written from here on fails.
    database = sqlite3.connect(place.folder / "ledger.db", isolation_level=None)
    database.execute("BEGIN IMMEDIATE")
    again = agent.call("pay", {"amount": 11}, patience=60)
    assert not again.get("isError"), again
    database.rollback()
    agent.call("pay", {"amount": 11})
    keys = sent(place)
    assert keys[1] == keys[2] and UUID.fullmatch(keys[1]), keys


def a_tool_whose_calls_change_with_every_try_is_warned_about_once(place):
    place.configure('[mcp.server.fixture.tool.charge]\nkey = ["/customer"]\n')
    agent = place.agent()
    for number in range(3):
        agent.call("send_email", {"to": "ada", "meta": [{"Request-Id": f"secret-{number}"}], "timestamp": number})
        agent.call("charge", {"customer": f"secret-{number}", "timestamp": number})
        agent.call("big", {"timestamp": number}, meta={"onceward/key": f"k-{number}"})
        agent.call("read_inbox", {"timestamp": number})
    agent.close()
    lines = [line for line in (place.folder / "errors").read_text().splitlines() if "every try" in line]
    is_equal(len(lines), 1, f"{lines}")
    assert "the tool send_email: the arguments Request-Id, timestamp look" in lines[0], lines
    assert "secret" not in lines[0], lines


CHECKS = all_of(globals())
