//! Reads TOML files. An error names the file, the line, the key and the nearest known key.
//!
//! Every value keeps its place in the file, whatever tables it is merged into. An error has the place of its value, or else the path
//! of keys to it: [`Below`] adds the keys to the errors of a check.
//!
//! If a text names the file of a distribution or of a trace, that file is read too, relative to the directory of the text's own file. If it names a
//! profile that a user wrote, the file of that profile is read in the same way. [`named_files`] says which files a text may name.
//! Control characters, which a terminal would obey, are refused in any text.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, anyhow, ensure};
use conditions::read::{self, Named};
use conditions::{Error, LinkSpec, TraceSpec, dist};
use record::printable::is_control;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::misplaced_keys;
use crate::named_files::{self, NamedFiles};
use crate::notes::note;
use crate::profile_folders::{self, ProfileFile, ProfileFolders};
use crate::trace_files;

/// The longest distribution file, in bytes. That is much more than 16,384 values and their comments need.
const LONGEST_DIST: u64 = 1 << 20;

/// A text with the name of its file, for errors and for the files that it names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceFile<'a> {
    /// The name of the file in messages.
    pub(crate) file: &'a str,
    /// Its text.
    pub(crate) text: &'a str,
    /// The files that it may name outside its directory.
    pub(crate) also: &'a NamedFiles,
}

/// Returns the text of `file`.
///
/// # Errors
/// The file cannot be read. The message names it.
pub(crate) fn text_of(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("{}: cannot read", file.display()))
}

/// Returns the conditions in `file`, which may name files below its own directory, and those of `also`.
///
/// # Errors
/// A file cannot be read, a key is unknown, or a value is out of range. The message has the file, the line and the key.
pub(crate) fn read_link(file: &Path, also: &NamedFiles) -> Result<LinkSpec> {
    read_checked(file, also, LinkSpec::check)
}

/// Returns the content of `file`, if it passes `check`. The file may name files below its own directory, and those of `also`.
///
/// # Errors
/// The same as those of [`read_link`].
pub(crate) fn read_checked<T: DeserializeOwned, E: Into<anyhow::Error>>(
    file: &Path,
    also: &NamedFiles,
    check: impl FnOnce(&T) -> Result<(), E>,
) -> Result<T> {
    let text = text_of(file)?;
    let source = SourceFile {
        file: &file.display().to_string(),
        text: &text,
        also,
    };
    source.read_checked(check)
}

/// Returns the conditions of a profile: the first one with this name in `folders`, or one that ships.
///
/// # Errors
/// There is no such profile, a file cannot be read, profiles build on each other in a circle, or the conditions are wrong. The
/// message has the file, the line and the key.
pub(crate) fn read_profile(name: &str, folders: &ProfileFolders) -> Result<LinkSpec> {
    Ok(match profile_in(name, folders, &mut Vec::new())? {
        Some(own) => own,
        None => profile_folders::shipped(name, folders)?.conditions(),
    })
}

/// Returns the conditions of a profile in `folders`; `None` for one that ships. `led_here` are the names of the profiles that build on it.
fn profile_in(
    name: &str,
    folders: &ProfileFolders,
    led_here: &mut Vec<String>,
) -> Result<Option<LinkSpec>> {
    let Some(file) = folders.find(name)? else {
        profile_folders::shipped(name, folders)?;
        return Ok(None);
    };
    let is_circle = led_here.iter().any(|known| known == name);
    led_here.push(name.to_owned());
    ensure!(
        !is_circle,
        "the profiles build on each other in a circle: {}",
        led_here.join(" -> ")
    );
    note_hidden(&file);
    let also = NamedFiles {
        profiles: folders.clone(),
        ..NamedFiles::default()
    };
    let source = SourceFile {
        file: &file.path.display().to_string(),
        text: &file.text,
        also: &also,
    };
    let mut table = source.parse()?;
    forget_dist_files(table.get_mut());
    let link: LinkSpec = source.read_led_here(&table, led_here)?;
    led_here.pop();
    link.check()
        .map_err(|error| source.refusal(&table, "", error))?;
    Ok(Some(link))
}

