#!/usr/bin/env python3
"""Tests of messages.py, on a page and a source of a few lines."""

import contextlib
import io
import unittest

import messages
from test_files import directory_of

HEAD = "| part of the message | meaning |\n|---|---|\n"


def run(page, code, path="src/a.rs"):
    """Exit code and output for a page and a source."""
    files = {messages.PAGE: HEAD + page, path: code}
    with directory_of(files) as directory, contextlib.redirect_stdout(io.StringIO()) as output:
        return messages.main([str(directory)]), output.getvalue()


class Messages(unittest.TestCase):
    def test_a_message_that_the_program_lacks_is_named(self):
        code, output = run("| `the disk is full` | No room. |", 'bail!("the disk is empty")')
        self.assertEqual(code, 1)
        self.assertIn("docs/troubleshooting.md:3: no message has `the disk is full`", output)

    def test_a_message_that_the_program_has_is_right(self):
        self.assertEqual(run("| `the disk is full` | No room. |", 'bail!("{path}: the disk is full")')[0], 0)

    def test_a_message_may_go_over_lines_and_have_signs(self):
        self.assertEqual(run("| `the disk is full` | No room. |", 'bail!("the disk \\\n    is full")')[0], 0)
        self.assertEqual(run('| `say "full"` | No room. |', 'bail!("say \\"full\\"")')[0], 0)

    def test_pieces_around_dots_are_looked_for_one_by_one(self):
        self.assertEqual(run("| `disk ... is full` | No room. |", 'bail!("disk {name} is full")')[0], 0)
        self.assertEqual(run("| `disk ... is full` | No room. |", 'bail!("disk {name} is empty")')[0], 1)

    def test_other_columns_and_tests_do_not_count(self):
        self.assertEqual(run("| a word | Add `--force`. |", "")[0], 0)
        self.assertEqual(run("| `the disk is full` | No room. |", '"the disk is full"', "src/tests/a.rs")[0], 1)


if __name__ == "__main__":
    unittest.main()
