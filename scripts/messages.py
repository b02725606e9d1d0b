#!/usr/bin/env python3
"""Checks that the program still has the messages that docs/troubleshooting.md explains.

    scripts/messages.py [DIRECTORY]

The first column of each table there quotes parts of messages as code. Each part, or each piece around a `...` in it, must be in a
Rust source that is no test. A part that is nowhere is printed, and the exit code is 1.
"""

import re
import sys
from pathlib import Path

PAGE = "docs/troubleshooting.md"


def quoted(text):
    """(line number, part) of each part of a message that the page quotes."""
    for number, line in enumerate(text.split("\n"), 1):
        cells = line.split(" | ")
        if line.startswith("| ") and len(cells) > 1:
            yield from ((number, part) for part in re.findall(r"`([^`]+)`", cells[0]))


def sources(directory):
    """The text of all sources, with strings that go over several lines joined."""
    files = [file for folder in ("src", "crates") for file in sorted((directory / folder).glob("**/*.rs"))]
    code = [file.read_text() for file in files if "tests" not in file.relative_to(directory).parts]
    return re.sub(r"\\\n\s*", "", "\n".join(code)).replace('\\"', '"')


def missing(page, code):
    """(line number, part) of each quoted part that is nowhere in the code."""
    for number, part in quoted(page):
        if not all(piece.strip() in code for piece in part.split("...")):
            yield number, part


def main(arguments):
    """Prints what is missing; the exit code."""
    directory = Path(arguments[0] if arguments else Path(__file__).parent.parent).resolve()
    page = (directory / PAGE).read_text()
    wrong = list(missing(page, sources(directory)))
    for number, part in wrong:
        print(f"{PAGE}:{number}: no message has `{part}`")
    print(f"messages: {len(wrong)} of {len(list(quoted(page)))} parts are nowhere in the program")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
