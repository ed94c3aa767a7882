#!/usr/bin/env python3
"""Records `onceward demo` in a terminal and writes the recording as an animated SVG.

    cargo build --release && docs/images/record_demo.py

Runs the real binary in a pseudo-terminal, keeps every screen with its time, and writes one SVG without scripts or
external fonts. Viewers without animation, and readers who prefer reduced motion, see the last screen. Needs only
Python's standard library.
"""

import argparse
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# The live view needs 80 columns; the rows hold the whole table with all faults of the default seed.
COLUMNS, ROWS = 80, 34
# The demo takes 15 seconds; a run that takes longer than this hangs.
TIMEOUT_S = 120
# Screens that follow each other faster than this are shown as one.
FRAME_S = 0.08
# How long the last screen stays before the animation starts again.
HOLD_S = 6.0

FONT_SIZE, CELL_WIDTH, LINE_HEIGHT, PADDING, TITLE_BAR = 14, 8.4, 18, 14, 28
BACKGROUND, BORDER, TEXT = "#0d1117", "#3d444d", "#e6edf3"
# The SGR codes that the demo uses.
STYLES = {
    "1": ("strong", "fill:#ffffff;font-weight:bold"),
    "2": ("faint", "fill:#8b949e"),
    "32": ("good", "fill:#56d364"),
    "1;31": ("bad", "fill:#ff7b72;font-weight:bold"),
    "33": ("held", "fill:#e3b341"),
}


