//! The file of `emulate --links`: many links, each between its own two interfaces.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;

use anyhow::Result;
use conditions::{At, LinkSpec, require};
use record::quantity::{counted, size};
use record::summary::{DirectionSummary, Summary};
use serde::{Deserialize, Serialize};

use crate::emulate::BoxLink;
use crate::forward::threads::distribute;
use crate::named_files::NamedFiles;
use crate::toml_file::{Below, SourceFile, read_checked};

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinksFile {
    links: Vec<LinkBetween>,
}

/// A link and its interfaces.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkBetween {
    /// The client's side.
    pub(crate) a: String,
    /// The server's side.
    pub(crate) b: String,
    /// Its conditions. Without any, the link changes nothing.
    #[serde(default)]
    pub(crate) link: LinkSpec,
}

impl LinkBetween {
    /// Returns the name of the link.
    pub(crate) fn name(&self) -> String {
        format!("{}-{}", self.a, self.b)
    }

    /// Returns the link in the form that a box takes. Its number gives it random draws that differ from those of other links with the
    /// same seed.
    ///
    /// # Errors
    /// Conditions that were checked cause none.
    pub(crate) fn to_link(&self, number: usize) -> Result<BoxLink> {
        Ok(BoxLink {
            insertion: None,
            names: [self.a.clone(), self.b.clone()].into(),
            link: self.link.to_link_of("box", number as u64)?,
        })
    }
}

/// Reads the links of `file`, which may name files below its own folder, and those of `also`.
///
/// # Errors
/// A file that cannot be read, an unknown key or a value out of range, with file, line and key.
pub(crate) fn read(file: &Path, also: &NamedFiles) -> Result<Vec<LinkBetween>> {
    let LinksFile { links } = read_checked(file, also, |held: &LinksFile| check(&held.links))?;
    Ok(links)
}

/// Reads the links of a text.
///
/// # Errors
/// Returns the errors of [`read`].
pub(crate) fn read_source(source: SourceFile<'_>) -> Result<Vec<LinkBetween>> {
    let LinksFile { links } = source.read_checked(|held: &LinksFile| check(&held.links))?;
    Ok(links)
}

/// The counters of all links, as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct AllLinks {
    links: Vec<LinkTold>,
}

#[derive(Debug, Serialize)]
struct LinkTold {
    a: String,
    b: String,
    /// The number of the thread that forwarded the link, from 0; absent if there was only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<usize>,
    #[serde(flatten)]
    summary: Summary,
}

impl AllLinks {
    /// Names the summaries by the interfaces of each link and, if there are several, by its thread.
    pub(crate) fn new(
        interfaces: Vec<[String; 2]>,
        threads: usize,
        summaries: Vec<Summary>,
    ) -> Self {
        let shares = distribute(interfaces.len(), threads)
            .into_iter()
            .enumerate();
        let threads_of_links =
            shares.flat_map(|(thread, share)| share.map(move |_| (threads > 1).then_some(thread)));
        let told = interfaces.into_iter().zip(threads_of_links).zip(summaries);
        let told = told.map(|(([a, b], thread), summary)| LinkTold {
            a,
            b,
            thread,
            summary,
        });
        Self {
            links: told.collect(),
        }
    }
}

impl fmt::Display for AllLinks {
    /// Writes the sums over all links, and which links cannot be trusted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let links = self.links.iter().map(|link| &link.summary);
        let silent = |of: &&Summary| of.up.packets + of.down.packets == 0;
        let sum = |count: fn(&DirectionSummary) -> u64| {
            links
                .clone()
                .map(|of| count(&of.up) + count(&of.down))
                .sum::<u64>()
        };
        let worst = links.clone().map(|of| of.departure_error.p99_ns).max();
        write!(
            f,
            "{}, {} of them without traffic: {}, {} delivered, {} dropped; departure error: p99 of the worst link {} us",
            counted(self.links.len() as u64, "link"),
            links.clone().filter(silent).count(),
            counted(sum(|way| way.packets), "packet"),
            sum(|way| way.delivered),
            sum(DirectionSummary::dropped_all),
            worst.unwrap_or(0) / 1_000,
        )?;
        // The links of a thread share its memory.
        let threads = self.links.chunk_by(|a, b| a.thread == b.thread);
        let threads: Vec<&Summary> = threads.map(|of_thread| &of_thread[0].summary).collect();
        let sum = |bytes: fn(&Summary) -> usize| {
            size(threads.iter().map(|of| bytes(of) as u64).sum::<u64>())
        };
        write!(
            f,
            "\nmemory of all links: frames {} at most (limit {}), receive rings {}",
            sum(|of| of.peak_held_bytes),
            sum(|of| of.held_limit_bytes),
            sum(|of| of.ring_bytes)
        )?;
        let invalid = |link: &LinkTold| {
            Some(format!(
                "{} <-> {}: {}",
                link.a,
                link.b,
                link.summary.invalid()?
            ))
        };
        let invalid: Vec<String> = self.links.iter().filter_map(invalid).collect();
        for why in invalid.iter().take(MOST_NAMED) {
            write!(f, "\nINVALID: {why}")?;
        }
        match invalid.len().saturating_sub(MOST_NAMED) {
            0 => Ok(()),
            more => write!(f, "\nINVALID: {more} more links"),
        }
    }
}

