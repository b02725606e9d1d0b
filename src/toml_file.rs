//! TOML files read so that an error names file, line and key, and the nearest known key.
//!
//! Every value keeps its place in the file, whatever tables it is merged into. What cannot be read into its type is found
//! there by its place; what a check refuses, by the keys that its message begins with: `link: up: queue: a queue needs a
//! rate`. One of several tables is named by its number, `expect 2: within: …`, or by its own `name`.
//!
//! A file that a text names is read with it, from the folder of the file that the text is in: the distribution of a jitter.
//! Which files a text may name: [`named_files`]. What a terminal would obey or show in another order is refused in any text.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use conditions::link_spec::LinkSpec;
use conditions::{dist, nearest};
use serde::Deserialize;
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

/// The conditions in `file`, which may name files below its own folder and below those of `also`.
///
/// # Errors
/// A file that cannot be read, an unknown key or a value out of range, with file, line and key.
pub(crate) fn read_link(file: &Path, also: &[PathBuf]) -> Result<LinkSpec> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("{}: cannot read", file.display()))?;
    let source = SourceFile {
        file: &file.display().to_string(),
        text: &text,
        also,
    };
    let table = source.parse()?;
    let spec: LinkSpec = source.read(&table)?;
    let checked = spec.check();
    checked.map_err(|error| source.refusal(&table, "", &error))?;
    Ok(spec)
}

impl<'a> SourceFile<'a> {
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
        match text.replace("\r\n", "\n").chars().find(is_control) {
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
    pub(crate) fn read<'t, T: Deserialize<'t>>(&self, table: &Spanned<DeTable<'t>>) -> Result<T> {
        let from = toml::de::Deserializer::from(table.clone());
        T::deserialize(from).map_err(|error| {
            let span = error.span().unwrap_or_else(|| table.span());
            let message = plain(error.message());
            let mut way = way_to(table.get_ref(), &span).unwrap_or_default();
            // Of a key that should not be there, the message tells.
            way.pop_if(|key| message.contains(&format!("`{key}`")));
            way.push(message);
            let message = way.join(": ");
            let place = find(table.get_ref(), &message).filter(|found| found.start > span.start);
            anyhow!("{}: {message}", self.at(place.unwrap_or(span).start))
        })
    }

    /// What a check said of `table`, with the place of the key that its message begins with. `whose` comes before the message.
    pub(crate) fn refusal(
        &self,
        table: &Spanned<DeTable<'_>>,
        whose: &str,
        error: &anyhow::Error,
    ) -> anyhow::Error {
        let message = format!("{error:#}");
        let place = find(table.get_ref(), &message).unwrap_or_else(|| table.span());
        anyhow!("{}: {whose}{message}", self.at(place.start))
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

/// Whether a terminal obeys it, or shows what follows in another order (Unicode Standard Annex 9, explicit directional
/// formatting); lines and tabs are text.
fn is_control(letter: &char) -> bool {
    let reorders = matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    reorders || (letter.is_control() && !matches!(letter, '\n' | '\t'))
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

/// The keys that lead to the key or value at `span`.
fn way_to(table: &DeTable<'_>, span: &Range<usize>) -> Option<Vec<String>> {
    // A value that a sweep set has the place of the tables made for it: the innermost is meant.
    table.iter().find_map(|(key, value)| {
        let name = key.get_ref().to_string();
        way_in(&name, value, span)
            .or_else(|| (key.span() == *span || value.span() == *span).then(|| vec![name]))
    })
}

/// Likewise, where `value` is that of the key `name`.
fn way_in(name: &str, value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<Vec<String>> {
    let behind = |name: String, rest: Vec<String>| [vec![name], rest].concat();
    match value.get_ref() {
        DeValue::Table(table) => Some(behind(name.to_owned(), way_to(table, span)?)),
        DeValue::Array(all) => all.iter().enumerate().find_map(|(index, one)| {
            let name = format!("{name} {}", index + 1);
            way_in(&name, one, span).or_else(|| (one.span() == *span).then(|| vec![name]))
        }),
        _ => None,
    }
}

/// Where the last of the keys that `message` begins with has its value.
pub(crate) fn find(table: &DeTable<'_>, message: &str) -> Option<Range<usize>> {
    let (step, rest) = message.split_once(": ").unwrap_or((message, ""));
    let value = table.get(step).or_else(|| {
        let (key, number) = step.rsplit_once(' ')?;
        let index = number.parse::<usize>().ok()?.checked_sub(1)?;
        table.get(key)?.get_ref().as_array()?.get(index)
    })?;
    let inner = match value.get_ref() {
        DeValue::Table(inner) => find(inner, rest),
        DeValue::Array(all) => find_named(all.iter(), rest),
        _ => None,
    };
    Some(inner.unwrap_or_else(|| value.span()))
}

/// Likewise in the table of `all` whose name, or else kind, the message begins with.
fn find_named<'v, 't: 'v>(
    mut all: impl Iterator<Item = &'v Spanned<DeValue<'t>>>,
    message: &str,
) -> Option<Range<usize>> {
    let (name, rest) = message.split_once(": ").unwrap_or((message, ""));
    all.find_map(|one| {
        let table = one.get_ref().as_table()?;
        let own = table.get("name").or_else(|| table.get("kind"))?;
        (own.get_ref().as_str() == Some(name))
            .then(|| find(table, rest).unwrap_or_else(|| one.span()))
    })
}

/// A message of serde's; of an unknown key, with the nearest that is known in place of them all, if one is near.
fn plain(message: &str) -> String {
    match (message.split_once(','), nearest_known(message)) {
        (Some((unknown, _)), Some(known)) => format!("{unknown}; did you mean `{known}`?"),
        _ => message.to_owned(),
    }
}

/// Serde words an unknown key as "unknown field `x`, expected one of `a`, `b`"; the nearest of those to `x`.
fn nearest_known(message: &str) -> Option<&str> {
    let rest = message
        .strip_prefix("unknown field ")
        .or_else(|| message.strip_prefix("unknown variant "))?;
    let mut quoted = rest.split('`').skip(1).step_by(2);
    let unknown = quoted.next()?;
    nearest::of(unknown, quoted)
}

#[cfg(test)]
mod tests {
    use super::*;
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
            message.starts_with("a.toml:2: unknown field `dealy`"),
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
        let read = link("two.dist", "").unwrap().up.jitter.unwrap();
        let two = dist::parse("-8192 8192").unwrap();
        assert_eq!(read.jitter.law, model::Law::Table(two));
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
            assert!(
                error.starts_with(&place) && error.contains(cause),
                "{error}"
            );
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
        for (text, place) in [
            (
                "a = 1\nnote = \"\\u001b[2J\"",
                "a.toml:2: note: it has the control character U+001B",
            ),
            (
                "cases = [{ title = \"x\\r\" }]",
                "a.toml:1: title: it has the control character U+000D",
            ),
            (
                "a = ['\u{202e}x']",
                "a.toml:1: a: it has the control character U+202E",
            ),
            (
                "\"a\\u009b\" = 1",
                "a.toml:1: a key: it has the control character U+009B",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(place), "{error}");
        }
        parse("note = '''two\nlines,\tand\r\nthree: \u{e4}\u{4e2d}'''").unwrap();
    }

    #[test]
    fn a_wrong_value_comes_with_line_and_key() {
        let message = refusal("\n\nloss = []\n");
        assert!(
            message.starts_with("a.toml:3: loss: invalid type"),
            "{message}"
        );
    }
}
