//! Conditions in words.

use anyhow::Result;

use record::bed::Bed;
use record::link_spec::LinkSpec;
use record::plan::{Case, Repeats};

/// What is between the client and the server of a case, in one line: the box's conditions, or the nodes of a chain.
///
/// # Errors
/// None that a case which was read can cause.
pub(super) fn path(case: &Case) -> Result<String> {
    match (&case.bed, &case.between) {
        (Bed::Netns(_), _) => link(&case.link),
        (Bed::Chain(_), Some([client, server])) => Ok(format!("from {client} to {server}")),
        (Bed::Chain(chain), None) => Ok(format!("from end to end of {}", chain.nodes.join(", "))),
        (Bed::External(_) | Bed::Nics(_), _) => Ok("not emulated".to_owned()),
    }
}

/// A link in one line: "rate 10mbit, up loss 1%"; "none" where nothing is asked for.
///
/// # Errors
/// None that a link which was read can cause.
pub fn link(link: &LinkSpec) -> Result<String> {
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
/// As [`path`].
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
            toml::Value::Array(all) => {
                let (tables, plain): (Vec<_>, Vec<_>) = all.iter().partition(|v| v.is_table());
                for table in tables.into_iter().filter_map(toml::Value::as_table) {
                    let mut own = Vec::new();
                    flatten("", table, &mut own);
                    parts.push(format!("{name} ({})", own.join(", ")));
                }
                let texts = plain.iter().map(|value| match value {
                    toml::Value::String(text) => text.clone(),
                    other => other.to_string(),
                });
                let texts: Vec<String> = texts.collect();
                if !texts.is_empty() {
                    parts.push(format!("{name} {}", texts.join(" - ")));
                }
            }
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
        let spec = "loss = '1%,burst=8'\nschedule = [{ at = '1s', loss = '2%' }]\n\
                    stages = [{ kind = 'trace', times = [1, 2] }]";
        let line = link(&toml::from_str(spec).unwrap()).unwrap();
        let stage = "stages (kind trace, place first, times 1 - 2)";
        assert_eq!(
            line,
            format!("loss 1%,burst=8, schedule (at 1s, loss 2%), {stage}")
        );
    }

    #[test]
    fn a_chain_is_its_nodes_and_its_links() {
        let mut case = crate::analysis::tests::record().head.plan.cases[0].clone();
        let bed_text =
            "kind = 'chain'\nnodes = ['a', 'b', 'c']\nlinks = { a-b = { rate = '1mbit' } }";
        case.bed = toml::from_str(bed_text).unwrap();
        assert_eq!(path(&case).unwrap(), "from end to end of a, b, c");
        case.between = Some(["c", "b"].map(str::to_owned));
        assert_eq!(path(&case).unwrap(), "from c to b");
        let line = bed(&case).unwrap();
        assert!(
            line.contains("links a-b rate 1mbit") && line.contains("nodes a - b - c"),
            "{line}"
        );
    }
}
