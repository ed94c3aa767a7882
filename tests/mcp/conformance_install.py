"""Installs by name, below `target/`, the conformance suite, a Node that it runs on, and the SDK of our fixture."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "target" / "tests-mcp"

SDK = "mcp>=2"
SUITE = "@modelcontextprotocol/conformance"

# Both versions of the suite use what Node has since 22, whatever they say in their `engines`.
NODE = "node@24"

# Long enough for a slow registry, short enough to be noticed.
PATIENCE = 600


def python():
    """A Python that has the SDK, or why there is none."""
    folder = FOLDER / "venv-mcp2"
    binary = folder / "bin" / "python"
    if not binary.exists():
        run([sys.executable, "-m", "venv", str(folder)])
    if binary.exists() and not has_sdk(binary):
        run([str(binary), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", SDK])
    if not binary.exists() or not has_sdk(binary):
        return None, f"{SDK} could not be installed"
    return binary, None


def has_sdk(binary):
    return run([str(binary), "-c", "import mcp.server.subscriptions"]).returncode == 0


def suite(version):
    """The command that runs one version of the suite, or why there is none."""
    node = installed("node", NODE, FOLDER / "node" / "node_modules" / ".bin" / "node")
    folder = f"conformance-{version}"
    program = installed(
        folder, f"{SUITE}@{version}", FOLDER / folder / "node_modules" / SUITE / "dist" / "index.js", node
    )
    if not node or not program:
        return None, f"npm could not install {NODE} or {SUITE}@{version}"
    return [str(node), str(program)], None


def installed(folder, package, file, node=None):
    """A file of a package from npm, if it can be had."""
    if not file.exists():
        (FOLDER / folder).mkdir(parents=True, exist_ok=True)
        first = [str(node.parent)] if node else []
        path = os.pathsep.join([*first, os.environ.get("PATH", "")])
        command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(FOLDER / folder), package]
        run(command, os.environ | {"PATH": path})
    return file if file.exists() else None


def run(command, environment=None):
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, check=False, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))
