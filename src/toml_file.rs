//! TOML files read so that an error names file, line and key, and the nearest known key.
//!
//! Every value keeps its place in the file, whatever tables it is merged into. An error has the place of the value that it is
//! about, or else the path of keys to it: [`Below`] adds the keys to the errors of a check.
//!
//! A file that a text names is read with it, from the folder of the file that the text is in: the distribution of a jitter.
//! Which files a text may name: [`named_files`]. What a terminal would obey or show in another order is refused in any text.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use conditions::{Error, LinkSpec, dist, read};
use record::printable::is_control;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::named_files;

/// The longest distribution file, in bytes: 16,384 values, and as much of comments many times over.
const LONGEST_DIST: u64 = 1 << 20;

/// Where a text came from, for errors and for what it names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceFile<'a> {
    /// As messages name it.
    pub(crate) file: &'a str,
    /// What it holds.
    pub(crate) text: &'a str,
    /// Folders below which it may name files, beside its own.
    pub(crate) also: &'a [PathBuf],
}

/// The text of `file`.
///
/// # Errors
/// It cannot be read; names it.
pub(crate) fn text_of(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("{}: cannot read", file.display()))
}

/// The conditions in `file`, which may name files below its own folder and below those of `also`.
///
/// # Errors
/// A file that cannot be read, an unknown key or a value out of range, with file, line and key.
pub(crate) fn read_link(file: &Path, also: &[PathBuf]) -> Result<LinkSpec> {
    read_checked(file, also, LinkSpec::check)
}

/// What `file` holds, if it passes `check`; it may name files below its own folder and below those of `also`.
///
/// # Errors
/// As of [`read_link`].
pub(crate) fn read_checked<T: DeserializeOwned, E: Into<anyhow::Error>>(
    file: &Path,
    also: &[PathBuf],
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

impl<'a> SourceFile<'a> {
    /// What the text holds, if it passes `check`.
    ///
    /// # Errors
    /// As of [`SourceFile::parse`], an unknown key or a value out of range, with file, line and key.
    pub(crate) fn read_checked<T: DeserializeOwned, E: Into<anyhow::Error>>(
        &self,
        check: impl FnOnce(&T) -> Result<(), E>,
    ) -> Result<T> {
        let table = self.parse()?;
        let held = self.read(&table)?;
        check(&held).map_err(|error| self.refusal(&table, "", error))?;
        Ok(held)
    }

    /// The tables of the text, each that names the file of a distribution with its values.
    ///
    /// # Errors
    /// It is no TOML, has control characters in it, or a file that it names cannot be read.
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

    /// The file that the text names as `name`; see [`named_files::find`].
    ///
    /// # Errors
    /// As there.
    pub(crate) fn named(&self, name: &Path) -> Result<PathBuf> {
        named_files::find(Path::new(self.file), name, self.also)
    }

    /// Refuses names and texts with characters that are no text: reports, terminals and file names would have them.
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
                "{}: {key}: it has the control character U+{:04X} in it: leave it out",
                self.at(span.start),
                u32::from(control)
            )),
        }
    }

    /// Puts the values of each distribution beside the name of its file.
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
                "it has the values: leave file or values out"
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

    /// The value that `table` stands for.
    ///
    /// # Errors
    /// An unknown key, or a value that its key cannot have, with its place.
    pub(crate) fn read<T: DeserializeOwned>(&self, table: &Spanned<DeTable<'_>>) -> Result<T> {
        read::toml_table(table).map_err(|error| self.refusal(table, "", error))
    }

    /// What a check said of `table`, with the place of what is wrong. `whose` comes before the message.
    pub(crate) fn refusal(
        &self,
        table: &Spanned<DeTable<'_>>,
        whose: &str,
        error: impl Into<anyhow::Error>,
    ) -> anyhow::Error {
        let error = placed(error.into());
        let span = error.span.clone();
        let span = span.or_else(|| read::locate(table.get_ref(), &error.path));
        let span = span.unwrap_or_else(|| table.span());
        anyhow!("{}: {whose}{error}", self.at(span.start))
    }

    /// File and line of a byte of the text.
    pub(crate) fn at(&self, offset: usize) -> String {
        format!("{}:{}", self.file, self.line(offset))
    }

    /// The line of a byte of the text, from 1.
    pub(crate) fn line(&self, offset: usize) -> usize {
        let before = self.text.bytes().take(offset);
        before.filter(|&byte| byte == b'\n').count() + 1
    }
}

