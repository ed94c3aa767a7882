#!/usr/bin/env python3
"""Builds the wheel, installs it into an empty environment without Rust, and uses it from there.

tests/python/wheel.py --binary target/release/onceward
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import traceback
import venv

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "packages"))

import install  # noqa: E402


class Wheel:
    """A wheel in an environment of its own."""

    def __init__(self, tools, binary, profile, folder):
        self.tools, self.binary, self.profile, self.folder = tools, binary, profile, folder
        self.file = self.build()
        environment = folder / "an environment"
        venv.create(environment, with_pip=False)
        self.bin = environment / "bin"
        self.run([tools / "uv", "pip", "install", "--offline", "--no-deps", "--python", self.bin / "python", self.file])

    def build(self):
        dist = self.folder / "dist"
        command = [sys.executable, ROOT / "sdk/python/build.py", "--binary", self.binary, "--profile", self.profile]
        command += ["--out", dist, "--maturin", self.tools / "maturin"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        (wheel,) = dist.glob("*.whl")
        return wheel

    def run(self, command, code=0, **options):
        """Runs a command that finds neither cargo nor the sources."""
        system = os.pathsep.join(["/usr/local/bin", "/usr/bin", "/bin"])
        environment = {
            "PATH": f"{self.bin if hasattr(self, 'bin') else ''}{os.pathsep}{system}",
            "HOME": str(self.folder),
            "UV_CACHE_DIR": str(self.folder / "cache"),
        }
        words = [str(word) for word in command]
        done = subprocess.run(
            words, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=120, check=False, **options
        )
        assert done.returncode == code, f"{words} ended with {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout


def the_wheel_is_for_every_python_from_3_10_on(wheel):
    assert "-cp310-abi3-" in wheel.file.name, wheel.file.name
    assert "no cargo" in wheel.run(["sh", "-c", "command -v cargo rustc || echo no cargo"])


def the_package_works_without_rust(wheel):
    assert "3 effects" in wheel.run([wheel.bin / "python", "-I", HERE / "use.py"])


def the_command_is_installed(wheel):
    assert wheel.run(["onceward", "--version"]).startswith("onceward "), "the version"
    command = ["onceward", "run", "--operation", "greet", "--key", "k", "--", "sh", "-c", "echo hello; echo once >>effects"]
    assert wheel.run(command) == wheel.run(command) == "hello\n"
    assert (wheel.folder / "effects").read_text() == "once\n"


def the_command_and_the_package_share_a_ledger(wheel):
    program = """
import onceward
ledger = onceward.Ledger("shared.db")
@ledger.once(operation="pay", key=["invoice"], tier="payment")
def pay(invoice: str) -> str: raise TimeoutError("no answer")
try: pay("i-7")
except TimeoutError: pass
try: pay("i-7")
except onceward.InDoubt as error: print(error.settle)
"""
    settle = wheel.run([wheel.bin / "python", "-c", program]).strip()
    assert settle.startswith("onceward resolve --store"), settle
    wheel.run(["sh", "-c", settle])
    assert "in_doubt" not in wheel.run(["onceward", "list", "--store", "shared.db"])


def type_checkers_find_the_types(wheel):
    package = next(wheel.bin.parent.glob("lib/*/site-packages/onceward"))
    assert (package / "py.typed").exists() and (package / "_native.pyi").exists()


def uvx_runs_the_command(wheel):
    printed = wheel.run([wheel.tools / "uvx", "--offline", "--from", wheel.file, "onceward", "--version"])
    assert printed.startswith("onceward "), printed


def uvx_runs_the_demo(wheel):
    demo = ["demo", "--payments", "6", "--store", wheel.folder / "demo.db"]
    assert "charged once" in wheel.run([wheel.tools / "uvx", "--offline", "--from", wheel.file, "onceward", *demo])


CHECKS = (
    the_wheel_is_for_every_python_from_3_10_on,
    the_package_works_without_rust,
    the_command_is_installed,
    the_command_and_the_package_share_a_ledger,
    type_checkers_find_the_types,
    uvx_runs_the_command,
    uvx_runs_the_demo,
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=pathlib.Path, required=True, help="the onceward binary")
    parser.add_argument("--profile", default="release", help="the profile of cargo with which the module is built")
    given = parser.parse_args()
    python, missing = install.python("wheel")
    if missing:
        print(f"skipped: {missing}\n0 passed, 0 failed, 1 skipped")
        return 0
    folder, failed = pathlib.Path(tempfile.mkdtemp(prefix="onceward-wheel-")), 0
    try:
        wheel = Wheel(python.parent, given.binary, given.profile, folder)
        for check in CHECKS:
            try:
                check(wheel)
            except Exception:  # an exception of any kind is a failure
                failed += 1
                print(f"FAILED: {check.__name__.replace('_', ' ')}\n{traceback.format_exc()}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(CHECKS) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
