"""A small app behind the middleware, and a client in the same process."""

import asyncio

import httpx
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from onceward.asgi import IdempotencyMiddleware


def client(app, raises=False):
    transport = httpx.ASGITransport(app, raise_app_exceptions=raises)
    return httpx.AsyncClient(transport=transport, base_url="http://app", headers={"authorization": "Bearer sk_7"})


def keyed(key="k"):
    return {"idempotency-key": key}


def kind_of(answer):
    """The kind of a problem."""
    return answer.json()["type"].rpartition("/")[2]


def starlette(handler, ledger, **settings):
    """A Starlette app with one route, behind the middleware."""
    app = Starlette(routes=[Route("/charges", handler, methods=["POST", "GET"])])
    app.add_middleware(IdempotencyMiddleware, ledger=ledger, **settings)
    return app


class Effects:
    """A handler, `handle`, that counts its runs."""

    def __init__(self, status=200, delay=0.0):
        self.count, self.status, self.delay = 0, status, delay

    async def handle(self, request):
        self.count += 1
        count = self.count
        await asyncio.sleep(self.delay)
        return JSONResponse({"run": count}, self.status)
