//! Files that a file names. They must lie below its own directory, or below one that `--allow-files` names. Profiles are named
//! without a path, and are looked for in their own folders.
//!
//! People exchange scenarios and conditions, and an instrument sends its file over the network. Nobody should have to read such
//! a file to the end to know which other files it reads.

use std::iter;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::profile_folders::ProfileFolders;

/// The options about the files that a file may name.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct NamedFilesArgs {
    /// Allow a scenario or link file to name files below DIR too (repeatable)
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub(crate) allow_files: Vec<PathBuf>,
    /// Look for profiles in DIR first, before ./profiles and those that ship
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub(crate) profiles: Option<PathBuf>,
}

/// The files that a file may name.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamedFiles {
    /// Directories whose files it may name, besides its own directory.
    pub(crate) folders: Vec<PathBuf>,
    /// The folders of the profiles that it may name.
    pub(crate) profiles: ProfileFolders,
}

impl NamedFiles {
    /// No file outside the directory of the naming one, and only profiles that ship.
    pub(crate) const OWN: &'static Self = &Self {
        folders: Vec::new(),
        profiles: ProfileFolders::NONE,
    };
}

impl NamedFilesArgs {
    /// Returns the files that these options allow.
    pub(crate) fn files(&self) -> NamedFiles {
        NamedFiles {
            folders: self.allow_files.clone(),
            profiles: ProfileFolders::usual(self.profiles.as_deref()),
        }
    }
}

/// Returns the regular file that `by` names as `name`, relative to the directory of `by`, with symbolic links resolved. It lies
/// below that directory, or below one of `also`.
///
/// # Errors
/// The file does not exist, or lies elsewhere. The message says which option would allow it.
pub(crate) fn find(by: &Path, name: &Path, also: &[PathBuf]) -> Result<PathBuf> {
    let own = match by.parent() {
        None => Path::new("."),
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
    };
    let named = own.join(name);
    let real = |path: &Path| {
        let found = path.canonicalize();
        found.with_context(|| format!("{}: cannot open", path.display()))
    };
    let found = real(&named)?;
    let folders = iter::once(own).chain(also.iter().map(PathBuf::as_path));
    for folder in folders {
        if found.starts_with(real(folder)?) {
            ensure!(found.is_file(), "{}: not a regular file", named.display());
            return Ok(found);
        }
    }
    bail!(
        "{} is not below {}, the directory of {}: move it there, or add --allow-files {}",
        found.display(),
        own.display(),
        by.display(),
        found.parent().unwrap_or(Path::new("/")).display()
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_named_file_lies_below_the_directory_of_the_naming_file_or_below_an_allowed_one() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for folder in ["own/deep", "other", "own-not"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for file in ["own/a", "own/deep/b", "other/c", "own-not/d"] {
            fs::write(at(file), "x").unwrap();
        }
        symlink(at("other/c"), at("own/link")).unwrap();
        symlink(at("own"), at("way")).unwrap();
        let find = |name: &str, also: &[&str]| {
            let also: Vec<PathBuf> = also.iter().map(|name| at(name)).collect();
            find(&at("way/x.toml"), Path::new(name), &also).map_err(|error| format!("{error:#}"))
        };
        for name in ["a", "deep/b", "deep/../a", "../own/a"] {
            assert!(find(name, &[]).is_ok(), "{name}");
        }
        let outside = at("other/c").display().to_string();
        for name in ["../other/c", "link", &outside, "../own-not/d"] {
            let error = find(name, &[]).unwrap_err();
            assert!(error.contains("or add --allow-files"), "{error}");
        }
        assert_eq!(
            find("link", &["other"]).unwrap(),
            at("other/c").canonicalize().unwrap()
        );
        assert!(find("a", &["nowhere"]).is_ok());
        for (name, also, cause) in [
            ("none", "other", "none: cannot open"),
            ("deep", "other", "deep: not a regular file"),
            ("link", "nowhere", "nowhere: cannot open"),
        ] {
            let error = find(name, &[also]).unwrap_err();
            assert!(error.contains(cause), "{error}");
        }
    }
}