/// Notes once that a profile hides another one that ships.
fn note_hidden(file: &ProfileFile) {
    static NOTED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    if file.hides_another() && !noted.contains(&file.path) {
        let path = file.path.display();
        note(format_args!(
            "farwire: profile {}: {path} hides the one that ships with farwire",
            file.name
        ));
        noted.push(file.path.clone());
    }
}

/// Removes the names of distribution files whose values have been read, because they lie beside the profile.
fn forget_dist_files(table: &mut DeTable<'_>) {
    if table.get("values").is_some() {
        table.remove("file");
    }
    for (_, value) in table.iter_mut() {
        forget_dist_files_in(value.get_mut());
    }
}

fn forget_dist_files_in(value: &mut DeValue<'_>) {
    match value {
        DeValue::Table(inner) => forget_dist_files(inner),
        DeValue::Array(all) => all
            .iter_mut()
            .for_each(|one| forget_dist_files_in(one.get_mut())),
        _ => {}
    }
}

impl<'a> SourceFile<'a> {
    /// Reads a value from the text and passes it to `check`.
    ///
    /// # Errors
    /// Returns the errors of [`SourceFile::parse`]. Refuses an unknown key or a value out of range, with file, line and key.
    pub(crate) fn read_checked<T: DeserializeOwned, E: Into<anyhow::Error>>(
        &self,
        check: impl FnOnce(&T) -> Result<(), E>,
    ) -> Result<T> {
        let table = self.parse()?;
        let held = self.read(&table)?;
        check(&held).map_err(|error| self.refusal(&table, "", error))?;
        Ok(held)
    }

