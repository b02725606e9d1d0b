//! Runs every command that README and docs show, as they show it, and checks the ledger of published numbers.
//!
//! A comment before a block says how the block is tested; CONTRIBUTING.md has the rules. The blocks of one page run in their
//! order, in one directory.

mod data;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use test_support::blocks::{self, Block, Typed, User};
use test_support::powerless;
use test_support::process::{self, stderr, stdout};
use test_support::suite::{Need, Suite};

/// The tool that a page needs for the Python package. `make test-tools` installs it, and the package is that of the checkout.
const PYTEST: &str = "pytest";
/// The tools for tests with browsers, Playwright and Selenium, which `make test-tools` installs together beside pytest.
const PLAYWRIGHT: &str = "playwright";

#[test_support::tests]
fn add(suite: &mut Suite) {
    for page in pages().expect("the pages") {
        let text = fs::read_to_string(&page).expect("a page");
        let blocks = blocks::of(&page.display().to_string(), &text).expect("blocks");
        let mut needs = vec![Need::Namespaces];
        let tools = blocks.iter().flat_map(|block| block.needs.clone());
        needs.extend(tools.flat_map(|tool| match tool.as_str() {
            "pasta" => vec![Need::HostNetwork, Need::DefaultRoute],
            PYTEST => vec![Need::PythonTool("bin/pytest")],
            PLAYWRIGHT => vec![Need::PythonTool("bin/playwright")],
            _ => vec![Need::Tool(tool.leak())],
        }));
        for left_out in blocks.iter().filter_map(|block| block.not_run.as_ref()) {
            suite.skip(left_out);
        }
        if blocks.iter().any(|block| block.not_run.is_none()) {
            let name = format!("{} does as it says", page.display());
            suite.test(name, &needs, move || run_page(&blocks).map(drop));
        }
    }
    match std::env::var("FARWIRE_TEXTS") {
        Ok(folder) => suite.test(
            "the ledger is what the documents say",
            &[Need::Tool("python3")],
            move || ledger(&[&folder]),
        ),
        Err(_) => suite
            .skip("the ledger against the documents: FARWIRE_TEXTS is no folder of their texts"),
    }
}

#[test_support::test(Tool("python3"))]
fn the_ledger_is_what_the_scenarios_publish() -> Result<()> {
    ledger(&[])
}

/// Runs `scripts/ledger`, which prints the differences.
fn ledger(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("python3");
    command.args(["-B", "scripts/ledger"]).args(arguments);
    process::succeeds(&mut command)?;
    Ok(())
}

/// The pages at the top that show commands, and all below docs.
fn pages() -> Result<Vec<PathBuf>> {
    let at_the_top = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];
    let mut pages = at_the_top.map(PathBuf::from).to_vec();
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    Ok(pages)
}

/// Runs the blocks of a page in a directory with some folders of a checkout, and with the program in the path. Returns the
/// directory.
fn run_page(blocks: &[Block]) -> Result<TempDir> {
    let directory = tempfile::tempdir()?;
    let bin = directory.path().join("bin");
    fs::create_dir(&bin)?;
    symlink(process::program(), bin.join("farwire"))?;
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    for shared in ["scenarios", "docs", "schema", "examples"] {
        symlink(here.join(shared), directory.path().join(shared))?;
    }
    for block in blocks.iter().filter(|block| block.not_run.is_none()) {
        run_block(block, &directory, &bin).with_context(|| block.place.clone())?;
    }
    Ok(directory)
}

fn run_block(block: &Block, directory: &TempDir, bin: &Path) -> Result<()> {
    if let Some(name) = &block.file {
        fs::write(directory.path().join(name), &block.text)?;
    }
    for typed in &block.before {
        let output = shell(typed, block, directory, bin)?;
        ensure!(
            output.status.success(),
            "before: {}: {}",
            typed.line,
            said(&output)
        );
    }
    for typed in &block.commands {
        let output = shell(typed, block, directory, bin)?;
        // A run that the machine spoilt says so, and is no fault of the page.
        let spoilt = output.status.code() == Some(1) && said(&output).contains("INVALID");
        ensure!(
            output.status.code() == Some(typed.code) || spoilt,
            "{}: ended with {:?} for {}: {}",
            typed.line,
            output.status.code(),
            typed.code,
            said(&output)
        );
        for words in &typed.shown {
            ensure!(
                squeezed(&said(&output)).contains(&squeezed(words)),
                "{}: the page shows `{words}`, which is not in: {}",
                typed.line,
                said(&output)
            );
        }
    }
    Ok(())
}

/// Runs a command line as the user of its prompt, behind the block's link.
fn shell(typed: &Typed, block: &Block, directory: &TempDir, bin: &Path) -> Result<Output> {
    let behind = block.behind.as_ref();
    let mut command = match (&typed.user, behind) {
        (User::Root, _) => {
            let mut command = Command::new("unshare");
            command.args(["--user", "--map-root-user", "--net", "sh"]);
            command
        }
        (User::Plain, None) => powerless::plain_user("sh")?,
        (User::Plain, Some(link)) => {
            let mut command = powerless::plain_user("farwire")?;
            command.arg("exec").args(link).args(["--", "sh"]);
            command
        }
    };
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .arg("-c")
        .arg(&typed.line)
        .current_dir(directory.path())
        .env("PATH", format!("{}:{path}", bin.display()))
        .env("SHELL", "/bin/sh");
    if block.needs.iter().any(|need| need == PYTEST) {
        let tools = process::python_tool("bin");
        command
            .env(
                "PATH",
                format!("{}:{}:{path}", bin.display(), tools.display()),
            )
            .env("PYTHONPATH", process::root().join("python"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env(
                "PYTEST_ADDOPTS",
                "-p farwire.pytest_plugin -p no:cacheprovider",
            );
    }
    if typed.input.is_empty() {
        return process::run(&mut command);
    }
    let mut input = tempfile::tempfile()?;
    input.write_all(typed.input.as_bytes())?;
    std::io::Seek::rewind(&mut input)?;
    process::run_with(&mut command, Stdio::from(input))
}

/// Returns the text with single spaces, because columns are as wide as their figures.
fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn said(output: &Output) -> String {
    format!("{}{}", stdout(output), stderr(output))
}
