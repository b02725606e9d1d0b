//! The containers of inserted links, which may restart or change networks while the box runs.
//!
//! A container that restarts gets a new network, and its link must be inserted at a new interface of the host. A confined
//! box can neither ask a container engine nor enter a network namespace. The helper is this program again, started with the
//! hidden command `container-watcher` before the box is confined. It reads the containers of all links from the first line
//! of its standard input, and from each later line a request. The request may be about a link whose interface is gone: the
//! helper answers when the container has this interface again, or another one in its place, when it is connected to another
//! network namespace, or when the engine does not know the container any more. Or it is about an interface by which a
//! container has joined a network: the helper answers with the name of that network, unless a link belongs there. The helper
//! asks an engine by the ID of a container. If the container has another name than before, the helper tells the box. It ends
//! when its standard input ends, however the box has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use netio::iface::LinkWatcher;
use netio::netns::NetNs;
use netio::veth::HostEnd;
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use super::engines::{self, ContainerState, Engine};

/// The name of the hidden command.
const CONTAINER_WATCHER: &str = "container-watcher";
/// The interval at which the helper looks for containers after a change of any interface. Each further one is twice as long,
/// because asking an engine costs as much as starting a program.
const SOON: Duration = Duration::from_millis(100);
/// The longest interval.
const SELDOM: Duration = Duration::from_secs(5);
/// The shortest time between two answers about a link: an attempt to insert it that fails changes interfaces, too.
const AGAIN: Duration = Duration::from_secs(1);
/// The time for which a container must have another interface in place of that of its link. The interfaces of a container
/// that starts appear one after the other. The same applies to a container in another namespace.
const SETTLED: Duration = Duration::from_secs(1);
/// The time after which the helper asks for the name of a network that a container has joined. The engine may note the name
/// only after it has made the interface.
const NOTED: Duration = Duration::from_millis(500);
/// The time for which the helper sleeps while it has nothing to look for.
const IDLE: Duration = Duration::from_secs(3_600);
/// Greatest number of interfaces for whose networks the helper is asked and has not answered. Their lines always fit into
/// the pipe to the helper, so that writing them never waits, even if a container joins networks without end.
const MOST_JOINED: usize = 64;

/// An interface of a container, at which a link is inserted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ContainerEnd {
    /// The engine that knows the container.
    pub(super) engine: Engine,
    /// The engine's ID of the container.
    pub(super) id: String,
    /// Name of the container, which may change.
    pub(super) container: String,
    /// Name of the interface inside.
    pub(super) inside: String,
    /// True if the user chose this interface or its network, so that no other one takes its place.
    pub(super) is_chosen: bool,
}

/// A request of the box.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    /// The interface of this link is gone: where is its container connected now?
    Lost { link: usize },
    /// The container of this link has joined a network by the host's interface with this number: which one?
    Joined { link: usize, index: u32 },
}

/// An answer of the helper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// The container of a lost link is connected to the host's interface with this number.
    Back { link: usize, index: u32 },
    /// The engine does not know the container of a lost link any more.
    Removed { link: usize },
    /// The container of a lost link is connected to another network namespace than this one.
    Elsewhere { link: usize },
    /// The container of this link has another name now.
    Renamed { link: usize, name: String },
    /// The container of this link has joined a network by the host's interface with this number. It is the network of this
    /// name, or `None` if a link belongs there or the interface is gone.
    Joined {
        link: usize,
        index: u32,
        network: Option<String>,
    },
}

/// The helper, as the box sees it.
pub(super) struct ContainerWatcher {
    requests: ChildStdin,
    answers: ChildStdout,
    /// The beginning of a line of the helper.
    unread: Vec<u8>,
    /// The ends in the order of the links; `None` for a link at something else than a container.
    ends: Vec<Option<ContainerEnd>>,
    /// The links for whose containers the helper looks.
    lost: BTreeSet<usize>,
    /// The numbers of the host's interfaces whose networks the helper was asked for.
    joined: BTreeSet<u32>,
    /// Those of them about which the helper has not answered, and whose interface may be gone by now.
    unanswered: BTreeSet<u32>,
}

