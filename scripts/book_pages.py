#!/usr/bin/env python3
"""Prepares the pages of docs for the book: mdBook runs it as a preprocessor.

    scripts/book_pages.py supports html
    scripts/book_pages.py < BOOK > BOOK

A page whose first line is `<!-- in the book: ../FILE.md -->` is replaced by that file, so that README and the other pages at the
top of the repository are in the book too. Links are made those of the book: a link to such a file leads to its page, and a link
to a file that the book does not have is left out, with its words kept.
"""

import json
import os
import re
import sys
from pathlib import Path, PurePosixPath

# mdBook runs this file without options, and no cache is to be left beside it.
sys.dont_write_bytecode = True
import links  # noqa: E402

TAKEN = re.compile(r"<!-- in the book: (\S+) -->")


class Book:
    """The pages of a directory, each by its path from the repository's root."""

    def __init__(self, root, source):
        self.root, self.source = root, source
        self.taken = {}  # {path of a file outside: path of the page that it is in the book}
        for page in sorted((root / source).glob("**/*.md")):
            found = TAKEN.match(page.read_text())
            if found:
                path = page.relative_to(root).as_posix()
                self.taken[joined(path, found[1])] = path

    def chapter(self, path, text):
        """The text of the page at `path` below the source directory, with links as the book has them."""
        path = f"{self.source}/{path}"
        origin = next((outside for outside, page in self.taken.items() if page == path), path)
        if origin != path:
            text = (self.root / origin).read_text()
        return with_links(text, lambda link: self.link(path, origin, link))

    def link(self, path, origin, link):
        """A link of the file `origin`, from the page at `path`; None if the book does not have its target."""
        if re.match(r"[a-z][a-z0-9+.-]*:|//|#", link):
            return link
        name, mark, anchor = link.partition("#")
        target = joined(origin, name)
        target = self.taken.get(target, target)
        if not target.startswith(f"{self.source}/") or target == f"{self.source}/SUMMARY.md":
            return None
        # mdBook makes the page README of a folder its index.
        target = re.sub(r"(^|/)README\.md$", r"\1index.md", target)
        return os.path.relpath(target, PurePosixPath(path).parent) + mark + anchor


def joined(path, link):
    """The path that a link of the file at `path` leads to."""
    return os.path.normpath(PurePosixPath(path).parent / link)


def with_links(text, link):
    """A text with each of its links replaced by `link` of it; where that is None, by its words."""
    return "\n".join(line if is_code else line_with_links(line, link) for line, is_code in links.fenced(text))


def line_with_links(line, link):
    masked = links.CODE.sub(lambda code: "." * len(code[0]), line)
    parts, at = [], 0
    for found in links.LINK.finditer(masked):
        target = link(found[1])
        start, end = found.span(1)
        if target is None:
            words = found.start() + masked[found.start() :].index("[") + 1
            parts += [line[at : found.start()], line[words : masked.rindex("](", 0, start)]]
        else:
            parts += [line[at:start], target, line[end : found.end()]]
        at = found.end()
    return "".join(parts) + line[at:]


def chapters(items):
    """Every chapter of a book, in its order."""
    for item in items:
        if "Chapter" in item:
            yield item["Chapter"]
            yield from chapters(item["Chapter"]["sub_items"])


def main(arguments):
    """Says which renderers are supported, or passes a book on; the exit code."""
    if arguments[:1] == ["supports"]:
        return 0 if arguments[1:] == ["html"] else 1
    context, book = json.load(sys.stdin)
    pages = Book(Path(context["root"]), context["config"]["book"]["src"])
    for chapter in chapters(book["items"]):
        if chapter["source_path"]:
            chapter["content"] = pages.chapter(chapter["source_path"], chapter["content"])
    json.dump(book, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
