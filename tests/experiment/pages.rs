//! The manual pages that `man` writes.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};

use test_support::process::{self, farwire, stdout};

#[test_support::test]
fn man_makes_the_directory_of_its_pages() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let pages = written(directory.path().join("share/man1"))?;
    ensure!(pages.iter().any(|page| page.ends_with("farwire-exec.1")));
    Ok(())
}

#[test_support::test(Tool("mandoc"))]
fn mandoc_finds_nothing_wrong_with_the_manual_pages() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let pages = written(directory.path().to_owned())?;
    let output = process::run(Command::new("mandoc").arg("-Tlint").args(&pages))?;
    let found = stdout(&output);
    ensure!(output.status.success() && found.is_empty(), "{found}");
    Ok(())
}

fn written(directory: PathBuf) -> Result<Vec<PathBuf>> {
    process::succeeds(farwire().arg("man").arg("--out").arg(&directory))?;
    let pages = fs::read_dir(&directory)?;
    pages.map(|page| Ok(page?.path())).collect()
}
