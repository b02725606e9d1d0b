#!/usr/bin/env python3
"""Writes the generated pages of docs/reference: the commands, the conditions, the API.

    scripts/reference.py [--check] [DIRECTORY]

The commands and conditions are taken from the reviewed help (src/cli/snapshots), the API from schema/openapi.json. Tests compare
both with the program, so the pages say what the program says. With --check nothing is written: a page that differs is named, and
the exit code is 1.
"""

import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

HELP = "src/cli/snapshots/farwire__cli__man__tests__help.snap"
OPENAPI = "schema/openapi.json"
OUT = "docs/reference"
# Headings of the help under which the conditions of a link are.
CONDITIONS = "Conditions, in each direction"
MORE_CONDITIONS = "More conditions"
NOTE = "<!-- scripts/reference.py writes this page. Change the program's help, not the page. -->\n\n"

# The page of docs that explains a condition. A condition without one is explained in docs/conditions.md.
PAGES = {
    "delay": "effects/delay.md",
    "jitter": "effects/jitter.md",
    "loss": "effects/loss.md",
    "ber": "effects/bit-errors.md",
    "duplicate": "effects/duplication.md",
    "corrupt": "effects/corruption.md",
    "path-mtu": "effects/path-mtu.md",
    "police": "effects/policer.md",
    "pps": "effects/packet-rate.md",
    "reorder": "effects/reordering.md",
    "rate": "effects/rate.md",
    "rate-at": "effects/rate.md#what-it-counts",
    "queue": "effects/drop-tail.md",
    "size-delay": "effects/delay.md",
    "netem": "netem.md",
    "netem-at": "netem.md#beside-a-rate",
    "trace": "traces.md",
    "outage": "conditions.md#outages-and-handovers",
    "handover": "conditions.md#outages-and-handovers",
    "aqm": "conditions.md#queue-disciplines",
    "rule": "rules.md",
}


# The beginning of further lines below "Usage: ".
USAGE_INDENT = " " * len("Usage: ")

# An option as it is written in a help text, with its value if it takes one.
OPTION = re.compile(r"(?:-\w(?:, )?)?(?:--[a-z][a-z0-9-]*[a-z0-9])?(?: ?[A-Z\[](?![a-z ]).*)?$")


@dataclass
class Entry:
    """An argument, an option or a command of a help text: how it is written, and what it does."""

    written: str
    paragraphs: list = field(default_factory=list)
    values: list = field(default_factory=list)
    # The column at which the description begins.
    column: int = 0

    def add(self, text, column):
        """Takes a line of the description in, which begins at a column. Values are two columns further in, each with its own text."""
        if not self.paragraphs:
            self.paragraphs, self.column = [text], column
        elif column == self.column + 2 and re.match(r"\S+  ", text):
            self.values.append(re.sub(r" {2,}", ": ", text, count=1))
        elif column > self.column and self.values:
            self.values[-1] += " " + text
        else:
            self.paragraphs[-1] += " " + text

    @property
    def name(self):
        """The long name without hyphens; empty for an argument without one."""
        found = re.search(r"--([\w-]+)", self.written)
        return found[1] if found else ""

    def cell(self):
        """What it does, as the cell of a table."""
        text = [*map(plain, self.paragraphs)]
        text[1:1] = [re.sub(r"^([^:]+)", r"`\1`", value, count=1) for value in map(plain, self.values)]
        return "<br>".join(text)


class Help:
    """The help of one command."""

    def __init__(self, name, text):
        self.name = name
        head, _, rest = text.partition("\nUsage: ")
        about, _, examples = head.partition("\nExamples:\n")
        self.about = paragraphs(about.strip().split("\n"))
        self.examples = read_examples(examples)
        usage, _, rest = rest.partition("\n")
        self.usage = [usage]
        # Further lines have the other combinations that the command takes.
        while rest.startswith(USAGE_INDENT):
            usage, _, rest = rest.partition("\n")
            self.usage.append(usage.strip())
        self.sections = {}
        entries = None
        for line in rest.split("\n"):
            heading = re.fullmatch(r"(\S.*):", line)
            if heading:
                entries = self.sections.setdefault(heading[1], [])
            elif entries is not None and line.strip():
                read_line(entries, line)

    def entries(self):
        """All entries of all sections."""
        return [entry for entries in self.sections.values() for entry in entries]

    def options(self):
        """{long name: entry}."""
        return {entry.name: entry for entry in self.entries() if entry.name}


