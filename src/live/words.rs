//! Conditions in one line: as a description, and as the equivalent flags.

use conditions::{CONDITIONS, Layer, LinkSpec};
use serde_json::{Map, Value};

/// Returns the conditions in one line: "delay 20ms, rate 10mbit in each direction, up loss 1%".
pub(crate) fn in_force(spec: &LinkSpec) -> String {
    let each_way = LinkSpec {
        both: spec.both.clone(),
        ..LinkSpec::default()
    };
    let rest = LinkSpec {
        both: Layer::default(),
        rules: Vec::new(),
        ..spec.clone()
    };
    let own: Vec<String> = [(each_way, " in each direction"), (rest, "")]
        .into_iter()
        .filter(|(part, _)| *part != LinkSpec::default())
        .map(|(part, how)| report::link(&part) + how)
        .collect();
    let rules = LinkSpec {
        rules: spec.rules.clone(),
        ..LinkSpec::default()
    };
    // A semicolon shows where the conditions of the packets of a rule end.
    match (own.is_empty(), spec.rules.is_empty()) {
        (true, true) => "no conditions".to_owned(),
        (false, true) => own.join(", "),
        (true, false) => report::link(&rules),
        (false, false) => format!("{}; {}", own.join(", "), report::link(&rules)),
    }
}

/// Returns the equivalent flags for a shell, or `None` if flags cannot express the conditions:
/// schedules, stages, hops, fields of rules and tables of values have no flags.
pub(super) fn command_line(spec: &LinkSpec) -> Option<String> {
    let Ok(Value::Object(mut conditions)) = serde_json::to_value(spec) else {
        return None;
    };
    let directions =
        [("up-", "up"), ("down-", "down")].map(|(prefix, key)| (prefix, conditions.remove(key)));
    let rules = match conditions.remove("rules") {
        Some(Value::Array(rules)) => rules,
        _ => Vec::new(),
    };
    let mut flags = flags_of("", &conditions)?;
    for (prefix, direction) in directions {
        if let Some(Value::Object(direction)) = direction {
            flags.extend(flags_of(prefix, &direction)?);
        }
    }
    for rule in &rules {
        flags.push(format!("--rule {}", quoted(&rule_of(rule)?)));
    }
    Some(flags.join(" "))
}

/// Returns a rule as its flag has it, or `None` if it has a schedule, or fields instead of a filter.
fn rule_of(rule: &Value) -> Option<String> {
    let rule = rule.as_object()?;
    let mut words = format!("{}:", rule.get("match")?.as_str()?);
    for (key, value) in rule {
        match (key.as_str(), value) {
            ("match", _) => {}
            ("up" | "down", Value::Object(direction)) => {
                for (condition, value) in direction {
                    words += &format!(" {key}-{}", assignment(condition, value)?);
                }
            }
            ("name" | "direction" | "hop", Value::String(text)) => {
                words += &format!(" {key}={text}");
            }
            ("weight", Value::Number(weight)) => words += &format!(" weight={weight}"),
            _ => words += &format!(" {}", assignment(key, value)?),
        }
    }
    Some(words)
}

/// Returns a condition of a rule as its flag has it.
fn assignment(key: &str, value: &Value) -> Option<String> {
    let is_condition = CONDITIONS.iter().any(|known| known.key == key);
    let value = value_of(value).filter(|_| is_condition)?;
    Some(format!("{}={value}", key.replace('_', "-")))
}

fn flags_of(prefix: &str, conditions: &Map<String, Value>) -> Option<Vec<String>> {
    let has_flag = |key: &str| {
        CONDITIONS.iter().any(|known| known.key == key)
            || prefix.is_empty() && ["toffee", "seed", "start"].contains(&key)
    };
    let flag = |(key, value): (&String, &Value)| {
        let value = match key.as_str() {
            "trace" => trace_of(value),
            _ => value_of(value),
        };
        let value = value.filter(|_| has_flag(key))?;
        Some(format!(
            "--{prefix}{} {}",
            key.replace('_', "-"),
            quoted(&value)
        ))
    };
    conditions.iter().map(flag).collect()
}

