#!/usr/bin/env python3
"""Installs programs of the system that tests use and a bare machine may lack, where Debian's apt-get can do it."""

import glob
import shutil
import subprocess

# Debian's package, and how to see that it is there.
TOOLS = {
    "curl": lambda: shutil.which("curl"),
    "openssl": lambda: shutil.which("openssl"),
    "git": lambda: shutil.which("git"),
    "libfaketime": lambda: glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1"),
}

INSTALL_SECONDS = 300


def install(packages):
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", *packages]):
        try:
            subprocess.run(command, capture_output=True, timeout=INSTALL_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            print(error)


if __name__ == "__main__":
    if missing := [name for name, found in TOOLS.items() if not found()]:
        install(missing)
    for name, found in TOOLS.items():
        if not found():
            print(f"skipped: {name} is not installed, and apt-get cannot install it")
