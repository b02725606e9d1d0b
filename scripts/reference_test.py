#!/usr/bin/env python3
"""Tests of reference.py, on a help and an API of a few lines."""

import contextlib
import io
import json
import unittest

import reference
from test_files import directory_of

TOP = """===== farwire -h =====
Emulate a WAN

Usage: farwire [OPTIONS] COMMAND

===== farwire --help =====
Emulate a WAN

Usage: farwire [OPTIONS] COMMAND

Commands:
  exec      Run a command behind a link,
            as its user
  link      Show the effect of conditions
  measure   Measure
  help      Print help

General:
  -q, --quiet    Print only errors
  -h, --help     Print help
  -V, --version  Print version

"""
EXEC = """===== farwire exec --help =====
Run a command behind a link

It needs --seed and a<b|c.

Examples:
  Ping through a delay:
    farwire exec --delay 20ms -- ping HOST

Usage: farwire exec [OPTIONS] [-- COMMAND...]

Arguments:
  COMMAND...  The command

Conditions, in each direction:
  --delay TIME  Delay in each direction
  Every flag also exists as --up-... and
  --down-... (download): --up-delay 20ms.

More conditions:
  --seed NUMBER  Seed

Emulator:
  --cpu USE  Processor time, so that threads
             spin or not [default: spin]
               spin    Spin shortly
                       before each departure
               gentle  Never spin
  --a-flag-with-a-very-long-name FILE
             Described below its name

General:
  -q, --quiet    Print only errors

Exit status:
  125  farwire itself failed

"""
LINK = """===== farwire link --help =====
Show the effect of conditions

Usage: farwire link [OPTIONS]

Conditions, in each direction:
  --delay TIME  Delay in each direction:
                20ms

"""
MEASURE = """===== farwire measure --help =====
Measure

Usage: farwire measure COMMAND

Commands:
  ping  ICMP echo

===== farwire measure ping --help =====
ICMP echo

Usage: farwire measure ping HOST

Arguments:
  HOST  Name or address

"""
REF = {"$ref": "#/components/responses/Refused"}
DOCUMENT = {
    "components": {
        "responses": {"Refused": {"description": "No token"}},
        "schemas": {
            "Link": {
                "description": "A link.",
                "properties": {
                    "name": {"type": "string", "description": "Its name."},
                    "lease": {"oneOf": [{"$ref": "#/components/schemas/Lease"}, {"type": "null"}]},
                    "conditions": {"$ref": "#/components/schemas/LinkSpec"},
                },
                "required": ["name"],
            },
            "Lease": {"description": "A lease.", "enum": ["time", "connection"]},
            "LinkSpec": {"description": "Conditions.", "properties": {"delay": {"type": "string"}}},
        },
    },
    "paths": {
        "/v1/links": {
            "get": {
                "summary": "All links\nthat run.",
                "parameters": [{"name": "since", "in": "query", "description": "A revision"}],
                "responses": {
                    "200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Link"}}}},
                    "401": REF,
                },
            }
        }
    },
}


def tree():
    """A directory with the inputs of the generator."""
    return directory_of({reference.HELP: TOP + EXEC + LINK + MEASURE, reference.OPENAPI: json.dumps(DOCUMENT)})


def page(name):
    with tree() as directory:
        return reference.pages(directory)[f"docs/reference/{name}"]


def run(directory, *arguments):
    with contextlib.redirect_stdout(io.StringIO()) as output:
        return reference.main([*arguments, str(directory)]), output.getvalue()


