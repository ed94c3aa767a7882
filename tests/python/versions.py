#!/usr/bin/env python3
"""Imports and uses the package with every Python from 3.10 on that this machine has.

tests/python/versions.py --package target/tests/python-package
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
MINORS = range(10, 15)


def interpreters():
    """One interpreter of each version, this one included."""
    found = {sys.version_info.minor: sys.executable}
    managed = sorted(pathlib.Path.home().glob(".pyenv/versions/3.*/bin/python3"))
    for minor in MINORS:
        own = [path for path in managed if path.parents[1].name.startswith(f"3.{minor}.")]
        path = shutil.which(f"python3.{minor}") if not own else str(own[-1])
        # A name on the path may be a wrapper for a version that is not there.
        if path and runs(path):
            found.setdefault(minor, path)
    return dict(sorted(found.items()))


def runs(path):
    return subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", type=pathlib.Path, required=True, help="the folder with the package")
    given = parser.parse_args()
    environment = os.environ | {"PYTHONPATH": str(given.package.absolute())}
    failed, found = 0, interpreters()
    for minor, path in found.items():
        with tempfile.TemporaryDirectory() as folder:
            command = [path, "-X", "dev", "-W", "error::ResourceWarning", str(HERE / "use.py")]
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            failed += 1
            print(f"FAILED: Python 3.{minor}, code {done.returncode}\n{done.stdout}{done.stderr}")
        else:
            print(f"Python 3.{minor}: {done.stdout.strip()}")
    print(f"{len(found) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