    /// Returns the tables of the text. A table that names the file of a distribution gets its values.
    ///
    /// # Errors
    /// The text is not TOML, contains control characters, or names a file that cannot be read.
    pub(crate) fn parse(&self) -> Result<Spanned<DeTable<'a>>> {
        let mut table = self.parse_text()?;
        self.refuse_controls(table.get_ref())?;
        self.read_dists(table.get_mut())?;
        Ok(table)
    }

    fn parse_text(&self) -> Result<Spanned<DeTable<'a>>> {
        DeTable::parse(self.text).map_err(|error| {
            let span = error.span().unwrap_or_default();
            let what = match error.message() {
                message @ "duplicate key" => format!("{message} `{}`", &self.text[span.clone()]),
                message => message.to_owned(),
            };
            anyhow!("{}: {what}", self.at(span.start))
        })
    }

    /// Returns the file that the text names as `name`; see [`named_files::find`].
    ///
    /// # Errors
    /// The same as those of [`named_files::find`].
    pub(crate) fn named(&self, name: &Path) -> Result<PathBuf> {
        named_files::find(Path::new(self.file), name, &self.also.folders)
    }

    /// Refuses keys and texts with control characters, which would reach reports, terminals and file names.
    fn refuse_controls(&self, table: &DeTable<'_>) -> Result<()> {
        table.iter().try_for_each(|(key, value)| {
            let name = key.get_ref().as_ref();
            self.refuse_control(name, key.span(), "a key")?;
            self.refuse_controls_in(name, value)
        })
    }

    fn refuse_controls_in(&self, name: &str, value: &Spanned<DeValue<'_>>) -> Result<()> {
        match value.get_ref() {
            DeValue::Table(inner) => self.refuse_controls(inner),
            DeValue::Array(all) => all
                .iter()
                .try_for_each(|one| self.refuse_controls_in(name, one)),
            DeValue::String(text) => self.refuse_control(text, value.span(), name),
            _ => Ok(()),
        }
    }

    fn refuse_control(&self, text: &str, span: Range<usize>, key: &str) -> Result<()> {
        match text
            .replace("\r\n", "\n")
            .chars()
            .find(|letter| is_control(*letter))
        {
            None => Ok(()),
            Some(control) => Err(anyhow!(
                "{}: {key}: it contains the control character U+{:04X}: leave that out",
                self.at(span.start),
                u32::from(control)
            )),
        }
    }

    /// Adds the values of each distribution to the table that names its file.
    fn read_dists(&self, table: &mut DeTable<'a>) -> Result<()> {
        for (_, value) in table.iter_mut() {
            self.read_dists_in(value.get_mut())?;
        }
        let text_of = |key| table.get(key).and_then(|value| value.get_ref().as_str());
        let (Some("table"), Some(name)) = (text_of("law"), text_of("file")) else {
            return Ok(());
        };
        let span = table.get("file").map(Spanned::span).unwrap_or_default();
        let read = || {
            ensure!(
                table.get("values").is_none(),
                "it has both file and values: leave one of them out"
            );
            read_dist(&self.named(Path::new(name))?)
        };
        let values = read().map_err(|cause| anyhow!("{}: file: {cause:#}", self.at(span.start)))?;
        let key = Spanned::new(span.clone(), Cow::Borrowed("values"));
        table.insert(key, Spanned::new(span, DeValue::String(Cow::Owned(values))));
        Ok(())
    }

    fn read_dists_in(&self, value: &mut DeValue<'a>) -> Result<()> {
        match value {
            DeValue::Table(inner) => self.read_dists(inner),
            DeValue::Array(all) => all
                .iter_mut()
                .try_for_each(|one| self.read_dists_in(one.get_mut())),
            _ => Ok(()),
        }
    }

    /// Returns the value of `table`.
    ///
    /// # Errors
    /// A key is unknown, or a value is wrong. The error has its place.
    pub(crate) fn read<T: DeserializeOwned>(&self, table: &Spanned<DeTable<'_>>) -> Result<T> {
        self.read_led_here(table, &mut Vec::new())
    }

    /// Returns the value of `table`, on which the profiles `led_here` build.
    fn read_led_here<T: DeserializeOwned>(
        &self,
        table: &Spanned<DeTable<'_>>,
        led_here: &mut Vec<String>,
    ) -> Result<T> {
        let named = &mut NamedBy {
            source: *self,
            led_here,
        };
        let read = read::toml_table_with(table, named);
        read.map_err(|error| self.refusal(table, "", error))
    }

    /// Returns the error of a check of `table` with its place in the file. `whose` comes before the message.
    pub(crate) fn refusal(
        &self,
        table: &Spanned<DeTable<'_>>,
        whose: &str,
        error: impl Into<anyhow::Error>,
    ) -> anyhow::Error {
        let error = misplaced_keys::with_place(placed(error.into()));
        let span = error.span.clone();
        let span = span.or_else(|| read::locate(table.get_ref(), &error.path));
        let span = span.unwrap_or_else(|| table.span());
        anyhow!("{}: {whose}{error}", self.at(span.start))
    }

    /// Returns the file and the line of a byte of the text.
    pub(crate) fn at(&self, offset: usize) -> String {
        format!("{}:{}", self.file, self.line(offset))
    }

    /// Returns the line of a byte of the text, from 1.
    pub(crate) fn line(&self, offset: usize) -> usize {
        let before = self.text.bytes().take(offset);
        before.filter(|&byte| byte == b'\n').count() + 1
    }
}

/// The names in a source, and the profiles that build on it.
struct NamedBy<'s> {
    source: SourceFile<'s>,
    led_here: &'s mut Vec<String>,
}

impl Named for NamedBy<'_> {
    fn profile(&mut self, name: &str) -> Result<Option<serde_json::Value>, Error> {
        let folders = &self.source.also.profiles;
        let found = profile_in(name, folders, self.led_here).map_err(placed)?;
        found
            .map(serde_json::to_value)
            .transpose()
            .map_err(Error::other)
    }

    fn trace(&mut self, trace: serde_json::Value) -> Result<serde_json::Value, Error> {
        let mut trace: TraceSpec = read::json(trace)?;
        trace_files::read(&mut trace, |name| self.source.named(name)).map_err(placed)?;
        serde_json::to_value(&trace).map_err(Error::other)
    }
}

/// Returns the values of a distribution file, in the form that [`dist::parse`] takes.
fn read_dist(file: &Path) -> Result<String> {
    let named = || file.display().to_string();
    let opened = File::open(file).with_context(|| format!("{}: cannot open", named()))?;
    let mut bytes = Vec::new();
    let read = opened.take(LONGEST_DIST + 1).read_to_end(&mut bytes);
    read.with_context(|| format!("{}: cannot read", named()))?;
    ensure!(
        bytes.len() as u64 <= LONGEST_DIST,
        "{}: the file is longer than 1 MiB, more than any distribution needs",
        named()
    );
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| anyhow!("{}: the file is not text", named()))?;
    dist::parse(&text).with_context(named)?;
    // Comments are not kept.
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
    Ok(words.join(" "))
}

