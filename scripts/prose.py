#!/usr/bin/env python3
"""Finds sentence fragments and listed words in comments, help and docs.

    scripts/prose.py [--list] [PATH...]

It reads the tracked files below PATH (all without one): the comments of Rust, of scripts and of settings, the pages, and the
reviewed help. CONTRIBUTING.md says how prose should read. A line that is right all the same is in scripts/prose_allowed.txt,
with the reason. Everything else that is found is printed, and the exit code is 1.

--list prints the listed words with their replacements.
"""

import re
import subprocess
import sys
from pathlib import Path

ALLOWED = "scripts/prose_allowed.txt"
HELP = "src/cli/snapshots/farwire__cli__man__tests__help.snap"

# The listed words, each as a pattern, with its replacement.
WORDS = {
    r"in the mean": "on average",
    r"at once": "immediately, or simultaneously",
    r"so many": "this many, or the number",
    r"so long": "this long, or the time",
    r"(?:holds?|holding|held) against": "compare with",
    r"but for": "except for",
    r"comes? to": "amounts to, or reaches",
    r"told apart": "distinguished",
    r"of its own": "own, or separate",
    r"that which": "the noun",
    r"in so far": "as far as",
    r"(?:is|are) known by": "is identified by",
    r"(?:what stands|stands (?:in|there|for))": "exists, is in force, or represents",
    r"came about": "happened",
    r"of which (?:[\w-]+ ){1,4}those": "two sentences",
}
LISTED = [(re.compile(rf"\b(?:{pattern})\b", re.I), better) for pattern, better in WORDS.items()]

# A paragraph that begins with one of these is often a part of a sentence.
OPENERS = "What Of How Which That Whose Whom But So As With Without By To In At From For Than Where When Why Who"
OPENING = re.compile(rf"\s*({OPENERS.replace(' ', '|')})\b(.*)")
# A main clause is looked for behind the first comma: one of these words, or one that ends like a verb of the third person and is none
# of the second list.
COMMON_VERBS = "is are has have does do can must may will return returns give gives mean means use uses keep keeps take takes".split()
VERBS = [*COMMON_VERBS, *"was were had did would should could fit need wait leave pass".split()]
NO_VERBS = "its this as us less always ms bytes packets perhaps unless".split()

# A sentence whose subject is a clause: "What arrived meanwhile is left out". A question is none.
CLAUSE_FIRST = re.compile(r"(?:^|[.!] )(What (?:[^.?!]|[.?!](?! |$))*([.?!]?))(?= |$)")

HASH_COMMENTS = (".py", ".sh", ".toml", ".yaml", ".yml", ".service", "Makefile")


class Finding:
    """A place, and what is wrong there."""

    def __init__(self, path, number, line, what):
        self.path, self.number, self.line, self.what = path, number, line.strip(), what

    def __str__(self):
        return f"{self.path}:{self.number}: {self.what}: {self.line[:140]}"


class Paragraph:
    """Neighbouring lines of prose, without the signs of a comment."""

    def __init__(self, path, kind):
        self.path, self.kind, self.lines = path, kind, []

    def findings(self):
        """What is wrong in it."""
        first, line = self.lines[0]
        if self.kind == "comment" and is_fragment(line):
            yield Finding(self.path, first, line, "fragment")
            first = None
        for pattern, better in LISTED:
            for match, number, line in self.matches(pattern, self.lines):
                yield Finding(self.path, number, line, f"`{match[0]}` ({better})")
        sentences = [(n, line) for n, line in self.lines if not line.lstrip().startswith(("#", "|"))]
        for match, number, line in self.matches(CLAUSE_FIRST, sentences):
            if match[2] != "?" and not (first is None and match.start() == 0):
                yield Finding(self.path, number, line, "a clause with What as the subject (name the noun)")

    def matches(self, pattern, lines):
        """Where a pattern is found, also across the ends of lines: (match, line number, line)."""
        text, starts = "", []
        for number, line in lines:
            starts.append((len(text), number, line))
            text += line.strip() + " "
        for match in pattern.finditer(text):
            at = match.start(1) if pattern.groups else match.start()
            number, line = next((n, line) for start, n, line in reversed(starts) if start <= at)
            yield match, number, line


