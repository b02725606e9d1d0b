//! Changes to real interfaces. They are recorded before they are made and undone afterwards, if necessary by the next
//! process.
//!
//! A journal is a file for one interface of one namespace. The process that changes the interface locks the interface, and
//! removes the journal when everything is restored. A journal of an interface that is not locked was left by a process that
//! was killed: the next process that leases the interface first undoes the changes in it. The first line names the holder,
//! and each further line has what a change replaced, in JSON.

mod journal;

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::bed::wait_running_within;
use crate::bridge;
use crate::bridge_port::{self, BridgePort};
use crate::iface::{Interface, InterfaceError};
use crate::ingress_drop;
use crate::netns::{NetNsError, write_sysctl_here};
use crate::offloads::{IoctlSocket, OffloadError, Offloads, SwitchResult};
use crate::private_dir::{PrivateDir, PrivateDirError};
use crate::side_by_side;
use crate::veth;
use journal::{Holder, JournalDir, LOCK_TIMEOUT, LeaseJournal, RETRY_INTERVAL};

/// Offloads that would merge packets before they are seen, in a form that the virtio header cannot describe or that
/// could not leave as it arrived (`net/core/dev.c`, `dev_disable_lro` and similar functions).
pub const MERGING: [&str; 4] = [
    "rx-lro",
    "rx-gro-hw",
    "rx-gro-list",
    "rx-udp-gro-forwarding",
];

/// Prefix of the names of farwire's bridges, before the number of a port.
const BRIDGE: &str = "farwire-";

/// Leases interfaces of one namespace. All leases share three descriptors: the directory of the journals, the file of the
/// locks, and a socket.
#[derive(Clone, Debug)]
pub struct InterfaceLeases {
    journals: Arc<JournalDir>,
    socket: Arc<IoctlSocket>,
}

/// The right to change an interface. Changes made through it are undone by [`end`](Self::end), or when it is dropped.
#[derive(Debug)]
pub struct InterfaceLease {
    offloads: Offloads,
    journal: LeaseJournal,
    /// The replaced settings, oldest first.
    replaced: Vec<ReplacedSetting>,
    has_raised: bool,
    /// Whether the changes outlive the lease.
    is_left: bool,
}

/// A setting that a change replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplacedSetting {
    /// The state of a feature.
    Feature {
        /// Name of the feature in ethtool(8).
        name: String,
        /// Whether it was on.
        on: bool,
    },
    /// The administrative state: whether it was up.
    Up(bool),
    /// There was no bridge of this name, of which the interface is now a port.
    NoBridge(String),
    /// The number of IPv6 router solicitations that the kernel sent (`router_solicitations`); -1 means any number.
    RouterSolicitations(i64),
    /// The interface was this port of a bridge.
    Port(BridgePort),
    /// There was no veth pair of this interface.
    NoPair(String),
}

/// The result for an interface that a killed process had left changed.
#[derive(Debug)]
pub struct PutBack {
    /// Present name of the interface, or the last name of one that is gone.
    pub interface: String,
    /// The outcome.
    pub outcome: PutBackOutcome,
}

/// The outcome of putting back an interface's settings.
#[derive(Debug)]
pub enum PutBackOutcome {
    /// These settings were put back.
    Done(Vec<ReplacedSetting>),
    /// A running process holds the interface, so nothing was done.
    InUse(LeaseError),
    /// The interface no longer exists, so there is nothing to put back.
    Gone,
    /// Something could not be put back; the journal is kept.
    Failed(LeaseError),
}

