//! Links that ship with farwire, by name: the files in the folder `profiles`, which give the source of each number.

use std::fmt;
use std::str::FromStr;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, de};

use crate::error::Error;
use crate::link::LinkSpec;
use crate::read::{self, CONDITIONS_OF_PROFILE};

/// Declares the profiles, one in each line, in the order of their names.
macro_rules! profiles {
    ($($name:literal,)+) => {
        /// The profiles that ship, in the order of their names.
        pub const PROFILES: &[LinkProfile] = &[$(LinkProfile {
            name: $name,
            text: include_str!(concat!("../../../../profiles/", $name, ".toml")),
        },)+];

        /// The names of the profiles.
        pub(crate) const NAMES: &[&str] = &[$($name),+];
    };
}

profiles! {
    "3g",
    "5g-mid-band",
    "5g-mmwave",
    "cable",
    "chrome-3g",
    "chrome-fast-4g",
    "chrome-slow-4g",
    "dial-up",
    "dsl",
    "edge",
    "fibre",
    "firefox-dsl",
    "firefox-good-2g",
    "firefox-good-3g",
    "firefox-gprs",
    "firefox-regular-2g",
    "firefox-regular-3g",
    "firefox-regular-4g",
    "firefox-wifi",
    "g1050-a",
    "g1050-b",
    "g1050-c",
    "g1050-d",
    "g1050-e",
    "g1050-f",
    "g1050-g",
    "g1050-h",
    "geo-satellite",
    "gprs",
    "hotel-wifi",
    "in-flight-new",
    "in-flight-old",
    "in-flight",
    "leo-satellite",
    "lighthouse-dense-4g",
    "lighthouse-regular-3g",
    "lighthouse-slow-4g",
    "lte-good",
    "lte-poor",
    "mars",
    "mobile",
    "moon",
    "train",
    "transatlantic",
    "transpacific",
    "webpagetest-2g",
    "webpagetest-3g-fast",
    "webpagetest-3g-slow",
    "webpagetest-3g",
    "webpagetest-4g",
    "webpagetest-cable",
    "webpagetest-dial-up",
    "webpagetest-dsl",
    "webpagetest-edge",
    "webpagetest-fios",
    "webpagetest-lte",
    "wifi-busy",
    "wifi-good",
}

/// A link of a kind of network, as published measurements describe it. In a file, it is written as its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkProfile {
    /// The name of its file, without `.toml`.
    pub name: &'static str,
    /// The content of its file: conditions, and comments that give their sources.
    pub text: &'static str,
}

impl LinkProfile {
    /// Returns its description in one line, which is the first line of its file.
    pub fn about(&self) -> &'static str {
        let first = self.text.lines().next().unwrap_or_default();
        first.trim_start_matches('#').trim()
    }

    /// Returns its conditions.
    pub fn conditions(&self) -> LinkSpec {
        read::toml_text(self.text).expect("every profile that ships is read by a test")
    }
}

impl FromStr for LinkProfile {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let found = PROFILES.iter().find(|profile| profile.name == name);
        found
            .copied()
            .ok_or_else(|| Error::unknown_name(name, NAMES.iter().copied()))
    }
}

/// The conditions of the profile that a link names.
pub(crate) struct Base(pub(crate) LinkSpec);

struct BaseVisitor;

impl<'de> Visitor<'de> for BaseVisitor {
    type Value = Base;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a profile")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Base, E> {
        let profile: Result<LinkProfile, _> = name.parse();
        profile
            .map(|profile| Base(profile.conditions()))
            .map_err(|_| de::Error::unknown_variant(name, NAMES))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Base, A::Error> {
        match map.next_key::<String>()? {
            Some(key) if key == CONDITIONS_OF_PROFILE => map.next_value().map(Base),
            _ => Err(de::Error::invalid_type(de::Unexpected::Map, &self)),
        }
    }
}

impl<'de> Deserialize<'de> for Base {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(BaseVisitor)
    }
}

/// Adds a key that names a profile to a schema.
pub(super) fn add_key(schema: &mut schemars::Schema, key: &str, description: &str) {
    let name = serde_json::json!({
        "description": description,
        "type": "string",
        "pattern": "^[A-Za-z0-9_-]+$",
        "examples": NAMES
    });
    let keys = schema.get_mut("properties");
    if let Some(keys) = keys.and_then(serde_json::Value::as_object_mut) {
        keys.insert(key.to_owned(), name);
    }
}

/// A number of a profile without a source, or a source that nobody can find or that no number has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfounded {
    /// The line of the file, from 1.
    pub line: usize,
    /// The problem, with advice.
    pub problem: String,
}

