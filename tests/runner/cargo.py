"""Cargo commands, and the programs that a build has made. Test programs are run directly: cargo would first wait for the lock
that the next build holds."""

import json
import pathlib
import subprocess

from runner import counts
from runner.schedule import Stage

# Tests wait for servers, clocks and disks more than they compute.
TEST_THREADS = 8


def build(*command):
    """A build whose log names the programs that it makes."""
    return ["cargo", *command, "--locked", "--message-format", "json-render-diagnostics"]


# All packages at once in both builds, so that dependencies have the same features and are built once. The hooks of the
# harnesses are a feature of the library, and not in what is tested here.
TESTS = ["--workspace", "--no-default-features", "--features", "onceward-bench/peers"]

# The tests, and everything that they run. The Python module is one of the libraries: a build of its own, without the tests, would
# give many dependencies other features and build them again.
BUILD_TESTS = build("build", "--lib", "--bins", "--examples", "--tests", *TESTS)
BUILD_HARNESSES = build("test", "--no-run", "--workspace", "--bin", "onceward-sim", "--test", "harnesses")

# Clippy is the compiler and more: lints are judged while the tests are built. A failed lint is a failed build.
LINTED = {"RUSTC_WORKSPACE_WRAPPER": "clippy-driver", "CLIPPY_ARGS": "-Dwarnings__CLIPPY_HACKERY__"}


def target_folder():
    """Where cargo builds: `target/`, unless CARGO_TARGET_DIR or a configuration file says otherwise."""
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1"]
    metadata = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return pathlib.Path(json.loads(metadata)["target_directory"])


def test_programs(log):
    """The test programs that a build has made."""
    messages = [json.loads(line) for line in log.splitlines() if line.startswith('{"reason":"compiler-artifact"')]
    return [message for message in messages if message["executable"] and message["profile"]["test"]]


def test_stages(log, title, needs):
    """A stage for each test program, in the folder and with the variables that cargo would give it. Integration tests need
    other stages."""
    stages = []
    for made in test_programs(log):
        folder = pathlib.Path(made["manifest_path"]).parent
        command = [made["executable"], "--test-threads", TEST_THREADS, "--show-output"]
        name = f"{title}: {folder.name}, {' '.join(made['target']['kind'])} {made['target']['name']}"
        variables = {"CARGO": "cargo", "CARGO_MANIFEST_DIR": folder}
        needed = needs if made["target"]["kind"] == ["test"] else ()
        stages.append(Stage(name, command, needed, read=counts.of_cargo, environment=variables, folder=folder))
    # The integration tests take longest, so they start first.
    return sorted(stages, key=lambda stage: " test " not in stage.name)
