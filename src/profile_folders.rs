//! Folders of profiles: files of links that users write and name. A name is looked for in each folder, in order.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use conditions::{LinkProfile, PROFILES, is_name};

/// The longest file of a profile, in bytes.
const LONGEST: u64 = 1 << 20;
/// The folder of the working directory.
const HERE: &str = "profiles";
/// The start of the line in which `farwire fit` names itself as the source of a link.
const FITTED: &str = "# [fitted] farwire fit, ";
/// The folder below the user's directory of settings.
const OF_USER: &str = "farwire/profiles";

/// Folders of profiles, in the order in which a name is looked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProfileFolders {
    all: Vec<PathBuf>,
    /// Whether the first one was given by the user.
    is_given: bool,
}

/// A profile that a user wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProfileFile {
    /// The name of its file, without `.toml`.
    pub(crate) name: String,
    /// Its file.
    pub(crate) path: PathBuf,
    /// The content of its file.
    pub(crate) text: String,
}

impl ProfileFolders {
    /// No folder, so that only the profiles that ship have names.
    pub(crate) const NONE: Self = Self {
        all: Vec::new(),
        is_given: false,
    };

    /// Returns the folder `first`, if there is one, then `./profiles`, and then the user's.
    pub(crate) fn usual(first: Option<&Path>) -> Self {
        let here = [HERE.into()];
        let given = first.map(Path::to_owned).into_iter();
        Self {
            all: given.chain(here).chain(of_user()).collect(),
            is_given: first.is_some(),
        }
    }

    /// Returns the folder for a new profile: the given one, or the first one that exists, or else the user's.
    pub(crate) fn for_new(&self) -> Option<&Path> {
        let mut folders = self.all.iter().map(PathBuf::as_path);
        let last = self.all.last().map(PathBuf::as_path);
        folders
            .find(|folder| self.is_given || folder.is_dir())
            .or(last)
    }

    /// Returns the first profile with a name.
    ///
    /// # Errors
    /// The file cannot be read, or is longer than 1 MiB.
    pub(crate) fn find(&self, name: &str) -> Result<Option<ProfileFile>> {
        if !is_name(name) {
            return Ok(None);
        }
        let mut files = self
            .all
            .iter()
            .map(|folder| folder.join(format!("{name}.toml")));
        let found = files.find(|path| path.is_file());
        found.map(|path| ProfileFile::read(name, path)).transpose()
    }

    /// Returns the names of all profiles in these folders.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.paths().into_keys().collect()
    }

    /// Returns all profiles in these folders, in the order of their names. A file whose folder comes later than that of another
    /// one with its name is left out.
    ///
    /// # Errors
    /// A file cannot be read, or is longer than 1 MiB.
    pub(crate) fn all(&self) -> Result<Vec<ProfileFile>> {
        let paths = self.paths().into_iter();
        paths
            .map(|(name, path)| ProfileFile::read(&name, path))
            .collect()
    }

    fn paths(&self) -> BTreeMap<String, PathBuf> {
        let mut paths = BTreeMap::new();
        for folder in &self.all {
            // A folder that does not exist has no profiles.
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            for path in entries.map(|entry| entry.path()) {
                let is_toml = path.extension().is_some_and(|end| end == "toml");
                let name = path.file_stem().and_then(|name| name.to_str());
                if let Some(name) = name.filter(|name| is_toml && is_name(name) && path.is_file()) {
                    paths.entry(name.to_owned()).or_insert_with(|| path.clone());
                }
            }
        }
        paths
    }
}

impl ProfileFile {
    fn read(name: &str, path: PathBuf) -> Result<Self> {
        let place = || path.display().to_string();
        let file = File::open(&path).with_context(|| format!("{}: cannot open", place()))?;
        let mut text = String::new();
        let read = file.take(LONGEST + 1).read_to_string(&mut text);
        read.with_context(|| format!("{}: cannot read", place()))?;
        ensure!(
            text.len() as u64 <= LONGEST,
            "{}: the file is longer than 1 MiB",
            place()
        );
        Ok(Self {
            name: name.to_owned(),
            path,
            text,
        })
    }

    /// Returns whether it hides a profile that ships and differs from it.
    pub(crate) fn hides_another(&self) -> bool {
        let shipped = PROFILES.iter().find(|shipped| shipped.name == self.name);
        shipped.is_some_and(|shipped| shipped.text != self.text)
    }

    /// Returns whether it is the same as the profile that ships with its name.
    pub(crate) fn is_shipped(&self) -> bool {
        let mut shipped = PROFILES.iter();
        shipped.any(|shipped| shipped.name == self.name && shipped.text == self.text)
    }

    /// Returns whether `farwire fit` wrote it.
    pub(crate) fn is_fitted(&self) -> bool {
        self.text.lines().any(|line| line.starts_with(FITTED))
    }

    /// Returns its description, which is the first line of its file if that is a comment.
    pub(crate) fn about(&self) -> &str {
        let first = self.text.lines().next().unwrap_or_default();
        first.strip_prefix('#').map_or("", str::trim)
    }
}

/// Returns a profile that ships.
///
/// # Errors
/// There is none with this name; the message suggests one of those that ship and those in `folders`.
pub(crate) fn shipped(
    name: &str,
    folders: &ProfileFolders,
) -> Result<LinkProfile, conditions::Error> {
    name.parse().map_err(|_| {
        let mut all = folders.names();
        all.extend(PROFILES.iter().map(|shipped| shipped.name.to_owned()));
        conditions::Error::unknown_name(name, all.iter().map(String::as_str))
    })
}

