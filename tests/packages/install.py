#!/usr/bin/env python3
"""Installs the clients and servers that the tests run, below cargo's target folder, at the versions that `python/*.txt` and
`npm/package-lock.json` pin.

Run as a program, it installs all of them. Tests call `python` and `node` themselves, so that they also work on their own.
"""

import concurrent.futures
import contextlib
import fcntl
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FOLDER = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").absolute() / "tests"

# Downloads overlap with unpacking; more of them at once would only take the processor from a build.
THREADS = 3

# Only checks that are run by hand need these.
LARGE = {"duckdb", "redis"}

# For each of the other versions of Python, an environment of its own.
OF_VERSIONS = "sdk-versions"

# Set where this program has run already: what it could not install is not tried again by every test.
IS_PREPARED = os.environ.get("TEST_PACKAGES") == "prepared"

# Long enough for a slow registry, short enough to be noticed.
INSTALL_SECONDS = 600

# The environment that has `uv`. It is installed first, and the others with it: `uv` unpacks a package once for all environments,
# and takes a tenth of pip's processor time.
WITH_UV = "wheel"


class Failed(Exception):
    """An installation did not succeed."""


def environments():
    """The names of the Python environments."""
    return sorted(file.stem for file in (HERE / "python").glob("*.txt"))


def python(name):
    """The Python of one environment and None, or None and why the environment cannot be installed."""
    return environment(name, FOLDER / f"python-{name}", sys.executable)


def python_of_version(minor, interpreter):
    """The same for another version of Python."""
    return environment(OF_VERSIONS, FOLDER / f"python-3.{minor}", interpreter)


def environment(name, folder, interpreter):
    pins = HERE / "python" / f"{name}.txt"
    try:
        with installing(folder, pins) as needed:
            if needed:
                create_environment(folder, pins, interpreter)
    except Failed as error:
        return None, f"cannot install {name} from PyPI: {error}"
    return folder / "bin" / "python", None


def create_environment(folder, pins, interpreter=sys.executable):
    uv = FOLDER / f"python-{WITH_UV}" / "bin" / "uv"
    if uv.exists() and pins.stem != WITH_UV:
        # What `uv` cannot install, because it does not know a setting of pip's, for example, pip may.
        with contextlib.suppress(Failed):
            return create_with_uv(uv, folder, pins, interpreter)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    return create_with_pip(folder, pins, interpreter)


def create_with_uv(uv, folder, pins, interpreter):
    run([interpreter, "-m", "venv", "--without-pip", str(folder)])
    settings = {"UV_CACHE_DIR": str(FOLDER / "uv"), "UV_NO_CONFIG": "1"}
    for name, of_pip in (("UV_DEFAULT_INDEX", "PIP_INDEX_URL"), ("SSL_CERT_FILE", "PIP_CERT")):
        if of_pip in os.environ:
            settings[name] = os.environ.get(name, os.environ[of_pip])
    binary = folder / "bin" / "python"
    command = [str(uv), "pip", "install", "--quiet", "--python", str(binary), "--requirement", str(pins)]
    run(command, environment=os.environ | settings)


def create_with_pip(folder, pins, interpreter):
    binary = folder / "bin" / "python"
    options = ["install", "--quiet", "--no-compile", "--disable-pip-version-check", "--requirement", str(pins)]
    if importlib.util.find_spec("pip"):
        # The pip at hand installs into the environment: a copy of pip in each one would take longer than most packages.
        run([interpreter, "-m", "venv", "--without-pip", str(folder)])
        run([sys.executable, "-m", "pip", "--python", str(binary), *options])
    else:
        run([interpreter, "-m", "venv", str(folder)])
        run([str(binary), "-m", "pip", *options])


def node():
    """The folder of Node and of the programs that run on it and None, or None and why they cannot be installed."""
    pins, folder = HERE / "npm" / "package-lock.json", FOLDER / "node"
    try:
        with installing(folder, pins) as needed:
            if needed:
                if not shutil.which("npm"):
                    raise Failed("npm is not installed")
                for file in (HERE / "npm" / "package.json", pins):
                    shutil.copy(file, folder)
                # Not `npm ci`, which refuses lock files without the packages of every other platform.
                run(["npm", "install", "--loglevel=error", "--no-audit", "--no-fund"], cwd=folder)
    except Failed as error:
        return None, f"cannot install packages from npm: {error}"
    return folder / "node_modules" / ".bin", None


@contextlib.contextmanager
def installing(folder, pins):
    """Holds the lock of a folder. Yields whether its packages are to be installed: they are not if a complete installation
    of the same pins is there."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    complete, failed = folder / "installed", FOLDER / f"{folder.name}.failed"
    with open(FOLDER / f"{folder.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        needed = not complete.exists() or complete.read_bytes() != pins.read_bytes()
        if needed and IS_PREPARED and failed.exists():
            raise Failed(failed.read_text())
        if needed:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        try:
            yield needed
        except Failed as error:
            failed.write_text(str(error))
            raise
        failed.unlink(missing_ok=True)
        if needed:
            shutil.copy(pins, complete)


def path_with(programs):
    """The environment of a process that finds these programs first."""
    return os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}"}


def run(command, cwd=None, environment=None):
    options = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL, "timeout": INSTALL_SECONDS}
    try:
        done = subprocess.run(command, check=False, cwd=cwd, env=environment, **options)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(str(error)) from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        raise Failed(next((line for line in lines if "rror" in line), lines[-1])[:300])


def main():
    # Beside this file, which tests of other folders import as a part of a package.
    import interpreters

    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        work = {"npm": pool.submit(node)}
        # Before the others begin, which need it.
        python(WITH_UV)
        work |= {name: pool.submit(python, name) for name in environments() if name not in LARGE | {OF_VERSIONS}}
        work |= {minor: pool.submit(python_of_version, minor, path) for minor, path in interpreters.others().items()}
    failed = {name: result.result()[1] for name, result in work.items() if result.result()[1]}
    for why in failed.values():
        print(f"skipped: {why}")
    print(f"{len(work) - len(failed)} passed, 0 failed, {len(failed)} skipped")


if __name__ == "__main__":
    main()
