#!/usr/bin/env python3
"""Real servers, directly and through the gateway, with and without a session: the same calls leave the same state.

Each script repeats calls on purpose, as users and agents do: branches that are changed back, the same message for two
commits, the same key pressed three times. The results have to be the same too.

tests/mcp/real_servers.py --binary target/debug/onceward [--all]
"""

import json
import subprocess
import sys

import checks
import install
import real_servers_large
from checks import Skipped, is_equal
from client import IDENTITY
from results import MARK, without_ours
from sandbox import without_settings

# The same dates in every run, so that commits have the same hashes.
MOMENT = "2026-01-01T00:00:00Z"
GIT = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_AUTHOR_DATE": MOMENT,
    "GIT_COMMITTER_DATE": MOMENT,
    "GIT_CONFIG_GLOBAL": "/dev/null",
}


def program(environment, name):
    """A program of one of the environments of install.py."""
    python, missing = install.python(environment)
    if missing:
        raise Skipped(missing)
    return str(python.parent / name)


def node(name, *arguments):
    programs, missing = install.node()
    if missing:
        raise Skipped(missing)
    return [str(programs / "node"), str(programs / name), *arguments]


def git(folder, *arguments):
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, env=without_settings() | GIT, capture_output=True, text=True, check=True)
    return done.stdout


class Git:
    """Branches that are changed back and forth, and two commits with one message."""

    def __init__(self, folder):
        self.folder = folder
        git(folder, "init", "-q", "-b", "main")
        git(folder, "commit", "-q", "--allow-empty", "-m", "start")
        git(folder, "branch", "feat")
        self.command = [program("git", "mcp-server-git"), "--repository", str(folder)]
        self.environment = GIT

    def steps(self):
        at = {"repo_path": str(self.folder)}
        for branch in ("feat", "main", "feat"):
            yield "git_checkout", at | {"branch_name": branch}
        for content in ("one\n", "two\n"):
            (self.folder / "note").write_text(content)
            yield "git_status", at
            yield "git_add", at | {"files": ["note"]}
            yield "git_commit", at | {"message": "wip"}
            yield "git_status", at
        (self.folder / "note").write_text("three\n")
        for _ in range(2):
            yield "git_add", at | {"files": ["note"]}
            yield "git_diff_staged", at
            yield "git_reset", at
            yield "git_diff_staged", at
        yield "git_create_branch", at | {"branch_name": "more"}
        yield "git_create_branch", at | {"branch_name": "more"}
        yield "git_log", at

    def state(self):
        return [git(self.folder, *question.split()) for question in ("log --all --format=%H%s%D -p", "status --porcelain")]


class Memory:
    """The same entity, created, deleted and created again."""

    def __init__(self, folder):
        self.file = folder / "memory.json"
        self.command, self.environment = node("mcp-server-memory"), {"MEMORY_FILE_PATH": str(self.file)}

    def steps(self):
        ada = {"entities": [{"name": "Ada", "entityType": "person", "observations": ["counts"]}]}
        more = {"observations": [{"entityName": "Ada", "contents": ["writes"]}]}
        less = {"deletions": [{"entityName": "Ada", "observations": ["writes"]}]}
        for _ in range(2):
            yield "create_entities", ada
            yield "read_graph", {}
            yield "delete_entities", {"entityNames": ["Ada"]}
            yield "read_graph", {}
        yield "create_entities", ada
        for tool, arguments in (("add_observations", more), ("delete_observations", less), ("add_observations", more)):
            yield tool, arguments
            yield "open_nodes", {"names": ["Ada"]}

    def state(self):
        return self.file.read_text()


class Sqlite:
    """The same row twice, and rows that are deleted and written again."""

    def __init__(self, folder):
        self.file = folder / "data.db"
        self.command = [program("sqlite", "mcp-server-sqlite"), "--db-path", str(self.file)]
        self.environment = {}

    def steps(self):
        insert, count = {"query": "INSERT INTO t VALUES (1)"}, {"query": "SELECT count(*) AS n FROM t"}
        yield "create_table", {"query": "CREATE TABLE t (n INTEGER)"}
        for query in (insert, insert, {"query": "DELETE FROM t"}, insert, {"query": "UPDATE t SET n = n + 1"}):
            yield "write_query", query
            yield "read_query", count
        yield "write_query", {"query": "UPDATE t SET n = n + 1"}
        yield "read_query", {"query": "SELECT n FROM t"}
        yield "append_insight", {"insight": "it grows"}
        yield "append_insight", {"insight": "it grows"}

    def state(self):
        import sqlite3

        return sqlite3.connect(self.file).execute("SELECT * FROM t").fetchall()


