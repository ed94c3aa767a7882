"""Tools with an argument for an idempotency key, which the gateway fills in, and keys that clients send."""

import re
import sqlite3
import time

from checks import all_of, is_equal, until
from results import is_fresh, is_replay, is_state

OURS = re.compile(r"once_v1_[0-9a-f]{32}")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
TEXT = {"type": "string"}


def paying(key=TEXT, name="idempotency_key", required=True, **more):
    """A tool that charges and takes a key, like those of payment providers."""
    properties = {"amount": {"type": "number"}, "delay_ms": {"type": "number"}, name: key}
    schema = {"type": "object", "properties": properties, "required": ["amount"] + [name] * required}
    return {"description": "Charges.", "inputSchema": schema | more}


def sent(sandbox, name="idempotency_key"):
    """The keys that the server got, in order."""
    return [one["arguments"].get(name) for one in sandbox.effects("pay")]


def listed(agent, tool="pay"):
    tools = {one["name"]: one for one in agent.request("tools/list")["result"]["tools"]}
    return tools[tool]["inputSchema"]


def a_new_key_for_every_try_is_still_one_charge(sandbox):
    sandbox.offer(pay=paying())
    agent = sandbox.agent()
    first = agent.call("pay", {"amount": 10, "idempotency_key": "made up 1"})
    is_fresh(first)
    for arguments in ({"idempotency_key": "made up 2", "amount": 10}, {"amount": 10}):
        is_replay(agent.call("pay", arguments), first)
    is_fresh(agent.call("pay", {"amount": 11, "idempotency_key": "made up 1"}))
    keys = sent(sandbox)
    assert len(set(keys)) == 2 and all(OURS.fullmatch(key) for key in keys), keys


def an_equal_call_after_the_echo_is_new_and_has_its_own_key(sandbox):
    sandbox.offer(pay=paying())
    sandbox.configure('[mcp]\necho = "300ms"\n')
    agent = sandbox.agent()
    is_fresh(agent.call("pay", {"amount": 10}))
    # It takes up to a second until the delivery is recorded.
    time.sleep(2)
    is_fresh(agent.call("pay", {"amount": 10}))
    keys = sent(sandbox)
    assert len(keys) == 2 and keys[0] != keys[1], keys


def the_first_call_of_a_connection_is_filled_although_nothing_was_listed(sandbox):
    sandbox.offer(pay=paying())
    sandbox.agent().call("pay", {"amount": 10, "idempotency_key": "made up"})
    assert OURS.fullmatch(sent(sandbox)[0]), sent(sandbox)


def a_model_does_not_see_the_argument_that_is_filled(sandbox):
    sandbox.offer(pay=paying(), other=paying(anyOf=[{"required": ["idempotency_key"]}]))
    agent = sandbox.agent()
    schema = listed(agent)
    assert "idempotency_key" not in schema["properties"] and schema["required"] == ["amount"], schema
    # If another part of the schema names the argument, clients that validate arguments need it.
    assert "idempotency_key" in listed(agent, "other")["properties"]


def two_intended_charges_have_two_keys(sandbox):
    sandbox.offer(pay=paying())
    agent = sandbox.agent()
    arguments = {"amount": 10, "idempotency_key": "same"}
    is_fresh(agent.call("pay", arguments))
    is_fresh(agent.call("pay", arguments | {"onceward_repeat": 2}))
    is_equal(len(set(sent(sandbox))), 2, "keys")
    is_equal([sorted(one["arguments"]) for one in sandbox.effects()], [["amount", "idempotency_key"]] * 2, "arguments")


def a_retry_of_a_call_in_doubt_has_the_key_of_the_first_attempt(sandbox):
    sandbox.offer(pay=paying())
    sandbox.configure('[mcp.server.fixture.tool.pay]\nin_doubt = "retry"\n')
    agent = sandbox.agent()
    agent.start_call("pay", {"amount": 10, "idempotency_key": "a", "delay_ms": 20000})
    until(sandbox.effects, "the first effect")
    agent.kill()
    again = sandbox.agent().start_call
    again("pay", {"amount": 10, "idempotency_key": "b", "delay_ms": 20000})
    keys = until(lambda: len(sent(sandbox)) == 2 and sent(sandbox), "the second attempt")
    is_equal(keys[0], keys[1], "keys")


