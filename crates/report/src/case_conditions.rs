//! Formats the conditions of a case.

use conditions::LinkSpec;
use model::Nanos;
use record::bed::Bed;
use record::plan::{Case, Repeats};
use serde::Serialize;
use serde_json::{Map, Value};

/// The longest text of a condition that is shown in full, in characters. The values of a distribution are longer.
const LONGEST: usize = 100;
/// The longest list of values that is shown in full. Of a longer one, such as a trace, the count, the least and the
/// greatest are shown.
const MOST_VALUES: usize = 12;

/// Formats the path between client and server of a case in one line: the conditions of the box, or the nodes of a
/// chain.
pub(super) fn path(case: &Case) -> String {
    match (&case.bed, &case.between) {
        (Bed::Netns(_), _) => link(&case.link),
        (Bed::Chain(_), Some([client, server])) => format!("from {client} to {server}"),
        (Bed::Chain(chain), None) => format!("from end to end of {}", chain.nodes.join(", ")),
        (Bed::External(_) | Bed::Nics(_), _) => "not emulated".to_owned(),
    }
}

/// Formats a link in one line: "rate 10mbit, up loss 1%; rule web: delay 5ms", or "none" without conditions.
pub fn link(link: &LinkSpec) -> String {
    let line = in_line(parts("", link));
    if line.is_empty() {
        "none".to_owned()
    } else {
        line
    }
}

/// Joins the conditions of a link in one line: first its own, then those of each rule after a semicolon.
fn in_line(parts: Vec<String>) -> String {
    let (rules, own): (Vec<String>, Vec<String>) = parts
        .into_iter()
        .partition(|part| part.starts_with("rule "));
    let own = Some(own.join(", ")).filter(|own| !own.is_empty());
    own.into_iter().chain(rules).collect::<Vec<_>>().join("; ")
}

/// Describes a case in a sentence: with its title, "case2 (constant delay 1 ms)", or, if a sweep made it, with the swept
/// values, "queue (queue 300ms, TCP bbr)".
pub(super) fn described(case: &Case) -> String {
    let swept = in_force(case).swept.join(", ");
    match (swept.is_empty(), case.base_name()) {
        (true, name) if case.title.is_empty() || case.title == case.name => name,
        (true, name) => format!("{name} ({})", case.title),
        (false, name) if name.is_empty() => swept,
        (false, name) => format!("{name} ({swept})"),
    }
}

/// Returns, for each of two links, the conditions that it does not share with the other; empty if it shares all.
pub(super) fn differing(links: [&LinkSpec; 2]) -> [String; 2] {
    let [old, new] = links.map(|link| parts("", link));
    let only = |own: &[String], other: &[String]| {
        let own = own.iter().filter(|part| !other.contains(part));
        in_line(own.cloned().collect())
    };
    [only(&old, &new), only(&new, &old)]
}

/// The conditions that are in force in a case, in words.
pub(super) struct CaseConditions {
    /// The values that a sweep set: "queue 300ms".
    pub(super) swept: Vec<String>,
    /// All other conditions between client and server.
    pub(super) others: Vec<String>,
}

/// Returns the conditions of a case, with those that a sweep set separate from the others.
pub(super) fn in_force(case: &Case) -> CaseConditions {
    let mut others = Vec::new();
    match &case.bed {
        Bed::Netns(bed) => {
            others.extend(parts("", &case.link));
            others.extend(parts("", bed));
        }
        Bed::Chain(chain) => {
            others.push(path(case));
            // In an invalid record whose ends are no nodes of its chain, there is nothing on the path.
            let on_the_way = chain.ends(case.between.as_ref()).map_or(&[][..], |ends| {
                &chain.nodes[ends.client.min(ends.server)..=ends.client.max(ends.server)]
            });
            for pair in on_the_way.windows(2) {
                let name = pair.join("-");
                others.extend(parts(&format!("{name} "), &chain.links.get(&name)));
            }
        }
        _ => others.push(path(case)),
    }
    others.push(format!("TCP {}", case.congestion));
    let mut swept = Vec::new();
    for (path, value) in case.swept_values() {
        let words = words(path);
        // A swept condition is shown in the form of the others, not as the scenario has it.
        let key = format!("{words} ");
        let same = |other: &String| other.starts_with(&key);
        let own = others.iter().position(same).map(|at| others.remove(at));
        // A time of zero is shown in the scenario's unit.
        let own = own.filter(|own| !own.ends_with(" 0ms"));
        swept.push(own.unwrap_or_else(|| format!("{words} {value}")));
    }
    // These are the defaults of every bed.
    others.retain(|other| !["mtu 1500", "offloads on"].contains(&other.as_str()));
    CaseConditions { swept, others }
}

