//! Changes to real interfaces. They are recorded before they are made and undone afterwards, if necessary by the next process.
//!
//! A journal is a file for one interface of one namespace. The process that changes the interface locks it, and removes it when
//! everything is restored. A journal without a lock was left by a process that was killed: the next process that leases the
//! interface first undoes what it lists. Its first line names the holder, each further line what a change replaced, in JSON.

mod journal;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::bridge;
use crate::iface::{Interface, InterfaceError};
use crate::ingress_drop;
use crate::netns::{NetNsError, write_sysctl_here};
use crate::offloads::{OffloadError, Offloads, Switched};
use crate::private_dir::{PrivateDir, PrivateDirError};
use journal::{LOOK_AGAIN, LeaseJournal, PATIENCE, dir_error, interfaces};

/// What would merge packets before they are seen, in a form that the virtio header cannot describe or that
/// could not leave as it came (`net/core/dev.c`, `dev_disable_lro` and its like).
pub const MERGING: [&str; 4] = [
    "rx-lro",
    "rx-gro-hw",
    "rx-gro-list",
    "rx-udp-gro-forwarding",
];

/// What bridges of farwire's are called, before the number of a port.
const BRIDGE: &str = "farwire-";

/// The right to change an interface; what was changed through it is put back when it is dropped.
#[derive(Debug)]
pub struct InterfaceLease {
    offloads: Offloads,
    journal: LeaseJournal,
    /// What each change replaced, oldest first.
    replaced: Vec<Replaced>,
    has_raised: bool,
    /// The changes outlive the lease.
    is_left: bool,
}

/// What a change replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replaced {
    /// A feature was on or off.
    Feature {
        /// As ethtool(8) names it.
        name: String,
        /// It was on.
        on: bool,
    },
    /// The administrative state was up or down.
    Up(bool),
    /// There was no bridge of this name, whose port the interface is now.
    NoBridge(String),
    /// The kernel sent this many IPv6 router solicitations (`router_solicitations`); -1 is any number.
    RouterSolicitations(i64),
}

/// What became of an interface that a killed process had left changed.
#[derive(Debug)]
pub struct PutBack {
    /// Its name now; of one that is gone, its last.
    pub interface: String,
    /// How it ended.
    pub outcome: PutBackOutcome,
}

/// How it ended.
#[derive(Debug)]
pub enum PutBackOutcome {
    /// These were put back.
    Done(Vec<Replaced>),
    /// A living process has the interface: nothing was done.
    InUse(LeaseError),
    /// There is no such interface any more: nothing is left to put back.
    Gone,
    /// Something could not be put back; the journal is kept.
    Failed(LeaseError),
}

/// Why an interface could not be leased or changed.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// A living process holds it.
    #[error("another farwire already uses interface {interface}{holder}")]
    InUse {
        /// The interface.
        interface: String,
        /// " (pid N)" where known.
        holder: String,
    },
    /// The journal could not be kept.
    #[error("cannot write the journal {path}: {source}")]
    Journal {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no directory for journals.
    #[error(transparent)]
    Directory(#[from] PrivateDirError),
    /// The interface could not be looked up, or not put into a bridge.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// It could not be read or changed.
    #[error(transparent)]
    Offload(#[from] OffloadError),
    /// A sysctl of it could not be changed.
    #[error(transparent)]
    Sysctl(#[from] NetNsError),
}

impl LeaseError {
    /// Whether it failed because the interface is no longer there.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Offload(OffloadError { source, .. }) => {
                source.raw_os_error() == Some(libc::ENODEV)
            }
            Self::Interface(InterfaceError::Missing(_)) => true,
            _ => false,
        }
    }
}

impl InterfaceLease {
    /// Leases an interface of the calling thread's namespace that was looked up, and first undoes what a killed process of this
    /// user left changed.
    ///
    /// The journal is kept under `/run/farwire`, or where that cannot be written under `$XDG_RUNTIME_DIR/farwire`,
    /// else in `/tmp/farwire-UID`.
    ///
    /// # Errors
    /// When another farwire holds the interface, or the journal cannot be kept.
    pub fn take(found: &Interface) -> Result<Self, LeaseError> {
        Self::of(PrivateDir::own()?, found)
    }

    /// As [`InterfaceLease::take`], with the journal in the directory `dir`.
    ///
    /// # Errors
    /// As [`InterfaceLease::take`].
    pub fn take_in(dir: &Path, interface: &str) -> Result<Self, LeaseError> {
        let found = Interface::find(interface)?;
        let opened = PrivateDir::make(dir).map_err(|source| LeaseError::Journal {
            path: dir.to_owned(),
            source,
        })?;
        Self::of(opened, &found)
    }