def a_key_is_written_as_its_schema_wants_it(sandbox):
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
    sandbox.offer(**{f"pay_{number}": paying(schema, "Idempotency-Key") for number, (schema, _) in enumerate(cases)})
    agent = sandbox.agent()
    for number, (schema, expected) in enumerate(cases):
        agent.call(f"pay_{number}", {"amount": 1, "Idempotency-Key": "made up"})
        agent.call(f"pay_{number}", {"amount": 1, "onceward_repeat": 2})
        keys = [one["arguments"]["Idempotency-Key"] for one in sandbox.effects(f"pay_{number}")]
        assert len(set(keys)) == 2 and all(expected.fullmatch(key) for key in keys), (schema, keys)


def a_key_that_the_gateway_cannot_fill_stays_the_models_and_does_not_identify_the_call(sandbox):
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
    sandbox.offer(**{f"pay_{number}": paying(schema) for number, schema in enumerate(cases)})
    agent = sandbox.agent()
    agent.request("tools/list")
    agent.request("tools/list")
    for number, schema in enumerate(cases):
        first = agent.call(f"pay_{number}", {"amount": 1, "idempotency_key": "a"})
        is_replay(agent.call(f"pay_{number}", {"amount": 1, "idempotency_key": "b"}), first)
        done = [one["arguments"]["idempotency_key"] for one in sandbox.effects(f"pay_{number}")]
        is_equal(done, ["a"], f"{schema}")
        assert "idempotency_key" in listed(agent, f"pay_{number}")["properties"], schema
    # Standard error is complete when the gateway has ended.
    agent.close()
    said = (sandbox.folder / "errors").read_text()
    is_equal([said.count(f"the tool pay_{number}:") for number in range(len(cases))], [1] * len(cases), "warnings")


def two_arguments_for_a_key_are_both_left_alone(sandbox):
    both = paying()
    both["inputSchema"]["properties"]["idempotencyKey"] = TEXT
    sandbox.offer(pay=both)
    agent = sandbox.agent()
    first = agent.call("pay", {"amount": 1, "idempotency_key": "a", "idempotencyKey": "b"})
    is_replay(agent.call("pay", {"amount": 1, "idempotency_key": "c"}), first)
    is_equal((sent(sandbox), sent(sandbox, "idempotencyKey")), (["a"], ["b"]), "keys")


def only_arguments_at_the_top_are_keys(sandbox):
    nested = {"type": "object", "properties": {"idempotency_key": TEXT}}
    sandbox.offer(pay=paying({"type": "number"}, "n") | {"inputSchema": {"type": "object", "properties": {"body": nested}}})
    agent = sandbox.agent()
    for key in ("a", "b"):
        is_fresh(agent.call("pay", {"body": {"idempotency_key": key}}))
    is_equal([one["arguments"] for one in sandbox.effects()], [{"body": {"idempotency_key": key}} for key in "ab"])


def the_configuration_can_switch_it_off_or_name_another_argument(sandbox):
    sandbox.offer(pay=paying(), book=paying(TEXT | {"maxLength": 36}, "client_token"), ship=paying())
    sandbox.configure(
        "[mcp.server.fixture.tool.pay]\nkey_argument = false\n"
        '[mcp.server.fixture.tool.book]\nkey_argument = "client_token"\n'
        '[mcp.server.fixture.tool.ship]\nkey = ["/idempotency_key"]\n'
    )
    agent = sandbox.agent()
    assert "idempotency_key" in listed(agent)["properties"]
    for key in ("a", "b"):
        is_fresh(agent.call("pay", {"amount": 1, "idempotency_key": key}))
    is_equal(sent(sandbox), ["a", "b"], "keys")
    first = agent.call("book", {"amount": 1, "client_token": "a"})
    is_replay(agent.call("book", {"amount": 1, "client_token": "b"}), first)
    assert UUID.fullmatch(sandbox.effects("book")[0]["arguments"]["client_token"])
    # A recipe that names the argument takes precedence.
    is_fresh(agent.call("ship", {"amount": 1, "idempotency_key": "a"}))
    is_fresh(agent.call("ship", {"amount": 1, "idempotency_key": "b"}))


def a_tool_that_only_reads_gets_what_the_model_wrote(sandbox):
    sandbox.offer(look=paying() | {"annotations": {"readOnlyHint": True}})
    agent = sandbox.agent()
    for key in ("a", "b"):
        agent.call("look", {"amount": 1, "idempotency_key": key})
    is_equal([one["arguments"]["idempotency_key"] for one in sandbox.effects("look")], ["a", "b"])