def read_examples(text):
    """[(what an example does, its command)] of the examples of a help text."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return list(zip((line.removesuffix(":") for line in lines[::2]), lines[1::2]))


def read_line(entries, line):
    """Takes a line of a section in: a new entry, or more of the last one."""
    indent = len(line) - len(line.lstrip())
    if indent == 2:
        written, described = re.fullmatch(r"  (\S.*?)(?:  +(\S.*))?", line).groups()
        if described or OPTION.match(written):
            entries.append(Entry(written))
            if described:
                entries[-1].add(described, line.index(described, 2 + len(written)))
        # Any other line is a remark about the section.
    elif entries:
        entries[-1].add(line.strip(), indent)


def paragraphs(lines):
    """Lines between empty ones, each joined."""
    found = [[]]
    for line in lines:
        if line.strip():
            found[-1].append(line.strip())
        elif found[-1]:
            found.append([])
    return [" ".join(lines) for lines in found if lines]


def plain(text):
    """A text of the program for the cell of a table: nothing in it but code is markup."""
    parts = text.split("`")
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"([<>*|])", lambda m: {"<": "&lt;", ">": "&gt;"}.get(m[1], "\\" + m[1]), parts[i])
        parts[i] = re.sub(r"(?<![\w-])(--[a-z][\w-]*)", r"`\1`", parts[i])
    for i in range(1, len(parts), 2):
        parts[i] = parts[i].replace("|", "\\|")
    return "`".join(parts)


def code(text):
    """A text as code in the cell of a table."""
    return "`" + text.replace("|", "\\|") + "`"


def table(heads, rows):
    """A table of cells that are Markdown already."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def read_help(text):
    """{command: its help}, in the order of the text."""
    parts = re.split(r"^===== (.+) (-h|--help) =====\n", text, flags=re.M)
    screens = zip(parts[1::3], parts[2::3], parts[3::3])
    return {name: Help(name, body) for name, flag, body in screens if flag == "--help"}


class Commands:
    """The pages of commands and conditions."""

    def __init__(self, helps):
        self.helps = helps
        self.top = helps["farwire"]
        self.takers = [h.name for h in helps.values() if CONDITIONS in h.sections]
        # `farwire link` explains each condition; the other commands have a line for each.
        self.conditions = {entry.name: entry for entry in helps["farwire link"].sections[CONDITIONS]}
        self.globals = {entry.name: entry for entry in self.top.sections["General"] if entry.name != "version"}
        self.link_options = {entry.name: entry for entry in helps["farwire exec"].sections[MORE_CONDITIONS]}

    def pages(self):
        """{file name: text}."""
        commands = {entry.written for entry in self.top.sections["Commands"]} - {"help"}
        pages = {"commands.md": self.index(commands), "conditions.md": self.condition_page()}
        for name in sorted(commands):
            pages[f"command-{name}.md"] = self.command_page(name)
        return pages

    def index(self, commands):
        rows = [
            [f"[`{entry.written}`](command-{entry.written}.md)", plain(entry.paragraphs[0])]
            for entry in self.top.sections["Commands"]
            if entry.written in commands
        ]
        return (
            f"{NOTE}# Commands\n\n{plain(self.top.about[0])}.\n\n"
            + "`farwire COMMAND --help` prints what these pages say, and `farwire man` makes manual pages of it. "
            + "[Which command answers which question](../start/which-command.md) begins from the question.\n\n"
            + table(["command", "what it does"], rows)
            + "\n## Options of every command\n\n"
            + table(["option", "what it does"], [[code(e.written), e.cell()] for e in self.globals.values()])
            + "\n[Exit codes](exit-codes.md) are the same for every command.\n"
        )

    def command_page(self, name):
        found = self.helps[f"farwire {name}"]
        below = [h for h in self.helps.values() if h.name.startswith(f"farwire {name} ")]
        text = f"{NOTE}# farwire {name}\n\n" + self.body(found)
        if "Commands" in found.sections:
            rows = [
                [f"[`{e.written}`](#farwire-{name}-{e.written})", plain(e.paragraphs[0])]
                for e in found.sections["Commands"]
                if e.written != "help"
            ]
            text += "\n" + table(["command", "what it does"], rows)
        for sub in below:
            text += f"\n## {sub.name}\n\n" + self.body(sub)
        return text

    def body(self, found):
        about = "\n\n".join(plain(text if text.endswith(".") else f"{text}.") for text in found.about)
        usage = " or ".join(f"`{line}`" for line in found.usage)
        text = f"{about}\n\nUsage: {usage}\n"
        if found.examples:
            text += "\n" + table(["example", "command"], [[plain(what), code(command)] for what, command in found.examples])
        arguments = found.sections.get("Arguments", [])
        if arguments:
            text += "\n" + table(["argument", "what it is"], [[code(e.written), e.cell()] for e in arguments])
        if found.name in self.takers:
            text += "\nIt takes the [conditions of a link](conditions.md), each for both directions or for one.\n"
        options = [e for e in found.entries() if e.name and not self.is_told_elsewhere(found, e)]
        if options:
            text += "\n" + table(["option", "what it does"], [[code(e.written), e.cell()] for e in options])
        status = found.sections.get("Exit status", [])
        if status:
            text += "\n" + table(["exit status", "meaning"], [[code(e.written), e.cell()] for e in status])
        return text

    def is_told_elsewhere(self, found, entry):
        """Whether the page of all commands or that of the conditions has this option."""
        if entry.name in self.globals and self.globals[entry.name].written == entry.written:
            return True
        return found.name in self.takers and (entry.name in self.conditions or entry.name in self.link_options)

    def condition_page(self):
        rows = []
        for name, entry in self.conditions.items():
            page = PAGES.get(name, "conditions.md#conditions")
            rows.append([f"[{code(entry.written)}](../{page})", entry.cell()])
        names = [name.removeprefix("farwire ") for name in self.takers]
        where = ", ".join(f"[`{name}`]({page_of(name)})" for name in names)
        return (
            f"{NOTE}# Conditions of a link\n\n"
            + f"The commands {where} take these as flags. A [link file](../conditions.md) and a [scenario](../scenarios.md) "
            + "take the same as keys, with `_` in place of `-`. Each condition applies separately in each direction. `--up-NAME` and "
            + "`--down-NAME`, or a table `up` or `down` in a file, set one direction only: up is upload, from the command's side or from "
            + "IF_A; down is download. Without a rate there is no limit. Each flag links to the page of its condition.\n\n"
            + table(["flag", "what it does"], rows)
            + "\n## Where the conditions come from\n\n"
            + "Flags override the file or the profile.\n\n"
            + table(["flag", "what it does"], [[code(e.written), e.cell()] for e in self.link_options.values()])
            + "\n[conditions.md](../conditions.md) has every value, unit, default and limit. It also has what a file can say beyond "
            + "the flags: schedules and stages.\n"
        )


