"""The fenced examples and inline commands of the documents for agents, and whether programs accept them."""

import pathlib
import re
import shlex
import subprocess
import typing

FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
COMMAND_SPAN = re.compile(r"`(onceward [^`]+)`")

# What ends a command in a line of shell.
ENDINGS = re.compile(r"[;|&<>()]+")

# A limit for programs that only parse.
TIMEOUT = 30


class Example(typing.NamedTuple):
    document: pathlib.Path
    language: str
    text: str

    def name(self):
        return f"{self.document.name}: {self.text.strip().splitlines()[0]}"


def examples(documents, language):
    """The fenced examples in a language."""
    found = [Example(path, *match.groups()) for path in documents for match in FENCE.finditer(path.read_text())]
    return [example for example in found if example.language == language]


def commands(documents):
    """Every `onceward` command in shell examples and in the text, as a list of its arguments."""
    for example in examples(documents, "sh"):
        for line in example.text.replace("\\\n", " ").splitlines():
            yield from commands_in(line)
    for path in documents:
        for span in COMMAND_SPAN.findall(FENCE.sub("", path.read_text())):
            yield from commands_in(span)


def commands_in(line):
    """The `onceward` commands in one line of shell."""
    reader = shlex.shlex(line, posix=True, punctuation_chars=True)
    reader.whitespace_split = True
    words = list(reader)
    for at, word in enumerate(words):
        starts = at == 0 or ENDINGS.fullmatch(words[at - 1]) or words[at - 1] in ("do", "then", "else")
        if word == "onceward" and starts:
            rest = words[at + 1 :]
            end = next((index for index, one in enumerate(rest) if ENDINGS.fullmatch(one)), len(rest))
            yield rest[:end]


def refusal(binary, arguments):
    """Why the program does not accept these arguments; None if it does. Nothing runs."""
    # The program checks every argument in front of --help.
    at = arguments.index("--") if "--" in arguments else len(arguments)
    checked = [*arguments[:at], "--help", *arguments[at:]]
    done = run([binary, *checked])
    return None if done.returncode == 0 else f"onceward {shlex.join(arguments)}: {done.stderr}"


def run(command, **options):
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT, check=False, **options
    )
