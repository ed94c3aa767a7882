"""Our MCP server for the conformance suite: both generations of the protocol, over streamable HTTP or stdio."""

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import warnings

import conformance_offers as offers
import conformance_tasks as tasks
import conformance_tools as tools
import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import EventMessage, EventStore
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPDeprecationWarning

# How long a client waits before it resumes a closed stream. A scenario waits for it, so it is short.
RETRY_MILLISECONDS = 500

warnings.simplefilter("ignore", MCPDeprecationWarning)


class Events(EventStore):
    """The events of every stream, for clients that resume it."""

    def __init__(self):
        self.all = []

    async def store_event(self, stream_id, message):
        self.all.append((stream_id, message))
        return str(len(self.all))

    async def replay_events_after(self, last_event_id, send_callback):
        seen = int(last_event_id)
        if not 1 <= seen <= len(self.all):
            return None
        stream = self.all[seen - 1][0]
        for number, (of, message) in enumerate(self.all[seen:], seen + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


async def nothing(ctx, params):
    """Subscriptions and log levels are accepted; nothing here depends on them."""
    return types.EmptyResult()


def typed(handler):
    """Adds the result type `complete` where the protocol version requires it."""

    async def answer(ctx, params):
        result = await handler(ctx, params)
        return {"resultType": "complete", **result} if ctx.protocol_version >= "2026" else result

    return answer


def server():
    """A server with everything that the scenarios need."""
    made = Server(
        "onceward-conformance",
        version="1",
        instructions="Offers what the MCP conformance suite asks for.",
        on_list_tools=typed(tools.list_tools),
        on_call_tool=typed(tools.call_tool),
        on_list_resources=typed(offers.list_resources),
        on_list_resource_templates=typed(offers.list_templates),
        on_read_resource=typed(offers.read_resource),
        on_subscribe_resource=nothing,
        on_unsubscribe_resource=nothing,
        on_subscriptions_listen=ListenHandler(tools.changes),
        on_list_prompts=typed(offers.list_prompts),
        on_get_prompt=typed(offers.get_prompt),
        on_completion=typed(offers.complete),
        on_set_logging_level=nothing,
        cache_hints=offers.CACHE_HINTS,
    )
    tasks.serve_on(made)
    return made


def over_http(port):
    """Serves until it is stopped. The first line of output has the address."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    app = server().streamable_http_app(event_store=Events(), retry_interval=RETRY_MILLISECONDS)
    print(f"listens on http://localhost:{listener.getsockname()[1]}/mcp", flush=True)
    settings = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    asyncio.run(uvicorn.Server(settings).serve(sockets=[listener]))


async def over_stdio():
    made = server()
    async with stdio_server() as (incoming, outgoing):
        options = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        await made.run(incoming, outgoing, made.create_initialization_options(options))


def warm(path):
    """Serves each client over the pipes that it hands in, in a forked process that has imported everything already."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(16)
        print(f"listens on {path}", flush=True)
        while True:
            client, _ = listener.accept()
            _, (incoming, outgoing), _, _ = socket.recv_fds(client, 1, 2)
            if os.fork() == 0:
                listener.close()
                os.dup2(incoming, 0)
                os.dup2(outgoing, 1)
                for one in (incoming, outgoing):
                    os.close(one)
                asyncio.run(over_stdio())
                os._exit(0)
            for one in (incoming, outgoing):
                os.close(one)
            client.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 for any that is free")
    parser.add_argument("--stdio", action="store_true", help="one client, on standard input and output")
    parser.add_argument("--warm", metavar="SOCKET", help="any number of them, whom conformance_stdio.py brings")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    with contextlib.suppress(KeyboardInterrupt):
        if arguments.warm:
            warm(arguments.warm)
        elif arguments.stdio:
            asyncio.run(over_stdio())
        else:
            over_http(arguments.port)


if __name__ == "__main__":
    main()