    fn of(dir: PrivateDir, found: &Interface) -> Result<Self, LeaseError> {
        let journal = LeaseJournal::lock(&Arc::new(dir), found.index, &found.name, true)?
            .expect("it is created if there is none");
        let left = journal.left_behind();
        let left = left.filter(|(holder, _)| holder.mac == found.mac);
        let mut lease = Self {
            offloads: Offloads::open(&found.name)?,
            journal,
            replaced: left.map(|(_, replaced)| replaced).unwrap_or_default(),
            has_raised: false,
            // What cannot be put back now stays written down.
            is_left: true,
        };
        lease.restore()?;
        lease.is_left = false;
        lease.has_raised = !found.up && lease.offloads.is_up()?;
        lease.replaced.clear();
        lease.journal.begin(&found.name, found.mac)?;
        Ok(lease)
    }

    /// Whether to lease the interface meant to set it up again: its carrier may take its time.
    pub fn has_raised(&self) -> bool {
        self.has_raised
    }

    /// Switches `feature` on or off for the length of the lease.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN, when the interface is gone, or the journal cannot be written.
    pub fn switch(&mut self, feature: &str, on: bool) -> Result<Switched, LeaseError> {
        let Some(state) = self.offloads.feature(feature)? else {
            return Ok(Switched::Absent);
        };
        if state.active == on || state.fixed {
            return Ok(self.offloads.switch(feature, on)?);
        }
        self.note(Replaced::Feature {
            name: feature.to_owned(),
            on: state.active,
        })?;
        Ok(self.offloads.switch(feature, on)?)
    }

    /// Sets the interface administratively up or down for the length of the lease; tells whether that changed it.
    ///
    /// # Errors
    /// As [`InterfaceLease::switch`].
    pub fn set_up(&mut self, up: bool) -> Result<bool, LeaseError> {
        let was = self.offloads.is_up()?;
        if was == up {
            return Ok(false);
        }
        // The first note is the state to return to, however often it then changes.
        let noted = |replaced: &Replaced| matches!(replaced, Replaced::Up(_));
        if !self.replaced.iter().any(noted) {
            self.note(Replaced::Up(was))?;
        }
        self.offloads.set_up(up)?;
        Ok(true)
    }

    /// Keeps the kernel from sending IPv6 router solicitations from the interface for the length of the lease: it sends them when the
    /// interface gets its carrier, and goes on until a router answers. Nothing is changed where there is no IPv6.
    ///
    /// # Errors
    /// The sysctl cannot be written, or the journal; the interface is gone.
    pub fn stop_soliciting(&mut self) -> Result<(), LeaseError> {
        let path = self.solicitations()?;
        let now = std::fs::read_to_string(format!("/proc/sys/{path}")).unwrap_or_default();
        match now.trim().parse() {
            Ok(0) | Err(_) => Ok(()),
            Ok(count) => {
                self.note(Replaced::RouterSolicitations(count))?;
                Ok(write_sysctl_here(&path, "0")?)
            }
        }
    }

    /// The sysctl's path under `/proc/sys`.
    fn solicitations(&self) -> Result<String, OffloadError> {
        let name = self.offloads.name()?;
        Ok(format!("net/ipv6/conf/{name}/router_solicitations"))
    }

    /// Joins two leased interfaces by a bridge that passes everything, and sets them up.
    ///
    /// # Errors
    /// As [`InterfaceLease::switch`]; on a kernel without bridges.
    pub fn join(leases: [&mut Self; 2]) -> Result<(), LeaseError> {
        let ports = leases.each_ref().map(|lease| lease.offloads.index());
        let name = format!("{BRIDGE}{}", ports[0]);
        for lease in leases {
            // To enter a bridge would switch it off for good (`net/bridge/br_if.c`).
            lease.switch("rx-lro", false)?;
            lease.stop_soliciting()?;
            lease.set_up(true)?;
            lease.note(Replaced::NoBridge(name.clone()))?;
        }
        Ok(bridge::join(&name, ports)?)
    }

    /// Ends the lease and leaves everything as it is, for whoever leases the interface next or for [`put_back_all`].
    pub fn leave(mut self) {
        // Without a change there is nothing to put back, and no need of a journal.
        self.is_left = !self.replaced.is_empty();
    }

    /// What the changes so far have replaced, oldest first.
    pub fn replaced(&self) -> &[Replaced] {
        &self.replaced
    }

    /// Writes down what a change is about to replace.
    fn note(&mut self, replaced: Replaced) -> Result<(), LeaseError> {
        self.journal.write(&replaced)?;
        self.replaced.push(replaced);
        Ok(())
    }

    /// Puts back all that was replaced, latest first; goes on past a failure and tells of the first.
    fn restore(&self) -> Result<(), LeaseError> {
        let mut first_failure = Ok(());
        for replaced in self.replaced.iter().rev() {
            let done = match replaced {
                Replaced::Feature { name, on } => {
                    let switched = self.offloads.switch(name, *on);
                    switched.map(drop).map_err(LeaseError::from)
                }
                Replaced::Up(up) => self.offloads.set_up(*up).map_err(LeaseError::from),
                Replaced::NoBridge(name) => bridge::remove(name).map_err(LeaseError::from),
                Replaced::RouterSolicitations(count) => self
                    .solicitations()
                    .map_err(LeaseError::from)
                    .and_then(|path| Ok(write_sysctl_here(&path, &count.to_string())?)),
            };
            first_failure = first_failure.and(done);
        }
        first_failure
    }
}