class Thoughts:
    """Equal thoughts, which the server counts."""

    def __init__(self, folder):
        self.command, self.environment = node("mcp-server-sequential-thinking"), {"DISABLE_THOUGHT_LOGGING": "true"}

    def steps(self):
        thought = {"thought": "Once more.", "nextThoughtNeeded": True, "thoughtNumber": 1, "totalThoughts": 3}
        for _ in range(3):
            yield "sequentialthinking", thought

    def state(self):
        return None


class Files:
    """Edits that are undone and made again."""

    def __init__(self, folder):
        self.file = folder / "note"
        self.file.write_text("tea\n")
        self.command, self.environment = node("mcp-server-filesystem", str(folder)), {}

    def steps(self):
        def edit(old, new):
            return "edit_file", {"path": str(self.file), "edits": [{"oldText": old, "newText": new}]}

        other, read = str(self.file) + "-2", ("read_text_file", {"path": str(self.file)})
        for _ in range(2):
            yield edit("tea", "coffee")
            yield read
            yield edit("coffee", "tea")
            yield read
        yield edit("tea", "coffee")
        for _ in range(2):
            yield "move_file", {"source": str(self.file), "destination": other}
            yield "move_file", {"source": other, "destination": str(self.file)}
        for content in ("one", "two", "one"):
            yield "write_file", {"path": other, "content": content}

    def state(self):
        return sorted((file.name, file.read_text()) for file in self.file.parent.iterdir())


class Everything:
    """The reference server: the same results for every repetition."""

    def __init__(self, folder):
        self.command, self.environment = node("mcp-server-everything", "stdio"), {}

    def steps(self):
        for _ in range(2):
            yield "echo", {"message": "Hello"}
            yield "get-sum", {"a": 1, "b": 2}
            yield "get-structured-content", {"location": "New York"}
            yield "toggle-simulated-logging", {}
            yield "toggle-subscriber-updates", {}
            yield "trigger-long-running-operation", {"duration": 0.2, "steps": 2}

    def state(self):
        return None


QUICK = [Git, Memory, Sqlite, Thoughts, Files, Everything]


def played(sandbox, kind, how):
    """The results of a server's calls, and its final state."""
    folder = sandbox.folder / "work"
    folder.mkdir()
    work = kind(folder)
    command = work.command
    if how != "direct":
        command = sandbox.command(session="s" if how == "session" else None, server="real", behind=command)
    agent = sandbox.open(command, begun=False, environment=work.environment)
    said = []
    try:
        # A client without capabilities, so that no server waits for its input.
        agent.request("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": IDENTITY}, 60)
        agent.notify("notifications/initialized")
        agent.request("tools/list")
        for tool, arguments in work.steps():
            answer = agent.wait(agent.start_call(tool, arguments), 60)
            what = {name: answer[name] for name in ("result", "error") if name in answer}
            assert MARK not in json.dumps(what), f"{tool} {arguments} was not called: {what}"
            bare = json.dumps(without_ours(what["result"]) if "result" in what else what["error"])
            said.append((tool, work.comparable(bare) if hasattr(work, "comparable") else bare))
        return said, work.state()
    finally:
        # Some servers do not end when their client is gone.
        agent.sweep()
        if hasattr(work, "end"):
            work.end()
        # The next run uses a folder with the same name, so that its results are the same.
        folder.rename(sandbox.folder / f"work-{how}")


def check_of(kind):
    """A check of one server."""

    def checked(sandbox):
        said, state = played(sandbox, kind, "direct")
        assert said, "no steps"
        for how in ("gateway", "session"):
            said_there, state_there = played(sandbox, kind, how)
            for expected, got in zip(said, said_there, strict=True):
                is_equal(got, expected, f"{how}: what {expected[0]} said")
            is_equal(state_there, state, f"{how}: the state in the end")

    checked.__name__ = f"{kind.__name__.lower()} is left as without the gateway"
    return checked


if __name__ == "__main__":
    with_large = "--all" in sys.argv
    sys.argv = [one for one in sys.argv if one != "--all"]
    kinds = QUICK + (real_servers_large.LARGE if with_large else [])
    sys.exit(checks.run([check_of(kind) for kind in kinds], checks.arguments_of(__doc__)))
