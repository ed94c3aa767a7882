"""Installs the real clients and servers by name, below `target/`: virtual environments and a folder for Node."""

import os
import pathlib
import subprocess
import sys
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "target" / "tests-mcp"

# What goes into which environment. They pin versions of each other that do not go together.
ENVIRONMENTS = {
    "mcp2": ("mcp", "mcp>=2"),
    "mcp1": ("mcp", "mcp<2"),
    "fastmcp": ("fastmcp", "fastmcp"),
    "agents": ("agents", "openai-agents"),
    "claude": ("claude_agent_sdk", "claude-agent-sdk"),
    "agents1": ("agents", "openai-agents", "mcp<2"),
    "langchain": ("langchain_mcp_adapters", "langchain-mcp-adapters"),
    "pydantic": ("pydantic_ai.mcp", "pydantic-ai-slim[mcp]"),
    "git": ("mcp_server_git", "mcp-server-git"),
    "sqlite": ("mcp_server_sqlite", "mcp-server-sqlite", "mcp<2"),
}

# What only checks that are run by hand need.
LARGE = {
    "duckdb": ("mcp_server_motherduck", "mcp-server-motherduck"),
    "redis": ("src.main", "redis-mcp-server"),
}

# The servers and the inspector ask for a newer Node than many machines have, and npm picks by the Node that runs it.
NODE = "node@24"
NODE_PACKAGES = (
    "@modelcontextprotocol/inspector",
    "@modelcontextprotocol/server-everything",
    "@modelcontextprotocol/server-filesystem",
    "@modelcontextprotocol/server-memory",
    "@modelcontextprotocol/server-sequential-thinking",
)

# Long enough for a slow registry, short enough to be noticed.
PATIENCE = 600

# What was found once is not looked for again.
FOUND = {}

LOCKS = {name: threading.Lock() for name in [*ENVIRONMENTS, *LARGE, "node"]}


def python(name):
    """A Python that has one of the clients, or why there is none."""
    module, *packages = (ENVIRONMENTS | LARGE)[name]
    folder = FOLDER / f"venv-{name}"
    binary = folder / "bin" / "python"
    with LOCKS[name]:
        if name in FOUND:
            return FOUND[name]
        if not binary.exists():
            run([sys.executable, "-m", "venv", str(folder)])
        if binary.exists() and not has_module(binary, module):
            run([str(binary), "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", *packages])
        there = binary.exists() and has_module(binary, module)
        FOUND[name] = (binary, None) if there else (None, f"{', '.join(packages)} could not be installed")
        return FOUND[name]


def node():
    """The folder of Node and of the programs that run on it, or why there is none."""
    folder = FOLDER / "node"
    programs = folder / "node_modules" / ".bin"
    install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder)]
    with LOCKS["node"]:
        folder.mkdir(parents=True, exist_ok=True)
        if not (programs / "node").exists():
            run([*install, NODE])
        missing = [name for name in NODE_PACKAGES if not (folder / "node_modules" / name).exists()]
        if missing:
            run([*install, *missing], path_with(programs))
    missing = [name for name in NODE_PACKAGES if not (folder / "node_modules" / name).exists()]
    if missing or not (programs / "node").exists():
        return None, "npm could not install " + ", ".join(missing or [NODE])
    return programs, None


def large_node(package):
    """The folder of the programs of a package that only checks that are run by hand need, or why there is none."""
    folder = FOLDER / "large"
    with LOCKS["node"]:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "node_modules" / package).exists():
            run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), package])
    if not (folder / "node_modules" / package).exists():
        return None, f"npm could not install {package}"
    return folder / "node_modules" / ".bin", None


def path_with(programs):
    return os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}"}


def has_module(binary, name):
    return run([str(binary), "-c", f"import {name}"]).returncode == 0


def run(command, environment=None):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))
