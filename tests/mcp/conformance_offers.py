"""The resources, prompts and completions of the conformance fixture."""

import json
import re

from mcp.server.caching import CacheHint
from mcp.shared.exceptions import MCPError

INVALID_PARAMS = -32602
RESOURCE_NOT_FOUND = -32002

# One white pixel, and one silent sample.
IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJRU5ErkJggg=="
AUDIO = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQIAAAAAAA=="

LISTED = CacheHint(ttl_ms=60_000, scope="public")
CACHE_HINTS = {
    "tools/list": LISTED,
    "prompts/list": LISTED,
    "resources/list": LISTED,
    "resources/templates/list": LISTED,
    "resources/read": CacheHint(ttl_ms=1_000, scope="private"),
}

RESOURCES = {
    "test://static-text": {"mimeType": "text/plain", "text": "A text that never changes."},
    "test://static-binary": {"mimeType": "image/png", "blob": IMAGE},
    "test://watched-resource": {"mimeType": "text/plain", "text": "A text that could change."},
}
TEMPLATE = re.compile(r"test://template/([^/]+)/data")


async def list_resources(ctx, params):
    return {
        "resources": [
            {"uri": uri, "name": uri.removeprefix("test://"), "description": "For testing", "mimeType": what["mimeType"]}
            for uri, what in RESOURCES.items()
        ]
    }


async def list_templates(ctx, params):
    template = {"uriTemplate": "test://template/{id}/data", "name": "template", "mimeType": "application/json"}
    return {"resourceTemplates": [{**template, "description": "Answers with its parameter"}]}


async def read_resource(ctx, params):
    uri = str(params.uri)
    if uri in RESOURCES:
        return {"contents": [{"uri": uri, **RESOURCES[uri]}]}
    if found := TEMPLATE.fullmatch(uri):
        text = json.dumps({"id": found[1], "templateTest": True})
        return {"contents": [{"uri": uri, "mimeType": "application/json", "text": text}]}
    modern = ctx.protocol_version >= "2026"
    raise MCPError(INVALID_PARAMS if modern else RESOURCE_NOT_FOUND, "Resource not found", {"uri": uri})


def says(content):
    return {"role": "user", "content": content}


def text(words):
    return {"type": "text", "text": words}


def embedded(uri):
    return {"type": "resource", "resource": {"uri": uri, "mimeType": "text/plain", "text": "An embedded text."}}


def image():
    return {"type": "image", "data": IMAGE, "mimeType": "image/png"}


PROMPTS = {
    "test_simple_prompt": ((), lambda given: [says(text("A simple prompt for testing."))]),
    "test_prompt_with_arguments": (
        ("arg1", "arg2"),
        lambda given: [says(text(f"Prompt with arg1='{given['arg1']}' and arg2='{given['arg2']}'"))],
    ),
    "test_prompt_with_embedded_resource": (
        ("resourceUri",),
        lambda given: [says(embedded(given["resourceUri"])), says(text("Please read what is embedded."))],
    ),
    "test_prompt_with_image": ((), lambda given: [says(image()), says(text("Please look at the image."))]),
}
ASKING_PROMPT = "test_input_required_result_prompt"


async def list_prompts(ctx, params):
    asking = {ASKING_PROMPT: ((), None)} if ctx.protocol_version >= "2026" else {}
    return {
        "prompts": [
            {
                "name": name,
                "description": "For testing",
                "arguments": [{"name": one, "description": "For testing", "required": True} for one in wanted],
            }
            for name, (wanted, _) in (PROMPTS | asking).items()
        ]
    }


async def get_prompt(ctx, params):
    given = params.arguments or {}
    if params.name == ASKING_PROMPT and ctx.protocol_version >= "2026":
        answered = (ctx.params.get("inputResponses") or {}).get("user_context")
        if not answered:
            return {"resultType": "input_required", "inputRequests": {"user_context": form("Which context?", "context")}}
        return {"messages": [says(text(f"Prompt with context: {answered['content']['context']}"))]}
    wanted, messages = PROMPTS.get(params.name, (None, None))
    if wanted is None or not set(wanted) <= set(given):
        raise MCPError(INVALID_PARAMS, "No such prompt, or an argument is missing")
    return {"description": "For testing", "messages": messages(given)}


def form(message, field, kind="string"):
    """A prompt that asks the user for one value."""
    schema = {"type": "object", "properties": {field: {"type": kind}}, "required": [field]}
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


async def complete(ctx, params):
    return {"completion": {"values": [], "total": 0, "hasMore": False}}