/// The reason why an interface could not be leased or changed.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// A running process holds it.
    #[error(
        "another farwire already uses interface {interface}{holder}: change its link with `farwire set`, or end it first"
    )]
    InUse {
        /// The interface.
        interface: String,
        /// " (pid N)" if it is known.
        holder: String,
    },
    /// The journal could not be written.
    #[error("cannot write the journal {path}: {source}")]
    Journal {
        /// Path of the journal.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// There is no directory for journals.
    #[error(transparent)]
    Directory(#[from] PrivateDirError),
    /// No socket could be opened to change interfaces.
    #[error("cannot open a socket to change interfaces: {0}")]
    Socket(#[source] io::Error),
    /// The interface could not be looked up, or could not join a bridge.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The interface that takes a place in a bridge has no carrier.
    #[error("interface {0} has no carrier")]
    NoCarrier(String),
    /// The interface could not be read or changed.
    #[error(transparent)]
    Offload(#[from] OffloadError),
    /// A sysctl of the interface could not be changed.
    #[error(transparent)]
    Sysctl(#[from] NetNsError),
}

impl LeaseError {
    /// Returns whether the interface no longer exists.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Offload(OffloadError { source, .. }) => {
                source.raw_os_error() == Some(libc::ENODEV)
            }
            Self::Interface(InterfaceError::Missing(_)) => true,
            Self::Interface(InterfaceError::Netlink(error)) => error.errno() == Some(libc::ENODEV),
            _ => false,
        }
    }
}

impl InterfaceLeases {
    /// Leases interfaces of the namespace of the calling thread. The journals are in `/run/farwire` or, if that cannot be
    /// written, in `$XDG_RUNTIME_DIR/farwire` or else in `/tmp/farwire-UID`.
    ///
    /// # Errors
    /// There is no directory for journals, or the process has no descriptor left.
    pub fn open() -> Result<Self, LeaseError> {
        Self::with(PrivateDir::own()?)
    }

    /// Leases interfaces with journals in the directory `dir`, which is created if it does not exist.
    ///
    /// # Errors
    /// The directory cannot be used, or the process has no descriptor left.
    pub fn in_dir(dir: &Path) -> Result<Self, LeaseError> {
        Self::with(PrivateDir::make(dir).map_err(|source| LeaseError::Journal {
            path: dir.to_owned(),
            source,
        })?)
    }

    fn with(dir: PrivateDir) -> Result<Self, LeaseError> {
        Ok(Self {
            journals: Arc::new(JournalDir::new(dir)?),
            socket: Arc::new(IoctlSocket::open().map_err(LeaseError::Socket)?),
        })
    }

    /// Leases an interface, and first undoes changes that a killed process of this user left.
    ///
    /// # Errors
    /// Another farwire holds the interface, or the journal cannot be written.
    pub fn take(&self, found: &Interface) -> Result<InterfaceLease, LeaseError> {
        let offloads = Offloads::open_on(&self.socket, &found.name)?;
        let journal = LeaseJournal::lock(&self.journals, found.index, &found.name)?;
        let left = journal
            .left_behind()?
            .filter(|(holder, _)| holder.mac == found.mac);
        if left.is_none() {
            // A journal of another interface, whose number this one has got.
            journal.remove();
        }
        let mut lease = InterfaceLease {
            offloads,
            journal,
            replaced: left.map(|(_, replaced)| replaced).unwrap_or_default(),
            has_raised: false,
            // Changes that cannot be undone now remain in the journal.
            is_left: true,
        };
        lease.restore()?;
        lease.is_left = false;
        lease.has_raised = !found.up && lease.offloads.is_up()?;
        lease.replaced.clear();
        lease.journal.begin(&found.name, found.mac)?;
        Ok(lease)
    }

    /// Returns whether the journal of the interface with the number `index` has changes that concern other interfaces, which
    /// are undone in order.
    fn concerns_others(&self, index: u32) -> bool {
        let replaced = self.journals.replaced(index);
        replaced.iter().any(|replaced| match replaced {
            ReplacedSetting::NoBridge(_)
            | ReplacedSetting::Port(_)
            | ReplacedSetting::NoPair(_) => true,
            ReplacedSetting::Feature { .. }
            | ReplacedSetting::Up(_)
            | ReplacedSetting::RouterSolicitations(_) => false,
        })
    }

    /// Undoes the changes on the interface with the number `index` that a killed process left; `None` if there is no
    /// journal any more.
    fn put_back(&self, index: u32) -> Option<PutBack> {
        let found = match Interface::by_index(index) {
            Ok(found) => Some(found),
            Err(InterfaceError::Missing(_)) => None,
            Err(error) => {
                let failed = PutBackOutcome::Failed(error.into());
                return Some(PutBack::new(index, None, failed));
            }
        };
        let name = found.as_ref().map(|found| found.name.clone());
        let call = name.clone().unwrap_or_else(|| format!("number {index}"));
        let (outcome, last) = match self.undo_left(index, found.as_ref(), &call) {
            Ok(undone) => undone?,
            Err(in_use @ LeaseError::InUse { .. }) => (PutBackOutcome::InUse(in_use), None),
            Err(error) => (PutBackOutcome::Failed(error), None),
        };
        Some(PutBack::new(index, name.or(last), outcome))
    }

    /// Undoes the changes in the journal of the interface with the number `index` if it is for the interface `found`, and
    /// returns the outcome with the name in the journal. Removes the journal unless something could not be undone. `None`
    /// if there is no journal. `call` is the name of the interface for errors.
    fn undo_left(
        &self,
        index: u32,
        found: Option<&Interface>,
        call: &str,
    ) -> Result<Option<(PutBackOutcome, Option<String>)>, LeaseError> {
        let journal = LeaseJournal::lock(&self.journals, index, call)?;
        if !journal.exists()? {
            return Ok(None);
        }
        await_no_box(index, call)?;
        let left = journal.left_behind()?;
        let last = left.as_ref().map(|(holder, _)| holder.interface.clone());
        let of_found = |(holder, _): &(Holder, _)| found.is_some_and(|f| f.mac == holder.mac);
        let (Some(found), Some((_, replaced))) = (found, left.filter(of_found)) else {
            journal.remove();
            return Ok(Some((PutBackOutcome::Gone, last)));
        };
        let lease = InterfaceLease {
            offloads: Offloads::open_on(&self.socket, &found.name)?,
            journal,
            replaced,
            has_raised: false,
            is_left: true,
        };
        lease.restore()?;
        lease.journal.remove();
        let done = PutBackOutcome::Done(lease.replaced.clone());
        Ok(Some((done, last)))
    }
}

impl InterfaceLease {
    /// Returns whether leasing the interface set it up again, so that its carrier may take some time.
    pub fn has_raised(&self) -> bool {
        self.has_raised
    }

    /// Switches `feature` on or off for the duration of the lease.
    ///
    /// # Errors
    /// CAP_NET_ADMIN is missing, the interface is gone, or the journal cannot be written.
    pub fn switch(&mut self, feature: &str, on: bool) -> Result<SwitchResult, LeaseError> {
        let Some(state) = self.offloads.feature(feature)? else {
            return Ok(SwitchResult::Absent);
        };
        if state.active == on || state.fixed {
            return Ok(self.offloads.switch(feature, on)?);
        }
        self.note(ReplacedSetting::Feature {
            name: feature.to_owned(),
            on: state.active,
        })?;
        Ok(self.offloads.switch(feature, on)?)
    }

    /// Sets the interface administratively up or down for the duration of the lease, and returns whether that changed
    /// it.
    ///
    /// # Errors
    /// The same as for [`InterfaceLease::switch`].
    pub fn set_up(&mut self, up: bool) -> Result<bool, LeaseError> {
        let was = self.offloads.is_up()?;
        if was == up {
            return Ok(false);
        }
        // Only the first state is noted, to which the interface returns however often the state changes.
        let noted = |replaced: &ReplacedSetting| matches!(replaced, ReplacedSetting::Up(_));
        if !self.replaced.iter().any(noted) {
            self.note(ReplacedSetting::Up(was))?;
        }
        self.offloads.set_up(up)?;
        Ok(true)
    }

    /// Stops the kernel from sending IPv6 router solicitations from the interface for the duration of the lease. It
    /// sends them when the interface gets its carrier, until a router answers. Without IPv6 it changes nothing.
    ///
    /// # Errors
    /// The sysctl or the journal cannot be written, or the interface is gone.
    pub fn stop_soliciting(&mut self) -> Result<(), LeaseError> {
        let path = self.solicitations()?;
        let now = std::fs::read_to_string(format!("/proc/sys/{path}")).unwrap_or_default();
        match now.trim().parse() {
            Ok(0) | Err(_) => Ok(()),
            Ok(count) => {
                self.note(ReplacedSetting::RouterSolicitations(count))?;
                write_sysctl_here(&path, "0").map_err(|error| {
                    // Nothing has changed, so there is nothing to undo.
                    self.replaced.pop();
                    error.into()
                })
            }
        }
    }

    /// Returns the path of the sysctl under `/proc/sys`.
    fn solicitations(&self) -> Result<String, OffloadError> {
        let name = self.offloads.name()?;
        Ok(format!("net/ipv6/conf/{name}/router_solicitations"))
    }

    /// Connects two leased interfaces by a bridge that forwards everything, and sets them up.
    ///
    /// # Errors
    /// Those of [`InterfaceLease::switch`], and a kernel without bridges.
    pub fn join(leases: [&mut Self; 2]) -> Result<(), LeaseError> {
        let ports = leases.each_ref().map(|lease| lease.offloads.index());
        let name = format!("{BRIDGE}{}", ports[0]);
        for lease in leases {
            // The bridge would switch it off permanently (`net/bridge/br_if.c`).
            lease.switch("rx-lro", false)?;
            lease.stop_soliciting()?;
            lease.set_up(true)?;
            lease.note(ReplacedSetting::NoBridge(name.clone()))?;
        }
        Ok(bridge::join(&name, ports)?)
    }

    /// Makes the interface `far`, which is down, a port of the bridge in which this interface has the place `place`, with the
    /// same settings. Nothing changes for packets before [`Self::replace_port`].
    ///
    /// # Errors
    /// The bridge is gone, the kernel refuses, or the journal cannot be written.
    pub fn prepare_port(&mut self, place: &BridgePort, far: &Interface) -> Result<(), LeaseError> {
        self.note(ReplacedSetting::Port(place.clone()))?;
        Ok(place.join(far.index)?)
    }

    /// Lets the interface `far` take the place of this one in the bridge for the duration of the lease, after
    /// [`Self::prepare_port`]. It begins to pass packets before this interface leaves, so that the bridge's other ports are not
    /// affected. It gets its carrier within milliseconds if the other end of its pair is up; this waits for the carrier until
    /// `timeout`.
    ///
    /// # Errors
    /// The bridge is gone, the kernel refuses, or there is no carrier within `timeout`.
    pub fn replace_port(
        &mut self,
        place: &BridgePort,
        far: &Interface,
        timeout: Duration,
    ) -> Result<(), LeaseError> {
        place.set_up(far.index)?;
        wait_running_within(timeout, &[far.name.as_str()])
            .map_err(|_| LeaseError::NoCarrier(far.name.clone()))?;
        Ok(bridge_port::leave(self.offloads.index())?)
    }

    /// Lets the lease remove the veth pair to which this interface belongs.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn remove_pair_at_end(&mut self) -> Result<(), LeaseError> {
        let name = self.offloads.name()?;
        self.note(ReplacedSetting::NoPair(name))
    }

    /// Undoes the changes and ends the lease. An interface that is gone needs nothing.
    ///
    /// # Errors
    /// Something could not be undone. The next process that leases the interface, or [`put_back_all`], tries again.
    pub fn end(mut self) -> Result<(), LeaseError> {
        self.is_left = true;
        self.finish()
    }

    /// Ends the lease without undoing the changes. The next process that leases the interface, or [`put_back_all`],
    /// undoes them.
    pub fn leave(mut self) {
        // Without changes there is nothing to undo, and no journal is needed.
        self.is_left = !self.replaced.is_empty();
    }

    /// Returns the settings that the changes so far have replaced, oldest first.
    pub fn replaced(&self) -> &[ReplacedSetting] {
        &self.replaced
    }

    /// Records a setting that a change is about to replace.
    fn note(&mut self, replaced: ReplacedSetting) -> Result<(), LeaseError> {
        self.journal.write(&replaced)?;
        self.replaced.push(replaced);
        Ok(())
    }

    /// Puts back all replaced settings, latest first. It continues after a failure and returns the first one.
    fn restore(&self) -> Result<(), LeaseError> {
        let mut first_failure = Ok(());
        for replaced in self.replaced.iter().rev() {
            let done = match replaced {
                ReplacedSetting::Feature { name, on } => {
                    let switched = self.offloads.switch(name, *on);
                    switched.map(drop).map_err(LeaseError::from)
                }
                ReplacedSetting::Up(up) => self.offloads.set_up(*up).map_err(LeaseError::from),
                ReplacedSetting::NoBridge(name) => bridge::remove(name).map_err(LeaseError::from),
                ReplacedSetting::RouterSolicitations(count) => self
                    .solicitations()
                    .map_err(LeaseError::from)
                    .and_then(|path| Ok(write_sysctl_here(&path, &count.to_string())?)),
                ReplacedSetting::Port(place) => {
                    place.take(self.offloads.index()).map_err(LeaseError::from)
                }
                ReplacedSetting::NoPair(name) => veth::remove_pair(name).map_err(LeaseError::from),
            };
            first_failure = first_failure.and(done);
        }
        first_failure
    }

    /// Puts back all replaced settings and removes the journal, which remains if something could not be undone, unless the
    /// interface itself is gone.
    fn finish(&self) -> Result<(), LeaseError> {
        match self.restore() {
            Err(error) if !error.is_gone() => Err(error),
            _ => {
                self.journal.remove();
                Ok(())
            }
        }
    }
}

