//! TOML files read so that an error names file, line and key, and the nearest known key.
//!
//! Every value keeps its place in the file, whatever tables it is merged into. What cannot be read into its type is found
//! there by its place; what a check refuses, by the keys that its message begins with: `link: up: queue: a queue needs a
//! rate`. One of several tables is named by its number, `expect 2: within: …`, or by its own `name`.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use record::link_spec::LinkSpec;
use record::nearest;
use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Where a text came from, for errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceFile<'a> {
    /// As messages name it.
    pub(crate) file: &'a str,
    /// What it holds.
    pub(crate) text: &'a str,
}

/// The conditions in `file`.
///
/// # Errors
/// A file that cannot be read, an unknown key or a value out of range, with file, line and key.
pub(crate) fn read_link(file: &Path) -> Result<LinkSpec> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("{}: cannot read", file.display()))?;
    let source = SourceFile {
        file: &file.display().to_string(),
        text: &text,
    };
    let table = source.parse()?;
    let spec: LinkSpec = source.read(&table)?;
    let checked = spec.check();
    checked.map_err(|error| source.refusal(&table, "", &error))?;
    Ok(spec)
}

impl<'a> SourceFile<'a> {
    /// The tables of the text.
    ///
    /// # Errors
    /// It is no TOML.
    pub(crate) fn parse(&self) -> Result<Spanned<DeTable<'a>>> {
        DeTable::parse(self.text).map_err(|error| {
            let span = error.span().unwrap_or_default();
            let what = match error.message() {
                message @ "duplicate key" => format!("{message} `{}`", &self.text[span.clone()]),
                message => message.to_owned(),
            };
            anyhow!("{}: {what}", self.at(span.start))
        })
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
    fn a_wrong_value_comes_with_line_and_key() {
        let message = refusal("\n\nloss = []\n");
        assert!(
            message.starts_with("a.toml:3: loss: invalid type"),
            "{message}"
        );
    }
}
