//! Links that ship, by name: the files of the folder `profiles`, which say where each of their numbers comes from.

use std::str::FromStr;

use serde::de;
use serde::{Deserialize, Deserializer};

use crate::error::Error;
use crate::link::LinkSpec;
use crate::read;

/// Every profile is one line here, in the order of their names.
macro_rules! profiles {
    ($($name:literal,)+) => {
        /// The links that ship, by name.
        pub const PROFILES: &[LinkProfile] = &[$(LinkProfile {
            name: $name,
            text: include_str!(concat!("../../../../profiles/", $name, ".toml")),
        },)+];

        /// Their names.
        pub(crate) const NAMES: &[&str] = &[$($name),+];
    };
}

profiles! {
    "geo-satellite",
    "in-flight",
    "mobile",
}

/// The link of a kind of network, as others measured it. Written in a file it is its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkProfile {
    /// The name of its file, without `.toml`.
    pub name: &'static str,
    /// Its file: conditions, and comments that say where they come from.
    pub text: &'static str,
}

impl LinkProfile {
    /// What it is, in one line: the first of its file.
    pub fn about(&self) -> &'static str {
        let first = self.text.lines().next().unwrap_or_default();
        first.trim_start_matches('#').trim()
    }

    /// Its conditions.
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

impl<'de> Deserialize<'de> for LinkProfile {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let name = String::deserialize(source)?;
        name.parse()
            .map_err(|_| de::Error::unknown_variant(&name, NAMES))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::{DelaySpec, JitterSpec, LossSpec, RateSpec};

    #[test]
    fn every_file_of_the_folder_ships_and_is_a_link_that_can_be() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles");
        let files = fs::read_dir(folder).unwrap();
        let files = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let shipped = PROFILES.iter().map(|profile| profile.name);
        let shipped: Vec<String> = shipped.map(|name| format!("{name}.toml")).collect();
        assert!(shipped.is_sorted());
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
    fn every_condition_names_a_published_source_or_is_said_to_be_assumed() {
        for profile in PROFILES {
            assert_eq!(unfounded(profile.text), Vec::<String>::new());
        }
    }

    #[test]
    fn a_condition_without_a_source_is_found() {
        let file = "# A link\n# [A] B, \"C\", 2015: d\n# [E] F, no year\ndelay = \"1ms\" # [A]\n";
        let more = |line: &str| unfounded(&format!("{file}{line}\n"));
        let unused = "[E] is used nowhere";
        assert_eq!(more("loss = \"1%\" # assumed"), [unused]);
        assert_eq!(more("[up]"), [unused]);
        assert_eq!(
            more("loss = \"1%\" # [E]"),
            ["[E] has no title in quotes and no year"]
        );
        for line in [
            "loss = \"1%\"",
            "loss = \"1%\" # of course",
            "loss = \"1%\" # [G]",
        ] {
            assert_eq!(more(line), [line, unused]);
        }
    }

    /// The conditions of a file that name neither a source which its head has nor that they are assumed; sources that
    /// nothing names, or without title and year. A source is a comment that begins with its name in brackets.
    fn unfounded(text: &str) -> Vec<String> {
        let head = text.lines().filter_map(|line| {
            let (name, what) = line.strip_prefix("# [")?.split_once(']')?;
            Some((format!("[{name}]"), what))
        });
        let head: Vec<(String, &str)> = head.collect();
        let conditions = || {
            let lines = text.lines();
            lines.filter(|line| !line.is_empty() && !line.starts_with(['#', '[']))
        };
        let found = |line: &&str| {
            let said = line.split_once('#').map_or("", |(_, said)| said);
            said.contains("assumed") || head.iter().any(|(name, _)| said.contains(name.as_str()))
        };
        let without = conditions().filter(|line| !found(line)).map(str::to_owned);
        let bad = head.iter().filter_map(|(name, what)| {
            let is_year = |word: &str| word.len() == 4 && word.bytes().all(|b| b.is_ascii_digit());
            let words = || what.split(|c: char| !c.is_alphanumeric());
            if !conditions().any(|line| line.contains(name.as_str())) {
                Some(format!("{name} is used nowhere"))
            } else if what.matches('"').count() < 2 || !words().any(is_year) {
                Some(format!("{name} has no title in quotes and no year"))
            } else {
                None
            }
        });
        without.chain(bad).collect()
    }

    #[test]
    fn what_stands_beside_a_profile_overrides_it() {
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
        // What is said of both directions holds in each, also where the profile says something of one.
        assert_eq!(
            beside.both.get(),
            Some(&"1gbit".parse::<RateSpec>().unwrap())
        );
        assert_eq!(beside.up.get::<RateSpec>(), None);
        assert_eq!(beside.down.get::<RateSpec>(), None);
        assert_eq!(beside.up.get(), Some(&"2%".parse::<LossSpec>().unwrap()));
        assert_eq!(beside.both.get::<LossSpec>(), plain.both.get::<LossSpec>());
        assert_eq!(beside.up.get::<JitterSpec>(), plain.up.get::<JitterSpec>());
        // What is written again is the conditions, whatever a later profile of that name has.
        let written = toml::to_string(&beside).unwrap();
        assert!(!written.contains("profile"), "{written}");
        assert_eq!(link(&written), beside);
    }

    #[test]
    fn an_unknown_profile_is_refused_with_those_that_there_are() {
        let refused = |name: &str| name.parse::<LinkProfile>().unwrap_err().to_string();
        assert_eq!(
            refused("mobil"),
            "unknown name `mobil`; did you mean `mobile`?"
        );
        assert_eq!(
            refused("dialup-56k"),
            "unknown name `dialup-56k`; use one of: geo-satellite, in-flight, mobile"
        );
        let text = "delay = '1ms'\nprofile = 'geo'\n";
        let error = read::toml_text::<LinkSpec>(text).unwrap_err();
        assert_eq!(error.span.clone().map(|span| &text[span]), Some("'geo'"));
        assert!(error.to_string().contains("`geo-satellite`?"), "{error}");
    }
}
