#!/usr/bin/env python3
"""Puts the Python package together in a folder, as a wheel would install it: the Python files and a module that cargo has built.

tests/python/assemble.py --module target/debug/lib_native.so --out target/tests/python-package
"""

import argparse
import pathlib
import shutil

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "sdk" / "python" / "python" / "onceward"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--module", type=pathlib.Path, required=True, help="the native module")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the folder, for PYTHONPATH")
    given = parser.parse_args()
    package = given.out / "onceward"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    shutil.copy(given.module, package / "_native.abi3.so")
    # As a wheel does, so that pytest finds the plugin.
    metadata = given.out / "onceward-0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: onceward\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text("[pytest11]\nonceward = onceward.pytest_plugin\n")


if __name__ == "__main__":
    main()
