//! TOML files read so that an error names file, line and key, and the nearest known key.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use record::link_spec::LinkSpec;
use serde::de::DeserializeOwned;

/// The text of `file` and the value in it.
///
/// # Errors
/// `FILE:LINE: cause`, where an unknown key comes with the known one nearest to it.
pub(crate) fn read<T: DeserializeOwned>(file: &Path) -> Result<(String, T)> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("{}: cannot read", file.display()))?;
    let value = parse(&file.display().to_string(), &text)?;
    Ok((text, value))
}

/// The value in `text`, which came from `file`.
///
/// # Errors
/// As [`read`].
pub(crate) fn parse<T: DeserializeOwned>(file: &str, text: &str) -> Result<T> {
    toml::from_str(text).map_err(|error| explain(file, text, &error))
}

/// The 1-based line of a byte offset.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text.bytes()
        .take(offset)
        .filter(|&byte| byte == b'\n')
        .count()
        + 1
}

/// A TOML error with its file, line and key, and the known key nearest to an unknown one.
pub(crate) fn explain(file: &str, text: &str, error: &toml::de::Error) -> anyhow::Error {
    let message = error.message();
    let advice = nearest_known(message)
        .map_or_else(String::new, |known| format!("; did you mean `{known}`?"));
    let Some(span) = error.span() else {
        return anyhow!("{file}: {message}{advice}");
    };
    let line = line_of(text, span.start);
    match key_of_line(text, line).filter(|key| !message.contains(&format!("`{key}`"))) {
        Some(key) => anyhow!("{file}:{line}: {key}: {message}{advice}"),
        None => anyhow!("{file}:{line}: {message}{advice}"),
    }
}

/// The key that the line assigns, for errors about its value.
fn key_of_line(text: &str, line: usize) -> Option<String> {
    let (key, _) = text.lines().nth(line - 1)?.split_once('=')?;
    Some(key.trim().to_owned())
}

/// Serde words an unknown key as "unknown field `x`, expected one of `a`, `b`"; the nearest of those to `x`.
fn nearest_known(message: &str) -> Option<&str> {
    let rest = message
        .strip_prefix("unknown field ")
        .or_else(|| message.strip_prefix("unknown variant "))?;
    let mut quoted = rest.split('`').skip(1).step_by(2);
    let unknown = quoted.next()?;
    quoted
        .map(|known| (strsim::damerau_levenshtein(unknown, known), known))
        .filter(|(distance, known)| *distance <= known.len().max(3) / 2)
        .min()
        .map(|(_, known)| known)
}

/// The conditions in `file`.
///
/// # Errors
/// A file that cannot be read, an unknown key or a value out of range, with file, line and key.
pub(crate) fn read_link(file: &Path) -> Result<LinkSpec> {
    let spec: LinkSpec = read(file)?.1;
    spec.check().with_context(|| file.display().to_string())?;
    Ok(spec)
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
        parse::<Sheet>("a.toml", text).unwrap_err().to_string()
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
