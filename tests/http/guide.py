"""The examples of the gateway reference, run as they are written there, except for addresses."""

import pathlib
import re
import shlex

GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "reference" / "gateway.md"


def example(section, language, addresses):
    """The one example of a section in a language, with addresses that are free here. Each has to stand in it."""
    _, found, rest = GUIDE.read_text().partition(f"\n## {section}\n")
    assert found, f"the guide has no section {section!r}"
    shown = re.findall(rf"^```{language}\n(.*?)^```$", rest.partition("\n## ")[0], re.MULTILINE | re.DOTALL)
    assert len(shown) == 1, f"{len(shown)} examples in {language} in {section!r}"
    text = shown[0]
    for address, here in addresses.items():
        assert address in text, f"the example in {section!r} does not name {address}"
        text = text.replace(address, here)
    return text


def commands(section, addresses):
    """The commands of a section's example as lists of words."""
    return [shlex.split(line) for line in example(section, "sh", addresses).replace("\\\n", "").splitlines()]
