//! The files that `make install` puts in place.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use test_support::process::{self, program, root, stdout};

/// Returns the command that installs the program under test, which is built already.
fn make_install(prefix: &str, destination: &Path) -> Command {
    let mut command = Command::new("make");
    command.current_dir(root()).args(["--silent", "install"]);
    command.arg(format!("FARWIRE={}", program()));
    command.arg(format!("PREFIX={prefix}"));
    command.arg(format!("DESTDIR={}", destination.display()));
    command
}

#[test_support::test(Tool("make"))]
fn everything_is_below_the_prefix_and_readable_for_all() -> Result<()> {
    let directory = tempfile::tempdir()?;
    process::succeeds(&mut make_install("/opt/wan", directory.path()))?;
    let below = directory.path().join("opt/wan");
    for file in [
        "share/man/man1/farwire.1",
        "share/man/man1/farwire-exec.1",
        "share/man/man1/farwire-measure-tcp.1",
        "share/bash-completion/completions/farwire",
        "share/zsh/site-functions/_farwire",
        "share/fish/vendor_completions.d/farwire.fish",
        "lib/systemd/system/farwire-serve.service",
        "lib/systemd/system/farwire-emulate@.service",
        "bin/farwire",
    ] {
        let path = below.join(file);
        let facts = fs::metadata(&path).with_context(|| file.to_owned())?;
        let wanted = if file == "bin/farwire" { 0o755 } else { 0o644 };
        let mode = facts.permissions().mode() & 0o777;
        ensure!(facts.len() > 0, "{file} is empty");
        ensure!(mode == wanted, "{file} has the mode {mode:o}");
    }
    let version = process::succeeds(Command::new(below.join("bin/farwire")).arg("--version"))?;
    ensure!(stdout(&version).starts_with("farwire "), "{version:?}");
    let unit = fs::read_to_string(below.join("lib/systemd/system/farwire-serve.service"))?;
    ensure!(
        unit.contains("ExecStart=/opt/wan/bin/farwire serve"),
        "{unit}"
    );
    let top: BTreeSet<String> = fs::read_dir(&below)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    ensure!(
        top == BTreeSet::from(["bin", "lib", "share"].map(str::to_owned)),
        "{top:?}"
    );
    Ok(())
}

#[test_support::test(Tool("make"))]
fn a_relative_prefix_is_refused() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let output = process::run(&mut make_install("here", directory.path()))?;
    ensure!(!output.status.success(), "{output:?}");
    process::has(&process::stderr(&output), "write an absolute path")?;
    ensure!(
        fs::read_dir(directory.path())?.next().is_none(),
        "it wrote files"
    );
    Ok(())
}

#[test_support::test]
fn the_version_is_written_in_one_place() -> Result<()> {
    let version = format!("version = \"{}\"", env!("CARGO_PKG_VERSION"));
    let manifest = fs::read_to_string(root().join("Cargo.toml"))?;
    ensure!(manifest.matches(&version).count() == 1, "Cargo.toml");
    let mut others = vec![root().join("pyproject.toml")];
    for entry in fs::read_dir(root().join("crates"))? {
        others.push(entry?.path().join("Cargo.toml"));
    }
    for other in others {
        let text = fs::read_to_string(&other)?;
        ensure!(!text.contains(&version), "{}", other.display());
    }
    Ok(())
}
