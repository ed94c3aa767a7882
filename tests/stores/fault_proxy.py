#!/usr/bin/env python3
"""A proxy on the loopback interface between a client and PostgreSQL or Redis that cuts, delays, stalls and loses messages.

As a module: `Proxy`. As a command, with one order a line on standard input or on the control port, and one answer a line:

    fault_proxy.py --to 127.0.0.1:5432 [--framing postgres|redis|raw] [--listen PORT] [--control]

    cut-before FROM N [KIND]        cut the connection in place of the Nth message from now: `ok RULE`
    cut-after FROM N [KIND]         forward the Nth message, then cut the connection
    swallow FROM N [KIND]           lose this message and every later one in its direction; the connection stays open
    stall FROM N [KIND]             forward nothing in either direction of the connection, until `resume`
    delay FROM N SECONDS [KIND]     hold this message for a while
    wait RULE SECONDS               `ok` once the rule has struck, else `not yet`
    clear | resume | cut | refuse | accept | connections | to HOST:PORT
    trace                           the messages since the last `trace`, such as `ok client:Q server:T server:C`

FROM is client, server or any; KIND is a type of message (PostgreSQL's type byte, `startup`; the first byte of a Redis value).
The end of standard input ends the proxy.
"""

import argparse
import asyncio
import dataclasses
import pathlib
import socket
import struct
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

from framing import FRAMINGS  # noqa: E402

ACTIONS = ("cut-before", "cut-after", "swallow", "stall", "delay")
SIDES = ("client", "server")

# Closing with this option resets the connection, as a crashed host would.
RESET = struct.pack("ii", 1, 0)

# How long the proxy tries to reach the server for a new client, and how long it waits for its own thread.
CONNECT_SECONDS, CALL_SECONDS = 5, 30

# Enough to count the steps of one operation; a test that never reads the trace does not fill the memory.
MAX_TRACE = 100_000


@dataclasses.dataclass
class Rule:
    """Strikes once, at the Nth message that fits, counted over all connections from the moment of its making."""

    action: str
    side: str
    number: int
    kind: str | None = None
    seconds: float = 0.0
    seen: int = 0
    struck: threading.Event = dataclasses.field(default_factory=threading.Event)

    def strikes(self, side, kind):
        if self.side not in (side, "any") or self.kind not in (kind, None):
            return False
        self.seen += 1
        return self.seen == self.number


class Proxy:
    """A proxy with a thread of its own. Its methods may be called from any other."""

    def __init__(self, target, framing="postgres", port=0):
        self.target, self.framing, self.is_refusing = target, FRAMINGS[framing], False
        self.rules, self.connections, self.messages = [], set(), []
        listener = socket.create_server(("127.0.0.1", port))
        self.port = listener.getsockname()[1]
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.server = self.run(asyncio.start_server(self.serve, sock=listener))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def run(self, work):
        """Runs a coroutine in the proxy's thread and returns its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(CALL_SECONDS)

    def call(self, function, *arguments):
        async def work():
            return function(*arguments)

        return self.run(work())

    def add(self, action, side="client", number=1, kind=None, seconds=0.0):
        """Adds a rule, whose `struck` is set when it has struck."""
        if action not in ACTIONS or side not in (*SIDES, "any") or number < 1 or seconds < 0:
            raise ValueError(f"{action} {side} {number} is not a rule")
        rule = Rule(action, side, number, kind, seconds)
        self.call(self.rules.append, rule)
        return rule

    def clear(self):
        """Forgets every rule. What has struck already stays."""
        self.call(self.rules.clear)

    def refuse(self, refuses=True):
        """Resets new connections from now on, or accepts them again. Open ones stay."""
        self.is_refusing = refuses

    def resume(self):
        """Lets stalled connections go on; the held messages come first."""
        self.call(lambda: [connection.gate.set() for connection in self.connections])

    def stall(self):
        """Stalls every connection that is open."""
        self.call(lambda: [connection.gate.clear() for connection in self.connections])

    def cut(self):
        """Resets every connection that is open."""
        self.call(lambda: [connection.cut() for connection in list(self.connections)])

    def count(self):
        """How many connections are open."""
        return self.call(lambda: len(self.connections))

    def trace(self):
        """The messages since the last call, as (side, kind), in the order in which they arrived."""
        def take():
            found, self.messages = self.messages, []
            return found

        return self.call(take)

    def close(self):
        if self.thread.is_alive():
            self.call(self.server.close)
            self.cut()
            self.run(self.finish())
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(CALL_SECONDS)
            self.loop.close()

    async def finish(self):
        """Ends what still runs in the proxy's thread."""
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def serve(self, reader, writer):
        if self.is_refusing:
            reset(writer)
            return
        try:
            opened = asyncio.open_connection(*self.target)
            server_reader, server_writer = await asyncio.wait_for(opened, CONNECT_SECONDS)
        except (OSError, asyncio.TimeoutError):
            reset(writer)
            return
        connection = Connection(self, (reader, server_reader), (writer, server_writer))
        self.connections.add(connection)
        try:
            await asyncio.gather(*(connection.pump(side) for side in SIDES))
        except asyncio.CancelledError:
            # The proxy closes. The library would print this as an error.
            pass
        finally:
            connection.cut()
            self.connections.discard(connection)

    def striking(self, side, kind):
        """Notes a message. Returns the first rule that strikes it; every rule counts it."""
        if len(self.messages) < MAX_TRACE:
            self.messages.append((side, kind))
        found = [rule for rule in self.rules if rule.strikes(side, kind)]
        return found[0] if found else None


