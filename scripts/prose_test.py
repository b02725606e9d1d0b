#!/usr/bin/env python3
"""Tests of prose.py: each rule finds what it is for, and leaves alone what is right."""

import contextlib
import io
import subprocess
import unittest

import prose
from test_files import directory_of

# A sentence for each listed word.
EXAMPLES = {
    "in the mean": "It takes 3 ms in the mean.",
    "at once": "All leave at once.",
    "so many": "It keeps so many packets.",
    "so long": "It waits so long.",
    "held against": "It is held against the log.",
    "hold against": "These hold against the log.",
    "but for": "All pass but for one.",
    "comes to": "The delay comes to 5 ms.",
    "told apart": "Losses are told apart.",
    "of its own": "It has a thread of its own.",
    "that which": "It sends that which is due.",
    "in so far": "It holds in so far as they agree.",
    "is known by": "It is known by its number.",
    "what stands": "It reads what stands in the file.",
    "stands for": "A name stands for a stage.",
    "came about": "It came about late.",
    "of which two are those": "Four packets, of which two are those that were lost.",
}


def found(path, text):
    """What is wrong in a file, as (line, what)."""
    return [(finding.number, finding.what) for finding in prose.findings(path, text)]


def wrong(path, text):
    return [what for _, what in found(path, text)]


@contextlib.contextmanager
def repository(files):
    """A repository with some tracked files."""
    with directory_of(files) as directory:
        subprocess.run(["git", "init", "-q", directory], check=True)
        subprocess.run(["git", "-C", directory, "add", "."], check=True)
        yield directory


def run(files, *arguments):
    """Exit code and output for a repository of `files`."""
    with repository(files) as directory, contextlib.redirect_stdout(io.StringIO()) as output:
        return prose.main(list(arguments), directory), output.getvalue()


class Words(unittest.TestCase):
    def test_each_listed_word_is_found_with_what_to_write_instead(self):
        for word, sentence in EXAMPLES.items():
            for path, text in [("a.md", sentence), ("a.rs", f"/// {sentence}"), ("a.py", f"# {sentence}")]:
                self.assertEqual(len(wrong(path, text)), 1, (word, path))
                self.assertIn(f"`{word}` (", wrong(path, text)[0])

    def test_every_listed_word_has_an_example_here(self):
        for pattern, _ in prose.LISTED:
            self.assertTrue(any(map(pattern.search, EXAMPLES.values())), pattern.pattern)

    def test_a_word_is_found_across_the_end_of_a_line(self):
        self.assertEqual(found("a.rs", "/// All leave at\n/// once.\nfn f() {}"), [(1, "`at once` (immediately, or simultaneously)")])
        self.assertEqual(wrong("a.rs", "/// All leave at.\n\n/// Once more."), [])

    def test_words_are_found_in_help_scripts_and_settings_and_not_in_code(self):
        for path in [prose.HELP, "scripts/x", "Makefile", "x.toml", "x.service"]:
            self.assertEqual(len(wrong(path, "# All leave at once.")), 1, path)
        self.assertEqual(wrong("a.rs", 'let text = "all leave at once";'), [])

    def test_longer_words_that_contain_one_are_right(self):
        for right in ["A welcome tour.", "At once-only keys, so manyfold.", "Butter is held againstward."]:
            self.assertEqual(wrong("a.md", right.replace("At once-only", "Once-only")), [])


class Fragments(unittest.TestCase):
    def test_a_comment_that_begins_like_a_part_of_a_sentence_is_found(self):
        for fragment in ["What it did.", "Of a connection.", "How long it takes.", "Whose turn it is, in order.", "As in tc."]:
            for mark in ["///", "//!", "//"]:
                self.assertEqual(wrong("a.rs", f"    {mark} {fragment}"), ["fragment"], fragment)

    def test_a_later_paragraph_of_a_comment_is_looked_at_too(self):
        self.assertEqual(found("a.rs", "/// A link.\n///\n/// Of a connection."), [(3, "fragment")])

    def test_a_sentence_with_a_main_clause_is_right(self):
        for sentence in ["When it ends, the link reverts.", "How to add one.", "Where does it wait?", "In a kernel, 1.8 % of these packets were lost.", "A packet in a train."]:
            self.assertEqual(wrong("a.rs", f"/// {sentence}"), [], sentence)

    def test_a_possessive_is_no_verb(self):
        self.assertEqual(wrong("a.rs", "/// When this was sent, by the sender's clock."), ["fragment"])

    def test_a_comment_in_rust_that_a_page_shows_is_looked_at(self):
        self.assertEqual(wrong("a.md", "```rust\n/// Of a connection.\nfn f() {}\n```"), ["fragment"])


class Clauses(unittest.TestCase):
    def test_a_sentence_with_a_clause_as_its_subject_is_found(self):
        text = "A link ends. What is on its way is\ndropped, and counted."
        self.assertEqual(found("a.md", text), [(1, "a clause with What as the subject (name the noun)")])
        self.assertEqual(len(wrong("a.rs", "/// A link.\n/// What waits is dropped.")), 1)

    def test_a_question_a_heading_and_a_cell_are_right(self):
        for right in ["What is a link? A path.", "## What it does not do", "| What it is | a path |"]:
            self.assertEqual(wrong("a.md", right), [], right)


class Allowed(unittest.TestCase):
    BAD = {"docs/a.md": "All leave at once.\n"}

    def test_what_is_found_fails_with_its_place(self):
        code, output = run(self.BAD)
        self.assertEqual(code, 1)
        self.assertIn("docs/a.md:1: `at once`", output)

    def test_an_allowed_line_passes(self):
        code, output = run({**self.BAD, prose.ALLOWED: "# Reasons\n\ndocs/a.md: leave at once\n    It quotes RFC 1.\n"})
        self.assertEqual((code, "1 allowed entries" in output), (0, True))

    def test_an_entry_without_a_reason_fails(self):
        code, output = run({**self.BAD, prose.ALLOWED: "docs/a.md: leave at once\n"})
        self.assertEqual((code, "has no reason" in output), (1, True))

    def test_an_entry_that_allows_nothing_fails(self):
        code, output = run({"docs/a.md": "All leave.\n", prose.ALLOWED: "docs/a.md: leave at once\n    It quotes.\n"})
        self.assertEqual((code, "remove the entry" in output), (1, True))

    def test_paths_limit_what_is_read(self):
        files = {**self.BAD, "b.md": "All leave.\n"}
        self.assertEqual(run(files, "b.md")[0], 0)
        self.assertEqual(run(files, "docs")[0], 1)


if __name__ == "__main__":
    unittest.main()