def is_fragment(text):
    """Whether a paragraph's first line begins like a part of a sentence and has no main clause."""
    opening = OPENING.match(text)
    if not opening or (opening[1] == "How" and opening[2].startswith(" to")) or text.rstrip().endswith("?"):
        return False
    _, comma, clause = opening[2].partition(",")
    words = re.findall(r"[\w'’]+", clause)
    return not comma or not any(map(may_be_verb, re.findall(r"\w+", clause))) or not any(map(is_verb, words))


def may_be_verb(word):
    """Whether a main clause could have this word as its verb, at first sight."""
    return word in COMMON_VERBS or (word.endswith("s") and len(word) > 1)


def is_verb(word):
    """Whether a word may be the verb of a main clause."""
    ends_like_one = word.endswith("s") and not word.endswith(("'s", "’s", "s'")) and word not in NO_VERBS
    return word in VERBS or ends_like_one


def paragraphs(path, text):
    """The paragraphs of prose in a file; on a page also the comments of the Rust that it shows."""
    lines = text.split("\n")
    if path == HELP or path.endswith(".md"):
        yield from blocks(path, "page", enumerate(lines, 1))
    if not path.endswith(".rs"):
        yield from comments(path, "script", r"##?", lines if path.endswith(HASH_COMMENTS) or path.startswith("scripts/") else [])
    if path.endswith((".rs", ".md")):
        yield from comments(path, "comment", r"///|//!|//", lines)


def comments(path, kind, marks, lines):
    """The paragraphs of comments that begin with one of some marks, each on lines of its own."""
    pattern = re.compile(rf"\s*(?:{marks})(?:\s+(.*)|$)")
    found = ((number, pattern.match(line)) for number, line in enumerate(lines, 1))
    return blocks(path, kind, ((number, (match[1] or "") if match else "") for number, match in found))


def blocks(path, kind, lines):
    """Paragraphs of neighbouring lines that are not empty."""
    paragraph = Paragraph(path, kind)
    for number, line in [*lines, (0, "")]:
        if line.strip():
            paragraph.lines.append((number, line))
        elif paragraph.lines:
            yield paragraph
            paragraph = Paragraph(path, kind)


def is_prose(path, directory):
    """Whether a file has comments, help or pages that are read."""
    if path.endswith((".rs", ".md", *HASH_COMMENTS)) or path == HELP:
        return True
    return path.startswith("scripts/") and (directory / path).read_bytes()[:2] == b"#!"


def tracked(directory, paths):
    """The tracked files below some paths."""
    command = ["git", "-C", str(directory), "ls-files", "-z", *paths]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")[:-1]


def findings(path, text):
    """What is wrong in a file, in the order of its lines."""
    found = {(f.number, f.what): f for paragraph in paragraphs(path, text) for f in paragraph.findings()}
    return sorted(found.values(), key=lambda f: f.number)


def read_allowed(text):
    """[(path, part of the line, reason)] of the list of allowed lines."""
    allowed = []
    for line in text.split("\n"):
        if line.startswith(" ") and allowed:
            path, part, reason = allowed.pop()
            allowed.append((path, part, f"{reason} {line.strip()}".strip()))
        elif line.strip() and not line.startswith("#"):
            path, _, part = line.partition(": ")
            allowed.append((path, part.strip(), ""))
    return allowed


def main(arguments, directory=Path(__file__).parent.parent):
    """Prints what is found; the exit code."""
    if "--list" in arguments:
        for pattern, better in WORDS.items():
            print(f"{pattern}: {better}")
        return 0
    allow_file = directory / ALLOWED
    allowed = read_allowed(allow_file.read_text()) if allow_file.exists() else []
    files = [path for path in tracked(directory, arguments) if (directory / path).is_file() and is_prose(path, directory)]
    used, left = set(), []
    for path in files:
        for finding in findings(path, (directory / path).read_text(errors="replace")):
            entry = next((e for e in allowed if e[0] == path and e[1] in finding.line), None)
            if entry:
                used.add(entry)
            else:
                left.append(finding)
    for finding in left:
        print(finding)
    stale = [e for e in allowed if e not in used and (not arguments or e[0] in files)]
    for path, part, _ in stale:
        print(f"{ALLOWED}: nothing is found in {path} at `{part}`: remove the entry")
    bare = [e for e in allowed if not e[2]]
    for path, part, _ in bare:
        print(f"{ALLOWED}: the entry of {path} at `{part}` has no reason")
    print(f"prose: {len(left)} findings in {len(files)} files; {len(used)} allowed entries")
    return 1 if left or stale or bare else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