class Connection:
    def __init__(self, proxy, readers, writers):
        self.proxy = proxy
        self.readers, self.writers = dict(zip(SIDES, readers, strict=True)), dict(zip(SIDES, writers, strict=True))
        self.framers = {side: framer() for side, framer in zip(SIDES, proxy.framing, strict=True)}
        # Sides whose messages are lost.
        self.swallowed = set()
        # Open while messages may pass.
        self.gate = asyncio.Event()
        self.gate.set()

    async def pump(self, side):
        """Forwards what one side sends, until it ends or the connection is cut."""
        to = self.writers[other(side)]
        try:
            while data := await self.readers[side].read(65536):
                for message in self.framers[side].feed(data):
                    await self.forward(side, message, to)
                await to.drain()
            await self.gate.wait()
            if side not in self.swallowed and not to.is_closing():
                to.write_eof()
        except (OSError, ValueError) as error:
            if isinstance(error, ValueError):
                print(f"fault proxy: {error}", file=sys.stderr, flush=True)
            # The peer has to learn that this connection is gone.
            self.cut()

    async def forward(self, side, message, to):
        await self.gate.wait()
        if side in self.swallowed:
            return
        if message.kind == "encryption":
            # Refused here: the proxy could not see messages that are encrypted.
            self.writers[side].write(b"N")
            return
        rule = self.proxy.striking(side, message.kind)
        if rule is None:
            to.write(message.data)
        else:
            await getattr(self, rule.action.replace("-", "_"))(rule, side, message, to)

    async def cut_before(self, rule, side, message, to):
        self.cut()
        rule.struck.set()

    async def cut_after(self, rule, side, message, to):
        # The receiver sees an end instead of a reset, so that the message certainly arrives. What it answers is lost.
        self.swallowed.update(SIDES)
        to.write(message.data)
        to.write_eof()
        reset(self.writers[side])
        rule.struck.set()

    async def swallow(self, rule, side, message, to):
        self.swallowed.add(side)
        rule.struck.set()

    async def stall(self, rule, side, message, to):
        self.gate.clear()
        rule.struck.set()
        await self.gate.wait()
        to.write(message.data)

    async def delay(self, rule, side, message, to):
        rule.struck.set()
        await asyncio.sleep(rule.seconds)
        to.write(message.data)

    def cut(self):
        """Resets the connection on both sides."""
        self.swallowed.update(SIDES)
        for writer in self.writers.values():
            reset(writer)
        self.gate.set()


def other(side):
    return SIDES[side == "client"]


def reset(writer):
    """Closes one side with a reset. What was not sent yet is lost."""
    if not writer.transport.is_closing():
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()


class Control:
    """Carries out orders, one a line."""

    def __init__(self, proxy):
        self.proxy, self.rules = proxy, []

    def answer(self, line):
        try:
            order, *words = line.split()
            return self.carry_out(order, words)
        except (ValueError, IndexError, TypeError) as error:
            return f"error {error}"

    def carry_out(self, order, words):
        proxy = self.proxy
        if order in ACTIONS:
            side, number, *rest = words
            seconds = float(rest.pop(0)) if order == "delay" else 0.0
            self.rules.append(proxy.add(order, side, int(number), *rest, seconds=seconds))
            return f"ok {len(self.rules)}"
        if order == "wait":
            return "ok" if self.rules[int(words[0]) - 1].struck.wait(float(words[1])) else "not yet"
        if order == "to":
            host, _, port = words[0].rpartition(":")
            proxy.target = (host, int(port))
            return "ok"
        if order in ("trace", "connections"):
            said = proxy.count() if order == "connections" else " ".join(":".join(pair) for pair in proxy.trace())
            return f"ok {said}".rstrip()
        plain = {"clear": proxy.clear, "resume": proxy.resume, "cut": proxy.cut, "refuse": proxy.refuse}
        if order not in (*plain, "accept"):
            raise ValueError(f"unknown order {order}")
        proxy.refuse(False) if order == "accept" else plain[order]()
        return "ok"

    def serve(self, lines, write):
        for line in lines:
            if line.strip():
                write(f"{self.answer(line)}\n")


def serve_control(control, listener):
    """Carries out the orders of clients of the control port."""
    def serve(client):
        with client, client.makefile("rw") as file:
            control.serve(file, lambda text: (file.write(text), file.flush()))

    while True:
        client, _ = listener.accept()
        threading.Thread(target=serve, args=(client,), daemon=True).start()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", metavar="HOST:PORT", required=True)
    parser.add_argument("--framing", choices=FRAMINGS, default="postgres")
    parser.add_argument("--listen", metavar="PORT", type=int, default=0, help="0, the default, takes a free port")
    parser.add_argument("--control", action="store_true", help="take orders on a port of the loopback interface too")
    given = parser.parse_args()
    host, _, port = given.to.rpartition(":")
    with Proxy((host, int(port)), given.framing, given.listen) as proxy:
        control = Control(proxy)
        print(f"listens on 127.0.0.1:{proxy.port}", flush=True)
        if given.control:
            listener = socket.create_server(("127.0.0.1", 0))
            print(f"control on 127.0.0.1:{listener.getsockname()[1]}", flush=True)
            threading.Thread(target=serve_control, args=(control, listener), daemon=True).start()
        control.serve(sys.stdin, lambda text: print(text, end="", flush=True))


if __name__ == "__main__":
    main()
