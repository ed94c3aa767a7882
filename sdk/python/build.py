#!/usr/bin/env python3
"""Builds the wheel: the native module, the Python files and the binary `onceward`.

sdk/python/build.py --out dist [--binary target/release/onceward] [--maturin COMMAND] [--manylinux]
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LICENCES = ("LICENSE-MIT", "LICENSE-APACHE")


def main():
    given = arguments()
    scripts = HERE / "data" / "scripts"
    scripts.mkdir(parents=True, exist_ok=True)
    binary = given.binary or built_binary(given)
    # pip installs what is in this folder as commands.
    shutil.copy2(binary, scripts / binary.name)
    for name in LICENCES:
        shutil.copy(ROOT / name, HERE / name)
    try:
        subprocess.run(maturin(given), cwd=HERE, check=True)
    finally:
        shutil.rmtree(HERE / "data")
        for name in LICENCES:
            (HERE / name).unlink()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the folder for the wheel")
    parser.add_argument("--binary", type=pathlib.Path, help="the binary to include; built if it is not given")
    parser.add_argument("--profile", default="release", help="the profile of cargo: release, or dist for shipping")
    parser.add_argument("--maturin", default="maturin", help="the command `maturin`")
    parser.add_argument("--target", help="the target triple, if it is not this machine")
    parser.add_argument(
        "--manylinux", action="store_true", help="for every Linux since 2014; needs the package ziglang beside maturin"
    )
    given = parser.parse_args()
    given.out = given.out.absolute()
    given.binary = given.binary and given.binary.absolute()
    return given


def built_binary(given):
    """Builds the binary with cargo, or with cargo-zigbuild where it has to run on old systems."""
    command = ["cargo", "zigbuild"] if given.manylinux else ["cargo", "build"]
    command += ["--locked", "--profile", given.profile, "-p", "onceward-cli"]
    target = given.target or (host() if given.manylinux else None)
    if target:
        # 2.17 is the C library of manylinux2014.
        command += ["--target", f"{target}.2.17" if given.manylinux else target]
    subprocess.run(command, cwd=ROOT, check=True)
    folder = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
    windows = "windows" in (target or sys.platform) or sys.platform == "win32"
    return folder / (target or "") / given.profile / ("onceward.exe" if windows else "onceward")


def host():
    version = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    return next(line.removeprefix("host: ") for line in version.splitlines() if line.startswith("host: "))


def maturin(given):
    command = [given.maturin, "build", "--locked", "--profile", given.profile, "--out", str(given.out)]
    if given.target:
        command += ["--target", given.target]
    if given.manylinux:
        return [*command, "--zig", "--compatibility", "manylinux2014"]
    return [*command, "--compatibility", "linux"] if sys.platform == "linux" else command


if __name__ == "__main__":
    main()
