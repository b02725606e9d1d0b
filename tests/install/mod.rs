//! The files that `make install` puts in place, and those of the packages.

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
        "share/farwire/scenarios/bufferbloat.toml",
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

#[test_support::test]
fn both_packages_have_every_file_that_is_installed() -> Result<()> {
    let directory = tempfile::tempdir()?;
    process::succeeds(&mut make_install("/usr", directory.path()))?;
    let mut installed = BTreeSet::new();
    let mut folders = vec![directory.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                installed.insert(path.strip_prefix(directory.path())?.to_owned());
            }
        }
    }
    let manifest: toml::Table = fs::read_to_string(root().join("Cargo.toml"))?.parse()?;
    let metadata = &manifest["package"]["metadata"];
    for package in ["deb", "generate-rpm"] {
        let assets = metadata[package]["assets"].as_array().context(package)?;
        let mut packed = BTreeSet::new();
        for asset in assets {
            let asset = match asset {
                toml::Value::Array(parts) => parts.first(),
                other => other.get("source"),
            };
            let asset = asset.and_then(toml::Value::as_str).context(package)?;
            let Some(asset) = asset.strip_prefix("target/dist/package/") else {
                ensure!(matches(asset)?, "{package}: there is no {asset}");
                continue;
            };
            let (folder, name) = asset.rsplit_once('/').context(package)?;
            let found = installed.iter().filter(|path| {
                path.parent() == Some(Path::new(folder)) && (name == "*" || path.ends_with(name))
            });
            let before = packed.len();
            packed.extend(found.cloned());
            ensure!(packed.len() > before, "{package}: nothing is {asset}");
        }
        ensure!(packed == installed, "{package}: {packed:?}, {installed:?}");
    }
    Ok(())
}

/// Returns whether a file of the repository has this name, whose last character may be `*`.
fn matches(pattern: &str) -> Result<bool> {
    let Some(start) = pattern.strip_suffix('*') else {
        return Ok(root().join(pattern).is_file());
    };
    let mut names = fs::read_dir(root())?.map(|entry| Ok(entry?.file_name()));
    names.try_fold(false, |found, name: Result<_>| {
        Ok(found || name?.to_string_lossy().starts_with(start))
    })
}