/// Returns the path of a field within its case in the words of conditions: "link.up.loss" is "up loss".
pub(super) fn words(path: &str) -> String {
    let ways = ["link.", "bed.links.", "bed.", "parameters."];
    let short = ways.iter().find_map(|way| path.strip_prefix(way));
    match path {
        "tcp.congestion" => "TCP".to_owned(),
        _ => short.unwrap_or(path).replace(['.', '_'], " "),
    }
}

/// Formats the test bed of a case in one line.
pub(super) fn bed(case: &Case) -> String {
    parts("", &case.bed).join(", ")
}

/// Formats the number of repeats: "5", "3 to 30, until ping.rtt_ms.median ± 2 %".
pub(super) fn repeats(repeats: &Repeats) -> String {
    match &repeats.until {
        None => repeats.least.to_string(),
        Some(narrow) => format!(
            "{} to {}, until {} ± {} %",
            repeats.least, repeats.most, narrow.of, narrow.percent
        ),
    }
}

/// Returns a text for each key of a value.
pub(super) fn parts(prefix: &str, value: &impl Serialize) -> Vec<String> {
    let mut parts = Vec::new();
    let value = serde_json::to_value(value).unwrap_or_default();
    flatten(prefix, &value, &mut parts);
    parts
}

fn flatten(prefix: &str, table: &Value, parts: &mut Vec<String>) {
    for (key, value) in table.as_object().into_iter().flatten() {
        let name = format!("{prefix}{}", key.replace('_', " "));
        match value {
            Value::Object(trace) if key == "trace" => {
                parts.push(format!("{name} {}", trace_words(trace)));
            }
            Value::Object(_) => flatten(&format!("{name} "), value, parts),
            Value::String(text) => match text.char_indices().nth(LONGEST) {
                Some((end, _)) => {
                    let values: Vec<&str> = text.split_whitespace().collect();
                    let shown = range(&values).unwrap_or_else(|| format!("{}...", &text[..end]));
                    parts.push(format!("{name} {shown}"));
                }
                None => parts.push(format!("{name} {text}")),
            },
            Value::Array(all) => {
                let (tables, plain): (Vec<_>, Vec<_>) = all.iter().partition(|v| v.is_object());
                for table in tables {
                    parts.push(match key.as_str() {
                        "rules" => rule_words(prefix, table),
                        "hops" => hop_words(prefix, table),
                        _ => format!("{name} ({})", self::parts("", table).join(", ")),
                    });
                }
                let texts: Vec<String> = plain
                    .iter()
                    .map(|value| match value {
                        Value::String(text) => text.clone(),
                        other => other.to_string(),
                    })
                    .collect();
                let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                let shown = range(&texts).unwrap_or_else(|| texts.join(" - "));
                if !texts.is_empty() {
                    parts.push(format!("{name} {shown}"));
                }
            }
            Value::Null => {}
            Value::Bool(is_on) => {
                parts.push(format!("{name} {}", if *is_on { "on" } else { "off" }));
            }
            other => parts.push(format!("{name} {other}")),
        }
    }
}

/// Formats a rule by its name, or its filter if it has no name, its hop, and the conditions of its packets: "rule web: loss
/// 1%", "rule web at hop dsl: loss 1%".
fn rule_words(prefix: &str, rule: &Value) -> String {
    let mut rest = rule.as_object().cloned().unwrap_or_default();
    let filter = rest.remove("match");
    let name = rest.remove("name").or(filter);
    let name = name.as_ref().and_then(Value::as_str).unwrap_or_default();
    let hop = match rest.remove("hop").as_ref().and_then(Value::as_str) {
        Some(hop) => format!(" at hop {hop}"),
        None => String::new(),
    };
    format!("{prefix}rule {name}{hop}: {}", parts("", &rest).join(", "))
}