impl Drop for InterfaceLease {
    fn drop(&mut self) {
        if !self.is_left {
            // Only `end` can report an error. The journal remains.
            let _ = self.finish();
        }
    }
}

impl fmt::Display for ReplacedSetting {
    /// Formats the setting that was put back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Feature { name, on } => write!(f, "{name} {}", if *on { "on" } else { "off" }),
            Self::Up(up) => f.write_str(if *up { "up" } else { "down" }),
            Self::NoBridge(name) => write!(f, "removed from the bridge {name}"),
            Self::RouterSolicitations(count) => write!(f, "router_solicitations {count}"),
            Self::Port(place) => write!(f, "port of the bridge {}", place.bridge),
            Self::NoPair(name) => write!(f, "veth pair {name} removed"),
        }
    }
}

/// Undoes changes that killed processes of this user left on interfaces in the namespace of the calling thread. For
/// root, it also does so for the user who owns the namespace. An interface on which a box of any user runs is left
/// alone.
///
/// # Errors
/// The journals cannot be listed.
pub fn put_back_all() -> Result<Vec<PutBack>, LeaseError> {
    let mut all = Vec::new();
    let others = PrivateDir::of_namespace_owner();
    for dir in others.into_iter().chain([PrivateDir::own()?]) {
        let leases = InterfaceLeases::with(dir)?;
        let interfaces = leases.journals.interfaces()?.into_iter();
        let (in_order, others): (Vec<u32>, Vec<u32>) =
            interfaces.partition(|index| leases.concerns_others(*index));
        let in_order = in_order.into_iter();
        all.extend(in_order.filter_map(|index| leases.put_back(index)));
        let put_back = |index| Ok::<_, Infallible>(leases.put_back(index));
        let Ok(others) = side_by_side::each(others, put_back);
        all.extend(others.into_iter().flatten());
    }
    Ok(all)
}

/// Waits until no box guards the interface with the number `index`. Its journal does not suffice to tell, because the
/// box may be another user's, whose journals are elsewhere. `interface` is the name for the error.
///
/// # Errors
/// A box guards the interface and continues to do so.
fn await_no_box(index: u32, interface: &str) -> Result<(), LeaseError> {
    let end = Instant::now() + LOCK_TIMEOUT;
    while ingress_drop::is_guarded(index) {
        if Instant::now() > end {
            return Err(LeaseError::InUse {
                interface: interface.to_owned(),
                holder: String::new(),
            });
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
    Ok(())
}

impl PutBack {
    fn new(index: u32, interface: Option<String>, outcome: PutBackOutcome) -> Self {
        Self {
            interface: interface.unwrap_or_else(|| format!("number {index}")),
            outcome,
        }
    }
}
