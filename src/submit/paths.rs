//! Paths as they are typed, and files that are written atomically. If a host's /home is a link to
//! /export/home, nodes may know only the path with /home, so symbolic links in paths are kept.

use std::fs::File;
use std::io::Write as _;
use std::path::{self, Path, PathBuf};
use std::{env, io};

use anyhow::{Context as _, Result};
use record::output_directory::OutputDirectory;

/// Returns the absolute path with its symbolic links.
///
/// # Errors
/// Fails if the path is empty or if there is no working directory.
pub(crate) fn absolute(path: &Path) -> io::Result<PathBuf> {
    absolute_from(env::var_os("PWD").map(PathBuf::from), path)
}

/// Does the same if the shell's working directory is `pwd`. The kernel knows the working directory
/// only without symbolic links.
fn absolute_from(pwd: Option<PathBuf>, path: &Path) -> io::Result<PathBuf> {
    let pwd = pwd.filter(|pwd| pwd.is_absolute() && are_same(pwd, Path::new(".")));
    match pwd {
        Some(pwd) if !path.as_os_str().is_empty() => path::absolute(pwd.join(path)),
        _ => path::absolute(path),
    }
}

/// Writes a file completely or not at all, unless no new file can replace it (see [`OutputDirectory::replace`]).
pub(super) fn write_whole(file: &Path, bytes: &[u8]) -> Result<()> {
    let write = |mut to: &File| {
        to.write_all(bytes)?;
        to.sync_all()
    };
    let within = OutputDirectory::of(file);
    let written = within.and_then(|(directory, name)| directory.replace(name, write));
    written.with_context(|| format!("{}: cannot write", file.display()))
}

/// Returns true if both paths lead to the same file or directory.
pub(super) fn are_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    one == other || real(one).is_some_and(|one| real(other) == Some(one))
}

/// Returns the path by which this program was called, and the executable file.
pub(super) fn of_program() -> io::Result<(PathBuf, PathBuf)> {
    let file = env::current_exe()?;
    let argument = env::args_os().next().map(PathBuf::from);
    let called = argument.and_then(|name| match name.components().count() {
        1 => which::which(&name).ok(),
        _ => absolute(&name).ok(),
    });
    // The caller of a program can set the first argument to any text.
    let called = called.filter(|called| called.is_absolute() && are_same(called, &file));
    Ok((called.unwrap_or_else(|| file.clone()), file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_links_of_a_path_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir_all(at("export/home/me")).unwrap();
        symlink(at("export/home"), at("home")).unwrap();
        assert_eq!(absolute(&at("home/me")).unwrap(), at("home/me"));
        assert!(are_same(&at("home/me"), &at("export/home/me")));
        assert!(!are_same(&at("home/me"), &at("home")));
        // Paths that do not exist are compared by name.
        assert!(are_same(&at("gone"), &at("gone")) && !are_same(&at("gone"), &at("lost")));
    }

    #[test]
    fn a_relative_path_starts_at_the_shells_directory_if_that_is_right() {
        let directory = tempfile::tempdir().unwrap();
        let here = env::current_dir().unwrap();
        let link = directory.path().join("link");
        symlink(&here, &link).unwrap();
        let from = |pwd: &Path, path: &str| {
            let whole = absolute_from(Some(pwd.to_owned()), Path::new(path));
            whole.unwrap()
        };
        assert_eq!(from(&link, "out"), link.join("out"));
        assert_eq!(from(&link, "./out"), link.join("out"));
        assert_eq!(from(&link, "/srv/out"), Path::new("/srv/out"));
        for elsewhere in [directory.path(), Path::new("gone"), Path::new(".")] {
            assert_eq!(from(elsewhere, "out"), here.join("out"));
        }
        assert!(absolute_from(Some(link), Path::new("")).is_err());
    }

    #[test]
    fn the_path_of_a_called_link_leads_to_the_program() {
        let (called, file) = of_program().unwrap();
        assert!(called.is_absolute() && are_same(&called, &file));
    }
}