/// Formats a hop by its name and its conditions: "hop dsl (rate 8mbit, delay 15ms)".
fn hop_words(prefix: &str, hop: &Value) -> String {
    let mut rest = hop.as_object().cloned().unwrap_or_default();
    let name = rest.remove("name");
    let name = name.as_ref().and_then(Value::as_str).unwrap_or_default();
    let conditions = match parts("", &rest) {
        none if none.is_empty() => "no conditions".to_owned(),
        some => some.join(", "),
    };
    format!("{prefix}hop {name} ({conditions})")
}

/// Formats a trace by its file, the file of its light load if it has one, its length and its end: "drive.csv (45s, then
/// hold)".
fn trace_words(trace: &Map<String, Value>) -> String {
    let word = |key: &str| trace.get(key).and_then(Value::as_str);
    let file = word("file").unwrap_or_default();
    let parts = [
        word("light").map(|light| format!("light load {light}")),
        word("length").map(str::to_owned),
        word("end").map(|end| format!("then {end}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        file.to_owned()
    } else {
        format!("{file} ({})", parts.join(", "))
    }
}

/// Returns the count, the least and the greatest of many values: "(6000 values from 0 to 59990)". It returns `None` for
/// a few values, or if one of them is neither a number nor a time.
fn range(values: &[&str]) -> Option<String> {
    if values.len() <= MOST_VALUES {
        return None;
    }
    let number = |text: &&str| {
        let time = text.parse::<Nanos>().ok().map(|time| time.0 as f64);
        time.or_else(|| text.parse::<f64>().ok())
    };
    let numbers: Option<Vec<f64>> = values.iter().map(number).collect();
    let numbers = numbers?;
    let by = |a: &usize, b: &usize| numbers[*a].total_cmp(&numbers[*b]);
    let least = (0..values.len()).min_by(by)?;
    let greatest = (0..values.len()).max_by(by)?;
    let (count, least, greatest) = (values.len(), values[least], values[greatest]);
    Some(format!("({count} values from {least} to {greatest})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_values_are_summarised() {
        let times: Vec<String> = (0..6_000).map(|time| time.to_string()).collect();
        let spec = format!(
            "stages = [{{ kind = 'trace', times = [{}] }}]",
            times.join(", ")
        );
        let line = link(&toml::from_str(&spec).unwrap());
        assert!(
            line.contains("times (6000 values from 0 to 5999)"),
            "{line}"
        );
    }

    #[test]
    fn conditions_are_formatted_on_one_line() {
        let spec = "delay = '1ms'\nsize_delay = 2\ntoffee = 'drop=2'\n[up]\nloss = '1%'";
        let line = link(&toml::from_str(spec).unwrap());
        assert_eq!(line, "delay 1ms, size delay 2, toffee drop 2, up loss 1%");
        assert_eq!(link(&LinkSpec::default()), "none");
        let values = "8192 ".repeat(100);
        let spec = format!("jitter = {{ spread = '2ms', law = 'table', values = '{values}' }}");
        let line = link(&toml::from_str(&spec).unwrap());
        assert!(
            line.contains("jitter values (100 values from 8192 to 8192)"),
            "{line}"
        );
        let spec = "[[rules]]\nmatch = 'tcp port 443'\nname = 'web'\nloss = '1%'\n[[rules]]\nmatch = 'udp'\nhop = 'dsl'\ndelay = '5ms'";
        let line = link(&toml::from_str(spec).unwrap());
        assert_eq!(line, "rule web: loss 1%; rule udp at hop dsl: delay 5ms");
        let spec = format!("rate = '1mbit'\n{spec}\n[up]\ndelay = '10ms'");
        let line = link(&toml::from_str(&spec).unwrap());
        let own = "rate 1mbit, up delay 10ms";
        assert_eq!(
            line,
            format!("{own}; rule web: loss 1%; rule udp at hop dsl: delay 5ms")
        );
        let spec = "delay = '1ms'\n[[hops]]\nname = 'dsl'\nrate = '8mbit'\nup.rate = '1mbit'\n[[hops]]\nname = 'core'";
        let line = link(&toml::from_str(spec).unwrap());
        assert_eq!(
            line,
            "delay 1ms, hop dsl (rate 8mbit, up rate 1mbit), hop core (no conditions)"
        );
        let spec = "loss = '1%,burst=8'\nschedule = [{ at = '1s', loss = '2%' }]\n\
                    stages = [{ kind = 'trace', times = [1, 2] }]";
        let line = link(&toml::from_str(spec).unwrap());
        let stage = "stages (kind trace, place first, times 1 - 2)";
        assert_eq!(
            line,
            format!("loss 1%,burst=8, schedule (at 1s, loss 2%), {stage}")
        );
    }

    #[test]
    fn a_trace_is_named_with_its_light_load_its_length_and_its_end() {
        let spec = "[up]\ntrace = { file = 'full', content = \"5\\n\", light = 'light', light_content = \"0 5 0\\n1 5 0\\n2 5 0\\n\" }\n\
                    [down]\ntrace = { file = 'x', content = \"5\\n\", end = 'clear' }";
        let line = link(&toml::from_str(spec).unwrap());
        assert_eq!(
            line,
            "down trace x (5ms, then clear), up trace full (light load light, 5ms, then loop)"
        );
    }

    #[test]
    fn the_conditions_that_two_links_do_not_share_are_separate() {
        let [slow, lossy] = [
            "rate = '1mbit'\ndelay = '5ms'",
            "delay = '5ms'\nloss = '1%'",
        ]
        .map(|text| toml::from_str::<LinkSpec>(text).unwrap());
        assert_eq!(differing([&slow, &lossy]), ["rate 1mbit", "loss 1%"]);
        assert_eq!(differing([&slow, &slow]), ["", ""]);
    }

    #[test]
    fn swept_conditions_are_separate_and_as_in_force() {
        let mut case = crate::analysis::tests::record().head.plan.cases[0].clone();
        case.link = toml::from_str("rate = '20mbit'\nqueue = '300ms'").unwrap();
        let axis = |path: &str, value: &str| (path.to_owned(), value.to_owned());
        case.axes = vec![
            axis("link.queue", "300ms"),
            axis("tcp.congestion", "bbr"),
            axis("parameters.load.parallel", "3"),
            axis("published.\"ping.rtt_ms.median\"", "3ms"),
        ];
        case.congestion = "bbr".to_owned();
        let found = in_force(&case);
        assert_eq!(found.swept, ["queue 300ms", "TCP bbr", "load parallel 3"]);
        assert!(found.others.contains(&"rate 20mbit".to_owned()));
        assert!(!found.others.iter().any(|other| other.contains("300ms")));
    }

    #[test]
    fn a_swept_time_of_zero_has_the_scenarios_unit() {
        let mut case = crate::analysis::tests::record().head.plan.cases[0].clone();
        case.link = toml::from_str("delay = '0s'").unwrap();
        case.axes = vec![("link.delay".to_owned(), "0s".to_owned())];
        let found = in_force(&case);
        assert_eq!(found.swept, ["delay 0s"]);
        assert!(!found.others.iter().any(|other| other.contains("delay")));
    }

    #[test]
    fn a_case_is_described_by_its_title_or_its_swept_values() {
        let mut case = crate::analysis::tests::record().head.plan.cases[0].clone();
        assert_eq!(described(&case), "base (Nothing added)");
        case.title = case.name.clone();
        assert_eq!(described(&case), "base");
        case.name = "queue[queue=300ms]".to_owned();
        case.title = "a queue of three lengths".to_owned();
        case.axes = vec![("link.queue".to_owned(), "300ms".to_owned())];
        assert_eq!(described(&case), "queue (queue 300ms)");
        case.name = "[queue=300ms]".to_owned();
        assert_eq!(described(&case), "queue 300ms");
    }

    #[test]
    fn a_chain_is_formatted_as_nodes_and_links() {
        let mut case = crate::analysis::tests::record().head.plan.cases[0].clone();
        let bed_text =
            "kind = 'chain'\nnodes = ['a', 'b', 'c']\nlinks = { a-b = { rate = '1mbit' } }";
        case.bed = toml::from_str(bed_text).unwrap();
        assert_eq!(path(&case), "from end to end of a, b, c");
        assert_eq!(in_force(&case).others[1], "a-b rate 1mbit");
        case.between = Some(["c", "b"].map(str::to_owned));
        assert_eq!(path(&case), "from c to b");
        let others = in_force(&case).others;
        assert!(
            !others.iter().any(|other| other.contains("a-b")),
            "{others:?}"
        );
        let line = bed(&case);
        assert!(line.contains("links a-b rate 1mbit"), "{line}");
        assert!(line.contains("nodes a - b - c"), "{line}");
    }
}
