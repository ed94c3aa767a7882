"""An app that replies as a case says and counts its requests."""

import asyncio
import threading
import time

# Only a failing case waits this long.
LIMIT = 20.0


class Script:
    """The app itself, with its replies in order."""

    def __init__(self, replies):
        self._replies = list(replies)
        self._reached = threading.Condition()
        self.effects = 0
        # How many pieces may be sent.
        self.pieces = threading.Semaphore(1)

    def wait_for(self, effects):
        with self._reached:
            assert self._reached.wait_for(lambda: self.effects >= effects, LIMIT), "the request did not reach the app"

    async def __call__(self, scope, receive, send):
        assert scope["type"] == "http"
        while (await receive()).get("more_body"):
            pass
        with self._reached:
            reply = self._replies.pop(0) if self._replies else None
            self.effects += 1
            self._reached.notify_all()
        assert reply is not None, "a request that no case expects"
        await asyncio.sleep(reply.after)
        if reply.fails:
            raise RuntimeError("no response")
        if reply.echoes is not None:
            await respond(send, 201, echoed(scope, reply.echoes))
        elif reply.pieces:
            await self._stream(reply, send)
        elif reply.breaks_off:
            await start(send, reply.status, reply.headers)
            await send({"type": "http.response.body", "body": reply.body, "more_body": True})
            # So that the head and the piece have been sent by then.
            await asyncio.sleep(0.3)
            raise RuntimeError("broken off")
        else:
            await respond(send, reply.status, reply.body, reply.headers)

    async def _stream(self, reply, send):
        await start(send, reply.status, reply.headers)
        for piece in reply.pieces:
            deadline = time.monotonic() + LIMIT
            while not self.pieces.acquire(blocking=False):
                assert time.monotonic() < deadline, "the client did not get the previous piece"
                await asyncio.sleep(0.005)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def echoed(scope, name):
    values = [value for key, value in scope["headers"] if key == name.encode()]
    if not values:
        return b"nothing"
    return b"ours" if values[0].startswith(b"once_v1_") else values[0]


async def start(send, status, headers=()):
    pairs = [(name.encode(), value.encode()) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": pairs})


async def respond(send, status, body, headers=()):
    await start(send, status, headers)
    await send({"type": "http.response.body", "body": body})
