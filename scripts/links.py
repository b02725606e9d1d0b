#!/usr/bin/env python3
"""Checks the links between the pages of this repository, and the table of contents of the book.

    scripts/links.py [DIRECTORY]

Every relative link and picture of README, of the other pages at the top, of docs and of the crates must lead to a file, and to a
heading of it where it names one. docs/SUMMARY.md must have every page below docs exactly once. A path that a page at the top or a
record of a decision has as code must exist. Each wrong link is printed, and the exit code is 1. Links to other sites are not
followed. In a DIRECTORY with an index.html, such as target/book, the same is checked of all pages of HTML.
"""

import re
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote

PAGES = ["*.md", "docs/**/*.md", "crates/*/README.md", "examples/**/*.md", "fuzz/*.md"]
SUMMARY = "docs/SUMMARY.md"

FENCE = re.compile(r"\s*(`{3,}|~{3,})")
CODE = re.compile(r"(`+)(?:.*?[^`])?\1(?!`)")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)<>]+?)>?(?:\s+\"[^\"]*\")?\s*\)")
REFERENCE = re.compile(r"^\s{0,3}\[[^\]]+\]:\s*<?([^>\s]+)>?", re.M)
ATTRIBUTE = re.compile(r"(?:href|src)=\"([^\"]+)\"")
# A path below a folder of the repository, as code, without a name to be filled in.
PATH = re.compile(r"`((?:src|crates|tests|benches|examples|scripts|scenarios|fuzz|dist)(?:/[\w.-]+)+)/?`")
ID = re.compile(r"(?:id|name)=\"([^\"]+)\"")


class Page:
    """A page: its links with their lines, and the anchors that it has."""

    def __init__(self, path):
        self.path = path
        text = COMMENT.sub(lambda m: "\n" * m[0].count("\n"), path.read_text())
        self.links, self.paths, self.anchors = [], [], {*ID.findall(text), "top"}
        if path.suffix == ".html":
            for number, line in enumerate(text.split("\n"), 1):
                self.links += [(number, unescape(unquote(link))) for link in ATTRIBUTE.findall(line)]
            return
        seen = {}
        for number, (line, is_code) in enumerate(fenced(text), 1):
            if is_code:
                continue
            heading = re.match(r"#{1,6}\s+(.*?)\s*#*$", line)
            if heading:
                name = slug(heading[1])
                seen[name] = seen.get(name, -1) + 1
                self.anchors.add(f"{name}-{seen[name]}" if seen[name] else name)
            self.paths += [(number, path) for path in PATH.findall(line) if not re.search("[A-Z]{3}", path)]
            prose = CODE.sub("", line)
            for pattern in (LINK, REFERENCE, ATTRIBUTE):
                self.links += [(number, target) for target in pattern.findall(prose)]


def fenced(text):
    """Each line of a page, with whether it is in a fenced block of code or one of its fences."""
    fence = None
    for line in text.split("\n"):
        mark = FENCE.match(line)
        is_fence = bool(mark) and (fence is None or mark[1].startswith(fence))
        if is_fence:
            fence = None if fence else mark[1]
        yield line, is_fence or fence is not None


def slug(heading):
    """The anchor of a heading, as GitHub and mdBook make it."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"<[^>]*>", "", text).strip().lower()
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", text))


class Links:
    """The pages of a directory, and what is wrong with their links."""

    def __init__(self, directory):
        self.directory = directory
        patterns = ["**/*.html"] if (directory / "index.html").exists() else PAGES
        files = sorted({file for pattern in patterns for file in directory.glob(pattern)})
        self.pages = {file: Page(file) for file in files}

    def wrong(self):
        """A line for each link that leads nowhere."""
        for page in self.pages.values():
            for number, link in page.links:
                why = self.why_wrong(page, link)
                if why:
                    yield f"{page.path.relative_to(self.directory)}:{number}: {link}: {why}"
            if page.path.parent in (self.directory, self.directory / "docs" / "decisions"):
                for number, path in page.paths:
                    if not (self.directory / path).exists():
                        yield f"{page.path.relative_to(self.directory)}:{number}: {path}: there is no such file"
        yield from self.wrong_contents()

    def why_wrong(self, page, link):
        """What is wrong with a link; None if nothing is."""
        if re.match(r"[a-z][a-z0-9+.-]*:|//", link):
            return None
        name, _, anchor = link.partition("#")
        if name.startswith("/"):
            return "it begins at the root of a site, which the pages do not know"
        target = (page.path.parent / name).resolve() if name else page.path
        if not target.exists():
            return "there is no such file"
        if not target.is_relative_to(self.directory):
            return "it leads out of the repository"
        if anchor and target.suffix in (".md", ".html") and anchor not in self.page(target).anchors:
            return "the page has no such heading"
        return None

    def page(self, path):
        if path not in self.pages:
            self.pages[path] = Page(path)
        return self.pages[path]

    def wrong_contents(self):
        """What the table of contents of the book has twice or not at all."""
        summary = self.directory / SUMMARY
        if summary not in self.pages:
            return
        listed = [(summary.parent / link.partition("#")[0]).resolve() for _, link in self.pages[summary].links]
        for path in sorted(set(listed)):
            if listed.count(path) > 1:
                yield f"{SUMMARY}: {path.relative_to(self.directory)} is there {listed.count(path)} times"
        for path in self.pages:
            if path.is_relative_to(summary.parent) and path != summary and path not in listed:
                yield f"{SUMMARY}: {path.relative_to(self.directory)} is missing"


def main(arguments):
    """Prints what is wrong; the exit code."""
    directory = Path(arguments[0] if arguments else Path(__file__).parent.parent).resolve()
    links = Links(directory)
    if not links.pages:
        print(f"links: no page in {directory}", file=sys.stderr)
        return 2
    wrong = list(links.wrong())
    for line in wrong:
        print(line)
    count = sum(len(page.links) for page in links.pages.values())
    print(f"links: {len(wrong)} wrong; {count} links on {len(links.pages)} pages")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
