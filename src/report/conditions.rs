//! Conditions in words.

use anyhow::Result;

use crate::experiment::plan::{Case, Repeats};
use crate::link_spec::LinkSpec;

/// A link in one line: "rate 10mbit, up loss 1%".
///
/// # Errors
/// None that a link which was read can cause.
pub(super) fn link(link: &LinkSpec) -> Result<String> {
    let mut parts = Vec::new();
    flatten("", &toml::Table::try_from(link)?, &mut parts);
    Ok(if parts.is_empty() {
        "none".to_owned()
    } else {
        parts.join(", ")
    })
}

/// The test bed of a case in one line.
///
/// # Errors
/// As [`link`].
pub(super) fn bed(case: &Case) -> Result<String> {
    let bed = &case.bed;
    let mut parts = Vec::new();
    flatten("", &toml::Table::try_from(bed)?, &mut parts);
    Ok(parts.join(", "))
}

/// How often a case runs: "5", "3 to 30, until ping.rtt_ms.median ± 2 %".
pub(super) fn repeats(repeats: &Repeats) -> String {
    match &repeats.until {
        None => repeats.least.to_string(),
        Some(narrow) => format!(
            "{} to {}, until {} ± {} %",
            repeats.least, repeats.most, narrow.of, narrow.percent
        ),
    }
}

fn flatten(prefix: &str, table: &toml::Table, parts: &mut Vec<String>) {
    for (key, value) in table {
        let name = format!("{prefix}{}", key.replace('_', " "));
        match value {
            toml::Value::Table(inner) => flatten(&format!("{name} "), inner, parts),
            toml::Value::String(text) => parts.push(format!("{name} {text}")),
            other => parts.push(format!("{name} {other}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_one_line() {
        let spec = "delay = '1ms'\nsize_delay = 2\ntoffee = 'drop=2'\n[up]\nloss = '1%'";
        let line = link(&toml::from_str(spec).unwrap()).unwrap();
        assert_eq!(line, "delay 1ms, size delay 2, toffee drop 2, up loss 1%");
        assert_eq!(link(&LinkSpec::default()).unwrap(), "none");
    }
}
