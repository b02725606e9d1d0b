#!/usr/bin/env python3
"""Tests of links.py, on pages of a few lines."""

import contextlib
import io
import unittest

import links
from test_files import directory_of


def run(files):
    """Exit code and output for a directory of `files`."""
    with directory_of(files) as directory, contextlib.redirect_stdout(io.StringIO()) as output:
        return links.main([str(directory)]), output.getvalue()


class Links(unittest.TestCase):
    def assert_wrong(self, files, line):
        code, output = run(files)
        self.assertEqual(code, 1, output)
        self.assertIn(line, output)

    def assert_right(self, files):
        code, output = run(files)
        self.assertEqual(code, 0, output)

    def test_a_link_to_a_missing_file_is_wrong(self):
        self.assert_wrong({"README.md": "x\n\n[a](docs/a.md)"}, "README.md:3: docs/a.md: there is no such file")

    def test_a_link_with_a_blank_is_wrong(self):
        self.assert_wrong({"README.md": "[`a b`](a b.md)"}, "README.md:1: a b.md: there is no such file")

    def test_a_picture_that_is_missing_is_wrong(self):
        self.assert_wrong({"README.md": "![A picture](a.png)"}, "a.png: there is no such file")

    def test_a_link_is_taken_from_the_folder_of_its_page(self):
        files = {"docs/a.md": "[b](sub/b.md) [r](../README.md)", "docs/sub/b.md": "[a](../a.md)", "README.md": "# R"}
        self.assert_right(files)

    def test_a_link_to_a_missing_heading_is_wrong(self):
        files = {"README.md": "[a](a.md#one) [b](#three)\n\n## Three", "a.md": "# Two"}
        self.assert_wrong(files, "a.md#one: the page has no such heading")
        self.assert_right({**files, "a.md": "# One"})

    def test_headings_have_the_anchors_that_github_gives_them(self):
        headings = "## What it does, and `why`\n## Twice\n## Twice\n## A [link](#twice) here\n## 9 °C: x_y-z\n"
        targets = ["what-it-does-and-why", "twice", "twice-1", "a-link-here", "9-c-x_y-z"]
        self.assert_right({"README.md": headings + " ".join(f"[l](#{target})" for target in targets)})

    def test_an_anchor_of_html_counts(self):
        self.assert_right({"README.md": '<a id="rtt"></a>`rtt`\n\n[a](#rtt)'})

    def test_code_and_comments_are_no_links(self):
        self.assert_right({"README.md": "`[a](b.md)`\n\n```toml\n[a](b.md)\n# no heading\n```\n\n<!-- [a](b.md) -->"})

    def test_links_after_a_block_of_code_count(self):
        self.assert_wrong({"README.md": "```text\n[x](y)\n```\n[a](b.md)"}, "README.md:4: b.md")

    def test_references_and_attributes_are_links(self):
        self.assert_wrong({"README.md": "[a]\n\n[a]: b.md"}, "b.md: there is no such file")
        self.assert_wrong({"README.md": '<img src="b.svg">'}, "b.svg: there is no such file")

    def test_a_path_as_code_at_the_top_or_in_a_decision_must_exist(self):
        for page in ["README.md", "docs/decisions/0001-a.md"]:
            self.assert_wrong({page: "See `src/old.rs`."}, f"{page}:1: src/old.rs: there is no such file")
            self.assert_right({page: "See `src/new.rs`, `src/NAME.rs` and `make x`.", "src/new.rs": ""})
        self.assert_right({"docs/a.md": "iperf3's `src/old.c`"})

    def test_other_sites_are_not_followed(self):
        self.assert_right({"README.md": "[a](https://rustup.rs) [b](mailto:a@b.c)"})

    def test_a_link_from_the_root_or_out_of_the_repository_is_wrong(self):
        self.assert_wrong({"README.md": "[a](/docs/a.md)"}, "the root of a site")
        self.assert_wrong({"README.md": "[a](../)"}, "it leads out of the repository")


class Nothing(unittest.TestCase):
    def test_a_directory_without_a_page_is_refused(self):
        with contextlib.redirect_stderr(io.StringIO()) as output:
            self.assertEqual(run({"a.txt": ""})[0], 2)
        self.assertIn("no page in", output.getvalue())


class Html(unittest.TestCase):
    def test_the_pages_of_a_book_are_checked_by_their_attributes(self):
        files = {"index.html": '<a href="sub/b.html#c">x</a> <script src="a.js"></script>', "a.js": "", "sub/b.html": '<h2 id="c">'}
        self.assertEqual(run(files)[0], 0)
        code, output = run({**files, "sub/b.html": '<h2 id="d"><img src="../e.svg">'})
        self.assertEqual(code, 1)
        self.assertIn("index.html:1: sub/b.html#c: the page has no such heading", output)
        self.assertIn("sub/b.html:1: ../e.svg: there is no such file", output)


class Contents(unittest.TestCase):
    def test_a_page_that_the_table_of_contents_lacks_is_wrong(self):
        files = {"docs/SUMMARY.md": "- [A](a.md)", "docs/a.md": "", "docs/sub/b.md": ""}
        code, output = run(files)
        self.assertEqual(code, 1)
        self.assertIn("docs/SUMMARY.md: docs/sub/b.md is missing", output)

    def test_a_page_that_is_there_twice_is_wrong(self):
        code, output = run({"docs/SUMMARY.md": "- [A](a.md)\n- [B](a.md#b)", "docs/a.md": "# B"})
        self.assertEqual(code, 1)
        self.assertIn("docs/a.md is there 2 times", output)


if __name__ == "__main__":
    unittest.main()
