"""Servers that need a large download or another program: DuckDB, Redis and a browser. These checks are run by hand.

Debian's packages redis-server and chromium have the programs. A check whose program is missing is skipped.
"""

import functools
import http.server
import re
import shutil
import socket
import subprocess
import threading

import install
from checks import Skipped, until

PAGE = """<!doctype html><title>Rows</title><body tabindex=0><p id=row>0</p><script>
addEventListener("keydown", event => { if (event.key == "ArrowDown") row.textContent = Number(row.textContent) + 1 })
</script>"""


def program(environment, name):
    python, missing = install.python(environment)
    if missing:
        raise Skipped(missing)
    return str(python.parent / name)


def needed(*names):
    found = next((path for path in map(shutil.which, names) if path), None)
    if not found:
        raise Skipped(f"none of {', '.join(names)} is installed")
    return found


class Duckdb:
    """The same INSERT twice."""

    def __init__(self, folder):
        self.file = folder / "data.duckdb"
        command = program("duckdb", "mcp-server-motherduck")
        self.command, self.environment = [command, "--db-path", str(self.file), "--read-write"], {}

    def steps(self):
        yield "execute_query", {"sql": "CREATE TABLE t (n INTEGER)"}
        for _ in range(2):
            yield "execute_query", {"sql": "INSERT INTO t VALUES (1)"}
            yield "execute_query", {"sql": "SELECT count(*) AS n FROM t"}
        for _ in range(2):
            yield "execute_query", {"sql": "UPDATE t SET n = n + 1"}
        yield "execute_query", {"sql": "SELECT * FROM t"}

    def state(self):
        return None


class Redis:
    """Items that are popped one after the other, and values that are reset."""

    def __init__(self, folder):
        command = program("redis", "redis-mcp-server")
        server = needed("redis-server")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        options = ["--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(folder)]
        self.process = subprocess.Popen([server, *options], stdout=subprocess.DEVNULL)
        self.ask = functools.partial(ask, int(port))
        until(lambda: self.ask("PING") == b"+PONG\r\n", "Redis")
        self.command, self.environment = [command, "--url", f"redis://127.0.0.1:{port}/0"], {}

    def steps(self):
        for item in ("a", "b", "c"):
            yield "rpush", {"name": "l", "value": item}
        for _ in range(2):
            yield "lpop", {"name": "l"}
        for value in ("1", "2", "1"):
            yield "hset", {"name": "h", "key": "k", "value": value}
            yield "hget", {"name": "h", "key": "k"}
        for _ in range(2):
            yield "set", {"key": "s", "value": "x"}
            yield "delete", {"key": "s"}
        yield "set", {"key": "s", "value": "x"}

    def state(self):
        return [self.ask(line) for line in ("LRANGE l 0 -1", "HGET h k", "GET s")]

    def end(self):
        self.process.kill()
        self.process.wait()


def ask(port, line):
    """The reply of Redis to a command, or None while it does not listen."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(line.encode() + b"\r\n")
            return connection.recv(4096)
    except OSError:
        return None


class Browser:
    """The same key three times, and navigation back to earlier pages."""

    def __init__(self, folder):
        programs, missing = install.node()
        large, missing_too = install.playwright()
        if missing or missing_too:
            raise Skipped(missing or missing_too)
        self.server = serve(PAGE)
        browser = needed("chromium", "chromium-browser", "google-chrome")
        options = ["--headless", "--no-sandbox", "--isolated", "--executable-path", browser, "--output-dir", str(folder)]
        self.command = [str(programs / "node"), str(large / "playwright-mcp"), *options]
        self.environment, self.row = {"HOME": str(folder)}, None

    def steps(self):
        row = {"function": "() => document.title + document.getElementById('row')?.textContent"}
        page = f"http://127.0.0.1:{self.server.server_port}"
        yield "browser_navigate", {"url": f"{page}/one"}
        for _ in range(3):
            yield "browser_press_key", {"key": "ArrowDown"}
        yield "browser_evaluate", row
        for path in ("two", "one"):
            yield "browser_navigate", {"url": f"{page}/{path}"}
            yield "browser_evaluate", row
        for _ in range(2):
            yield "browser_press_key", {"key": "ArrowDown"}
            yield "browser_evaluate", row
        for _ in range(2):
            yield "browser_navigate_back", {}
        yield "browser_evaluate", {"function": "() => location.pathname"}

    def comparable(self, text):
        """The text of a page without the parts that differ between runs."""
        return re.sub(r"page-[^)]*\.yml", "page.yml", text.replace(str(self.server.server_port), "PORT"))

    def state(self):
        return None

    def end(self):
        self.server.shutdown()
        self.server.server_close()


def serve(page):
    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page.encode())

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


LARGE = [Duckdb, Redis, Browser]
