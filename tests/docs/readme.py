#!/usr/bin/env python3
"""Checks that the README shows what the binary really does.

    python3 tests/docs/readme.py --binary target/debug/onceward

- Every console example of the README is run, and its output compared. Times differ from run to run and are masked.
- The recording of the demo, docs/images/demo.svg, shows what the demo prints today.
- The program that makes the recording works.
"""

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Nothing here takes half of this on a busy machine.
TIMEOUT_S = 180
TIMES = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z|\b\d\d:\d\d:\d\d\b")
AGES = re.compile(r"\bnow\b|\b\d+s ago\b")


def environment(folder):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ONCEWARD_") and name != "CARGO"}
    return {**clean, "PATH": f"{folder}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}


def masked(line):
    """The line without what differs from run to run; tables may then be padded differently."""
    return " ".join(AGES.sub("<age>", TIMES.sub("<time>", line)).split())


def console_examples():
    """The commands of the README, each with the output that follows it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    examples = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                examples.append((line[2:], []))
            else:
                examples[-1][1].append(line)
    return examples


def check_console_examples(binary, folder):
    """Runs all examples in one folder, as a reader would."""
    (folder / "onceward").symlink_to(binary)
    examples = console_examples()
    yield "the README has console examples", None if examples else "none was found"
    for command, expected in examples:
        run = subprocess.run(
            command, shell=True, cwd=folder, env=environment(folder), stdin=subprocess.DEVNULL, timeout=TIMEOUT_S,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        expected, found = [[masked(line) for line in lines] for lines in (expected, run.stdout.splitlines())]
        difference = "\n".join(difflib.unified_diff(expected, found, "README.md", "output", lineterm=""))
        yield f"$ {command}", difference or None


def recorded_lines(svg):
    """Every line of text that the recording shows at some time, without spaces."""
    root = ElementTree.parse(svg).getroot()
    texts = root.iter("{http://www.w3.org/2000/svg}text")
    return {"".join("".join(text.itertext()).split()) for text in texts}


def check_recording(binary, folder):
    run = subprocess.run(
        [binary, "demo"], cwd=folder, env=environment(folder), stdin=subprocess.DEVNULL, timeout=TIMEOUT_S,
        capture_output=True, text=True,
    )
    yield "the demo runs", None if run.returncode == 0 else run.stdout + run.stderr
    recorded = recorded_lines(ROOT / "docs/images/demo.svg")
    missing = [line for line in run.stdout.splitlines() if "".join(line.split()) not in recorded | {""}]
    stale = "\n".join([*missing, "docs/images/demo.svg does not show these lines: run docs/images/record_demo.py"])
    yield "the recording shows what the demo prints", stale if missing else None


def check_recorder(binary, folder):
    out = folder / "recording.svg"
    command = [sys.executable, ROOT / "docs/images/record_demo.py", "--binary", binary, "--out", out, "--payments", "6"]
    run = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S, capture_output=True, text=True)
    yield "the demo can be recorded", None if run.returncode == 0 else run.stdout + run.stderr
    recorded = recorded_lines(out) if out.exists() else set()
    # The totals of the default seed with six invoices, and the last paragraph.
    for text in ("charged once 4 6 5", "charged twice 2 0 0", "No other payment is held"):
        found = any(line.startswith(text.replace(" ", "")) for line in recorded)
        yield f"a new recording shows `{text}`", None if found else "\n".join(sorted(recorded))
    source = out.read_text(encoding="utf-8") if out.exists() else ""
    external = re.findall(r"<script|<foreignObject|@import|url\(|xlink:href|href=", source)
    yield "a recording needs nothing from elsewhere", f"it holds {external}" if external else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, required=True)
    binary = parser.parse_args().binary.resolve()
    passed = failed = 0
    for check in (check_console_examples, check_recording, check_recorder):
        with tempfile.TemporaryDirectory() as folder:
            for name, problem in check(binary, Path(folder)):
                if problem is None:
                    passed += 1
                    continue
                failed += 1
                print(f"FAILED: {name}\n{problem}")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