def record(command, folder):
    """Runs a command in a pseudo-terminal. Returns its output as (seconds since the start, bytes)."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in ("CARGO", "NO_COLOR")}
    environment.update(LC_ALL="C.UTF-8", TERM="xterm-256color")
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=child, stderr=child, start_new_session=True
    )
    os.close(child)
    start, chunks = time.monotonic(), []
    try:
        while time.monotonic() - start < TIMEOUT_S:
            if not select.select([parent], [], [], 1)[0]:
                continue
            try:
                data = os.read(parent, 65536)
            except OSError:  # the other end was closed
                data = b""
            if not data:
                break
            chunks.append((time.monotonic() - start, data))
        else:
            raise SystemExit(f"{command[0]} did not end within {TIMEOUT_S} s")
        code = process.wait(timeout=10)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(parent)
    output = b"".join(data for _, data in chunks)
    if code != 0:
        raise SystemExit(f"{command[0]} ended with {code}:\n{output.decode(errors='replace')}")
    if b"\x1b[?25l" not in output:
        raise SystemExit("the demo did not use its live view: is the pseudo-terminal too small?")
    return chunks


class Terminal:
    """The part of a terminal that the demo uses: text, colours, line feeds, moving up and erasing."""

    def __init__(self):
        self.cells = [[] for _ in range(ROWS)]
        self.row, self.column, self.style = 0, 0, ""
        self.pending = ""

    def feed(self, text):
        text = self.pending + text
        self.pending = ""
        position = 0
        while position < len(text):
            character = text[position]
            if character != "\x1b":
                self.put(character)
                position += 1
                continue
            end = position + 2
            while end < len(text) and not text[end].isalpha():
                end += 1
            if end >= len(text):
                self.pending = text[position:]
                return
            self.control(text[position + 2 : end], text[end])
            position = end + 1

    def put(self, character):
        if character == "\r":
            self.column = 0
        elif character == "\n":
            # The pseudo-terminal adds a carriage return to each line feed.
            self.row += 1
            if self.row == ROWS:
                self.row -= 1
                self.cells = self.cells[1:] + [[]]
        else:
            line = self.cells[self.row]
            line.extend([(" ", "")] * (self.column + 1 - len(line)))
            line[self.column] = (character, self.style)
            self.column += 1

    def control(self, argument, kind):
        if kind == "m":
            self.style = "" if argument in ("", "0") else argument
        elif kind == "A":
            self.row = max(0, self.row - int(argument or 1))
        elif kind == "K":
            del self.cells[self.row][self.column :]
        elif kind == "J":
            del self.cells[self.row][self.column :]
            for line in self.cells[self.row + 1 :]:
                line.clear()
        elif not (argument.startswith("?25") and kind in "hl"):
            raise SystemExit(f"the demo wrote an unknown control sequence: ESC [ {argument} {kind}")

    def screen(self):
        """Every line as a tuple of (column, style, text)."""
        return tuple(runs(line) for line in self.cells)


def runs(line):
    found = []
    for column, (character, style) in enumerate(line):
        if character == " ":
            continue
        last = found[-1] if found else None
        # A single space inside a text does not end it.
        if last and last[1] == style and column - (last[0] + len(last[2])) <= 1:
            gap = column - (last[0] + len(last[2]))
            found[-1] = (last[0], style, last[2] + " " * gap + character)
        else:
            found.append((column, style, character))
    return tuple(found)


def screens(chunks):
    """The distinct screens, each with the time at which it appears."""
    terminal, frames = Terminal(), []
    text_so_far = b""
    for at, data in chunks:
        text_so_far += data
        try:
            text = text_so_far.decode()
        except UnicodeDecodeError:  # a character was cut in two
            continue
        text_so_far = b""
        terminal.feed(text)
        screen = terminal.screen()
        if frames and at - frames[-1][0] < FRAME_S:
            frames[-1] = (frames[-1][0], screen)
        elif not frames or frames[-1][1] != screen:
            frames.append((at, screen))
    return frames


def line_svg(row, line):
    y = PADDING + TITLE_BAR + row * LINE_HEIGHT + FONT_SIZE
    pieces = []
    for column, style, text in line:
        xs = [column] if text.isascii() else range(column, column + len(text))
        x = " ".join(f"{PADDING + cell * CELL_WIDTH:g}" for cell in xs)
        name = STYLES.get(style, ("",))[0]
        css = f' class="{name}"' if name else ""
        pieces.append(f'<tspan x="{x}"{css}>{escape(text, quote=False)}</tspan>')
    return f'<text y="{y}">{"".join(pieces)}</text>'


def animated_svg(frames):
    """One group for each distinct line of text, shown while that line is on the screen."""
    end = frames[-1][0]
    total = end + HOLD_S
    shown = {}  # (row, line) -> the times at which it is on the screen
    for number, (at, screen) in enumerate(frames):
        until = frames[number + 1][0] if number + 1 < len(frames) else total
        start = 0.0 if number == 0 else at
        for row, line in enumerate(screen):
            if not line:
                continue
            spans = shown.setdefault((row, line), [])
            if spans and spans[-1][1] == start:
                spans[-1] = (spans[-1][0], until)
            else:
                spans.append((start, until))
    keyframes, groups = [], []
    for number, ((row, line), spans) in enumerate(shown.items()):
        text = line_svg(row, line)
        if spans == [(0.0, total)]:
            groups.append(text)
            continue
        steps = {0.0: 0}
        for start, until in spans:
            steps[start] = 1
            if until < total:
                steps[until] = 0
        rule = "".join(f"{100 * at / total:.3f}%{{opacity:{value}}}" for at, value in sorted(steps.items()))
        keyframes.append(f"@keyframes k{number}{{{rule}}}")
        last = " last" if spans[-1][1] == total else ""
        groups.append(f'<g class="line{last}" style="animation-name:k{number}">{text}</g>')
    width = round(2 * PADDING + COLUMNS * CELL_WIDTH)
    height = 2 * PADDING + TITLE_BAR + ROWS * LINE_HEIGHT
    styles = "".join(f".{name}{{{css}}}" for name, css in STYLES.values())
    dots = "".join(
        f'<circle cx="{PADDING + 6 + 18 * number}" cy="17" r="5.5" fill="{colour}"/>'
        for number, colour in enumerate(["#ff5f57", "#febc2e", "#28c840"])
    )
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="A recording of onceward demo">
<!-- Made by docs/images/record_demo.py from a real run. -->
<style>
text{{font:{FONT_SIZE}px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:{TEXT};white-space:pre}}
.title{{fill:#8b949e;text-anchor:middle}}{styles}
.line{{opacity:0;animation:{total:.2f}s step-end infinite}}.last{{opacity:1}}
@media (prefers-reduced-motion:reduce){{.line{{animation:none}}}}
{chr(10).join(keyframes)}
</style>
<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8" fill="{BACKGROUND}" stroke="{BORDER}"/>
{dots}<text class="title" x="{width / 2:g}" y="22">onceward demo</text>
{chr(10).join(groups)}
</svg>
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/onceward", help="the binary to record")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/images/demo.svg", help="the file to write")
    parser.add_argument("--payments", type=int, help="how many invoices the agent pays")
    arguments = parser.parse_args()
    command = [str(arguments.binary.resolve()), "demo"]
    if arguments.payments is not None:
        command += ["--payments", str(arguments.payments)]
    if not arguments.binary.exists():
        sys.exit(f"{arguments.binary} does not exist: run `cargo build --release` first, or name it with --binary")
    with tempfile.TemporaryDirectory() as folder:
        frames = screens(record(command, folder))
    svg = animated_svg(frames)
    arguments.out.write_text(svg, encoding="utf-8")
    print(f"{arguments.out}: {len(frames)} screens, {frames[-1][0]:.1f} s, {len(svg) // 1024} KiB")


if __name__ == "__main__":
    main()
