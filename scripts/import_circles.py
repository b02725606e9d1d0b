#!/usr/bin/env python3
"""Finds circles of imports between the modules of each crate of this workspace.

    scripts/import_circles.py [--list] [DIRECTORY]

A module is a file with the files of its children. It imports everything that its `use` and its paths name (`crate::`, `super::`,
`self::`, and names that a `use` brought in), outside `#[cfg(test)]`. A re-exported name (`pub use`) counts for the file that
defines it. A module may import those above or below it, and vice versa. Every other import is between two siblings: one contains
the importing file, the other the imported file. A circle of imports between siblings is printed with the files and lines of
every import in it, and the exit code is then 1.

--list also prints all imports between the siblings that reach each other, and the imports with the fewest names whose removal
leaves no circle.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

TOKEN = re.compile(
    r"""
    (?P<space>\s+ | //[^\n]*)
  | (?P<comment>/\*)
  | (?P<raw>(?:b|c)?r(?P<hashes>\#*)".*?"(?P=hashes))
  | (?P<string>(?:b|c)?"(?:\\.|[^"\\])*")
  | (?P<char>b?'(?:\\.[^']*|[^\\'])')
  | (?P<lifetime>'\w+)
  | (?P<word>(?:r\#)?\w+)
  | (?P<sign>::|=>|->|.)
    """,
    re.VERBOSE | re.DOTALL,
)
CLOSING = {"(": ")", "[": "]", "{": "}"}
DEFINES = {"fn", "struct", "enum", "union", "trait", "type", "const", "static", "macro_rules"}
ITEMS = DEFINES | {"use", "mod", "impl", "pub", "extern", "unsafe", "async", "let"}


def tokens(text):
    """Returns the words and signs of a Rust file as (text, line); a string that is an attribute's path counts as that path."""
    found, place, line = [], 0, 1
    while place < len(text):
        match = TOKEN.match(text, place)
        kind, part = match.lastgroup, match.group()
        if kind == "comment":
            part = text[place : comment_end(text, place)]
        elif kind in ("word", "sign"):
            found.append((part.removeprefix("r#"), line))
        elif kind == "string" and found and found[-1][0] == "=" and re.fullmatch(r'"\w+(::\w+)+"', part):
            found += [(word, line) for word in re.findall(r"\w+|::", part)]
        elif kind != "space":
            found.append(("literal", line))
        line += part.count("\n")
        place += len(part)
    return found


def comment_end(text, place):
    """Returns the end of the block comment that begins at `place`; comments nest."""
    depth = 0
    for match in re.compile(r"/\*|\*/").finditer(text, place):
        depth += 1 if match.group() == "/*" else -1
        if depth == 0:
            return match.end()
    return len(text)


def closing(found, place):
    """Returns the place where the bracket closes that opens at `place`."""
    opening = found[place][0]
    depth = 0
    for i in range(place, len(found)):
        depth += (found[i][0] == opening) - (found[i][0] == CLOSING[opening])
        if depth == 0:
            return i
    return len(found) - 1


def item_end(found, place):
    """Returns the place after the item, field, arm or statement that begins at `place`."""
    while found[place][0] == "#":
        place = closing(found, place + 1) + 1
    item = found[place][0] in ITEMS
    use = "use" in [word for word, _ in found[place : place + 6]]
    while place < len(found):
        word = found[place][0]
        if word == ";" or (word == "," and not item):
            return place + 1
        if word in CLOSING:
            place = closing(found, place)
            if word == "{" and not use:
                return place + 1
        elif word in CLOSING.values():
            return place
        place += 1
    return place


def is_test(attribute):
    """Returns whether an attribute's tokens restrict the next item to tests: cfg(test), or cfg(all(.., test, ..))."""
    words = [word for word, _ in attribute]
    return words[:4] == ["cfg", "(", "test", ")"] or (words[:3] == ["cfg", "(", "all"] and "test" in words and "not" not in words)


def without_tests(found):
    """Returns the tokens outside `#[cfg(test)]`, and outside files that are only for tests."""
    kept, place = [], 0
    while place < len(found):
        bang = found[place + 1][0] == "!" if place + 1 < len(found) else False
        if found[place][0] == "#" and place + 1 + bang < len(found) and found[place + 1 + bang][0] == "[":
            end = closing(found, place + 1 + bang)
            if is_test(found[place + 2 + bang : end]):
                if bang:
                    return []
                place = item_end(found, end + 1)
                continue
        kept.append(found[place])
        place += 1
    return kept


class Module:
    """A file of a crate: its definitions, and the names that it brings into scope."""

    def __init__(self, path, file, parent, folder):
        self.path, self.file, self.parent, self.folder = path, file, parent, folder
        self.children = {}
        self.defined = set()
        self.uses = {}  # name in scope: (module that the path starts in, its segments)
        self.globs = []  # the same, of `use path::*`
        self.imports = []  # (segments, line, depth of inline modules) as written
        self.paths = []
        self.text = file.read_text()
        self.tokens = without_tests(tokens(self.text))

    def above(self):
        """Returns the modules that contain this one, nearest first."""
        module = self.parent
        while module:
            yield module
            module = module.parent

    def root(self):
        return [self, *self.above()][-1]

    def read(self):
        """Reads the file's items, then those of the files that it declares."""
        inline, place, depth = [], 0, 0
        found = [*self.tokens, ("", 0), ("", 0)]
        while found[place][0]:
            word, following = found[place][0], found[place + 1][0]
            if word == "use" and following != "<":
                place = self.read_use(place + 1, len(inline))
            elif following == "::":
                place = self.scan_path(place, len(inline))
                continue
            elif word == "mod" and following.isidentifier():
                if found[place + 2][0] == "{":
                    inline.append(depth)
                elif not inline:
                    self.declare(following)
            elif word in DEFINES and depth == len(inline):
                self.defined.add(found[place + 2][0] if following in ("!", "mut") else following)
            elif word == "{":
                depth += 1
            elif word == "}":
                depth -= 1
                if inline and inline[-1] == depth:
                    inline.pop()
            place += 1
        for child in self.children.values():
            child.read()

    def declare(self, name):
        """Adds a child module in a separate file: NAME.rs, NAME/mod.rs, or the file of `#[path]`."""
        named = re.search(rf'#\[path\s*=\s*"([^"]+)"\]\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+{name}\s*;', self.text)
        candidates = [self.file.parent / named[1]] if named else [self.folder / f"{name}.rs", self.folder / name / "mod.rs"]
        for file in filter(Path.exists, candidates):
            folder = file.parent if file.name == "mod.rs" else file.with_suffix("")
            self.children[name] = Module(f"{self.path}::{name}", file, self, folder)

    def scan_path(self, place, depth):
        """Notes the path that begins at `place`, if there is one; returns the place after it."""
        found = self.tokens
        word, line = found[place]
        if not word.isidentifier() or (place and found[place - 1][0] == "::"):
            return place + 1
        segments = [word]
        place += 1
        while place + 1 < len(found) and found[place][0] == "::" and found[place + 1][0].isidentifier():
            segments.append(found[place + 1][0])
            place += 2
        if len(segments) > 1:
            self.paths.append((segments, line, depth))
        return place

    def read_use(self, place, depth):
        """Reads the tree of a `use` from `place` on; returns the place of its semicolon."""
        found = self.tokens
        prefixes, segments, alias, line = [[]], [], None, found[place][1]
        while place < len(found):
            word = found[place][0]
            if word == "{":
                prefixes.append(prefixes[-1] + segments)
                segments = []
            elif word == "as":
                alias = found[place + 1][0]
                place += 1
            elif word in (",", "}", ";"):
                if segments:
                    self.leaf(prefixes[-1] + segments, alias, line, depth)
                segments, alias = [], None
                if word == "}":
                    prefixes.pop()
                if word == ";":
                    return place
            elif word != "::":
                segments = segments + [word]
                line = found[place][1]
            elif not segments and len(prefixes) == 1:
                segments = ["::"]
            place += 1
        return place

    def leaf(self, segments, alias, line, depth):
        if segments[-1] == "self" and len(segments) > 1:
            segments = segments[:-1]
        start = self.start(segments, depth)
        if segments[-1] == "*":
            self.globs.append((start[0], start[1][:-1]) if start else None)
        elif alias != "_":
            self.uses.setdefault(alias or segments[-1], start)
        self.imports.append((segments, line, depth))

    def start(self, segments, depth):
        """Returns the module in which a path starts, and the rest of the path; None outside this crate.

        `depth` is how many inline modules the path stands in; their names are the file's.
        """
        if segments[0] == "::":
            return None
        if segments[0] == "crate":
            return self.root(), segments[1:]
        module = self
        while segments and segments[0] in ("self", "super"):
            if segments[0] == "super":
                depth, module = (depth - 1, module) if depth else (0, module.parent or module)
            segments = segments[1:]
        return module, segments


def resolve(module, segments, seen=frozenset()):
    """Returns the module that defines a path's target, and the name (None for a module itself); None outside this crate."""
    while segments:
        head, rest = segments[0], segments[1:]
        if head in module.children and (rest or head not in module.uses and head not in module.defined):
            module, segments = module.children[head], rest
            continue
        if head in module.defined:
            return module, head
        if (module, head) in seen:
            return None
        seen = seen | {(module, head)}
        if head in module.uses:
            start = module.uses[head]
            return start and resolve(start[0], start[1] + rest, seen)
        for glob in filter(None, module.globs):
            target = resolve(*glob, seen)
            if target and target[1] is None:
                found = resolve(target[0], segments, seen)
                if found:
                    return found
        return None
    return module, None


def imports(module):
    """Returns (defining module, name, line) for everything that a module imports from others of its crate."""
    through = set()
    found = []
    for segments, line, depth in module.paths:
        start = module.start(segments, depth)
        target = start and resolve(*start)
        if target and target[0] is not module:
            through.add(segments[0])
            found.append((target[0], target[1] or "self", line))
        elif start and not target and segments[0] in ("crate", "super"):
            # The target is in an inline module, or made by a macro: it belongs to the module that the path leads to.
            target = nearest(*start)
            found.append((target[0], target[1], line))
    for segments, line, depth in module.imports:
        start = module.start(segments, depth)
        if not start:
            continue
        if segments[-1] == "*":
            target = resolve(start[0], start[1][:-1])
            if target and target[1] is None:
                found += glob_imports(module, target[0], line)
            elif target:
                found.append((*target, line))
            continue
        target = resolve(*start)
        if not target and segments[0] in ("crate", "super"):
            target = nearest(*start)
        # A module that is brought in only to name its contents is no import beside those names.
        if target and (target[1] or segments[-1] not in through):
            found.append((target[0], target[1] or "self", line))
    return [(target, name, line) for target, name, line in found if target is not module]


def nearest(module, segments):
    """Returns the last module on a path whose rest is unknown."""
    while segments and segments[0] in module.children:
        module, segments = module.children[segments[0]], segments[1:]
    return module, segments[0] if segments else "self"


def glob_imports(module, target, line):
    """Returns the names that a module uses of those that `use target::*` brings in."""
    words = {word for word, _ in module.tokens}
    own = module.defined | set(module.uses)
    names = sorted((target.defined | set(target.uses)) & words - own)
    found = [resolve(target, [name]) for name in names]
    return [(hit[0], hit[1], line) for hit in found if hit and hit[1]]


def crates(directory):
    """Returns the root modules of the workspace's crates."""
    for source in [directory / "src", *sorted(directory.glob("crates/*/src"))]:
        roots = [source / "lib.rs", source / "main.rs", *sorted(source.glob("bin/*.rs"))]
        for file in filter(Path.exists, roots):
            root = Module("crate", file, None, file.parent)
            root.read()
            yield root


def modules(module):
    """Yields a module and all modules below it."""
    yield module
    for child in module.children.values():
        yield from modules(child)


def siblings(importer, imported):
    """Returns the two siblings between which an import is; None if one module is above the other."""
    for a, b in zip([importer, *importer.above()][::-1], [imported, *imported.above()][::-1]):
        if a is not b:
            return a, b
    return None


def arrows(root):
    """Returns {module: {sibling that it imports: {(importing file, imported file): {name: first line}}}}."""
    found = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    for module in modules(root):
        for imported, name, line in sorted(imports(module), key=lambda i: i[2]):
            pair = siblings(module, imported)
            if pair:
                found[pair[0]][pair[1]][module.file, imported.file].setdefault(name, line)
    return found


def components(graph):
    """Returns the groups of modules that reach each other, by Tarjan's algorithm."""
    index, low, stack, groups = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in graph.get(node, ()):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            at = stack.index(node)
            groups.append(stack[at:])
            del stack[at:]

    for node in list(graph):
        if node not in index:
            visit(node)
    return [sorted(group, key=lambda m: m.path) for group in groups if len(group) > 1]


def shortest_circle(graph, group, start):
    """Returns the modules of a shortest circle through `start`, in order."""
    ways, queue = {start: [start]}, [start]
    for node in queue:
        for target in sorted(graph[node], key=lambda m: m.path):
            if target is start:
                return ways[node]
            if target in group and target not in ways:
                ways[target] = [*ways[node], target]
                queue.append(target)
    raise AssertionError(f"{start.path} is in no circle")


def circles(graph, group):
    """Returns shortest circles, enough for every module of the group to be in one."""
    left = list(group)
    while left:
        circle = shortest_circle(graph, group, left[0])
        yield list(zip(circle, circle[1:] + circle[:1]))
        left = [module for module in left if module not in circle]


def back_arrows(graph, group):
    """Returns arrows without which the group has no circle: those against an order that moving a single module cannot improve."""

    def weight(a, b):
        return sum(len(names) for names in graph[a][b].values()) if b in graph[a] else 0

    order = list(group)
    improved = True
    while improved:
        improved = False
        for module in group:
            at = order.index(module)
            rest = order[:at] + order[at + 1 :]
            # Importers come first. At place i, `module` is against the order for those of rest[i:] that import it,
            # and for those of rest[:i] that it imports.
            costs = [sum(weight(other, module) for other in rest)]
            for other in rest:
                costs.append(costs[-1] - weight(other, module) + weight(module, other))
            best = min(range(len(costs)), key=costs.__getitem__)
            if costs[best] < costs[at]:
                order = rest[:best] + [module] + rest[best:]
                improved = True
    place = {module: i for i, module in enumerate(order)}
    back = [(a, b) for a in group for b in graph[a] if b in place and place[b] < place[a]]
    return sorted(back, key=lambda arrow: weight(*arrow))


def show(graph, arrow, directory, most=None):
    """Prints an arrow and at most `most` of its imports."""
    importer, imported = arrow
    found = sorted(graph[importer][imported].items())
    print(f"    {importer.path} -> {imported.path}")
    for (file, target), names in found[:most]:
        place = f"{file.relative_to(directory)}:{min(names.values())}"
        print(f"      {place} -> {target.relative_to(directory)}: {', '.join(sorted(names))}")
    if most and len(found) > most:
        print(f"      and {len(found) - most} more (--list)")


def main(arguments):
    """Prints the circles of a workspace and returns the exit code."""
    listed = "--list" in arguments
    rest = [a for a in arguments if a != "--list"]
    directory = Path(rest[0] if rest else Path(__file__).parent.parent).resolve()
    files = imported = circular = groups = 0
    for root in crates(directory):
        graph = arrows(root)
        files += sum(1 for _ in modules(root))
        imported += sum(len(pairs) for targets in graph.values() for pairs in targets.values())
        for group in components(graph):
            groups, circular = groups + 1, circular + len(group)
            print(f"{root.file.relative_to(directory)}: {len(group)} modules import each other in circles")
            for circle in circles(graph, group):
                print(f"  circle of {len(circle)}")
                for arrow in circle:
                    show(graph, arrow, directory, most=None if listed else 3)
            if listed:
                inside = [(a, b) for a in group for b in sorted(graph[a], key=lambda m: m.path) if b in group]
                for title, listing in [
                    ("all imports among them", inside),
                    ("without these, no circle is left", back_arrows(graph, group)),
                ]:
                    print(f"  {title}: {len(listing)}")
                    for arrow in listing:
                        show(graph, arrow, directory)
    if not files:
        print(f"import circles: no crate in {directory}", file=sys.stderr)
        return 2
    print(f"import circles: {circular} modules in {groups} groups; {files} files with {imported} imports between siblings")
    return 1 if groups else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