impl ContainerEnd {
    /// Returns true if both are interfaces of one container.
    fn is_beside(&self, other: &Self) -> bool {
        (&self.engine, &self.id) == (&other.engine, &other.id)
    }
}

impl ContainerWatcher {
    /// Starts the helper for the links at these ends. Returns `None` if no link is at a container.
    ///
    /// # Errors
    /// The helper cannot be started.
    pub(super) fn start(ends: Vec<Option<ContainerEnd>>) -> Result<Option<Self>> {
        if ends.iter().all(Option::is_none) {
            return Ok(None);
        }
        let mut helper = Command::new("/proc/self/exe")
            .args(["--quiet", CONTAINER_WATCHER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Its own process group keeps the terminal's Ctrl-C away from it.
            .process_group(0)
            .spawn()
            .context("cannot start the helper process that watches containers")?;
        let requests = helper.stdin.take().context("the helper has no input")?;
        let answers = helper.stdout.take().context("the helper has no output")?;
        let mut watcher = Self {
            requests,
            answers,
            unread: Vec::new(),
            ends,
            lost: BTreeSet::new(),
            joined: BTreeSet::new(),
            unanswered: BTreeSet::new(),
        };
        let line = serde_json::to_string(&watcher.ends)?;
        writeln!(watcher.requests, "{line}").context("the helper that watches containers")?;
        Ok(Some(watcher))
    }

    /// Lets the helper look for the container of a link whose interface is gone. Returns the name of the container, or
    /// `None` if the link is at something else.
    pub(super) fn wait_for(&mut self, link: usize) -> Option<&str> {
        let end = self.ends.get(link)?.as_ref()?;
        // A link has one request of this kind in the pipe at most, so that all of them fit and writing never waits.
        if self.lost.insert(link) {
            send(&mut self.requests, Request::Lost { link });
        }
        Some(end.container.as_str())
    }

    /// Lets the helper name the network of the host's interface with the number `index`, by which the container of `link`
    /// has joined it. Does nothing if the user chose the network of the link, if the helper was asked before, or if it has
    /// not answered about [`MOST_JOINED`] others.
    pub(super) fn name_network(&mut self, link: usize, index: u32) {
        let end = self.ends.get(link).and_then(Option::as_ref);
        let has_room = self.unanswered.len() < MOST_JOINED;
        if end.is_some_and(|end| !end.is_chosen) && has_room && self.joined.insert(index) {
            self.unanswered.insert(index);
            send(&mut self.requests, Request::Joined { link, index });
        }
    }

    /// Notes the new name of a link's container.
    pub(super) fn rename(&mut self, link: usize, name: &str) {
        rename(&mut self.ends, link, name);
    }

    /// Notes that the host has no interface with this number any more, so that a later one is another one.
    pub(super) fn forget(&mut self, index: u32) {
        self.joined.remove(&index);
    }

    /// Returns whether the helper looks for any container.
    pub(super) fn is_waiting(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Returns the name of a link's container, or an empty text if the link is at something else.
    pub(super) fn container(&self, link: usize) -> &str {
        let end = self.ends.get(link).and_then(Option::as_ref);
        end.map_or("", |end| end.container.as_str())
    }

    /// Returns the output of the helper, which is readable when there are answers or when the helper has ended.
    pub(super) fn output(&self) -> &ChildStdout {
        &self.answers
    }

    /// Returns the answers in the output of the helper, which must be readable. The helper does not look for the containers
    /// that are back or removed any more.
    ///
    /// # Errors
    /// The helper has ended.
    pub(super) fn answers(&mut self) -> io::Result<Vec<Answer>> {
        let mut bytes = [0; 4_096];
        let count = self.answers.read(&mut bytes)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.unread.extend_from_slice(&bytes[..count]);
        let mut answers = Vec::new();
        while let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.unread.drain(..=end).collect();
            let Ok(answer) = serde_json::from_slice::<Answer>(&line) else {
                continue;
            };
            let is_expected = match &answer {
                Answer::Back { link, .. }
                | Answer::Removed { link }
                | Answer::Elsewhere { link } => self.lost.remove(link),
                Answer::Joined { index, .. } => self.unanswered.remove(index),
                Answer::Renamed { .. } => true,
            };
            if is_expected {
                answers.push(answer);
            }
        }
        Ok(answers)
    }
}

/// Writes a request to the helper.
fn send(requests: &mut ChildStdin, request: Request) {
    // If the helper has ended, so have its answers, which the box notices.
    if let Ok(line) = serde_json::to_string(&request) {
        let _ = writeln!(requests, "{line}");
    }
}

/// Answers requests until standard input ends. It is the work of the helper.
///
/// # Errors
/// Standard input has something else than the containers of links, or interfaces cannot be watched.
pub(crate) fn watch() -> Result<()> {
    // These signals may reach the helper together with the box; the helper ends only with the box.
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    let mut first = String::new();
    if io::stdin().read_line(&mut first)? == 0 {
        return Ok(());
    }
    let mut ends: Vec<Option<ContainerEnd>> = serde_json::from_str(&first)?;
    let (send, received) = mpsc::channel();
    thread::spawn(move || {
        let lines = io::stdin().lines().map_while(Result::ok);
        for request in lines.filter_map(|line| serde_json::from_str::<Request>(&line).ok()) {
            if send.send(request).is_err() {
                break;
            }
        }
        // The other thread may wait for an engine, whose answer nobody needs any more.
        std::process::exit(0);
    });
    let mut changes = LinkWatcher::new()?;
    let mut lost = BTreeSet::new();
    // The value is when the helper last answered about the link.
    let mut told: BTreeMap<usize, Instant> = BTreeMap::new();
    // The value is when the helper first found another interface in place of that of the link, or none in this namespace.
    let mut others: BTreeMap<usize, Instant> = BTreeMap::new();
    // The key is the host's interface by which a container has joined a network. The value is a link of the container, and
    // when the box asked.
    let mut joined: BTreeMap<u32, (usize, Instant)> = BTreeMap::new();
    let (mut interval, mut next_look) = (SOON, Instant::now());
    loop {
        let is_idle = lost.is_empty() && joined.is_empty();
        let wait = if is_idle { IDLE } else { SOON };
        match received.recv_timeout(wait) {
            Ok(Request::Lost { link }) => {
                // The loss itself is a change of an interface.
                lost.insert(link);
                continue;
            }
            Ok(Request::Joined { link, index }) => {
                joined.insert(index, (link, Instant::now()));
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        joined.retain(|index, (link, asked)| {
            if asked.elapsed() < NOTED || has_lost_link(&ends, &lost, *link) {
                return true;
            }
            let (link, index) = (*link, *index);
            let network = joined_network(&mut ends, link, index);
            tell(&Answer::Joined {
                link,
                index,
                network,
            });
            false
        });
        let now = Instant::now();
        if !changes.changes()?.is_empty() {
            (interval, next_look) = (SOON, now);
        }
        if now < next_look {
            continue;
        }
        lost.retain(|link| {
            let last = told.get(link);
            if last.is_some_and(|last| now.duration_since(*last) < AGAIN) {
                return true;
            }
            let Some(answer) = look(&mut ends, &mut others, *link) else {
                return true;
            };
            told.insert(*link, now);
            tell(&answer);
            false
        });
        next_look = Instant::now() + interval;
        interval = (2 * interval).min(SELDOM);
    }
}

/// Returns the answer about a lost link, or `None` while there is none.
fn look(
    ends: &mut [Option<ContainerEnd>],
    others: &mut BTreeMap<usize, Instant>,
    link: usize,
) -> Option<Answer> {
    let pid = match state_of(ends, link)? {
        ContainerState::Removed => return Some(Answer::Removed { link }),
        ContainerState::Known(container) if container.pid > 0 => container.pid,
        ContainerState::Known(_) | ContainerState::Unanswered => {
            others.remove(&link);
            return None;
        }
    };
    let there = NetNs::of_pid(pid).ok()?;
    let all = HostEnd::all_of(&there).ok()?;
    // Podman without root removes its network namespace with the last container, and makes another one for the next.
    if all.is_empty() && HostEnd::are_elsewhere(&there).ok()? {
        let since = others.entry(link).or_insert_with(Instant::now);
        return (since.elapsed() >= SETTLED).then_some(Answer::Elsewhere { link });
    }
    let found = place_of(ends, link, &all)?;
    // It may not be a port of its bridge yet.
    found.host.master?;
    let end = ends.get_mut(link)?.as_mut()?;
    if found.inside != end.inside {
        let since = others.entry(link).or_insert_with(Instant::now);
        if since.elapsed() < SETTLED {
            return None;
        }
        end.inside.clone_from(&found.inside);
    }
    others.remove(&link);
    Some(Answer::Back {
        link,
        index: found.host.index,
    })
}

/// Returns the state of the container of a link, or `None` if the link is at something else. Tells the box if the container
/// has another name than before.
fn state_of(ends: &mut [Option<ContainerEnd>], link: usize) -> Option<ContainerState> {
    let end = ends.get(link)?.as_ref()?;
    let state = engines::state_of(&end.engine, &end.id);
    if let ContainerState::Known(container) = &state
        && container.name != end.container
    {
        rename(ends, link, &container.name);
        let name = container.name.clone();
        tell(&Answer::Renamed { link, name });
    }
    Some(state)
}

/// Gives all ends of the container of a link this name.
fn rename(ends: &mut [Option<ContainerEnd>], link: usize, name: &str) {
    let Some(own) = ends.get(link).cloned().flatten() else {
        return;
    };
    for end in ends.iter_mut().flatten().filter(|end| end.is_beside(&own)) {
        name.clone_into(&mut end.container);
    }
}

/// Returns the end among those of a container at which a lost link of it belongs: that of the same interface, or else of one
/// that belongs to no link, unless the user chose the interface.
fn place_of<'a>(
    ends: &[Option<ContainerEnd>],
    link: usize,
    all: &'a [HostEnd],
) -> Option<&'a HostEnd> {
    let own = ends.get(link)?.as_ref()?;
    let is_free = |found: &&HostEnd| !has_link(ends, own, &found.inside);
    let same = all.iter().find(|found| found.inside == own.inside);
    same.or_else(|| all.iter().find(is_free).filter(|_| !own.is_chosen))
}

/// Returns true if a link belongs at the interface `inside` of the container of `own`.
fn has_link(ends: &[Option<ContainerEnd>], own: &ContainerEnd, inside: &str) -> bool {
    let mut known = ends.iter().flatten();
    known.any(|end| end.is_beside(own) && end.inside == inside)
}

/// Returns true if a link at the container of `link` is lost. It may move to any interface of the container without a link.
fn has_lost_link(ends: &[Option<ContainerEnd>], lost: &BTreeSet<usize>, link: usize) -> bool {
    let end = |link: usize| ends.get(link).and_then(Option::as_ref);
    let mut lost = lost.iter().filter_map(|link| end(*link));
    end(link).is_some_and(|own| lost.any(|end| end.is_beside(own)))
}

/// Returns the name of the network that the container of `link` has joined by the host's interface with the number `index`:
/// the name that the engine has for it or, if it has none, that of the interface inside. Returns `None` if the container does
/// not have that interface any more, or if a link belongs there.
fn joined_network(ends: &mut [Option<ContainerEnd>], link: usize, index: u32) -> Option<String> {
    let ContainerState::Known(container) = state_of(ends, link)? else {
        return None;
    };
    let there = NetNs::of_pid(container.pid).ok()?;
    let mut all = HostEnd::all_of(&there).ok()?.into_iter();
    let found = all.find(|found| found.host.index == index)?;
    let end = ends.get(link)?.as_ref()?;
    if has_link(ends, end, &found.inside) {
        return None;
    }
    let mut networks = engines::networks_of(&container).into_iter();
    let network = networks.find(|network| network.mac == found.mac);
    Some(network.map_or(found.inside, |network| network.name))
}

fn tell(answer: &Answer) {
    // If nobody reads the answers any more, the input ends, too.
    if let Ok(line) = serde_json::to_string(answer) {
        let _ = writeln!(io::stdout(), "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netio::iface::Interface;

    #[test]
    fn a_lost_link_belongs_at_its_interface_or_at_one_without_a_link_unless_it_was_chosen() {
        let ends = [
            end("web", "eth0", false),
            end("web", "eth1", false),
            end("db", "eth2", true),
            None,
        ];
        let place = |link, interfaces: &[&str]| {
            let all: Vec<HostEnd> = interfaces.iter().map(|inside| has(inside)).collect();
            place_of(&ends, link, &all).map(|found| found.inside.clone())
        };
        assert_eq!(place(0, &["eth0", "eth1"]).as_deref(), Some("eth0"));
        assert_eq!(place(1, &["eth0", "eth1"]).as_deref(), Some("eth1"));
        assert_eq!(place(0, &["eth1"]), None);
        assert_eq!(place(0, &["eth1", "eth2"]).as_deref(), Some("eth2"));
        assert_eq!(place(2, &["eth0"]), None);
        assert_eq!(place(2, &["eth0", "eth2"]).as_deref(), Some("eth2"));
        assert_eq!(place(3, &["eth0"]), None);
    }

    #[test]
    fn a_joined_network_may_get_a_lost_link_of_the_same_container_only() {
        let ends = [
            end("web", "eth0", false),
            end("web", "eth1", false),
            end("db", "eth0", false),
            None,
        ];
        let waits = |lost: &[usize], link| {
            let lost = lost.iter().copied().collect();
            has_lost_link(&ends, &lost, link)
        };
        assert!(waits(&[1], 0) && waits(&[2, 1], 0));
        assert!(!waits(&[], 0) && !waits(&[2], 0) && !waits(&[0, 1, 3], 2));
        assert!(!waits(&[0, 3], 3));
        let web = ends[0].as_ref().unwrap();
        assert!(has_link(&ends, web, "eth1") && !has_link(&ends, web, "eth2"));
    }

    #[test]
    fn a_new_name_is_that_of_all_ends_of_the_container_and_of_no_other() {
        let mut ends = [
            end("web", "eth0", false),
            end("web", "eth1", false),
            end("db", "eth0", false),
            None,
        ];
        for link in [1, 3] {
            rename(&mut ends, link, "shop");
        }
        let names = ends.iter().flatten().map(|end| end.container.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["shop", "shop", "db"]);
        let own = ends[0].as_ref().unwrap();
        assert!(has_link(&ends, own, "eth1"));
    }

    #[test]
    fn the_helper_has_few_unanswered_requests_and_gets_one_for_each_interface() {
        let mut echo = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut watcher = ContainerWatcher {
            requests: echo.stdin.take().unwrap(),
            answers: echo.stdout.take().unwrap(),
            unread: Vec::new(),
            ends: vec![end("web", "eth0", false)],
            lost: BTreeSet::new(),
            joined: BTreeSet::new(),
            unanswered: BTreeSet::new(),
        };
        for index in 0..1_000 {
            watcher.name_network(0, index);
            watcher.name_network(0, index);
        }
        assert_eq!(watcher.unanswered.len(), MOST_JOINED);
        let mut answers = Vec::new();
        // A request that comes back is an answer without a network.
        while !watcher.unanswered.is_empty() {
            answers.extend(watcher.answers().unwrap());
        }
        assert_eq!(answers.len(), MOST_JOINED);
        watcher.name_network(0, 0);
        assert!(watcher.unanswered.is_empty());
        watcher.name_network(0, 999);
        assert_eq!(watcher.unanswered.len(), 1);
        // A program that writes to a closed pipe fails.
        while !watcher.unanswered.is_empty() {
            watcher.answers().unwrap();
        }
        drop(watcher);
        assert!(echo.wait().unwrap().success());
    }

    /// Returns an interface of a container of Podman with a link.
    fn end(container: &str, inside: &str, is_chosen: bool) -> Option<ContainerEnd> {
        Some(ContainerEnd {
            engine: Engine::Program("podman".to_owned()),
            id: format!("id of {container}"),
            container: container.to_owned(),
            inside: inside.to_owned(),
            is_chosen,
        })
    }

    /// Returns the end of an interface inside.
    fn has(inside: &str) -> HostEnd {
        HostEnd {
            inside: inside.to_owned(),
            mac: [0; 6],
            host: Interface::default(),
        }
    }
}
