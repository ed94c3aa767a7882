"""Guarded tools of the Claude Agent SDK, called without a model: `await tool.handler(args)`."""

import asyncio
import importlib
import importlib.metadata
import subprocess
import sys
from typing import TypedDict

import pytest
from claude_agent_sdk import create_sdk_mcp_server, tool
from mcp import Client

import onceward
from onceward.claude_agent import once

MAIL = {"to": "bob@example.com", "subject": "Invoice 17", "body": "Please pay by Friday.", "cents": 1999}
SCHEMA = {"to": str, "subject": str, "body": str, "cents": int}
SENT = {"type": "text", "text": "Sent to bob@example.com."}
NOTICE = "[onceward] This call was done before and was not repeated"


class Mailer:
    """A mail server that counts what it sends."""

    def __init__(self):
        self.sent, self.keys = [], []
        self.delay = 0.0
        self.fails = None

    async def handle(self, args):
        self.sent.append(args)
        self.keys.append(onceward.claim().downstream_key)
        await asyncio.sleep(self.delay)
        if isinstance(self.fails, Exception):
            raise self.fails
        return self.fails or {"content": [{"type": "text", "text": f"Sent to {args['to']}."}]}


@pytest.fixture
def ledger():
    with onceward.Ledger("memory:") as opened:
        yield opened


@pytest.fixture
def mailer():
    return Mailer()


def guarded(ledger, mailer, **settings):
    settings = {"key": ["to", "subject"], **settings}
    return once(ledger, **settings)(tool("send_email", "Sends an email.", SCHEMA)(mailer.handle))


def run(guarded_tool, *calls):
    async def main():
        return [await guarded_tool.handler(args) for args in calls]

    return asyncio.run(main())


def text_of(result):
    return "\n".join(block["text"] for block in result["content"])


def failed(text):
    return {"content": [{"type": "text", "text": text}], "is_error": True}


def test_a_repeat_gets_the_stored_content_and_a_notice(ledger, mailer):
    first, second = run(guarded(ledger, mailer), MAIL, MAIL)
    assert first == {"content": [SENT]}
    assert second["content"][0] == SENT and second["content"][1]["text"].startswith(NOTICE)
    assert not second.get("is_error")
    assert len(mailer.sent) == 1


def test_without_a_notice_a_repeat_gets_exactly_the_stored_result(ledger, mailer):
    first, second = run(guarded(ledger, mailer, notice=False), MAIL, MAIL)
    assert first == second == {"content": [SENT]}
    assert len(mailer.sent) == 1


def test_two_calls_two_milliseconds_apart_act_once_and_get_the_same_result(ledger, mailer):
    mailer.delay = 0.2
    guarded_tool = guarded(ledger, mailer)

    async def late():
        await asyncio.sleep(0.002)
        return await guarded_tool.handler(MAIL)

    async def main():
        return await asyncio.gather(guarded_tool.handler(MAIL), late())

    first, second = asyncio.run(main())
    assert len(mailer.sent) == 1
    assert first["content"][0] == second["content"][0] == SENT


def test_a_repeat_that_does_not_wait_is_told_to_make_the_same_call_again(ledger, mailer):
    mailer.delay = 0.3
    guarded_tool = guarded(ledger, mailer, wait=0)

    async def main():
        first = asyncio.ensure_future(guarded_tool.handler(MAIL))
        await asyncio.sleep(0.05)
        early = await guarded_tool.handler(MAIL)
        await first
        return early, await guarded_tool.handler(MAIL)

    early, late = asyncio.run(main())
    assert early["is_error"] and "already running" in text_of(early)
    assert late["content"][0] == SENT
    assert len(mailer.sent) == 1


def test_a_reworded_call_is_the_same_and_another_amount_is_a_mismatch(ledger, mailer):
    guarded_tool = guarded(ledger, mailer, match=["cents"])
    _, reworded, other = run(guarded_tool, MAIL, MAIL | {"body": "Kindly pay."}, MAIL | {"cents": 1})
    assert reworded["content"][0] == SENT
    assert other["is_error"] and "with other details" in text_of(other)
    assert len(mailer.sent) == 1


def test_a_key_can_be_a_function_and_still_has_fields_that_must_agree(ledger, mailer):
    guarded_tool = guarded(ledger, mailer, key=lambda args: args["subject"].lower(), match=["cents"])
    _, same, other = run(guarded_tool, MAIL, MAIL | {"subject": "INVOICE 17", "body": "?"}, MAIL | {"cents": 1})
    assert same["content"][0] == SENT
    assert other["is_error"] and "with other details" in text_of(other)
    assert len(mailer.sent) == 1


def test_each_session_acts_once(ledger, mailer):
    run(guarded(ledger, mailer, session="run-1"), MAIL, MAIL)
    run(guarded(ledger, mailer, session="run-2"), MAIL, MAIL)
    assert len(mailer.sent) == 2


