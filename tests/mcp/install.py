"""The clients and servers that the MCP tests run; `tests/packages` installs them."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from packages import install  # noqa: E402

# The Python environment that has a client or server, where it does not have the same name.
ENVIRONMENTS = {
    "fastmcp": "mcp2",
    "agents": "mcp2",
    "claude": "mcp2",
    "pydantic": "mcp2",
    "git": "mcp2",
    "agents1": "mcp1",
    "langchain": "mcp1",
    "sqlite": "mcp1",
}

# The conformance suite under the names of npm/package.json.
SUITES = {"0.1.16": "conformance-stable", "0.2.0-alpha.12": "conformance-alpha"}

node, path_with = install.node, install.path_with


def python(name):
    """A Python that has a client or server and None, or None and why it cannot be installed."""
    return install.python(ENVIRONMENTS.get(name, name))


def conformance_suite(version):
    """The command that runs one version of the conformance suite and None, or None and why it cannot be installed."""
    programs, missing = node()
    if missing:
        return None, missing
    return [str(programs / "node"), str(programs.parent / SUITES[version] / "dist" / "index.js")], None


def playwright():
    """The program of Playwright's MCP server, which is too large for every run; or None and why it is missing."""
    programs = install.FOLDER / "playwright" / "node_modules" / ".bin"
    if not (programs / "playwright-mcp").exists():
        return None, f"Playwright's MCP server is missing: npm install --prefix {programs.parents[1]} @playwright/mcp"
    return programs, None
