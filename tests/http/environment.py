"""The Python environment that has the clients of HTTP APIs, gRPC and WebSockets; `tests/packages` installs it."""

import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from packages import install  # noqa: E402

python, node = install.python, install.node


def enter():
    """Starts this program again in the environment. Returns only inside it, or with the reason why it is missing."""
    binary, missing = python("http")
    if missing:
        return missing
    if pathlib.Path(sys.prefix) != binary.parent.parent:
        os.execve(binary, [str(binary), *sys.argv], without_proxies())
    return None


def without_proxies():
    """The environment variables of a process that talks to this machine only."""
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
