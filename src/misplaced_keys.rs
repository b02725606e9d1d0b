//! Advice about a key of a file that its table does not have but another table has: one of a scenario, of a file of links, or of a
//! link.

use conditions::{CONDITIONS, Error, Problem, misplaced};
use instruments::measure::Kind;

/// Keys of a link that are no conditions.
const OF_LINKS: &[&str] = &["up", "down", "stages", "hops", "rules", "toffee", "profile"];
/// Keys of a case that other tables of a scenario lack.
const OF_CASES: &[&str] = &[
    "link",
    "between",
    "parameters",
    "published",
    "expect",
    "note",
    "base",
    "sweep",
];
/// Keys of beds.
const OF_BEDS: &[&str] = &[
    "mtu", "nodes", "links", "wire", "offloads", "tbf", "clients",
];

/// Returns the error, which names the table to which an unknown key belongs if there is one.
pub(crate) fn with_place(error: Error) -> Error {
    let mut error = misplaced::with_place(error);
    if let Problem::UnknownKey { key, known, place } = &mut *error.problem
        && place.is_none()
    {
        *place = advice(key, known).map(|place| format!("it belongs to {place}"));
    }
    error
}

/// Returns the place of a key that is unknown in a table with the `known` keys.
fn advice(key: &str, known: &[String]) -> Option<String> {
    let has = |name: &str| known.iter().any(|known| known == name);
    let is_of_link =
        CONDITIONS.iter().any(|condition| condition.key == key) || OF_LINKS.contains(&key);
    if has("netem") && has("rules") {
        return match key {
            "instruments" | "cases" | "bases" | "trends" => {
                Some("a scenario, which `farwire run` takes".to_owned())
            }
            "links" => {
                Some("a file of several links, which `farwire emulate --links` takes".to_owned())
            }
            _ => None,
        };
    }
    if known == ["links"] {
        return match key {
            "a" | "b" | "link" => Some("a table of a link, [[links]]".to_owned()),
            _ if is_of_link => Some(format!(
                "the conditions of a table [[links]]: link = {{ {key} = ... }}"
            )),
            _ => None,
        };
    }
    if has("link") && is_of_link {
        return Some(format!("link: link = {{ {key} = ... }}"));
    }
    // An instrument, a case, or the whole scenario.
    let is_of_scenario = has("warm_up") || has("published") || has("late_budget");
    if !is_of_scenario {
        return None;
    }
    match key {
        _ if is_option(key) && has("warm_up") => {
            Some(format!("parameters: parameters = {{ {key} = ... }}"))
        }
        _ if OF_CASES.contains(&key) => Some("a case, [[cases]]".to_owned()),
        _ if OF_BEDS.contains(&key) => Some(format!("bed: bed = {{ {key} = ... }}")),
        "congestion" => Some("tcp: tcp = { congestion = ... }".to_owned()),
        _ if is_of_link => Some(format!("the link of a case: link = {{ {key} = ... }}")),
        _ if is_option(key) => Some("the parameters of an instrument, [[instruments]]".to_owned()),
        _ => None,
    }
}

/// Returns whether the key is an option of any instrument.
fn is_option(key: &str) -> bool {
    let name = key.replace('_', "-");
    Kind::all().any(|kind| kind.options().iter().any(|option| option.name == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_another_table_of_the_file_names_that_table() {
        let instrument = ["name", "kind", "parameters", "warm_up"];
        let case = ["name", "link", "bed", "published"];
        let scenario = ["name", "seed", "late_budget", "instruments"];
        let link = ["delay", "netem", "rules"];
        for (key, known, place) in [
            (
                "count",
                &instrument[..],
                "parameters: parameters = { count = ... }",
            ),
            (
                "time",
                &instrument[..],
                "parameters: parameters = { time = ... }",
            ),
            (
                "delay",
                &instrument[..],
                "the link of a case: link = { delay = ... }",
            ),
            ("loss", &case[..], "link: link = { loss = ... }"),
            ("mtu", &case[..], "bed: bed = { mtu = ... }"),
            ("congestion", &case[..], "tcp: tcp = { congestion = ... }"),
            ("expect", &scenario[..], "a case, [[cases]]"),
            (
                "rate",
                &scenario[..],
                "the link of a case: link = { rate = ... }",
            ),
            ("cases", &link[..], "a scenario, which `farwire run` takes"),
            ("a", &["links"][..], "a table of a link, [[links]]"),
            (
                "delay",
                &["links"][..],
                "the conditions of a table [[links]]: link = { delay = ... }",
            ),
            (
                "delay",
                &["a", "b", "link"][..],
                "link: link = { delay = ... }",
            ),
        ] {
            let known: Vec<String> = known.iter().map(|&key| key.to_owned()).collect();
            assert_eq!(
                advice(key, &known).as_deref(),
                Some(place),
                "{key} {known:?}"
            );
        }
        let known: Vec<String> = scenario.iter().map(|&key| key.to_owned()).collect();
        assert_eq!(advice("satellite", &known), None);
        assert_eq!(advice("port", &["x".to_owned()]), None);
    }
}
