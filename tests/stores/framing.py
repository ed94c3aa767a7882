"""Splits the byte streams of PostgreSQL and Redis connections into messages, so that a fault can strike between two of them."""

import dataclasses
import struct

# The numbers in the place of a protocol version that ask for something else. TLS and GSSAPI are answered with `N`.
CANCEL, ENCRYPTION = 80877102, (80877103, 80877104)

# Larger messages than any test sends; a length beyond it means that the stream was read wrongly.
MAX_MESSAGE = 1 << 28


@dataclasses.dataclass
class Message:
    # PostgreSQL: the type byte, `startup`, `cancel` or `encryption`. Redis: the first byte. Raw: `bytes`.
    kind: str
    data: bytes


class Raw:
    """Every piece that arrives is a message."""

    def feed(self, data):
        return [Message("bytes", data)]


class Framed:
    def __init__(self):
        self.buffer = b""

    def feed(self, data):
        """The messages that are complete now."""
        self.buffer += data
        found = []
        while (message := self.first()) is not None:
            self.buffer = self.buffer[len(message.data):]
            found.append(message)
        return found

    def first(self):
        raise NotImplementedError


class FromPostgres(Framed):
    """What a server sends: a type, a length that does not count the type, and the rest."""

    def first(self):
        if len(self.buffer) < 5:
            return None
        length = checked(1 + struct.unpack_from("!I", self.buffer, 1)[0])
        return Message(chr(self.buffer[0]), self.buffer[:length]) if len(self.buffer) >= length else None


class ToPostgres(FromPostgres):
    """What a client sends: first a message without a type, then the same."""

    def __init__(self):
        super().__init__()
        self.has_begun = False

    def first(self):
        if self.has_begun:
            return super().first()
        if len(self.buffer) < 8:
            return None
        length, code = struct.unpack_from("!II", self.buffer)
        if len(self.buffer) < checked(length):
            return None
        if code in ENCRYPTION:
            return Message("encryption", self.buffer[:length])
        self.has_begun = True
        return Message("cancel" if code == CANCEL else "startup", self.buffer[:length])


class Resp(Framed):
    """Redis, in both directions."""

    def first(self):
        end = value_end(self.buffer, 0)
        return None if end is None else Message(chr(self.buffer[0]), self.buffer[:end])


def value_end(buffer, start):
    """Where a value of the Redis protocol ends, or None if the rest is not there yet."""
    line = buffer.find(b"\r\n", start)
    if line < 0:
        return None
    kind, head, end = buffer[start:start + 1], buffer[start + 1:line], line + 2
    if kind in b"$=!" and head != b"-1":
        end = checked(end + int(head) + 2)
        return end if len(buffer) >= end else None
    if kind in b"*~>%|" and head != b"-1":
        # A map has two values for each entry; an attribute precedes the value that it is about.
        values = int(head) * (2 if kind in b"%|" else 1) + (kind == b"|")
        for _ in range(values):
            end = value_end(buffer, end)
            if end is None:
                return None
    return end


def checked(length):
    if not 4 <= length <= MAX_MESSAGE:
        raise ValueError(f"a message of {length} bytes: the framing is wrong")
    return length


# What splits the messages of the client and of the server.
FRAMINGS = {"postgres": (ToPostgres, FromPostgres), "redis": (Resp, Resp), "raw": (Raw, Raw)}
