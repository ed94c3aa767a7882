"""Builds the npm packages and installs them into an empty folder, as a user without Rust does."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading

from checks import Skipped
from sandbox import without_settings

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Packing and unpacking a debug build of 100 MB takes seconds; a busy machine may take many times longer.
INSTALL_SECONDS = 300

PROGRAMS = ("node", "npm", "npx")


class Installation:
    """Two folders below `folder`: `complete` has both packages, `incomplete` only the one with the launcher."""

    def __init__(self, binary, folder):
        self.folder = folder
        self.path = path_without_rust(folder / "path")
        self.packages = self.build(binary, folder / "packages")
        self.complete = self.install("complete", *self.packages)
        self.incomplete = self.install("incomplete", self.packages[1], "--omit=optional")
        self.launcher = self.complete / "node_modules" / ".bin" / "onceward"
        without_execve = folder / "without_execve.js"
        without_execve.write_text("delete process.execve;\n")
        # Newer versions of Node replace the launcher's process, older ones start a child process.
        self.ways = {"as this Node does": {}}
        if "function" in self.run(["node", "-p", "typeof process.execve"], folder).stdout:
            self.ways["as older versions of Node do"] = {"NODE_OPTIONS": f"--require {without_execve}"}

    def build(self, binary, out):
        command = [sys.executable, ROOT / "sdk" / "npm" / "build.py", "--binary", binary, "--out", out]
        done = self.run(command, self.folder)
        assert done.returncode == 0, done.stdout + done.stderr
        return [pathlib.Path(line) for line in done.stdout.splitlines()]

    def install(self, name, *arguments):
        folder = self.folder / name
        folder.mkdir()
        (folder / "package.json").write_text(json.dumps({"private": True}))
        done = self.run(["npm", "install", *arguments], folder)
        assert done.returncode == 0, done.stdout + done.stderr
        return folder

    def environment(self, **more):
        """The variables of a user without Rust. npm is offline and its cache is empty, so it installs nothing else."""
        plain = {name: value for name, value in without_settings().items() if not name.lower().startswith("npm_")}
        plain.pop("NODE_OPTIONS", None)
        plain |= {"PATH": self.path, "HOME": str(self.folder)}
        npm = {"cache": str(self.folder / "cache"), "offline": "true", "update_notifier": "false", "audit": "false"}
        return plain | {f"npm_config_{name}": value for name, value in npm.items()} | more

    def run(self, command, folder, **more):
        return subprocess.run(
            [str(part) for part in command], cwd=folder, env=self.environment(**more), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False,
        )


def path_without_rust(links):
    """A search path with Node and npm on which there is no Rust."""
    links.mkdir()
    for program in PROGRAMS:
        found = shutil.which(program)
        if not found:
            raise Skipped(f"{program} is not installed")
        (links / program).symlink_to(found)
    folders = os.environ["PATH"].split(os.pathsep)
    plain = [folder for folder in folders if not any(shutil.which(name, path=folder) for name in ("cargo", "rustc"))]
    return os.pathsep.join([str(links), *plain])


class Once:
    """The one installation of all checks, made for the first that needs it. If that fails, every check reports why."""

    def __init__(self, folder):
        self.folder, self.lock, self.made = pathlib.Path(folder), threading.Lock(), None

    def __call__(self, binary):
        with self.lock:
            if self.made is None:
                try:
                    self.made = Installation(binary, self.folder)
                except Exception as error:  # raised again below, for each check
                    self.made = error
        if isinstance(self.made, Exception):
            raise self.made
        return self.made