def test_a_required_session_that_is_missing_is_reported_and_nothing_runs(ledger, mailer):
    guarded_tool = guarded(ledger, mailer, session=True)
    [missing] = run(guarded_tool, MAIL)
    assert missing["is_error"] and "not carried out" in text_of(missing)
    with onceward.session("run-1"):
        run(guarded_tool, MAIL, MAIL)
    assert len(mailer.sent) == 1


def test_an_error_result_without_a_tier_is_released(ledger, mailer):
    mailer.fails = failed("no such mailbox")
    guarded_tool = guarded(ledger, mailer)
    assert run(guarded_tool, MAIL) == [failed("no such mailbox")]
    mailer.fails = None
    assert run(guarded_tool, MAIL) == [{"content": [SENT]}]


@pytest.mark.parametrize(
    ("text", "settings"),
    [("no such mailbox", {"tier": "email"}), ("the request timed out", {}), ("", {})],
    ids=["a tier", "evidence", "no message"],
)
def test_an_error_result_that_may_have_acted_is_a_doubt(ledger, mailer, text, settings):
    mailer.fails = failed(text)
    first, second = run(guarded(ledger, mailer, **settings), MAIL, MAIL)
    assert first["is_error"] and first["content"][0]["text"] == text
    assert "unknown whether send_email took effect" in text_of(first)
    assert second["is_error"] and "a person has to check it" in text_of(second)
    assert len(mailer.sent) == 1
    [doubt] = ledger.list(state="in_doubt")
    ledger.resolve(doubt.operation, doubt.key, happened=True, result={"content": [SENT]})
    [settled] = run(guarded(ledger, mailer, **settings), MAIL)
    assert settled["content"][0] == SENT and len(mailer.sent) == 1


def test_an_exception_without_a_tier_is_raised_and_released(ledger, mailer):
    mailer.fails = ValueError("no such mailbox")
    guarded_tool = guarded(ledger, mailer)
    with pytest.raises(ValueError, match="no such mailbox"):
        run(guarded_tool, MAIL)
    mailer.fails = None
    assert run(guarded_tool, MAIL) == [{"content": [SENT]}]


def test_an_exception_with_a_tier_is_a_doubt_and_the_model_reads_both(ledger, mailer):
    mailer.fails = ValueError("no such mailbox")
    first, second = run(guarded(ledger, mailer, tier="payment"), MAIL, MAIL)
    assert first["is_error"] and "no such mailbox" in text_of(first) and "unknown whether" in text_of(first)
    assert second["is_error"] and "a person has to check it" in text_of(second)
    assert len(mailer.sent) == 1


def test_a_classified_exception_is_what_it_says(ledger, mailer):
    guarded_tool = guarded(ledger, mailer, tier="payment")
    mailer.fails = onceward.NotSent("connection refused")
    with pytest.raises(onceward.NotSent):
        run(guarded_tool, MAIL)
    mailer.fails = onceward.Permanent("blocked address")
    with pytest.raises(onceward.Permanent):
        run(guarded_tool, MAIL)
    mailer.fails = None
    [kept] = run(guarded_tool, MAIL)
    assert kept["is_error"] and "the same call fails again" in text_of(kept)
    assert len(mailer.sent) == 2


def test_with_retry_the_next_call_acts_with_the_same_downstream_key(ledger, mailer):
    guarded_tool = guarded(ledger, mailer, in_doubt="retry")
    mailer.fails = TimeoutError("timed out")
    [first] = run(guarded_tool, MAIL)
    assert "Make the same call again" in text_of(first)
    mailer.fails = None
    assert run(guarded_tool, MAIL) == [{"content": [SENT]}]
    assert len(mailer.keys) == 2 and len(set(mailer.keys)) == 1


def test_a_call_that_takes_longer_than_the_client_waits_is_a_doubt(ledger, mailer):
    mailer.delay = 30
    guarded_tool = guarded(ledger, mailer)

    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(guarded_tool.handler(MAIL), 0.05)
        return await guarded_tool.handler(MAIL)

    repeat = asyncio.run(main())
    assert repeat["is_error"] and "a person has to check it" in text_of(repeat)
    assert len(mailer.sent) == 1


def test_a_client_that_cancels_over_mcp_leaves_a_doubt(ledger, mailer):
    mailer.delay = 30
    server = create_sdk_mcp_server("mail", tools=[guarded(ledger, mailer)])["instance"]

    async def main():
        async with Client(server) as client:
            call = asyncio.ensure_future(client.call_tool("send_email", MAIL))
            while not mailer.sent:
                await asyncio.sleep(0.01)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            return await client.call_tool("send_email", MAIL)

    repeat = asyncio.run(asyncio.wait_for(main(), 20))
    assert repeat.is_error and "a person has to check it" in repeat.content[0].text
    assert len(mailer.sent) == 1