def page_of(name):
    """Returns the page of a command, or the part of its page that a command below it has."""
    command, _, below = name.partition(" ")
    part = f"#farwire-{command}-{below.replace(' ', '-')}" if below else ""
    return f"command-{command}.md{part}"


class Api:
    """The page of the API."""

    # Types that another page explains, with that page.
    ELSEWHERE = {"LinkSpec": "../conditions.md"}

    def __init__(self, document):
        self.document = document
        self.schemas = document["components"]["schemas"]
        self.refusals = document["components"]["responses"]
        self.operations = [
            (method, path, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
            if method != "parameters"
        ]
        # The statuses with which any operation can be refused; one may have its own reason beside.
        self.common = {
            status: self.refusals[answer["$ref"].split("/")[-1]]["description"]
            for _, _, operation in self.operations
            for status, answer in operation["responses"].items()
            if "$ref" in answer
        }
        self.used = []

    def page(self):
        rows = [[code(path), method.upper(), summary(operation)] for method, path, operation in self.operations]
        refusals = [[code(status), plain(why)] for status, why in self.common.items()]
        operations = "".join(self.operation(*one) for one in self.operations)
        # A type names others: the list grows while it is read.
        types = sorted(self.type_section(name) for name in self.used)
        return (
            f"{NOTE}# The API\n\n"
            + "`--listen` of `exec`, `emulate` and `run` serves this API. [live.md](../live.md) says how it is used, with examples. "
            + "[schema/openapi.json](../../schema/openapi.json) is the same as an OpenAPI document; `farwire schema --openapi` "
            + "prints it, and `GET /v1/openapi.json` answers it.\n\n"
            + table(["path", "method", "what it does"], rows)
            + "\nAny request can be refused with these, as `application/problem+json`:\n\n"
            + table(["status", "why"], refusals)
            + operations
            + "\n## Types\n"
            + "".join(types)
        )

    def operation(self, method, path, operation):
        """The section of one method of a path."""
        text = f"\n## {method.upper()} {path}\n\n{summary(operation)}\n"
        parameters = [p for p in operation.get("parameters", []) if p["in"] != "path"]
        if parameters:
            rows = [[code(p["name"]), p["in"], plain(one_line(p.get("description", "")))] for p in parameters]
            text += "\n" + table(["parameter", "where", "what it is"], rows)
        if "requestBody" in operation:
            text += f"\nBody: {self.contents(operation['requestBody'])}.\n"
        rows = [
            [code(status), plain(one_line(answer.get("description", ""))), self.contents(answer)]
            for status, answer in operation["responses"].items()
            if "$ref" not in answer
        ]
        return text + "\n" + table(["status", "when", "answer"], rows)

    def contents(self, answer):
        """The media types of a body or an answer, with the types of what they carry."""
        return "; ".join(f"`{kind}`" + self.carried(kind, body) for kind, body in answer.get("content", {}).items())

    def carried(self, kind, body):
        return f", {self.type(body['schema'])}" if "schema" in body and "json" in kind else ""

    def type(self, schema):
        """A type in words, with links to those that have a section."""
        if "$ref" in schema:
            name = schema["$ref"].split("/")[-1]
            if name in self.ELSEWHERE:
                return f"[{name}]({self.ELSEWHERE[name]})"
            if name not in self.used:
                self.used.append(name)
            return f"[{name}](#{name.lower()})"
        for key in ("oneOf", "anyOf"):
            if key in schema:
                return " or ".join(self.type(one) for one in schema[key])
        if "allOf" in schema:
            return " with ".join(self.type(one) for one in schema["allOf"])
        if "enum" in schema:
            return " or ".join(code(json.dumps(value)) for value in schema["enum"])
        if "const" in schema:
            return code(json.dumps(schema["const"]))
        if schema.get("type") == "array":
            return f"list of {self.type(schema.get('items', {}))}"
        kinds = schema.get("type", "any")
        return " or ".join(kinds) if isinstance(kinds, list) else kinds

    def type_section(self, name):
        schema = self.schemas[name]
        text = f"\n### {name}\n\n{plain(one_line(schema.get('description', '')))}\n"
        rows = self.rows(schema)
        if rows:
            return text + "\n" + table(["key", "type", "what it is"], rows)
        return text + f"\nType: {self.type({k: v for k, v in schema.items() if k != 'description'})}.\n"

    def rows(self, schema):
        """A row for each key of an object, those of all that it is made of."""
        if "$ref" in schema:
            return self.rows(self.schemas[schema["$ref"].split("/")[-1]])
        rows = [row for one in schema.get("allOf", []) for row in self.rows(one)]
        for key, one in schema.get("properties", {}).items():
            optional = "" if key in schema.get("required", []) else ", may be absent"
            rows.append([code(key), self.type(one) + optional, plain(one_line(self.description(one)))])
        return rows

    def description(self, schema):
        if "description" in schema:
            return schema["description"]
        nested = [one["description"] for key in ("oneOf", "anyOf", "allOf") for one in schema.get(key, []) if "description" in one]
        if nested:
            return nested[0]
        return self.schemas[schema["$ref"].split("/")[-1]].get("description", "") if "$ref" in schema else ""


def summary(operation):
    return plain(one_line(operation.get("summary", "")))


def one_line(text):
    return " ".join(text.split())


def pages(directory):
    """{path below the directory: text} of every generated page."""
    helps = read_help((directory / HELP).read_text())
    made = Commands(helps).pages()
    made["api.md"] = Api(json.loads((directory / OPENAPI).read_text())).page()
    return {f"{OUT}/{name}": text for name, text in made.items()}


def main(arguments):
    """Writes the pages, or compares them; the exit code."""
    check = "--check" in arguments
    rest = [a for a in arguments if a != "--check"]
    directory = Path(rest[0] if rest else Path(__file__).parent.parent).resolve()
    made = pages(directory)
    there = {str(file.relative_to(directory)): file.read_text() for file in (directory / OUT).glob("*.md")}
    stale = {name for name, text in there.items() if text.startswith(NOTE.strip())} - set(made)
    wrong = [name for name, text in made.items() if there.get(name) != text]
    if check:
        for name in [*wrong, *sorted(stale)]:
            print(f"{name} is not what the program says: scripts/reference.py writes it")
        print(f"reference: {len(made)} pages, {len(wrong) + len(stale)} to be written")
        return 1 if wrong or stale else 0
    for name in wrong:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(made[name])
    for name in stale:
        (directory / name).unlink()
    print(f"reference: {len(made)} pages, {len(wrong)} written, {len(stale)} removed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
