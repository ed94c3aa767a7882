"""The tools of the conformance fixture: plain ones, ones that ask their client, and the list of all."""

import asyncio
import json

import conformance_rounds as rounds
import conformance_tasks as tasks
import mcp_types as types
from conformance_offers import AUDIO, embedded, image, text
from mcp.server.subscriptions import InMemorySubscriptionBus, PromptsListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata

INVALID_PARAMS = -32602
MISSING_CAPABILITY = -32021

# The pause between two notifications that the scenarios require.
PAUSE = 0.05

# The sessions that subscribe to changes of the lists.
changes = InMemorySubscriptionBus()

NOTHING = {"type": "object", "properties": {}}


def takes(**properties):
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in properties.items()}}


def content(*parts):
    return {"content": list(parts)}


def always(*parts):
    async def tool(ctx, given):
        return content(*parts)

    return tool


async def logs(ctx, given):
    for words in ("started", "at work", "done"):
        await ctx.session.send_log_message("info", f"The tool is {words}", related_request_id=ctx.request_id)
        await asyncio.sleep(PAUSE)
    return content(text("Three messages were logged."))


async def makes_progress(ctx, given):
    for progress in (0, 50, 100):
        await ctx.session.report_progress(progress, 100, f"{progress} of 100")
        await asyncio.sleep(PAUSE)
    return content(text("All of it is done."))


async def fails(ctx, given):
    return content(text("This tool intentionally returns an error for testing")) | {"isError": True}


async def closes_its_stream(ctx, given):
    """Closes the stream, so that the client has to resume it for the result."""
    if ctx.close_sse_stream:
        await ctx.close_sse_stream()
    await asyncio.sleep(2 * PAUSE)
    return content(text("The answer after the stream was closed."))


async def samples(ctx, given):
    asked = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=given["prompt"]))
    request = types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[asked], max_tokens=100))
    answer = await ask(ctx, request, types.CreateMessageResult)
    return content(text(f"The model said: {answer.content.text}"))


def elicits(message, properties, required=()):
    async def tool(ctx, given):
        schema = {"type": "object", "properties": properties, "required": list(required)}
        form = types.ElicitRequestFormParams(message=given.get("message", message), requested_schema=schema)
        answer = await ask(ctx, types.ElicitRequest(params=form), types.ElicitResult)
        return content(text(f"The user chose {answer.action}: {json.dumps(answer.content or {})}"))

    return tool


async def ask(ctx, request, kind):
    """Asks the client on the stream of the call."""
    return await ctx.session.send_request(request, kind, metadata=ServerMessageMetadata(related_request_id=ctx.request_id))


async def needs_sampling(ctx, given):
    if "sampling" not in rounds.capabilities(ctx):
        raise MCPError(MISSING_CAPABILITY, "Sampling is needed", {"requiredCapabilities": {"sampling": {}}})
    return content(text("Sampling could be used."))


def announces(change):
    async def tool(ctx, given):
        await changes.publish(change)
        return content(text("The change was announced."))

    return tool


async def names_region(ctx, given):
    return content(text(f"In {given.get('region')}"))


DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
PLAIN = ["option1", "option2", "option3"]
TITLED = [{"const": f"value{one}", "title": f"The value {one}"} for one in (1, 2, 3)]
ENUMS = {
    "untitledSingle": {"type": "string", "enum": PLAIN},
    "titledSingle": {"type": "string", "oneOf": TITLED},
    "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": PLAIN}},
    "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
}

# Keywords of JSON Schema 2020-12 beyond `properties` and `required`.
SCHEMA_2020 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
REGION = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}

SOUND = {"type": "audio", "data": AUDIO, "mimeType": "audio/wav"}
ANSWER = {"response": {"type": "string"}}
BOTH = {
    "test_simple_text": (NOTHING, always(text("This is a simple text response for testing."))),
    "test_image_content": (NOTHING, always(image())),
    "test_audio_content": (NOTHING, always(SOUND)),
    "test_embedded_resource": (NOTHING, always(embedded("test://embedded-resource"))),
    "test_multiple_content_types": (NOTHING, always(text("Several:"), image(), embedded("test://mixed-content"))),
    "test_tool_with_logging": (NOTHING, logs),
    "test_tool_with_progress": (NOTHING, makes_progress),
    "test_error_handling": (NOTHING, fails),
    "test_reconnection": (NOTHING, closes_its_stream),
    "test_sampling": (takes(prompt="string"), samples),
    "test_elicitation": (takes(message="string"), elicits("Your answer?", ANSWER, ["response"])),
    "test_elicitation_sep1034_defaults": (NOTHING, elicits("Please look at the defaults", DEFAULTS)),
    "test_elicitation_sep1330_enums": (NOTHING, elicits("Please choose", ENUMS)),
    "json_schema_2020_12_tool": (SCHEMA_2020, always(text("The schema was kept."))),
}
MODERN = {
    "test_missing_capability": (NOTHING, needs_sampling),
    "test_streaming_elicitation": (NOTHING, makes_progress),
    "test_logging_tool": (NOTHING, logs),
    "test_trigger_tool_change": (NOTHING, announces(ToolsListChanged())),
    "test_trigger_prompt_change": (NOTHING, announces(PromptsListChanged())),
    "test_region": (REGION, names_region),
} | {name: (NOTHING, tool) for name, tool in rounds.TOOLS.items()}


def tools_of(ctx):
    """The tools depend on the protocol version of the suite."""
    return BOTH | MODERN | tasks.TOOLS if ctx.protocol_version >= "2026" else BOTH


async def list_tools(ctx, params):
    return {
        "tools": [
            {"name": name, "description": "For testing", "inputSchema": schema}
            for name, (schema, _) in tools_of(ctx).items()
        ]
    }


async def call_tool(ctx, params):
    _, tool = tools_of(ctx).get(params.name, (None, None))
    if tool is None:
        raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name}")
    return await tool(ctx, params.arguments or {})
