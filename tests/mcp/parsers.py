"""The ways in which servers parse a line. Parsers differ, and a call that any of them would run must have been guarded.

Python accepts NaN, replaces invalid UTF-8, splits lines at carriage returns and takes the last of two equal members; other
parsers take the first; Go ignores case in the names of members.
"""

import json


def last_wins(pairs):
    return dict(pairs)


def first_wins(pairs):
    return dict(reversed(pairs))


def folded(pairs):
    return {name.lower(): value for name, value in pairs}


def calls(line):
    """Every tool call that some parser finds in a line, as name and arguments."""
    found = []
    for text in texts(line):
        for pairs in (last_wins, first_wins, folded):
            found += calls_in(loaded(text, pairs))
    return found


def texts(line):
    """The texts that different parsers read from a line."""
    whole = line.decode("utf-8", "replace").lstrip("\ufeff")
    found = [whole, *whole.split("\r"), *whole.splitlines()]
    try:
        found.append(line.rstrip(b"\n").decode("utf-16-le"))
    except UnicodeDecodeError:
        pass
    return [text for text in dict.fromkeys(found) if text.strip()]


def loaded(text, pairs):
    """The JSON values of a text: the whole of it, and its beginning for parsers that stop there."""
    try:
        return json.JSONDecoder(object_pairs_hook=pairs, strict=False).raw_decode(text.lstrip())[0]
    except (ValueError, RecursionError):
        return None


def calls_in(value):
    if isinstance(value, list):
        return [call for one in value for call in calls_in(one)]
    if not isinstance(value, dict) or value.get("method") != "tools/call" or not isinstance(value.get("params"), dict):
        return []
    name = value["params"].get("name")
    return [(name, value["params"].get("arguments"))] if isinstance(name, str) else []


def is_plain_call(line):
    """Whether the strictest parser finds the call too, so that a gateway can find it."""
    return is_clean(line) and bool(calls_in(json.loads(line)))


def is_clean(line):
    """Whether every parser agrees: one object of strict JSON in UTF-8, without duplicate members, with an id."""

    def once(pairs):
        if len({name.lower() for name, _ in pairs}) != len(pairs):
            raise ValueError("a member twice")
        return dict(pairs)

    def refuse(constant):
        raise ValueError(constant)

    try:
        text = line.decode("utf-8")
        message = json.loads(text, object_pairs_hook=once, parse_constant=refuse)
    except (ValueError, RecursionError):
        return False
    if not isinstance(message, dict) or "\r" in text.rstrip("\r\n"):
        return False
    identity = message.get("id")
    return isinstance(identity, str) or (isinstance(identity, int | float) and not isinstance(identity, bool))
