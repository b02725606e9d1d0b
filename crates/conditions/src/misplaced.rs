//! Advice about a key that a table does not have but another table of a link has.

use crate::condition::CONDITIONS;
use crate::error::{Error, Problem};
use crate::link::stage;

/// A table of a link, recognised by the keys that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkTable {
    Link,
    Layer,
    Rule,
    Step,
    /// A stage of this kind.
    Stage(&'static str),
}

/// Returns the error, which names the table to which an unknown key belongs if another table of a link has it.
pub fn with_place(mut error: Error) -> Error {
    if let Problem::UnknownKey { key, known, place } = &mut *error.problem {
        *place = advice(key, known);
    }
    error
}

/// Returns the advice about a key that is unknown in a table with the `known` keys: the table to which the key belongs, or
/// what the table has instead. `None` for a key of no table, and for a table that is not one of a link.
fn advice(key: &str, known: &[String]) -> Option<String> {
    let table = LinkTable::of(known)?;
    let place = match key {
        "name" => "a hop, [[hops]], a rule, [[rules]], or a stage, [[stages]]".to_owned(),
        "direction" => "a rule, [[rules]], or a stage, [[stages]]".to_owned(),
        "match" | "protocol" | "port" | "source_port" | "destination_port" | "host" | "source"
        | "destination" | "dscp" | "vlan" | "ether_type" | "fragment" | "hop" | "weight" => {
            "a rule, [[rules]]".to_owned()
        }
        "toffee" | "seed" | "start" | "hops" | "rules" => "the link itself".to_owned(),
        "profile" | "stages" => "the link itself or a hop, [[hops]]".to_owned(),
        "up" | "down" => "the link itself, a hop or a rule".to_owned(),
        "schedule" => "the link, up, down, a hop, a rule or a stage".to_owned(),
        "at" | "over" | "without" => {
            "a step of a schedule: schedule = [{ at = \"10s\", ... }]".to_owned()
        }
        "kind" | "place" => "a stage, [[stages]]".to_owned(),
        _ => place_of_parameter(key, table)?,
    };
    let own = match table {
        LinkTable::Stage(kind) => format!("; {kind} has {}", known.join(", ")),
        _ => String::new(),
    };
    Some(format!("it belongs to {place}{own}"))
}

impl LinkTable {
    fn of(known: &[String]) -> Option<Self> {
        let has = |key: &str| known.iter().any(|known| known == key);
        if CONDITIONS.iter().all(|condition| has(condition.key)) {
            return Some(match (has("rules"), has("ether_type"), has("at")) {
                (true, ..) => Self::Link,
                (_, true, _) => Self::Rule,
                (.., true) => Self::Step,
                _ => Self::Layer,
            });
        }
        let mut stages = stage::PARAMETERS.iter();
        let stage = stages.find(|(_, keys)| known.iter().eq(keys.iter()));
        stage.map(|(kind, _)| Self::Stage(kind))
    }
}

/// Returns the place of a condition, which a stage does not have, or of a parameter of stages. An option that conditions
/// have too has no single place.
fn place_of_parameter(key: &str, table: LinkTable) -> Option<String> {
    if ["ecn", "share"].contains(&key) {
        return None;
    }
    let is_condition = CONDITIONS.iter().any(|condition| condition.key == key);
    if is_condition && matches!(table, LinkTable::Stage(_)) {
        return Some("the link, up, down or a rule".to_owned());
    }
    let stages = stage::PARAMETERS.iter();
    let kinds: Vec<&str> = stages
        .filter(|(_, keys)| keys.contains(&key))
        .map(|(kind, _)| *kind)
        .collect();
    (!kinds.is_empty()).then(|| format!("a stage of kind {}", kinds.join(" or ")))
}

#[cfg(test)]
mod tests {
    use super::with_place;
    use crate::{LinkSpec, read};

    fn refused(text: &str) -> String {
        with_place(read::toml_text::<LinkSpec>(text).unwrap_err()).to_string()
    }

    #[test]
    fn a_key_of_another_table_names_that_table() {
        for case in [
            "port = 80 => unknown key `port`; it belongs to a rule, [[rules]]",
            "at = '1s' => it belongs to a step of a schedule",
            "kind = 'gate' => it belongs to a stage, [[stages]]",
            "every = '1s' => it belongs to a stage of kind stall",
            "[up]\nseed = 7 => up: unknown key `seed`; it belongs to the link itself",
            "schedule = [{ at = '1s', up = {} }] => `up`; it belongs to the link itself, a hop or a rule",
            "hops = [{ name = 'a', toffee = 'drop=2' }] => `toffee`; it belongs to the link itself",
            "up = { stages = [] } => `stages`; it belongs to the link itself or a hop, [[hops]]",
            "rules = [{ name = 'a', port = 1, seed = 7 }] => `seed`; it belongs to the link itself",
            "stages = [{ kind = 'gate', n = 3 }] => `n`; it belongs to a stage of kind every-nth; gate has open, queue",
            "stages = [{ kind = 'mtu', rate = '1mbit' }] => it belongs to the link, up, down or a rule; mtu has mtu",
        ] {
            let (text, advice) = case.split_once(" => ").unwrap();
            let error = refused(text);
            assert!(error.contains(advice), "{text}: {error}");
        }
    }

    #[test]
    fn the_words_of_other_tools_in_a_rule_are_answered_with_its_keys() {
        for (word, key) in [
            ("src", "source"),
            ("dst", "destination"),
            ("ip", "host"),
            ("filter", "match"),
        ] {
            let error = refused(&format!("rules = [{{ name = 'a', {word} = '10.0.0.1' }}]"));
            assert!(
                error.ends_with(&format!("did you mean `{key}`?")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_key_of_no_table_is_answered_with_the_nearest_key_or_with_all() {
        assert!(refused("dealy = '1ms'").ends_with("did you mean `delay`?"));
        assert!(refused("satellite = 'geo'").contains("; use one of: profile, based_on, delay"));
        // Texts have their own keys.
        assert!(refused("loss = '1%,port=3'").contains("use one of: share, burst, ecn"));
    }
}