/// Formats a trace as a flag accepts it: its files and its end. A flag has no other keys of it.
fn trace_of(trace: &Value) -> Option<String> {
    let word = |key: &str| trace[key].as_str();
    let (Some(file), Some(end), None) = (word("file"), word("end"), trace.get("except")) else {
        return None;
    };
    let beside = ["delays", "light", "offsets"].into_iter();
    let beside = beside.filter_map(|key| Some(format!(",{key}={}", word(key)?)));
    Some(format!("{file}{},{end}", beside.collect::<String>()))
}

/// Formats a value as a flag accepts it.
fn value_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Object(table) => {
            let pair = |(key, value): (&String, &Value)| match value {
                Value::Object(_) => None,
                _ => Some(format!("{key}={}", value_of(value)?)),
            };
            let pairs: Option<Vec<_>> = table.iter().map(pair).collect();
            Some(pairs?.join(","))
        }
        _ => None,
    }
}

/// Quotes a word for a shell where necessary.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.,=:/%+@".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_conditions_in_force_are_those_of_the_link_and_then_those_of_each_rule() {
        let line = |text: &str| in_force(&toml::from_str(text).unwrap());
        let rule = "[[rules]]\nmatch = 'tcp port 80'\nname = 'web'\ndelay = '40ms'\n";
        let own = "up = { delay = '10ms', rate = '1mbit' }\n";
        assert_eq!(line(""), "no conditions");
        assert_eq!(line(rule), "rule web: delay 40ms");
        assert_eq!(
            line(&format!("loss = '1%'\n{own}{rule}")),
            "loss 1% in each direction, up delay 10ms, up rate 1mbit; rule web: delay 40ms"
        );
    }

    fn flags(text: &str) -> Option<String> {
        command_line(&toml::from_str(text).unwrap())
    }

    #[test]
    fn flags_are_equivalent_to_a_file() {
        let text = "delay = '20ms'\nloss = '1%,burst=8'\nrate = '10mbit'\nfluctuation = 'spread=20%,hold=5s'\nseed = 7\n\
                    toffee = { delay = '1ms', drop = 2 }\n[up]\nnetem = 'delay 1ms'\n[down]\nsize_delay = 2\n";
        let line = flags(text).unwrap();
        for part in [
            "--delay 20ms",
            "--loss 1%,burst=8",
            "--rate 10mbit",
            "--fluctuation hold=5s,spread=20%",
            "--seed 7",
            "--up-netem 'delay 1ms'",
            "--down-size-delay 2",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert_eq!(flags("").unwrap(), "");
    }

    #[test]
    fn a_rule_with_a_filter_has_a_flag() {
        let text = "[[rules]]\nname = 'web'\nmatch = 'tcp port 443'\nloss = '1%,burst=8'\nup.path_mtu = 1400\n\
                    [[rules]]\nmatch = 'udp'\ndirection = 'down'\nhop = 'dsl'\nweight = 3\nnetem = 'delay 1ms'";
        let line = flags(text).unwrap();
        let rules: Vec<conditions::RuleSpec> = line
            .split('\'')
            .skip(1)
            .step_by(2)
            .map(|rule| rule.parse().unwrap())
            .collect();
        let spec: LinkSpec = toml::from_str(text).unwrap();
        assert_eq!(rules, spec.rules, "{line}");
        assert_eq!(
            flags("[[rules]]\nmatch = 'udp'\nschedule = [{ at = '1s', loss = '1%' }]"),
            None
        );
    }

    #[test]
    fn conditions_without_flags_have_no_command_line() {
        assert_eq!(flags("schedule = [{ at = '1s', loss = '1%' }]"), None);
        assert_eq!(flags("[[rules]]\nname = 'a'\nport = 80\nloss = '1%'"), None);
        assert_eq!(flags("delay = '1ms'\n[[hops]]\nname = 'dsl'"), None);
    }

    #[test]
    fn a_word_with_a_blank_or_a_quote_is_quoted() {
        assert_eq!(quoted("20ms"), "20ms");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
    }
}