/// The text of a distribution file, which [`dist::parse`] takes.
fn read_dist(file: &Path) -> Result<String> {
    let named = || file.display().to_string();
    let opened = File::open(file).with_context(|| format!("{}: cannot open", named()))?;
    let mut bytes = Vec::new();
    let read = opened.take(LONGEST_DIST + 1).read_to_end(&mut bytes);
    read.with_context(|| format!("{}: cannot read", named()))?;
    ensure!(
        bytes.len() as u64 <= LONGEST_DIST,
        "{}: it is longer than 1 MiB, which holds every distribution",
        named()
    );
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| anyhow!("{}: it is no text", named()))?;
    dist::parse(&text).with_context(named)?;
    // Comments are not kept.
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
    Ok(words.join(" "))
}

/// Adds the keys of a file to what a check refuses.
pub(crate) trait Below<T> {
    /// With its errors below a key.
    ///
    /// # Errors
    /// Those that it had.
    fn below(self, key: impl Into<String>) -> Result<T>;

    /// With its errors in an item of a key's list.
    ///
    /// # Errors
    /// Those that it had.
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

/// The error with its place, or one that has none.
fn placed(error: anyhow::Error) -> Error {
    let error = error.downcast::<Error>();
    error.unwrap_or_else(|error| Error::other(format_args!("{error:#}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use conditions::JitterSpec;
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
            also: &[],
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
            read_link(&file("link.toml", &text), &[])
        };
        let read = link("two.dist", "").unwrap();
        let read: &JitterSpec = read.up.get().unwrap();
        let two = dist::parse("-8192 8192").unwrap();
        assert_eq!(read.values, Some(two));
        assert_eq!(read.file.as_deref(), Some("two.dist"));
        let folder = directory.path().display();
        let missing = folder.to_string() + "/x.dist: cannot open: No such file";
        let wrong = "/bad.dist: line 2: `x` is no value";
        for (name, more, cause) in [
            ("x.dist", "", missing.as_str()),
            ("bad.dist", "", wrong),
            ("/proc/version", "", "/proc/version is not below "),
            ("long.dist", "", "long.dist: it is longer than 1 MiB"),
            ("", "", "it is no file"),
            ("two.dist", ", values = '1'", "leave file or values out"),
        ] {
            let error = format!("{:#}", link(name, more).unwrap_err());
            let place = format!("{folder}/link.toml:3: file: ");
            assert!(error.starts_with(&place), "{error}");
            assert!(error.contains(cause), "{error}");
        }
    }

    #[test]
    fn what_a_terminal_would_obey_is_refused_with_its_line_and_key() {
        let parse = |text: &str| {
            let source = SourceFile {
                file: "a.toml",
                text,
                also: &[],
            };
            source.parse().map(drop).map_err(|error| error.to_string())
        };
        for case in [
            "a = 1\nnote = \"\\u001b[2J\" => a.toml:2: note: it has the control character U+001B",
            "cases = [{ title = \"x\\r\" }] => a.toml:1: title: it has the control character U+000D",
            "a = ['\u{202e}x'] => a.toml:1: a: it has the control character U+202E",
            "\"a\\u009b\" = 1 => a.toml:1: a key: it has the control character U+009B",
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
            message.starts_with("a.toml:3: loss: expected a string, found sequence"),
            "{message}"
        );
    }
}
