//! The words of a line: `key=value`, bounded and named when wrong.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::wire::Wait;

/// `key=value` words, each key once.
pub(super) struct Fields<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Fields<'a> {
    /// Reads words; empty ones are passed over.
    pub(super) fn parse(words: impl Iterator<Item = &'a str>) -> Result<Self> {
        let mut fields = BTreeMap::new();
        for word in words.filter(|word| !word.is_empty()) {
            let (key, value) = word
                .split_once('=')
                .with_context(|| format!("{word:?} is not key=value"))?;
            ensure!(fields.insert(key, value).is_none(), "{key:?} comes twice");
        }
        Ok(Self(fields))
    }

    /// Reads what stands behind the word `first` of a line.
    pub(super) fn after(first: &str, line: &'a str) -> Result<Self> {
        let mut words = line.split(' ');
        ensure!(
            words.next() == Some(first),
            "came {line:?} where a line starts with `{first} `"
        );
        Self::parse(words)
    }

    /// A number, if it is there.
    pub(super) fn optional<T: FromStr>(&mut self, key: &str) -> Result<Option<T>> {
        let Some(value) = self.0.remove(key) else {
            return Ok(None);
        };
        let number = value.parse();
        number
            .map(Some)
            .map_err(|_| anyhow!("{key}={value:?} is not a number that fits"))
    }

    /// A number that must be there.
    pub(super) fn required<T: FromStr>(&mut self, key: &str) -> Result<T> {
        let value = self.optional(key)?;
        value.with_context(|| format!("{key} is missing"))
    }

    /// A number that must be there, within a range.
    pub(super) fn within(&mut self, key: &str, range: RangeInclusive<u64>) -> Result<u64> {
        let value = self.required(key)?;
        let (low, high) = (range.start(), range.end());
        ensure!(
            range.contains(&value),
            "{key}={value} is not within {low} to {high}"
        );
        Ok(value)
    }

    /// As [`Fields::within`], of bytes in memory.
    pub(super) fn size(&mut self, key: &str, range: RangeInclusive<u64>) -> Result<usize> {
        Ok(usize::try_from(self.within(key, range)?)?)
    }

    /// How to wait; must be there.
    pub(super) fn wait(&mut self) -> Result<Wait> {
        match self.0.remove("wait") {
            Some("block") => Ok(Wait::Block),
            Some("spin") => Ok(Wait::Spin),
            other => bail!("wait is block or spin, not {:?}", other.unwrap_or_default()),
        }
    }

    /// `yes` or `no`; must be there.
    pub(super) fn flag(&mut self, key: &str) -> Result<bool> {
        match self.0.remove(key) {
            Some("yes") => Ok(true),
            Some("no") => Ok(false),
            other => bail!("{key} is yes or no, not {:?}", other.unwrap_or_default()),
        }
    }

    /// Nothing else may be there.
    pub(super) fn end(self) -> Result<()> {
        match self.0.first_key_value() {
            Some((key, _)) => bail!("there is no {key:?} here"),
            None => Ok(()),
        }
    }
}