/// The number of invalid links that are named.
const MOST_NAMED: usize = 5;

fn check(links: &[LinkBetween]) -> Result<()> {
    require!(!links.is_empty(), "links": "the file has no links: add a table [[links]]");
    let (mut interfaces, mut names) = (HashSet::new(), HashSet::new());
    for (index, between) in links.iter().enumerate() {
        let mut check = || {
            between.link.check().at("link")?;
            for (key, name) in [("a", &between.a), ("b", &between.b)] {
                require!(
                    interfaces.insert(name),
                    key => "{name} belongs to another link: an interface can belong to one link only"
                );
            }
            let name = between.name();
            require!(
                names.insert(name.clone()),
                "a": "another link has the name {name} too: rename an interface"
            );
            Ok::<_, conditions::Error>(())
        };
        check().below_item("links", index)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use conditions::DelaySpec;

    fn read_text(text: &str) -> Result<Vec<LinkBetween>, String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("links.toml");
        std::fs::write(&file, text).unwrap();
        let prefix = format!("{}/", directory.path().display());
        read(&file, NamedFiles::OWN).map_err(|error| format!("{error:#}").replace(&prefix, ""))
    }

    #[test]
    fn each_link_has_conditions_and_draws_of_its_own() {
        let text = "[[links]]\na = 'x0'\nb = 'y0'\nlink = { delay = '20ms', loss = '1%' }\n\n[[links]]\na = 'x1'\nb = 'y1'\n";
        let links = read_text(text).unwrap();
        assert_eq!(
            links[0].link.both.get(),
            Some(&"20ms".parse::<DelaySpec>().unwrap())
        );
        assert_eq!(links[1].link, LinkSpec::default());
        let boxed: Vec<_> = (0..)
            .zip(&links)
            .map(|(n, link)| link.to_link(n).unwrap())
            .collect();
        assert_eq!(boxed[1].names.now(), ["x1", "y1"]);
        assert_eq!([0, 1].map(|n: usize| boxed[n].link.config.link), [0, 1]);
    }

    #[test]
    fn ten_thousand_links_are_checked_without_comparing_each_with_all_others() {
        let between = |number: u32| LinkBetween {
            a: format!("x{number}"),
            b: format!("y{number}"),
            link: LinkSpec::default(),
        };
        let mut links: Vec<_> = (0..10_000).map(between).collect();
        check(&links).unwrap();
        links[9_999].b = "x0".to_owned();
        let refused = format!("{:#}", check(&links).unwrap_err());
        assert!(
            refused.contains("b: x0 belongs to another link"),
            "{refused}"
        );
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let refused = |text: &str| read_text(text).unwrap_err();
        assert!(refused("links = []").contains("links.toml:1: links: the file has no links"));
        let one = "[[links]]\na = 'x'\nb = 'y'\n";
        let twice = refused(&format!("{one}{one}"));
        assert!(
            twice.starts_with("links.toml:5: links 2: a: x belongs to another link"),
            "{twice}"
        );
        let alike = refused("[[links]]\na = 'x-y'\nb = 'z'\n[[links]]\na = 'x'\nb = 'y-z'\n");
        assert!(
            alike.starts_with("links.toml:5: links 2: a: another link has the name x-y-z"),
            "{alike}"
        );
        let same = refused("[[links]]\na = 'x'\nb = 'x'\n");
        assert!(
            same.starts_with("links.toml:3: links 1: b: x belongs to another link"),
            "{same}"
        );
        let unknown = refused(&format!("{one}dely = '1ms'\n"));
        assert!(unknown.contains("links.toml:4"), "{unknown}");
        assert!(unknown.contains("dely"), "{unknown}");
        let wrong = refused(&format!("{one}link = {{ queue = '5pkt' }}\n"));
        assert!(
            wrong.starts_with("links.toml:4: links 1: link: queue"),
            "{wrong}"
        );
    }
}
