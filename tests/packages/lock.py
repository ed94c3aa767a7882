#!/usr/bin/env python3
"""Pins the packages of Python environments anew: tests/packages/lock.py [NAME...]

Each file in `python/` starts with the packages that the tests ask for. This keeps those lines, installs them into a fresh
environment and writes every other package that came with them below.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

import install

SEPARATOR = "# Installed with these:"


def lock(file):
    asked = file.read_text().partition(SEPARATOR)[0].strip()
    wanted = {plain(line) for line in asked.splitlines() if not line.startswith("#")}
    with tempfile.TemporaryDirectory() as folder:
        pins, environment = pathlib.Path(folder) / "asked.txt", pathlib.Path(folder) / "environment"
        pins.write_text(asked)
        install.create_environment(environment, pins)
        frozen = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "freeze"]
        found = subprocess.run(frozen, capture_output=True, text=True, check=True).stdout.splitlines()
    others = [line for line in found if plain(line) not in wanted]
    file.write_text("\n".join([asked, SEPARATOR, *others]) + "\n")


def plain(requirement):
    """The name of a required package, spelled one way."""
    return re.split(r"[\[=<>]", requirement)[0].lower().replace("_", "-")


if __name__ == "__main__":
    for name in sys.argv[1:] or install.environments():
        print(name, flush=True)
        lock(install.HERE / "python" / f"{name}.txt")