/// Keys whose values claim nothing about a network.
const WITHOUT_CLAIM: [&str; 9] = [
    "profile",
    "based_on",
    "seed",
    "name",
    "port",
    "protocol",
    "kind",
    "direction",
    "place",
];

/// Returns the lines of a profile's file whose numbers have no source and are not said to be assumed, and the sources
/// that no line uses or that have no title and year.
///
/// A source is a comment that begins with its name in brackets, `# [Ookla] ...`. A line names its source in its comment.
pub fn unfounded(file: &str) -> Vec<Unfounded> {
    let lines = || (1..).zip(file.lines());
    let source = |line: &str| {
        let (name, what) = line.strip_prefix("# [")?.split_once(']')?;
        Some((format!("[{name}]"), what.to_owned()))
    };
    let sources: Vec<(usize, (String, String))> = lines()
        .filter_map(|(line, text)| Some((line, source(text)?)))
        .collect();
    let claims: Vec<(usize, &str)> = lines().filter(|(_, text)| is_claim(text)).collect();
    let without = claims.iter().filter_map(|(line, text)| {
        let comment = text.split_once('#').map_or("", |(_, comment)| comment);
        let mut named = sources.iter().map(|(_, (name, _))| name.as_str());
        let is_founded = comment.contains("assumed") || named.any(|name| comment.contains(name));
        (!is_founded).then(|| Unfounded {
            line: *line,
            problem: format!(
                "`{}`: it has no source: name one, or write # assumed behind it",
                text.trim()
            ),
        })
    });
    let bad = sources.iter().filter_map(|(line, (name, what))| {
        let is_year = |word: &str| word.len() == 4 && word.bytes().all(|b| b.is_ascii_digit());
        let mut words = what.split(|c: char| !c.is_alphanumeric());
        let problem = if !claims.iter().any(|(_, text)| text.contains(name.as_str())) {
            format!("{name} is used nowhere")
        } else if what.matches('"').count() < 2 || !words.any(is_year) {
            format!("{name} has no title in quotes and no year")
        } else {
            return None;
        };
        Some(Unfounded {
            line: *line,
            problem,
        })
    });
    let mut all: Vec<Unfounded> = without.chain(bad).collect();
    all.sort_by_key(|one| one.line);
    all
}

