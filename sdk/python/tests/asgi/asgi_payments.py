"""A server program: asgi_payments.py FD LEDGER EFFECTS [FORKS]. It serves the socket FD, and writes a line for each
effect.

With FORKS, it sets everything up and then forks that many servers, as servers with workers do."""

import asyncio
import os
import socket
import sys

import uvicorn
from fastapi import FastAPI

import onceward
from onceward.asgi import IdempotencyMiddleware

DESCRIPTOR, LEDGER, EFFECTS = sys.argv[1:4]
FORKS = int(sys.argv[4]) if len(sys.argv) > 4 else 0

app = FastAPI()
app.add_middleware(IdempotencyMiddleware, ledger=onceward.Ledger(LEDGER), tenant="fixed:shop", wait=10)


@app.post("/charges")
async def charges(delay: float = 0.0):
    effects = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(effects, f"{onceward.claim().key} {os.getpid()}\n".encode())
    os.close(effects)
    await asyncio.sleep(delay)
    return {"pid": os.getpid()}


@app.get("/ready")
async def ready():
    return os.getpid()


def serve():
    config = uvicorn.Config(app, log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=int(DESCRIPTOR))])


if __name__ == "__main__":
    for _ in range(FORKS - 1):
        if os.fork() == 0:
            break
    serve()