/// Refuses a name that no new profile can have.
///
/// # Errors
/// It has other characters than letters, digits, `-` and `_`, or it is a command of `farwire profiles`.
pub(crate) fn check_new_name(name: &str) -> Result<()> {
    ensure!(
        is_name(name),
        "`{name}` is not the name of a profile: write letters, digits, - and _, as in office-dsl"
    );
    if ["new", "check", "help"].contains(&name) {
        bail!("`{name}` is a command of `farwire profiles`: choose another name");
    }
    Ok(())
}

/// Returns the user's folder of profiles (XDG Base Directory Specification).
fn of_user() -> Option<PathBuf> {
    folder_of_user(env::var_os("XDG_CONFIG_HOME"), env::var_os("HOME"))
}

fn folder_of_user(settings: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let settings = settings.and_then(absolute);
    let settings = settings.or_else(|| Some(home.and_then(absolute)?.join(".config")));
    settings.map(|settings| settings.join(OF_USER))
}

#[cfg(test)]
mod tests {
    use fit::{DirectionFit, LinkFit, Origin};

    use super::*;

    #[test]
    fn the_first_folder_that_has_a_name_gives_the_profile() {
        let directory = tempfile::tempdir().unwrap();
        let at = |path: &str| directory.path().join(path);
        for (path, text) in [
            ("one/a.toml", "# First\n"),
            ("two/a.toml", "# Second\n"),
            ("two/b.toml", "delay = '1ms'\n"),
            ("two/not.txt", ""),
            ("two/not a name.toml", ""),
        ] {
            let path = at(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::create_dir(at("two/folder.toml")).unwrap();
        let mut folders = ProfileFolders {
            all: vec![at("none"), at("one"), at("two")],
            is_given: false,
        };
        let all = folders.all().unwrap();
        let listed: Vec<(&str, &str)> = all
            .iter()
            .map(|one| (one.name.as_str(), one.about()))
            .collect();
        assert_eq!(listed, [("a", "First"), ("b", "")]);
        assert_eq!(folders.find("a").unwrap().unwrap().path, at("one/a.toml"));
        assert_eq!(folders.for_new(), Some(at("one").as_path()));
        folders.is_given = true;
        assert_eq!(folders.for_new(), Some(at("none").as_path()));
        for absent in ["c", "folder", "not", "../one/a", "not a name", ""] {
            assert_eq!(folders.find(absent).unwrap(), None, "{absent}");
        }
        let error = shipped("bb", &folders).unwrap_err().to_string();
        assert!(error.contains("a, b, "), "{error}");
        assert_eq!(shipped("mobile", &folders).unwrap().name, "mobile");
    }

    #[test]
    fn a_profile_that_differs_from_the_one_that_ships_hides_it() {
        let [shipped, ..] = PROFILES else {
            panic!("no profile ships")
        };
        let own = |name: &str, text: &str| ProfileFile {
            name: name.to_owned(),
            path: "x".into(),
            text: text.to_owned(),
        };
        assert!(!own(shipped.name, shipped.text).hides_another());
        assert!(own(shipped.name, shipped.text).is_shipped());
        assert!(!own(shipped.name, "delay = '1ms'").is_shipped());
        assert!(!own("mine", shipped.text).is_shipped());
        assert!(own(shipped.name, "delay = '1ms'").hides_another());
        assert!(!own("mine", "delay = '1ms'").hides_another());
    }

    #[test]
    fn a_profile_of_fit_is_recognised_by_its_source() {
        let direction = DirectionFit {
            delay: None,
            loss: None,
            bottleneck: None,
            light: None,
            mtu: None,
        };
        let fit = LinkFit {
            up: direction.clone(),
            down: direction,
            one_way: true,
            duplicated_percent: None,
            sessions: 1,
        };
        let origin = Origin::of_path("192.0.2.1", "2026-11-27");
        let of = |text: String| ProfileFile {
            name: "office".to_owned(),
            path: "x".into(),
            text,
        };
        assert!(of(fit.to_toml(&origin)).is_fitted());
        assert!(!of("# A line\ndelay = '1ms' # [fitted] by hand\n".to_owned()).is_fitted());
    }

    #[test]
    fn the_users_folder_is_below_the_settings_or_the_home() {
        let of = |settings: &str, home: &str| {
            let some = |text: &str| (!text.is_empty()).then(|| OsString::from(text));
            folder_of_user(some(settings), some(home))
        };
        assert_eq!(
            of("/etc/x", "/home/a"),
            Some("/etc/x/farwire/profiles".into())
        );
        assert_eq!(
            of("", "/home/a"),
            Some("/home/a/.config/farwire/profiles".into())
        );
        assert_eq!(
            of("here", "/home/a"),
            Some("/home/a/.config/farwire/profiles".into())
        );
        assert_eq!(of("", ""), None);
    }

    #[test]
    fn a_name_is_letters_and_digits_and_no_command() {
        assert!(check_new_name("office-dsl_2").is_ok());
        for wrong in ["", "a b", "../a", "a.toml", "new", "check"] {
            assert!(check_new_name(wrong).is_err(), "{wrong}");
        }
    }
}