/// Returns whether a line states a number that describes a network.
fn is_claim(line: &str) -> bool {
    let line = line.trim();
    if line.starts_with(['#', '[']) {
        return false;
    }
    let (statement, _) = line.split_once('#').unwrap_or((line, ""));
    let (key, value) = statement.split_once('=').unwrap_or(("", statement));
    value.contains(|c: char| c.is_ascii_digit()) && !WITHOUT_CLAIM.contains(&key.trim())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::{DelaySpec, JitterSpec, LossSpec, RateSpec};

    #[test]
    fn every_profile_file_ships_and_is_a_valid_link() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles");
        let files = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let shipped: Vec<String> = PROFILES
            .iter()
            .map(|profile| format!("{}.toml", profile.name))
            .collect();
        assert!(shipped.is_sorted(), "the list is in the order of the files");
        assert_eq!(
            files.collect::<BTreeSet<String>>(),
            shipped.into_iter().collect()
        );
        for profile in PROFILES {
            let spec: LinkSpec = read::toml_text(profile.text).unwrap();
            spec.check().unwrap();
            assert_ne!(spec, LinkSpec::default(), "{}", profile.name);
            assert!(profile.about().len() > 20, "{}", profile.name);
        }
    }

    #[test]
    fn every_condition_of_a_profile_has_a_source_or_is_assumed() {
        for profile in PROFILES {
            assert_eq!(unfounded(profile.text), Vec::<Unfounded>::new());
        }
    }

    #[test]
    fn a_condition_without_a_source_is_found() {
        let file = "# A link\n# [A] B, \"C\", 2015: d\n# [E] F, no year\ndelay = \"1ms\" # [A]\n";
        let more = |line: &str| -> Vec<(usize, String)> {
            let all = unfounded(&format!("{file}{line}\n")).into_iter();
            all.map(|one| (one.line, one.problem)).collect()
        };
        let unused = (3, "[E] is used nowhere".to_owned());
        for line in [
            "loss = \"1%\" # assumed",
            "[up]",
            "aqm = \"codel\"",
            "based_on = \"5g\"",
            "port = 80",
        ] {
            assert_eq!(more(line), std::slice::from_ref(&unused), "{line}");
        }
        assert_eq!(
            more("loss = \"1%\" # [E]"),
            [(3, "[E] has no title in quotes and no year".to_owned())]
        );
        for line in [
            "loss = \"1%\"",
            "loss = \"1%\" # of course",
            "loss = \"1%\" # [G]",
        ] {
            let problem =
                format!("`{line}`: it has no source: name one, or write # assumed behind it");
            assert_eq!(more(line), [unused.clone(), (5, problem)]);
        }
    }

    /// Knows one profile, and one that is broken.
    struct Mine;

    impl read::Named for Mine {
        fn profile(&mut self, name: &str) -> Result<Option<serde_json::Value>, Error> {
            match name {
                "mine" => Ok(Some(serde_json::json!({ "delay": "7ms", "loss": "1%" }))),
                "broken" => Err(Error::other("it is broken")),
                _ => Ok(None),
            }
        }

        fn trace(&mut self, trace: serde_json::Value) -> Result<serde_json::Value, Error> {
            Err(Error::other(format_args!("no trace {trace}")))
        }
    }

    #[test]
    fn a_link_builds_on_conditions_that_its_reader_finds() {
        let read = |text: &str| {
            let table = toml::de::DeTable::parse(text).unwrap();
            read::toml_table_with::<LinkSpec>(&table, &mut Mine)
        };
        let expected: LinkSpec = read::toml_text("delay = '7ms'\nloss = '2%'").unwrap();
        for key in ["profile", "based_on"] {
            assert_eq!(
                read(&format!("{key} = 'mine'\nloss = '2%'")).unwrap(),
                expected
            );
        }
        let shipped: LinkProfile = "mobile".parse().unwrap();
        assert_eq!(read("profile = 'mobile'").unwrap(), shipped.conditions());
        let text = "delay = '1ms'\nprofile = 'broken'";
        let error = read(text).unwrap_err();
        assert_eq!(error.span.clone().map(|span| &text[span]), Some("'broken'"));
        assert_eq!(error.to_string(), "profile: it is broken");
        let both = read("profile = 'mine'\nbased_on = 'mine'").unwrap_err();
        assert!(both.to_string().contains("leave one of them out"), "{both}");
        let table = read("profile = { delay = '1ms' }").unwrap_err();
        assert!(
            table.to_string().contains("the name of a profile"),
            "{table}"
        );
    }

    #[test]
    fn conditions_next_to_a_profile_override_it() {
        let link = |text: &str| read::toml_text::<LinkSpec>(text).unwrap();
        let plain = link("profile = 'geo-satellite'");
        assert_eq!(
            plain,
            "geo-satellite".parse::<LinkProfile>().unwrap().conditions()
        );
        let text = "profile = 'geo-satellite'\ndelay = '5ms'\nrate = '1gbit'\n[up]\nloss = '2%'\n";
        let beside = link(text);
        assert_eq!(
            beside.both.get(),
            Some(&"5ms".parse::<DelaySpec>().unwrap())
        );
        // A condition for both directions holds in each, even if the profile states one for a single direction.
        assert_eq!(
            beside.both.get(),
            Some(&"1gbit".parse::<RateSpec>().unwrap())
        );
        assert_eq!(beside.up.get::<RateSpec>(), None);
        assert_eq!(beside.down.get::<RateSpec>(), None);
        assert_eq!(beside.up.get(), Some(&"2%".parse::<LossSpec>().unwrap()));
        assert_eq!(beside.both.get::<LossSpec>(), plain.both.get::<LossSpec>());
        assert_eq!(beside.up.get::<JitterSpec>(), plain.up.get::<JitterSpec>());
        // Written again, it has the conditions and not the profile, which may change later.
        let written = toml::to_string(&beside).unwrap();
        assert!(!written.contains("profile"), "{written}");
        assert_eq!(link(&written), beside);
    }

    #[test]
    fn an_unknown_profile_is_refused_with_the_known_ones() {
        let refused = |name: &str| name.parse::<LinkProfile>().unwrap_err().to_string();
        assert_eq!(
            refused("mobil"),
            "unknown name `mobil`; did you mean `mobile`?"
        );
        let other = refused("x25");
        let names = PROFILES.iter().map(|profile| profile.name);
        let all = names.collect::<Vec<_>>().join(", ");
        assert_eq!(other, format!("unknown name `x25`; use one of: {all}"));
        let text = "delay = '1ms'\nprofile = 'geo'\n";
        let error = read::toml_text::<LinkSpec>(text).unwrap_err();
        assert_eq!(error.span.clone().map(|span| &text[span]), Some("'geo'"));
        assert!(error.to_string().contains("`geo-satellite`?"), "{error}");
    }
}
