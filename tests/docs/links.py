#!/usr/bin/env python3
"""Checks that every relative link in the documentation leads to a file, and every anchor to a heading.

    python3 tests/docs/links.py [ROOT]

Links to other hosts are not followed.
"""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2]).resolve()

FENCE = re.compile(r"^(?P<fence>```+|~~~+).*?^(?P=fence)\s*$", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
# [text](target "title") and ![text](target): the text may span lines and hold one level of brackets.
INLINE_LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+[\"'][^\"']*[\"'])?\s*\)")
REFERENCE = re.compile(r"^\s{0,3}\[[^\]]+\]:\s+<?(\S+?)>?(?:\s|$)", re.MULTILINE)
HTML_LINK = re.compile(r"<(?:a|img)\b[^>]*?\b(?:href|src)=[\"']([^\"']+)[\"']", re.IGNORECASE)
HTML_ANCHOR = re.compile(r"<[a-z][^>]*?\b(?:id|name)=[\"']([^\"']+)[\"']", re.IGNORECASE)
HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.+?)\s*#*\s*$", re.MULTILINE)
LINE_ANCHOR = re.compile(r"L(\d+)(?:-L(\d+))?")


def documents():
    """All tracked Markdown files, and new ones that are not ignored."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted(path for name in listed.split("\0") if name and (path := ROOT / name).is_file())


def prose(text):
    """The text without code, which may hold what looks like a link. Lines stay where they are."""
    blank = lambda match: "\n" * match.group().count("\n")
    return CODE_SPAN.sub(lambda match: "`" + blank(match), FENCE.sub(blank, text))


def slug(heading):
    """The anchor that GitHub makes of a heading."""
    heading = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    heading = re.sub(r"<[^>]+>", "", heading)
    kept = "".join(c for c in heading.lower() if c.isalnum() or c in " -_")
    return kept.strip().replace(" ", "-")


def anchors(path):
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    found, seen = set(HTML_ANCHOR.findall(text)), {}
    for heading in HEADING.findall(text):
        name = slug(heading)
        number = seen.get(name, 0)
        seen[name] = number + 1
        found.add(name if number == 0 else f"{name}-{number}")
    return found


def links(path):
    """Every link of a document, with its line."""
    text = prose(path.read_text(encoding="utf-8"))
    for pattern in (INLINE_LINK, REFERENCE, HTML_LINK):
        for match in pattern.finditer(text):
            yield text.count("\n", 0, match.start(1)) + 1, match.group(1)


def problem(document, link):
    """What is wrong with a link; nothing if it is right."""
    if re.match(r"[a-z][a-z0-9+.-]*:|//", link, re.IGNORECASE):
        return None
    target, _, anchor = link.partition("#")
    path = document if not target else (document.parent / unquote(target)).resolve()
    if not path.is_relative_to(ROOT):
        return "leads out of the repository"
    if not path.exists():
        return f"{path.relative_to(ROOT)} does not exist"
    if not anchor:
        return None
    if path.suffix == ".md":
        return None if unquote(anchor) in anchors(path) else f"{path.relative_to(ROOT)} has no heading for #{anchor}"
    if lines := LINE_ANCHOR.fullmatch(anchor):
        last = max(int(number) for number in lines.groups() if number)
        return None if path.is_file() and last <= path.read_bytes().count(b"\n") else f"there is no line {last}"
    return f"an anchor into {path.relative_to(ROOT)} cannot be checked"


def main():
    passed = failed = 0
    for document in documents():
        for line, link in links(document):
            if found := problem(document, link):
                failed += 1
                print(f"{document.relative_to(ROOT)}:{line}: {link}: {found}")
            else:
                passed += 1
    if passed == 0:
        failed += 1
        print("no links were found: is this the right folder?")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
