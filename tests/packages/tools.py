#!/usr/bin/env python3
"""Installs programs of the system that tests use and a bare machine may lack, where Debian's apt-get can do it."""

import contextlib
import glob
import os
import pathlib
import shutil
import subprocess

# Debian's package, and how to see that it is there.
TOOLS = {
    "curl": lambda: shutil.which("curl"),
    "openssl": lambda: shutil.which("openssl"),
    "git": lambda: shutil.which("git"),
    "libfaketime": lambda: glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1"),
}

# Servers, which tests start themselves: the services that the packages bring must not run.
SERVERS = {
    "postgresql": lambda: glob.glob("/usr/lib/postgresql/*/bin/initdb"),
    # In a folder that not every user has in PATH.
    "pgbouncer": lambda: shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin"),
    # Sentinel is the same program.
    "redis-server": lambda: shutil.which("redis-server"),
}

INSTALL_SECONDS = 300

# Debian asks this program whether a package may start its service; 101 is its answer for no.
POLICY = pathlib.Path("/usr/sbin/policy-rc.d")
START_NOTHING = "#!/bin/sh\nexit 101\n"


def install(packages, *options):
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", *options, *packages]):
        run(command)


def run(command):
    # Without questions: there is no terminal to answer them.
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        subprocess.run(command, capture_output=True, timeout=INSTALL_SECONDS, check=False, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(error)


@contextlib.contextmanager
def no_services(policy=POLICY):
    """Packages that are installed meanwhile start no service. A policy that is there already decides itself."""
    is_ours = False
    try:
        # Written under another name first: another installation must not see half of it.
        written = policy.with_name(f"{policy.name}.{os.getpid()}")
        written.write_text(START_NOTHING)
        written.chmod(0o755)
        try:
            os.link(written, policy)
            is_ours = True
        finally:
            written.unlink()
    except OSError:
        # A policy is there, or this user may not install anything.
        pass
    try:
        yield
    finally:
        if is_ours:
            policy.unlink(missing_ok=True)


def install_servers(packages):
    with no_services():
        install(packages, "--no-install-recommends")
    # Only of what was installed just now: the others are the user's. Without systemd, nothing starts them either.
    if pathlib.Path("/run/systemd/system").exists():
        for package in packages:
            run(["systemctl", "disable", "--now", package])


def missing(wanted):
    return [name for name, found in wanted.items() if not found()]


if __name__ == "__main__":
    if names := missing(TOOLS):
        install(names)
    if names := missing(SERVERS):
        install_servers(names)
    for name in missing(TOOLS | SERVERS):
        print(f"skipped: {name} is not installed, and apt-get cannot install it")