class Commands(unittest.TestCase):
    def test_the_index_has_every_command_with_its_whole_line(self):
        text = page("commands.md")
        self.assertIn("| [`exec`](command-exec.md) | Run a command behind a link, as its user |", text)
        self.assertNotIn("`help`]", text)
        self.assertIn("| `-q, --quiet` | Print only errors |", text)

    def test_a_command_has_its_own_options_and_not_those_of_other_pages(self):
        text = page("command-exec.md")
        self.assertIn("[conditions of a link](conditions.md)", text)
        self.assertIn("| `COMMAND...` | The command |", text)
        for elsewhere in ["--quiet", "| `--delay", "| `--seed", "--up-delay"]:
            self.assertNotIn(elsewhere, text)

    def test_possible_values_follow_what_the_option_does(self):
        text = page("command-exec.md")
        values = "Processor time, so that threads spin or not [default: spin]<br>`spin`: Spin shortly before each departure<br>`gentle`: Never spin"
        self.assertIn(f"| `--cpu USE` | {values} |", text)
        self.assertIn("| `--a-flag-with-a-very-long-name FILE` | Described below its name |", text)

    def test_examples_and_the_exit_status_are_tables(self):
        text = page("command-exec.md")
        self.assertIn("| Ping through a delay | `farwire exec --delay 20ms -- ping HOST` |", text)
        self.assertIn("| `125` | farwire itself failed |", text)

    def test_words_of_the_program_are_no_markup(self):
        self.assertIn("It needs `--seed` and a&lt;b\\|c.", page("command-exec.md"))

    def test_a_command_of_a_command_has_a_section_that_the_table_links_to(self):
        text = page("command-measure.md")
        self.assertIn("| [`ping`](#farwire-measure-ping) | ICMP echo |", text)
        self.assertIn("## farwire measure ping\n\nICMP echo.\n\nUsage: `farwire measure ping HOST`", text)

    def test_conditions_are_those_that_the_command_link_explains(self):
        text = page("conditions.md")
        self.assertIn("| [`--delay TIME`](../effects/delay.md) | Delay in each direction: 20ms |", text)
        self.assertIn("| `--seed NUMBER` | Seed |", text)
        self.assertNotIn("--cpu", text)
        self.assertNotIn("Every flag", text)
        self.assertNotIn("--down-... (download)", text)


class TheApi(unittest.TestCase):
    def test_an_operation_has_its_parameters_and_answers(self):
        text = page("api.md")
        self.assertIn("## GET /v1/links\n\nAll links that run.\n", text)
        self.assertIn("| `since` | query | A revision |", text)
        self.assertIn("| `200` |  | `application/json`, [Link](#link) |", text)

    def test_what_every_operation_can_refuse_is_there_once(self):
        self.assertEqual(page("api.md").count("No token"), 1)

    def test_types_that_types_name_are_described_except_those_of_other_pages(self):
        text = page("api.md")
        self.assertIn("| `lease` | [Lease](#lease) or null, may be absent |", text)
        self.assertIn('Type: `"time"` or `"connection"`.', text)
        self.assertIn("[LinkSpec](../conditions.md)", text)
        self.assertNotIn("### LinkSpec", text)


class Files(unittest.TestCase):
    def test_check_names_a_page_that_is_missing_changed_or_stale_and_writes_nothing(self):
        with tree() as directory:
            self.assertEqual(run(directory, "--check")[0], 1)
            self.assertFalse((directory / reference.OUT).exists())
            self.assertEqual(run(directory)[0], 0)
            self.assertEqual(run(directory, "--check")[0], 0)
            (directory / reference.OUT / "commands.md").write_text("other")
            code, output = run(directory, "--check")
            self.assertEqual((code, output.count("commands.md is not")), (1, 1))
            run(directory)
            (directory / reference.OUT / "command-old.md").write_text(reference.NOTE)
            code, output = run(directory, "--check")
            self.assertEqual((code, output.count("command-old.md is not")), (1, 1))

    def test_a_page_that_was_written_by_hand_is_left_alone(self):
        with tree() as directory:
            run(directory)
            mine = directory / reference.OUT / "exit-codes.md"
            mine.write_text("# Exit codes\n")
            self.assertEqual(run(directory, "--check")[0], 0)
            run(directory)
            self.assertTrue(mine.exists())


if __name__ == "__main__":
    unittest.main()