def test_a_killed_process_leaves_a_doubt(tmp_path, mailer):
    store = tmp_path / "ledger.db"
    script = """
import asyncio, os, sys, onceward
from onceward.claude_agent import once
async def handle(args): os._exit(9)
asyncio.run(once(onceward.Ledger(sys.argv[1]), key=["to", "subject"], operation="send_email")(handle)(
    {"to": "bob@example.com", "subject": "Invoice 17"}))
"""
    assert subprocess.run([sys.executable, "-c", script, store], check=False, timeout=60).returncode == 9
    with onceward.Ledger(store) as ledger:
        [told] = run(guarded(ledger, mailer), MAIL)
    assert told["is_error"] and "a person has to check it" in text_of(told)
    assert mailer.sent == []


def test_a_ledger_that_cannot_be_used_is_reported_and_nothing_runs(mailer):
    ledger = onceward.Ledger("memory:")
    guarded_tool = guarded(ledger, mailer)
    ledger.close()
    [told] = run(guarded_tool, MAIL)
    assert told["is_error"] and "Nothing happened" in text_of(told)
    assert mailer.sent == []


def test_the_texts_do_not_contain_keys_or_arguments(ledger, mailer):
    mailer.fails = failed("the request timed out")
    guarded_tool = guarded(ledger, mailer, key=lambda args: f"secret-{args['to']}")
    for told in run(guarded_tool, MAIL, MAIL):
        assert "secret" not in text_of(told) and "bob" not in text_of(told)


def test_the_log_does_not_contain_keys_or_arguments(tmp_path, mailer, caplog):
    mailer.fails = TimeoutError("no answer for secret-bob")
    with onceward.Ledger(tmp_path / "ledger.db") as ledger:
        run(guarded(ledger, mailer, key=lambda args: f"secret-{args['to']}", tier="email"), MAIL, MAIL)
    assert "it is unknown whether it took effect: TimeoutError" in caplog.text and "is in doubt" in caplog.text
    assert "secret" not in caplog.text and "bob" not in caplog.text


def test_the_decorator_also_goes_below_tool(ledger, mailer):
    handler = once(ledger, key=["to", "subject"], operation="send_email")(mailer.handle)
    run(tool("send_email", "Sends an email.", SCHEMA)(handler), MAIL, MAIL)
    assert len(mailer.sent) == 1
    with pytest.raises(onceward.InvalidCall, match="operation="):
        once(ledger, key=["to"])(mailer.handle)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"key": ["recipient"]}, "no argument `recipient`"),
        ({"key": ["to"], "match": ["/amount/cents"]}, "no argument `amount`"),
        ({"key": "to"}, "list of arguments"),
        ({"key": []}, "list of arguments"),
        ({"key": lambda args: "k", "match": "cents"}, "match= is a list"),
        ({"key": ["to"], "teir": "email"}, "unknown settings: teir"),
    ],
)
def test_a_wrong_setting_is_refused_when_the_tool_is_made(ledger, mailer, settings, reason):
    with pytest.raises(onceward.InvalidCall, match=reason):
        guarded(ledger, mailer, **settings)


@pytest.mark.parametrize("schema", [{"type": "object", "properties": {"to": {"type": "string"}}}, {"to": str}])
def test_arguments_are_known_in_every_form_of_the_schema(ledger, mailer, schema):
    made = once(ledger, key=["to"])(tool("send_email", "Sends an email.", schema)(mailer.handle))
    run(made, {"to": "a"}, {"to": "a"})
    assert len(mailer.sent) == 1
    with pytest.raises(onceward.InvalidCall, match="no argument"):
        once(ledger, key=["cc"])(tool("send_email", "Sends an email.", schema)(mailer.handle))


class Order(TypedDict):
    invoice: str


class Charge(Order, total=False):
    currency: str


@pytest.mark.parametrize("is_annotated", [True, False])
@pytest.mark.parametrize(
    "settings", [{"key": ["invoice"], "match": ["cent"]}, {"key": ["invoce"]}, {"key": str, "match": ["cent"]}]
)
def test_a_name_that_a_handler_below_tool_does_not_have_is_refused(ledger, is_annotated, settings):
    done = []

    async def charge(args: Charge): ...

    async def charge_of_any(args):
        done.append(args)

    if is_annotated:
        with pytest.raises(onceward.InvalidCall, match="no argument"):
            once(ledger, operation="charge", **settings)(charge)
        return
    handler = once(ledger, operation="charge", **settings)(charge_of_any)
    told = asyncio.run(handler({"invoice": "i", "cents": 1}))
    assert told["is_error"] and "arguments cannot be used" in text_of(told) and done == []