/// Adds the keys of a file to the errors of a check.
pub(crate) trait Below<T> {
    /// Puts its errors below a key.
    ///
    /// # Errors
    /// The same errors, with the key.
    fn below(self, key: impl Into<String>) -> Result<T>;

    /// Puts its errors into an item of a key's list.
    ///
    /// # Errors
    /// The same errors, with the key and the item.
    fn below_item(self, key: &str, index: usize) -> Result<T>;
}

impl<T, E: Into<anyhow::Error>> Below<T> for Result<T, E> {
    fn below(self, key: impl Into<String>) -> Result<T> {
        self.map_err(|error| placed(error.into()).at(key).into())
    }

    fn below_item(self, key: &str, index: usize) -> Result<T> {
        self.map_err(|error| placed(error.into()).at_item(index, None).at(key).into())
    }
}

/// Returns the error with its place, if it has one.
fn placed(error: anyhow::Error) -> Error {
    let error = error.downcast::<Error>();
    error.unwrap_or_else(|error| Error::other(format_args!("{error:#}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use conditions::{DelaySpec, JitterSpec, LossSpec};
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sheet {
        #[allow(dead_code, reason = "only the errors of reading it matter")]
        delay: Option<String>,
        #[allow(dead_code, reason = "only the errors of reading it matter")]
        loss: Option<String>,
    }

    fn refusal(text: &str) -> String {
        let source = SourceFile {
            file: "a.toml",
            text,
            also: NamedFiles::OWN,
        };
        let table = source.parse().unwrap();
        source.read::<Sheet>(&table).unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_key_comes_with_line_and_nearest_key() {
        let message = refusal("loss = '1%'\ndealy = '1ms'\n");
        assert!(
            message.starts_with("a.toml:2: unknown key `dealy`"),
            "{message}"
        );
        assert!(message.ends_with("did you mean `delay`?"), "{message}");
    }

    #[test]
    fn a_key_unlike_any_gets_no_advice() {
        assert!(!refusal("zzzzzzzz = 1").contains("did you mean"));
    }

    #[test]
    fn a_distribution_is_read_from_beside_the_file_that_names_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let file = directory.path().join(name);
            std::fs::write(&file, text).unwrap();
            file
        };
        file("two.dist", "# ends\n-8192\n8192\n");
        file("bad.dist", "1\n2 x\n");
        file("long.dist", &"1 ".repeat(1 << 20));
        let link = |name: &str, more: &str| {
            let jitter = format!("spread = '2ms', law = 'table', file = '{name}'{more}");
            let text = format!("delay = '20ms'\n[up]\njitter = {{ {jitter} }}\n");
            read_link(&file("link.toml", &text), NamedFiles::OWN)
        };
        let read = link("two.dist", "").unwrap();
        let read: &JitterSpec = read.up.get().unwrap();
        let two = dist::parse("-8192 8192").unwrap();
        assert_eq!(read.values, Some(two));
        assert_eq!(read.file.as_deref(), Some("two.dist"));
        let folder = directory.path().display();
        let missing = folder.to_string() + "/x.dist: cannot open: No such file";
        let wrong = "/bad.dist: line 2: `x` is not a value";
        for (name, more, cause) in [
            ("x.dist", "", missing.as_str()),
            ("bad.dist", "", wrong),
            ("/proc/version", "", "/proc/version is not below "),
            ("long.dist", "", "long.dist: the file is longer than 1 MiB"),
            ("", "", "not a regular file"),
            ("two.dist", ", values = '1'", "leave one of them out"),
        ] {
            let error = format!("{:#}", link(name, more).unwrap_err());
            let place = format!("{folder}/link.toml:3: file: ");
            assert!(error.starts_with(&place), "{error}");
            assert!(error.contains(cause), "{error}");
        }
    }

    #[test]
    fn a_profile_is_found_by_name_and_builds_on_others() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(directory.path().join(name), text).unwrap();
        };
        write(
            "office.toml",
            "# An office\nbased_on = 'line'\nloss = '1%'\n",
        );
        write(
            "line.toml",
            "delay = '7ms'\njitter = { spread = '2ms', law = 'table', file = 'two.dist' }\n",
        );
        write("two.dist", "-8192 8192");
        write("phone.toml", "based_on = 'mobile'\ndelay = '9ms'\n");
        write("a.toml", "based_on = 'b'\n");
        write("b.toml", "\nbased_on = 'a'\n");
        write("bad.toml", "delay = '9ms'\nlos = '1%'\n");
        write("queue.toml", "queue = '9pkt'\n");
        let folders = ProfileFolders::usual(Some(directory.path()));
        let read = |name: &str| read_profile(name, &folders);
        let office = read("office").unwrap();
        assert_eq!(
            office.both.get(),
            Some(&"7ms".parse::<DelaySpec>().unwrap())
        );
        assert_eq!(office.both.get(), Some(&"1%".parse::<LossSpec>().unwrap()));
        let jitter: &JitterSpec = office.both.get().unwrap();
        assert_eq!(jitter.values, Some(dist::parse("-8192 8192").unwrap()));
        assert_eq!(jitter.file, None);
        let mobile = read("mobile").unwrap();
        let phone = read("phone").unwrap();
        assert_eq!(phone.both.get(), Some(&"9ms".parse::<DelaySpec>().unwrap()));
        assert_eq!(phone.down, mobile.down);
        let folder = directory.path().display().to_string();
        let refused = |name: &str| format!("{:#}", read(name).unwrap_err()).replace(&folder, "F");
        assert_eq!(
            refused("a"),
            "F/a.toml:1: based_on: F/b.toml:2: based_on: the profiles build on each other in a circle: a -> b -> a"
        );
        assert!(
            refused("bad").starts_with("F/bad.toml:2: unknown key `los`"),
            "{}",
            refused("bad")
        );
        assert!(
            refused("queue").starts_with("F/queue.toml:1: queue: "),
            "{}",
            refused("queue")
        );
        assert!(
            refused("offic").contains("did you mean `office`?"),
            "{}",
            refused("offic")
        );
        let also = NamedFiles {
            profiles: folders.clone(),
            ..NamedFiles::default()
        };
        let file = directory.path().join("link.toml");
        std::fs::write(&file, "profile = 'office'\nloss = '3%'\n").unwrap();
        let link = read_link(&file, &also).unwrap();
        assert_eq!(link.both.get(), Some(&"3%".parse::<LossSpec>().unwrap()));
        assert_eq!(link.both.get(), Some(&"7ms".parse::<DelaySpec>().unwrap()));
        let error = read_link(&file, NamedFiles::OWN).unwrap_err().to_string();
        assert!(
            error.contains("link.toml:1: profile: unknown name `office`"),
            "{error}"
        );
    }

    #[test]
    fn a_control_character_is_refused_with_its_line_and_key() {
        let parse = |text: &str| {
            let source = SourceFile {
                file: "a.toml",
                text,
                also: NamedFiles::OWN,
            };
            source.parse().map(drop).map_err(|error| error.to_string())
        };
        for case in [
            "a = 1\nnote = \"\\u001b[2J\" => a.toml:2: note: it contains the control character U+001B",
            "cases = [{ title = \"x\\r\" }] => a.toml:1: title: it contains the control character U+000D",
            "a = ['\u{202e}x'] => a.toml:1: a: it contains the control character U+202E",
            "\"a\\u009b\" = 1 => a.toml:1: a key: it contains the control character U+009B",
        ] {
            let (text, place) = case.split_once(" => ").unwrap();
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(place), "{case}: {error}");
        }
        parse("note = '''two\nlines,\tand\r\nthree: \u{e4}\u{4e2d}'''").unwrap();
    }

    #[test]
    fn a_wrong_value_comes_with_line_and_key() {
        let message = refusal("\n\nloss = []\n");
        assert!(
            message.starts_with("a.toml:3: loss: expected a text in quotes, found a list"),
            "{message}"
        );
    }
}
