//! Links that ship with farwire, by name: the files in the folder `profiles`, which give the source of each number.

use std::str::FromStr;

use serde::de;
use serde::{Deserialize, Deserializer};

use crate::error::Error;
use crate::link::LinkSpec;
use crate::read;

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
    "geo-satellite",
    "in-flight",
    "mobile",
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
    fn every_profile_file_ships_and_is_a_valid_link() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles");
        let files = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let shipped: Vec<String> = PROFILES
            .iter()
            .map(|profile| format!("{}.toml", profile.name))
            .collect();
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
    fn every_condition_of_a_profile_has_a_source_or_is_assumed() {
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

    /// Returns the lines of a file that neither name a source in its head nor say that they are assumed, and the
    /// sources that are unused or have no title and year. A source is a comment that begins with its name in brackets.
    fn unfounded(text: &str) -> Vec<String> {
        let head: Vec<(String, &str)> = text
            .lines()
            .filter_map(|line| {
                let (name, what) = line.strip_prefix("# [")?.split_once(']')?;
                Some((format!("[{name}]"), what))
            })
            .collect();
        let conditions = || {
            let lines = text.lines();
            lines.filter(|line| !line.is_empty() && !line.starts_with(['#', '[']))
        };
        let found = |line: &&str| {
            let comment = line.split_once('#').map_or("", |(_, comment)| comment);
            comment.contains("assumed")
                || head.iter().any(|(name, _)| comment.contains(name.as_str()))
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
