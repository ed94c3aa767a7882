"""Installs the real clients by name: a virtual environment and a folder of Node modules, below `target/`."""

import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "target" / "tests-http"
PYTHON_PACKAGES = ("stripe", "openai", "anthropic")

# Where the name of what is installed is not that of what is imported.
PACKAGE_OF = {"grpc": "grpcio"}
NODE_PACKAGES = ("stripe",)

# stripe-node asks for it.
OLDEST_NODE = 20

# Long enough for a slow registry, short enough to be noticed.
PATIENCE = 600


def python(packages=PYTHON_PACKAGES):
    """A Python with the clients installed, and the names of those that could not be."""
    folder = FOLDER / "venv"
    binary = folder / "bin" / "python"
    if not binary.exists():
        run([sys.executable, "-m", "venv", str(folder)])
    if not binary.exists():
        return pathlib.Path(sys.executable), set(packages)
    for name in [name for name in packages if not has_module(binary, name)]:
        package = PACKAGE_OF.get(name, name)
        run([str(binary), "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", package])
    return binary, {name for name in packages if not has_module(binary, name)}


def running_in_it(module):
    """Goes on in that Python, with a module installed; or says why it cannot."""
    binary, missing = python((module,))
    if missing:
        return f"{module} could not be installed"
    if pathlib.Path(sys.prefix) != binary.parent.parent:
        os.execve(binary, [str(binary), *sys.argv], without_proxies())
    return None


def node():
    """A folder from which Node finds its clients, or why there is none."""
    if not shutil.which("node") or not shutil.which("npm"):
        return None, "node and npm are not installed"
    version = run(["node", "--version"]).stdout.strip()
    if int(version.lstrip("v").split(".")[0]) < OLDEST_NODE:
        return None, f"node {version} is older than {OLDEST_NODE}"
    folder = FOLDER / "node"
    folder.mkdir(parents=True, exist_ok=True)
    missing = [name for name in NODE_PACKAGES if not (folder / "node_modules" / name).exists()]
    if missing:
        run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), *missing])
    if all((folder / "node_modules" / name).exists() for name in NODE_PACKAGES):
        return folder, None
    return None, "npm could not install " + ", ".join(NODE_PACKAGES)


def curl():
    """Why there is no curl, or nothing."""
    return None if shutil.which("curl") else "curl is not installed"


def has_module(binary, name):
    return run([str(binary), "-c", f"import {name}"]).returncode == 0


def run(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def without_proxies():
    """The environment of what talks to this machine only."""
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