impl Drop for InterfaceLease {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        // The journal stays when something could not be put back, unless the interface itself is gone.
        let done = self.restore();
        if done.as_ref().err().is_none_or(LeaseError::is_gone) {
            self.journal.remove();
        }
    }
}

impl fmt::Display for Replaced {
    /// What it was put back to.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Feature { name, on } => write!(f, "{name} {}", if *on { "on" } else { "off" }),
            Self::Up(up) => f.write_str(if *up { "up" } else { "down" }),
            Self::NoBridge(name) => write!(f, "removed from the bridge {name}"),
            Self::RouterSolicitations(count) => write!(f, "router_solicitations {count}"),
        }
    }
}

/// Puts back what killed processes of this user left changed on any interface of the calling thread's namespace; as root, also
/// those of the user who owns the namespace. An interface on which a box runs is left alone, whoever's box it is.
///
/// # Errors
/// The journals cannot be looked for.
pub fn put_back_all() -> Result<Vec<PutBack>, LeaseError> {
    let mut all = Vec::new();
    let others = PrivateDir::of_namespace_owner();
    for dir in others.into_iter().chain([PrivateDir::own()?]) {
        let dir = Arc::new(dir);
        for index in interfaces(&dir).map_err(|e| dir_error(&dir, e))? {
            all.extend(put_back_one(&dir, index));
        }
    }
    Ok(all)
}

/// None if the journal has gone meanwhile.
fn put_back_one(dir: &Arc<PrivateDir>, index: u32) -> Option<PutBack> {
    let found = match Interface::by_index(index) {
        Ok(found) => Some(found),
        Err(InterfaceError::Missing(_)) => None,
        Err(error) => {
            return Some(PutBack::new(
                index,
                None,
                PutBackOutcome::Failed(error.into()),
            ));
        }
    };
    let name = found.as_ref().map(|found| found.name.clone());
    let call = name.clone().unwrap_or_else(|| format!("number {index}"));
    let journal = match LeaseJournal::lock(dir, index, &call, false) {
        Ok(journal) => journal?,
        Err(in_use @ LeaseError::InUse { .. }) => {
            return Some(PutBack::new(index, name, PutBackOutcome::InUse(in_use)));
        }
        Err(error) => return Some(PutBack::new(index, name, PutBackOutcome::Failed(error))),
    };
    if let Err(in_use) = await_no_box(index, &call) {
        return Some(PutBack::new(index, name, PutBackOutcome::InUse(in_use)));
    }
    let last = journal.left_behind().map(|(holder, _)| holder.interface);
    let outcome = match put_back(journal, found.as_ref()) {
        Ok(Some(replaced)) => PutBackOutcome::Done(replaced),
        Ok(None) => PutBackOutcome::Gone,
        Err(error) => PutBackOutcome::Failed(error),
    };
    Some(PutBack::new(index, name.or(last), outcome))
}

/// Waits until no box guards the interface with the number `index`. Its journal alone does not show one: the box may be another
/// user's, whose journals are elsewhere.
///
/// # Errors
/// One does, and keeps on doing it. `interface` is the name that the error has.
fn await_no_box(index: u32, interface: &str) -> Result<(), LeaseError> {
    let end = Instant::now() + PATIENCE;
    while ingress_drop::is_guarded(index) {
        if Instant::now() > end {
            return Err(LeaseError::InUse {
                interface: interface.to_owned(),
                holder: String::new(),
            });
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

/// Puts back what stands in `journal` if it is of the interface `found`; removes it unless something could not be put back.
fn put_back(
    journal: LeaseJournal,
    found: Option<&Interface>,
) -> Result<Option<Vec<Replaced>>, LeaseError> {
    let left = journal.left_behind();
    let is_of = |found: &&Interface| left.as_ref().is_some_and(|(h, _)| h.mac == found.mac);
    let (Some(found), Some((_, replaced))) = (found.filter(is_of), &left) else {
        journal.remove();
        return Ok(None);
    };
    let lease = InterfaceLease {
        offloads: Offloads::open(&found.name)?,
        journal,
        replaced: replaced.clone(),
        has_raised: false,
        is_left: true,
    };
    lease.restore()?;
    lease.journal.remove();
    Ok(Some(lease.replaced.clone()))
}

impl PutBack {
    fn new(index: u32, interface: Option<String>, outcome: PutBackOutcome) -> Self {
        Self {
            interface: interface.unwrap_or_else(|| format!("number {index}")),
            outcome,
        }
    }
}
