//! The Python package: its own tests, which use the built program, its examples, and its types.

use std::process::Command;

use anyhow::Result;

use test_support::powerless;
use test_support::process::{self, program, root};

/// The interpreter with the packages that the tests need.
const PYTHON: &str = "bin/python";

/// Returns the interpreter of `target/python-tools`, as an ordinary user runs it, with the package of the checkout and the program
/// under test.
fn python() -> Result<Command> {
    let mut command = powerless::plain_user(process::python_tool(PYTHON))?;
    command.current_dir(root());
    command.args(["-B", "-m"]);
    command.env("FARWIRE_BIN", program());
    Ok(command)
}

/// Returns pytest with the plugin, which an installed package would add by itself.
fn pytest() -> Result<Command> {
    let mut command = python()?;
    command.args(["pytest", "-q", "-p", "farwire.pytest_plugin"]);
    command.args(["-p", "no:cacheprovider"]);
    command.env("PYTHONPATH", root().join("python"));
    Ok(command)
}

#[test_support::test(Namespaces, PythonTool("bin/pytest"), Tool("ping"))]
fn the_package_passes_its_tests() -> Result<()> {
    process::succeeds(pytest()?.args(["-n", "2", "python/tests"]))?;
    Ok(())
}

#[test_support::test(All, Namespaces, PythonTool("bin/pytest"), Tool("ping"), Tool("curl"))]
fn the_examples_pass_on_a_machine_that_must_be_able_to_run_them() -> Result<()> {
    let mut suite = pytest()?;
    suite.env("FARWIRE_REQUIRED", "1").arg("examples/pytest");
    process::succeeds(&mut suite)?;
    Ok(())
}

#[test_support::test(All, PythonTool("bin/mypy"))]
fn the_package_and_its_examples_have_strict_types() -> Result<()> {
    let folders = ["python/farwire", "examples/pytest"];
    process::succeeds(
        python()?
            .args(["mypy", "--strict", "--cache-dir", "target/mypy"])
            .args(folders),
    )?;
    Ok(())
}
