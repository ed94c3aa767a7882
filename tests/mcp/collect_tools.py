#!/usr/bin/env python3
"""Lists the tools of the servers in kinds/servers.json and writes them to kinds/tools.json.

Each server is installed by name and version into a temporary folder, started with made-up credentials, asked for
`tools/list` and stopped. No tool is ever called, and where the system allows it the server has no network. The descriptions
belong to the servers' authors, so they are not kept; `--descriptions FILE` writes them elsewhere.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent / "kinds"

# Seconds. Some packages are large.
INSTALLING = 400
ANSWERING = 40

# Arguments that carry a statement, a command or code.
STATEMENTS = {"sql", "query", "statement", "statements", "queries", "cypher", "code", "command", "script", "expression", "function"}


def run(command, seconds, **options):
    return subprocess.run(command, timeout=seconds, capture_output=True, text=True, check=True, **options)


def install_npm(server, folder):
    (folder / "package.json").write_text("{}")
    wanted = f"{server['package']}@{server.get('version') or 'latest'}"
    # Scripts of packages would download browsers.
    run(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", wanted], INSTALLING, cwd=folder)
    package = folder / "node_modules" / server["package"]
    described = json.loads((package / "package.json").read_text())
    bins = described.get("bin") or described.get("main") or "index.js"
    if isinstance(bins, dict):
        bins = bins[server.get("bin") or next(iter(bins))]
    return described["version"], ["node", str(package / bins)]


def install_pypi(server, folder):
    run([sys.executable, "-m", "venv", str(folder / "venv")], INSTALLING)
    pip = [str(folder / "venv/bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    version = server.get("version")
    run([*pip, server["package"] + (f"=={version}" if version else ""), *server.get("with", [])], INSTALLING)
    asked = f"import importlib.metadata as m; print(m.version({server['package']!r}))"
    version = run([str(folder / "venv/bin/python"), "-c", asked], 30).stdout.strip()
    return version, [str(folder / "venv/bin" / (server.get("bin") or server["package"]))]


class Talk:
    """A server's process and the conversation with it."""

    def __init__(self, command, folder, env):
        self.errors = open(folder / "stderr", "w+")
        self.process = subprocess.Popen(
            command, cwd=folder, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True
        )
        self.lines, self.asked = queue.Queue(), 0
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def say(self, message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def ask(self, method, params):
        self.asked += 1
        self.say({"id": self.asked, "method": method, "params": params})
        end = time.monotonic() + ANSWERING
        while (left := end - time.monotonic()) > 0:
            try:
                line = self.lines.get(timeout=left)
            except queue.Empty:
                break
            if line is None:
                raise RuntimeError("the server ended")
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if not isinstance(message, dict):
                continue
            if "method" in message and "id" in message:
                self.say({"id": message["id"], "error": {"code": -32601, "message": "it only lists tools"}})
            elif message.get("id") == self.asked:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
        raise RuntimeError(f"no answer to {method} within {ANSWERING} s")

    def tools(self):
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "onceward", "version": "0"}}
        self.ask("initialize", hello)
        self.say({"method": "notifications/initialized"})
        tools, params = [], {}
        for _ in range(50):
            page = self.ask("tools/list", params)
            tools += page["tools"]
            if not page.get("nextCursor"):
                return tools
            params = {"cursor": page["nextCursor"]}
        raise RuntimeError("the list has no end")

    def stop(self):
        self.process.stdin.close()
        for end in (None, self.process.terminate, self.process.kill):
            if end:
                end()
            try:
                self.process.wait(2)
                return
            except subprocess.TimeoutExpired:
                pass

    def said(self):
        self.errors.seek(0)
        return self.errors.read()[-600:]


def alone():
    """The prefix of a command that runs it without a network."""
    command = ["unshare", "--net", "--map-root-user"]
    possible = shutil.which("unshare") and subprocess.run([*command, "true"], capture_output=True).returncode == 0
    return command if possible else []


def collect(server, folder, before):
    folder = folder / server["name"]
    (folder / "home").mkdir(parents=True)
    version, command = {"npm": install_npm, "pypi": install_pypi}[server["registry"]](server, folder)
    fill = lambda text: text.replace("{folder}", str(folder))
    env = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    env |= {"HOME": str(folder / "home")} | {name: fill(value) for name, value in server.get("env", {}).items()}
    for name, text in server.get("files", {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    talk = Talk([*before, *command, *map(fill, server.get("args", []))], folder, env)
    try:
        tools = talk.tools()
    except (RuntimeError, OSError, KeyError, TypeError, AttributeError) as error:
        raise RuntimeError(f"{error}; it wrote: {talk.said()}") from error
    finally:
        talk.stop()
    return version, tools


def kept(tool):
    properties = (tool.get("inputSchema") or {}).get("properties") or {}
    hints = {name: value for name, value in (tool.get("annotations") or {}).items() if name.endswith("Hint")}
    return {"name": tool["name"], "hints": hints, "statement": any(name.lower() in STATEMENTS for name in properties)}


def one(server, folder, before):
    try:
        version, tools = collect(server, folder, before)
    except subprocess.CalledProcessError as error:
        return server, None, f"not installed: {error.stderr[-400:]}"
    except (RuntimeError, OSError, KeyError, StopIteration, subprocess.TimeoutExpired) as error:
        return server, None, str(error)[-900:]
    finally:
        shutil.rmtree(folder / server["name"], ignore_errors=True)
    return server, version, tools


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="these servers, and keep what the file has of the others")
    parser.add_argument("--descriptions", type=pathlib.Path, help="write what tools say of themselves to this file")
    parser.add_argument("--newest", action="store_true", help="ignore the versions in servers.json, and write the newest there")
    options = parser.parse_args()
    catalogue, data = HERE / "servers.json", HERE / "tools.json"
    servers = json.loads(catalogue.read_text())
    known = {each["server"]: each for each in json.loads(data.read_text())} if data.exists() else {}
    described = json.loads(options.descriptions.read_text()) if options.descriptions and options.descriptions.exists() else {}
    wanted = [each for each in servers if not options.only or each["name"] in options.only]
    if options.newest:
        for server in wanted:
            server.pop("version", None)
    failed, before = [], alone()
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        work = [pool.submit(one, server, pathlib.Path(folder), before) for server in wanted]
        for done in concurrent.futures.as_completed(work):
            server, version, tools = done.result()
            name = server["name"]
            if version is None:
                failed.append(name)
                print(f"{name}: {tools}", flush=True)
                continue
            print(f"{name} {version}: {len(tools)} tools", flush=True)
            server["version"] = version
            about = {"server": name, "registry": server["registry"], "package": server["package"], "version": version}
            known[name] = about | {"tools": [kept(tool) for tool in tools]}
            described[name] = {tool["name"]: tool.get("description") or "" for tool in tools}
            order = [known[each["name"]] for each in servers if each["name"] in known]
            text = ",\n".join(
                json.dumps({**each, "tools": None})[:-5].rstrip() + "[\n  " + ",\n  ".join(map(json.dumps, each["tools"])) + "\n]}"
                for each in order
            )
            data.write_text(f"[{text}]\n")
            if options.descriptions:
                options.descriptions.write_text(json.dumps(described, indent=1))
    catalogue.write_text("[\n  " + ",\n  ".join(map(json.dumps, servers)) + "\n]\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
