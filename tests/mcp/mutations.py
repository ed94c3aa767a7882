"""Mutates frames: bytes, members, and tricks that get past a careless parser."""

import json

# Values that parsers disagree about or fail on.
TOKENS = (
    b"\x00", b"\r", b"\n", b"\r\n", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"NaN", b"Infinity", b"-0",
    b"1e999", b"\\u0000", b"\\ud800", b"null", b"{}", b"[]", b"[", b"]", b"{", b"}", b'"', b",", b":", b"\\", b"//", b"\t",
    "\u2028".encode(), "\u0085".encode(), b"1.0", b"18446744073709551616", b'"id":7', b'"method":"tools/call"', b"true",
)  # fmt: skip

NAMES = ("id", "method", "params", "name", "arguments", "jsonrpc", "_meta", "result", "error")
VALUES = (None, True, 0, -1, 1.5, 10**30, "", "1", [], {}, [1], {"a": 1}, "tools/call", "\ud800", "onceward_status")


def written(message):
    return json.dumps(message, separators=(",", ":")).encode()


def by_bytes(chance, frame):
    """One to three changes somewhere."""
    frame = bytearray(frame)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(frame) + 1)
        kind = chance.randrange(5)
        if kind == 0 and at < len(frame):
            frame[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del frame[at : at + chance.randint(1, 8)]
        elif kind == 2:
            frame[at:at] = chance.choice(TOKENS)
        elif kind == 3:
            frame[at:at] = frame[at : at + chance.randint(1, 30)]
        else:
            del frame[at:]
    return bytes(frame)


def by_members(chance, frame):
    """Removes, changes or duplicates a member."""
    message = json.loads(frame)
    target = chance.choice([one for one in objects(message) if one])
    name = chance.choice(list(target))
    kind = chance.randrange(4)
    if kind == 0:
        del target[name]
    elif kind == 1:
        target[name] = chance.choice(VALUES)
    elif kind == 2:
        target[chance.choice(NAMES)] = chance.choice(VALUES)
    else:
        return twice(chance, frame)
    return written(message)


def objects(value):
    """Every object in a value."""
    found = [value] if isinstance(value, dict) else []
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return found + [one for child in inner for one in objects(child)]


def twice(chance, frame):
    """Duplicates a member, so that parsers differ on which one counts."""
    name = chance.choice(NAMES)
    value = written(chance.choice(VALUES))
    extra = written(name) + b":" + value
    if chance.random() < 0.3:
        extra = b'"' + b"".join(b"\\u%04x" % ord(letter) for letter in name) + b'":' + value
    first = chance.random() < 0.5
    inner = chance.choice((b"{", b'"params":{', b'"arguments":{'))
    if inner not in frame:
        inner = b"{"
    if first:
        return frame.replace(inner, inner + extra + b",", 1)
    end = len(frame) - (1 if inner == b"{" else 2)
    return frame[:end] + b"," + extra + frame[end:]


def by_shape(chance, frame):
    """Ways to bypass a guard: batches, hidden lines, other spellings, a missing id."""
    message = json.loads(frame)
    inner = written(message)
    bare = {name: value for name, value in message.items() if name != "id"}
    escaped = inner.replace(b'"method":"tools/call"', b'"m\\u0065thod":"tools\\/call"')
    shapes = (
        b"[" + inner + b"]",
        b"[" + inner + b"," + inner + b"]",
        b"[]",
        b'{"x":\r' + inner + b"\r}",
        b'{"jsonrpc":"2.0","method":"x"}\r' + inner,
        inner + inner,
        inner + b" " + inner,
        b"\xef\xbb\xbf" + inner,
        escaped,
        written(bare),
        written(bare | {"id": None}),
        written(message | {"id": [message.get("id")]}),
        written(message | {"id": {}}),
        written(message | {"id": True}),
        written(message | {"result": {}}),
        written(message | {"error": {"code": 1, "message": "x"}}),
        written({name.upper() if name != "id" else name: value for name, value in message.items()}),
        inner.replace(b'"method":', b'"Method":'),
        inner.replace(b'"name":', b'"Name":'),
        inner.replace(b'{"jsonrpc":"2.0",', b"{"),
        inner.replace(b'"2.0"', b'"1.0"'),
        inner.replace(b'"tools/call"', b'"tools/call "'),
        inner.replace(b'"tools/call"', b'"Tools/Call"'),
        inner.replace(b'"arguments":{', b'"arguments":{"x":NaN,'),
        inner.replace(b'"arguments":{', b'"arguments":{"x":"\xff",'),
        inner.replace(b'"arguments":{', b'"arguments":{"x":"\\ud800",'),
        inner.replace(b'"arguments":{', b'"arguments":{"x":1e999,'),
        inner.replace(b'"arguments":{', b'"arguments":{"to":"first",'),
        inner.replace(b'"arguments":{', b'"arguments":{"x":' + b"[" * 200 + b"]" * 200 + b","),
        inner.replace(b'"arguments":{', b'"arguments":[').replace(b"}}}", b"]}}"),
        inner.replace(b'"name":"send_email"', b'"name":"look","name":"send_email"'),
        inner.replace(b'"name":"send_email"', b'"name":"send_email","name":"look"'),
        inner.replace(b'"method":"tools/call"', b'"method":"ping","method":"tools/call"'),
        inner.replace(b'"method":"tools/call"', b'"method":"tools/call","method":"ping"'),
        inner.replace(b'"params":{', b'"params":{"name":"look"},"params":{'),
        inner.replace(b"send_email", b"send\\u005femail"),
        inner.replace(b"send_email", b"send_email\\u0000"),
        inner.replace(b",", b", \t").replace(b":", b" : "),
        inner + b"\r",
        inner.decode().encode("utf-16-le"),
    )
    return chance.choice(shapes)


def spoilt(chance, frame):
    return chance.choice((by_bytes, by_bytes, by_members, by_shape, by_shape))(chance, frame)
