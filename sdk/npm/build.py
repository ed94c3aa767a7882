#!/usr/bin/env python3
"""Builds the npm packages: `onceward` with the launcher, and the package of this platform with the binary.

    sdk/npm/build.py --binary target/dist/onceward --out target/npm

The version comes from the workspace's Cargo.toml. Needs npm, and nothing from a registry.
"""

import argparse
import json
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LICENCES = ("LICENSE-APACHE", "LICENSE-MIT")

# Node's names of systems and processors, by Python's names.
SYSTEMS = {"Linux": "linux", "Darwin": "darwin", "Windows": "win32"}
PROCESSORS = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}

# Compressing a debug build of 100 MB takes seconds; a busy machine may take many times longer.
PACK_SECONDS = 300
VERSION_SECONDS = 30


class Failed(Exception):
    """The packages cannot be built."""


def main():
    arguments = arguments_of()
    try:
        version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
        check_version(version, arguments.binary, arguments.tag)
        npm = shutil.which("npm")
        if not npm:
            raise Failed("npm is not installed")
        arguments.out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            launcher_package(folder / "launcher", version, arguments.omit)
            platform_package(folder / "platform", version, arguments.binary)
            for name in ("platform", "launcher"):
                print(arguments.out / pack(npm, folder / name, arguments.out))
    except (Failed, OSError) as error:
        print(f"cannot build the npm packages: {error}", file=sys.stderr)
        return 1
    return 0


def arguments_of():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, required=True, help="the onceward binary for this platform")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the folder for the .tgz files")
    parser.add_argument("--omit", action="append", default=[], metavar="PLATFORM",
                        help="a platform without a package in this release, such as win32-x64")
    parser.add_argument("--tag", help="fail unless this is `v` and the version")
    return parser.parse_args()


def check_version(version, binary, tag):
    """Refuses a binary of another version, and a tag that does not name the version."""
    if tag is not None and tag != f"v{version}":
        raise Failed(f"the tag is {tag}, and the version in Cargo.toml is {version}")
    done = subprocess.run([binary.resolve(), "--version"], capture_output=True, text=True, timeout=VERSION_SECONDS)
    if done.stdout.split() != ["onceward", version]:
        raise Failed(f"{binary} prints {done.stdout.strip()!r} as its version, and Cargo.toml has {version}")


def launcher_package(folder, version, omitted):
    shutil.copytree(HERE / "onceward", folder)
    manifest = json.loads((folder / "package.json").read_text())
    listed = manifest["optionalDependencies"]
    if unknown := [name for name in omitted if f"@onceward/{name}" not in listed]:
        raise Failed(f"unknown platforms to omit: {', '.join(unknown)}")
    wanted = [name for name in listed if name.removeprefix("@onceward/") not in omitted]
    # An exact version: the launcher and the binary belong together.
    manifest |= {"version": version, "optionalDependencies": dict.fromkeys(wanted, version)}
    complete(folder, manifest)


def platform_package(folder, version, binary):
    system, processor = this_platform()
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / ("onceward.exe" if system == "win32" else "onceward")
    shutil.copyfile(binary, program)
    program.chmod(0o755)
    launcher = json.loads((HERE / "onceward" / "package.json").read_text())
    manifest = {
        "name": f"@onceward/{system}-{processor}",
        "version": version,
        "description": f"The onceward binary for {system}-{processor}; install the package onceward instead",
        "license": launcher["license"],
        "repository": launcher["repository"] | {"directory": "sdk/npm"},
        "files": launcher["files"],
        "os": [system],
        "cpu": [processor],
        # Yarn would otherwise leave the binary inside an archive, where it cannot be run.
        "preferUnplugged": True,
    }
    if system == "linux":
        manifest["libc"] = ["glibc"]
    (folder / "README.md").write_text(
        f"# {manifest['name']}\n\nThe binary of [Onceward](https://github.com/onceward/onceward) for this platform. "
        "Do not install this package by itself: install `onceward`, which depends on it.\n"
    )
    complete(folder, manifest)


def this_platform():
    system, processor = SYSTEMS.get(platform.system()), PROCESSORS.get(platform.machine().lower())
    if not system or not processor:
        raise Failed(f"there is no npm package for {platform.system()} on {platform.machine()}")
    return system, processor


def complete(folder, manifest):
    """Adds what both packages have."""
    (folder / "package.json").write_text(json.dumps(manifest, indent=2) + "\n")
    for licence in LICENCES:
        shutil.copyfile(ROOT / licence, folder / licence)


def pack(npm, folder, out):
    """Makes the .tgz file of a package and returns its name."""
    command = [npm, "pack", "--ignore-scripts", "--loglevel=error", "--pack-destination", out.resolve()]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PACK_SECONDS, check=False)
    if done.returncode:
        raise Failed(f"npm pack: {done.stderr.strip() or done.stdout.strip()}")
    # npm prints the name last.
    return done.stdout.split()[-1]


if __name__ == "__main__":
    sys.exit(main())
