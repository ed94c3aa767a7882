"""Finds the versions of Python that this machine has."""

import pathlib
import shutil
import subprocess
import sys

MINORS = range(10, 15)


def every():
    """One interpreter of each version that the Python package is for, by its minor version; this one included."""
    found = {sys.version_info.minor: sys.executable}
    managed = sorted(pathlib.Path.home().glob(".pyenv/versions/3.*/bin/python3"))
    for minor in MINORS:
        own = [path for path in managed if path.parents[1].name.startswith(f"3.{minor}.")]
        path = shutil.which(f"python3.{minor}") if not own else str(own[-1])
        # A name on the path may be a wrapper for a version that is not there.
        if path and runs(path):
            found.setdefault(minor, path)
    return dict(sorted(found.items()))


def others():
    """The same without this one."""
    return {minor: path for minor, path in every().items() if minor != sys.version_info.minor}


def runs(path):
    return subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0