def a_probe_can_look_for_the_key_that_was_sent(sandbox):
    sandbox.offer(pay=paying())
    sandbox.configure(
        "[mcp.server.fixture.tool.pay]\n"
        'probe = { tool = "find_charge", arguments = { invoice = "$/idempotency_key" }, found = "/found", after = "1s" }\n'
    )
    agent = sandbox.agent()
    agent.start_call("pay", {"amount": 10, "idempotency_key": "a", "delay_ms": 20000})
    until(sandbox.effects, "the first effect")
    agent.kill()
    agent = sandbox.agent()
    is_state(agent.call("pay", {"amount": 10, "idempotency_key": "b", "delay_ms": 20000}), "in_doubt")
    asked = [line for line in sandbox.received(agent) if b"find_charge" in line]
    assert sent(sandbox)[0].encode() in asked[0], asked


def a_client_key_outranks_the_arguments_and_a_model_key_does_not_count(sandbox):
    sandbox.offer(pay=paying())
    agent = sandbox.agent()
    first = agent.call("pay", {"amount": 10, "idempotency_key": "order-7"}, meta={"onceward/key": "order-1"})
    is_fresh(first)
    is_replay(agent.call("pay", {"amount": 10, "idempotency_key": "b"}, meta={"onceward/key": "order-1"}), first)
    is_fresh(agent.call("pay", {"amount": 10}, meta={"onceward/key": "order-7"}))
    is_equal(len(set(sent(sandbox))), 2, "keys")


def without_a_store_a_call_has_the_key_of_a_guarded_one(sandbox):
    sandbox.offer(pay=paying())
    sandbox.configure('[mcp.server.fixture.tool.pay]\nstore_down = "open"\n')
    sandbox.agent().call("pay", {"amount": 10, "idempotency_key": "a"})
    sandbox.agent().call("pay", {"amount": 10, "idempotency_key": "a", "onceward_repeat": 2})
    for file in sandbox.folder.glob("ledger.db*"):
        file.unlink()
    (sandbox.folder / "ledger.db").mkdir()
    agent = sandbox.agent()
    agent.call("pay", {"amount": 10, "idempotency_key": "b"})
    agent.call("pay", {"amount": 10, "idempotency_key": "b", "onceward_repeat": 2})
    keys = sent(sandbox)
    is_equal(len(keys), 4, "effects")
    is_equal(keys[:2], keys[2:], "keys")
    assert keys[0] != keys[1], keys


def a_store_that_answers_is_not_down(sandbox):
    sandbox.offer(pay=paying())
    sandbox.configure('[mcp.server.fixture.tool.pay]\nstore_down = "open"\n')
    agent = sandbox.agent()
    agent.call("pay", {"amount": 10})
    agent.close()
    database = sqlite3.connect(sandbox.folder / "ledger.db", isolation_level=None)
    (version,) = database.execute("PRAGMA user_version").fetchone()
    # As a newer build leaves it: the record of the call is there, and this build cannot read it.
    database.execute(f"PRAGMA user_version = {version + 1}")
    database.close()
    is_state(sandbox.agent().call("pay", {"amount": 10}), "ledger_down")
    is_equal(len(sent(sandbox)), 1, "effects")


def a_store_that_fails_later_changes_no_key(sandbox):
    sandbox.offer(pay=paying(TEXT | {"format": "uuid"}))
    sandbox.configure('[mcp.server.fixture.tool.pay]\nstore_down = "open"\n')
    agent = sandbox.agent()
    agent.call("pay", {"amount": 10})
    # Every write from here on fails.
    database = sqlite3.connect(sandbox.folder / "ledger.db", isolation_level=None)
    database.execute("BEGIN IMMEDIATE")
    again = agent.call("pay", {"amount": 11}, timeout=60)
    assert not again.get("isError"), again
    database.rollback()
    agent.call("pay", {"amount": 11})
    keys = sent(sandbox)
    assert keys[1] == keys[2] and UUID.fullmatch(keys[1]), keys


def a_tool_whose_calls_change_with_every_try_is_warned_about_once(sandbox):
    sandbox.configure('[mcp.server.fixture.tool.charge]\nkey = ["/customer"]\n')
    agent = sandbox.agent()
    for number in range(3):
        agent.call("send_email", {"to": "ada", "meta": [{"Request-Id": f"secret-{number}"}], "timestamp": number})
        agent.call("charge", {"customer": f"secret-{number}", "timestamp": number})
        agent.call("big", {"timestamp": number}, meta={"onceward/key": f"k-{number}"})
        agent.call("read_inbox", {"timestamp": number})
    agent.close()
    lines = [line for line in (sandbox.folder / "errors").read_text().splitlines() if "every attempt" in line]
    is_equal(len(lines), 1, f"{lines}")
    assert "the tool send_email: the arguments Request-Id, timestamp seem to change" in lines[0], lines
    assert "secret" not in lines[0], lines


CHECKS = all_of(globals())
