#!/usr/bin/env python3
"""Tests of import_circles.py, each on a crate of a few lines."""

import contextlib
import io
import unittest

import import_circles
from test_files import directory_of


def run(files, *arguments):
    """Returns exit code and output for a crate of `files`: {path in src: text}."""
    sources = {f"src/{name}": text for name, text in files.items()}
    with directory_of(sources) as directory, contextlib.redirect_stdout(io.StringIO()) as output:
        return import_circles.main([*arguments, str(directory)]), output.getvalue()


def pair(a, b):
    """Runs it for a crate of two modules, `a` and `b`."""
    return run({"lib.rs": "mod a; mod b;", "a.rs": a, "b.rs": b})


class Circles(unittest.TestCase):
    def assert_circle(self, result):
        self.assertEqual(result[0], 1, result[1])

    def assert_none(self, result):
        self.assertEqual(result[0], 0, result[1])

    def test_a_circle_fails_and_is_shown_with_its_lines(self):
        code, output = pair("use crate::b::B;\npub struct A;", "pub struct B;\n\nuse super::a::A;")
        self.assertEqual(code, 1)
        self.assertIn("src/a.rs:1 -> src/b.rs: B", output)
        self.assertIn("src/b.rs:3 -> src/a.rs: A", output)

    def test_imports_that_go_one_way_pass(self):
        code, output = pair("use crate::b::{self, B};\nfn f() { b::g(); }\npub struct A;", "pub struct B; pub fn g() {}")
        self.assertEqual(code, 0)
        self.assertIn("0 modules in 0 groups; 3 files with 1 imports", output)

    def test_a_circle_of_three_is_one_circle(self):
        files = {"lib.rs": "mod a; mod b; mod c;", "a.rs": "use crate::b::B; pub struct A;"}
        files |= {"b.rs": "use crate::c::C; pub struct B;", "c.rs": "use crate::a::A; pub struct C;"}
        code, output = run(files)
        self.assertEqual(code, 1)
        self.assertIn("circle of 3", output)

    def test_a_name_passed_on_counts_for_the_file_that_defines_it(self):
        for passed_on in ["pub use c::C;", "pub use c::*;", "pub use self::c::C as D; pub use D as C;"]:
            files = {"lib.rs": f"mod a; mod b; mod c; {passed_on}", "a.rs": "use crate::b::B; pub struct A;"}
            files |= {"b.rs": "use crate::C; pub struct B;", "c.rs": "use crate::a::A; pub struct C;"}
            code, output = run(files)
            self.assertEqual(code, 1, passed_on)
            self.assertIn("src/b.rs:1 -> src/c.rs: C", output)

    def test_a_name_passed_on_does_not_count_for_who_passes_it_on(self):
        files = {"lib.rs": "mod a; mod b; mod c;", "a.rs": "pub use crate::c::C; use crate::b::B;"}
        files |= {"b.rs": "use crate::a::C; pub struct B;", "c.rs": "pub struct C;"}
        self.assert_none(run(files))

    def test_a_module_and_its_children_may_import_each_other(self):
        files = {"lib.rs": "mod a; use a::A; pub struct Root;", "a/mod.rs": "mod x; use x::X; pub struct A;"}
        files |= {"a/x.rs": "use super::A; use crate::Root; pub struct X;"}
        self.assert_none(run(files))

    def test_two_children_are_in_a_circle_like_any_siblings(self):
        files = {"lib.rs": "mod a;", "a.rs": "mod x; mod y;"}
        files |= {"a/x.rs": "use super::y::Y; pub struct X;", "a/y.rs": "use super::x::X; pub struct Y;"}
        self.assert_circle(run(files))

    def test_a_circle_between_the_children_of_two_modules_is_one_of_the_modules(self):
        files = {"lib.rs": "mod a; mod b;", "a.rs": "mod x; pub mod y;", "b.rs": "use crate::a::y::Y; pub struct B;"}
        files |= {"a/x.rs": "use crate::b::B;", "a/y.rs": "pub struct Y;"}
        code, output = run(files)
        self.assertEqual(code, 1)
        self.assertIn("crate::a -> crate::b\n      src/a/x.rs:1 -> src/b.rs: B", output)

    def test_paths_count_without_a_use(self):
        self.assert_circle(pair("fn f() -> crate::b::B {}\npub struct A;", "pub struct B(super::a::A);"))

    def test_paths_through_an_imported_module_count(self):
        self.assert_circle(pair("use crate::b;\npub fn f() { b::g() }", "use crate::a;\npub fn g() { a::f() }"))

    def test_what_a_star_brings_in_counts_where_it_is_used(self):
        files = {"lib.rs": "mod a; mod b; use b::B;", "b.rs": "use crate::a::A; pub struct B;"}
        self.assert_circle(run({**files, "a.rs": "use super::*; pub struct A(B);"}))
        self.assert_none(run({**files, "a.rs": "use super::*; pub struct A;"}))

    def test_paths_in_attributes_count(self):
        self.assert_circle(pair('struct A { #[serde(with = "crate::b::form")] a: u8 }', "use crate::a::A;"))

    def test_tests_comments_and_strings_do_not_count(self):
        for hidden in [
            "#[cfg(test)]\nmod tests { use crate::b::B; fn f() { crate::b::g(); } }",
            "#[cfg(test)]\nuse crate::b::{B, g};",
            "#[cfg(all(test, unix))]\n#[allow(unused)]\npub(crate) fn f(a: [u8; 3]) -> crate::b::B { B }",
            "#![cfg(test)]\nuse crate::b::B;",
            "struct S { #[cfg(test)] b: crate::b::B, c: u8 }",
            "/* /* */ use crate::b::B; */ // use crate::b::B;\n/// [`crate::b::B`]\nfn f() {}",
            "const S: (&str, &str, char) = (\"\\\" crate::b::B\", r#\"\" crate::b::B \"#, '\"');",
        ]:
            self.assert_none(pair(f"{hidden}\npub struct A;", "use crate::a::A; pub struct B; pub fn g() {}"))

    def test_what_follows_tests_counts(self):
        for before in ["#[cfg(test)] mod tests;", "#[cfg(test)] use x::{y};", "#[cfg(not(test))]", "#[cfg(test)] fn f<'a>() {}"]:
            self.assert_circle(pair(f"{before}\nuse crate::b::B; pub struct A;", "use crate::a::A; pub struct B;"))

    def test_super_in_an_inline_module_is_the_file(self):
        self.assert_none(pair("mod inner { use super::A; use super::super::b::B; } pub struct A;", "pub struct B;"))
        self.assert_circle(pair("mod inner { use super::super::b::B; } pub struct A;", "use crate::a::A; pub struct B;"))

    def test_files_may_be_named_by_a_path(self):
        files = {"lib.rs": '#[path = "other.rs"]\nmod a;\nmod b;', "other.rs": "use crate::b::B; pub struct A;"}
        self.assert_circle(run({**files, "b.rs": "use crate::a::A; pub struct B;"}))

    def test_other_crates_do_not_count(self):
        self.assert_none(pair("use ::b::B; use c::a::B as C; pub struct A;", "use crate::a::A; pub struct B;"))

    def test_the_list_proposes_the_import_of_fewest_names(self):
        files = {"lib.rs": "mod a; mod b;", "a.rs": "use crate::b::{B, C, D};\npub struct A;"}
        code, output = run({**files, "b.rs": "use crate::a::A;\npub struct B; pub struct C; pub struct D;"}, "--list")
        self.assertEqual(code, 1)
        proposed = output.split("no circle is left: ")[1].splitlines()
        self.assertEqual(proposed[:3], ["1", "    crate::b -> crate::a", "      src/b.rs:1 -> src/a.rs: A"])

    def test_a_directory_without_a_crate_is_refused(self):
        with contextlib.redirect_stderr(io.StringIO()) as output:
            self.assertEqual(run({})[0], 2)
        self.assertIn("no crate in", output.getvalue())


if __name__ == "__main__":
    unittest.main()
