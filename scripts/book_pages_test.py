#!/usr/bin/env python3
"""Tests of book_pages.py, on pages of a few lines."""

import contextlib
import io
import json
import sys
import unittest
from unittest import mock

import book_pages
from test_files import directory_of

FILES = {
    "README.md": "# farwire\n\n![Report](docs/report.png) [tutorial](docs/tutorial.md#start) [notes](CHANGELOG.md) [limits](SECURITY.md#limits)\n",
    "SECURITY.md": "# Security\n",
    "CHANGELOG.md": "# Changelog\n",
    "docs/README.md": "<!-- in the book: ../README.md -->\n# Docs\n",
    "docs/project/security.md": "<!-- in the book: ../../SECURITY.md -->\n",
}


def page(path, text):
    with directory_of(FILES) as directory:
        return book_pages.Book(directory, "docs").chapter(path, text)


class Pages(unittest.TestCase):
    def test_a_page_that_names_a_file_is_that_file_with_its_links_moved(self):
        text = page("README.md", FILES["docs/README.md"])
        self.assertTrue(text.startswith("# farwire\n"), text)
        self.assertIn("![Report](report.png) [tutorial](tutorial.md#start)", text)

    def test_a_link_to_a_file_that_is_a_page_leads_to_that_page(self):
        self.assertEqual(page("live.md", "[a](../SECURITY.md#limits)"), "[a](project/security.md#limits)")
        self.assertEqual(page("effects/loss.md", "[a](../../README.md)"), "[a](../index.md)")

    def test_the_page_readme_of_a_folder_is_its_index_and_the_contents_are_no_page(self):
        self.assertEqual(page("a.md", "[e](effects/README.md#pictures)"), "[e](effects/index.md#pictures)")
        self.assertEqual(page("decisions/README.md", "in [the contents](../SUMMARY.md)"), "in the contents")

    def test_a_link_to_a_file_that_the_book_lacks_is_its_words(self):
        self.assertEqual(page("live.md", "see [`schema/x.json`](../schema/x.json), or not"), "see `schema/x.json`, or not")
        self.assertIn(" notes [limits](project/security.md#limits)", page("README.md", ""))

    def test_links_within_the_book_and_to_other_sites_stay(self):
        text = "[a](conditions.md#jitter) ![b](pictures/b.svg) [c](https://rustup.rs) [d](#here)"
        self.assertEqual(page("live.md", text), text)

    def test_code_stays_as_it_is(self):
        text = "`[a](../x.md)`\n\n```text\n[a](../x.md)\n```\n"
        self.assertEqual(page("live.md", text), text)


class Preprocessor(unittest.TestCase):
    def test_only_html_is_supported(self):
        self.assertEqual(book_pages.main(["supports", "html"]), 0)
        self.assertEqual(book_pages.main(["supports", "epub"]), 1)

    def test_every_chapter_is_prepared_also_one_below_another(self):
        def chapter(path, content, *below):
            return {"Chapter": {"content": content, "source_path": path, "sub_items": list(below)}}

        below = chapter("a.md", "[s](../SECURITY.md)")
        items = [{"PartTitle": "Start"}, chapter(None, ""), chapter("README.md", "", below), "Separator"]
        with directory_of(FILES) as directory:
            context = {"root": str(directory), "config": {"book": {"src": "docs"}}}
            given = io.StringIO(json.dumps([context, {"items": items}]))
            with mock.patch.object(sys, "stdin", given), contextlib.redirect_stdout(io.StringIO()) as output:
                self.assertEqual(book_pages.main([]), 0)
        made = json.loads(output.getvalue())["items"]
        self.assertTrue(made[2]["Chapter"]["content"].startswith("# farwire"))
        self.assertEqual(made[2]["Chapter"]["sub_items"][0]["Chapter"]["content"], "[s](project/security.md)")


if __name__ == "__main__":
    unittest.main()