@pytest.mark.parametrize("key", [["invoice", "currency"], lambda args: f"{args['invoice']} {args['currency']}"])
def test_an_argument_that_the_model_leaves_out_is_its_default(ledger, key):
    done = []

    async def charge(args):
        done.append(args)
        return {"content": []}

    properties = {"invoice": {"type": "string"}, "currency": {"type": "string", "default": "EUR"}}
    made = tool("charge", "Charges.", {"type": "object", "properties": properties})(charge)
    run(once(ledger, key=key)(made), *[{"invoice": "i", **more} for more in ({}, {"currency": "EUR"}, {"currency": "USD"})])
    assert done == [{"invoice": "i"}, {"invoice": "i", "currency": "USD"}]


@pytest.mark.parametrize("above", [True, False])
def test_arguments_of_a_typed_dict_may_be_left_out(ledger, above):
    done = []

    async def charge(args: Charge):
        done.append(args)
        return {"content": []}

    guard = once(ledger, operation="charge", key=["invoice", "currency"])
    made = guard(tool("charge", "Charges.", Charge)(charge)).handler if above else guard(charge)
    for _ in range(2):
        assert not asyncio.run(made({"invoice": "i"})).get("is_error")
    assert len(done) == 1


def test_a_missing_framework_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)
    monkeypatch.delitem(sys.modules, "onceward.claude_agent")
    with pytest.raises(ImportError, match="pip install 'claude-agent-sdk>=0.2'"):
        importlib.import_module("onceward.claude_agent")


def test_a_framework_that_is_too_old_is_named(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.1.26")
    monkeypatch.delitem(sys.modules, "onceward.claude_agent")
    with pytest.raises(ImportError, match="0.1.26 is installed"):
        importlib.import_module("onceward.claude_agent")


def test_a_key_function_is_bound_to_its_session(ledger, mailer):
    settings = {"key": lambda args: args["subject"], "match": ["cents"]}
    for session in ("run-1", "run-1", "run-2"):
        run(guarded(ledger, mailer, session=session, **settings), MAIL)
    assert len(mailer.sent) == 2
    [other] = run(guarded(ledger, mailer, session="run-1", **settings), MAIL | {"cents": 1})
    assert other["is_error"] and "with other details" in text_of(other)


def test_the_model_hears_the_name_of_the_tool_and_the_ledger_keeps_the_operation(ledger, mailer):
    mailer.fails = failed("timed out")
    first, second = run(guarded(ledger, mailer, operation="billing.mail"), MAIL, MAIL)
    for told in (first, second):
        assert "send_email" in text_of(told) and "billing" not in text_of(told)
    assert [intent.operation for intent in ledger.list()] == ["billing.mail"]


@pytest.mark.parametrize("found", [None, "", 5])
def test_a_tenant_that_is_not_found_never_means_the_default_tenant(ledger, mailer, found):
    (refused,) = run(guarded(ledger, mailer, tenant=lambda args: found), MAIL)
    assert refused["is_error"] and "Nothing happened" in text_of(refused)
    assert mailer.sent == [] and ledger.list() == []


@pytest.mark.parametrize("empty", ["session", "tenant"])
def test_an_empty_session_or_tenant_is_refused(ledger, mailer, empty):
    with pytest.raises(onceward.InvalidCall, match="not empty"):
        guarded(ledger, mailer, **{empty: ""})


def test_an_optional_argument_that_the_model_leaves_out_is_none(ledger, mailer):
    schema = {"type": "object", "properties": {"to": {"type": "string"}, "tag": {"type": "string"}}, "required": ["to"]}
    send = once(ledger, key=["to", "tag"])(tool("send_email", "Sends an email.", schema)(mailer.handle))
    run(send, {"to": "a"}, {"to": "a", "tag": None}, {"to": "a", "tag": "x"})
    assert len(mailer.sent) == 2


def test_a_key_function_that_finds_no_key_is_refused_in_a_session_too(ledger, mailer):
    for session in (None, "run-1"):
        (refused,) = run(guarded(ledger, mailer, key=lambda args: "", session=session), MAIL)
        assert refused["is_error"] and mailer.sent == []


@pytest.mark.parametrize("tier", ["email", None])
def test_an_error_of_a_guarded_call_inside_the_tool_does_not_say_that_nothing_happened(ledger, mailer, tier):
    @ledger.once(operation="log", key=["to"], session=True)
    def log(to):
        raise AssertionError("no session is set")

    @once(ledger, key=["to"], tier=tier)
    @tool("send_email", "Sends an email.", SCHEMA)
    async def send_email(args):
        mailer.sent.append(args)
        log(args["to"])

    (told,) = run(send_email, MAIL)
    text = told["content"][0]["text"]
    assert told["is_error"] and ("Nothing happened" in text) == (tier is None)
    assert ("unknown whether send_email took effect" in text) == (tier is not None)
