"""Classifies a result of a guarded tool: a new one, a stored one, or one of the gateway itself."""

import json

MARK = "[onceward]"

# The member of a structured result with the same text as the last content.
NOTICE = "onceward"


def about(result):
    """The gateway's status in a result, or None."""
    return (result.get("_meta") or {}).get("onceward") or {}


def is_fresh(result):
    """A new result, exactly as the server sent it."""
    assert not result.get("isError"), result
    assert not about(result).get("replayed"), result
    assert not any(block.get("text", "").startswith(MARK) for block in result.get("content", [])), result
    assert NOTICE not in (result.get("structuredContent") or {}), result


def is_replay(result, of=None):
    """A stored result, marked for programs and, at the end, for models. The rest is unchanged."""
    own = about(result)
    assert own.get("replayed") is True, result
    assert own.get("first_time") and own.get("key"), result
    last = result["content"][-1]
    assert last["type"] == "text" and last["text"].startswith(MARK), result
    assert "onceward_repeat" in last["text"] or "make the same call again" in last["text"], last
    assert notice(result) in (None, last["text"]), result
    if of is not None:
        assert without_ours(result) == without_ours(of), f"{result} is not {of}"


def notice(result):
    """The gateway's notice in the structured part of a result, or None."""
    content = result.get("structuredContent")
    return content.get(NOTICE) if isinstance(content, dict) else None


def is_state(result, *states):
    """A result of the gateway itself, with a text for models and fields for programs."""
    assert about(result).get("state") in states, f"{result} is none of {states}"
    assert result.get("isError") is True, result
    assert about(result).get("replayed") in (None, False), result
    words = result["content"][0]
    assert words["type"] == "text" and len(words["text"].split()) > 5, words


def without_ours(result):
    """A result without the gateway's additions."""
    left = json.loads(json.dumps(result))
    if notice(left):
        left["structuredContent"].pop(NOTICE)
    left["content"] = [one for one in left.get("content", []) if not one.get("text", "").startswith(MARK)]
    meta = {name: value for name, value in (left.pop("_meta", None) or {}).items() if name != "onceward"}
    return left | ({"_meta": meta} if meta else {})


def listed_by_server(tool):
    """A tool without the gateway's additions."""
    left = json.loads(json.dumps(tool))
    for schema, name in (("inputSchema", "onceward_repeat"), ("outputSchema", NOTICE)):
        ((left.get(schema) or {}).get("properties") or {}).pop(name, None)
    return left
