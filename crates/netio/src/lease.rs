//! Changes to real interfaces, written down before they are made and undone afterwards, by the next process if need be.
//!
//! A journal is a file for one interface of one namespace, locked by the process that changes it and removed when all
//! is as it was. One that nobody locks was left by a process that was killed: whoever leases the interface next first
//! undoes what it says. Its first line says who holds it, each further line what a change replaced, both in JSON.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

use crate::iface::{Interface, InterfaceError};
use crate::netns::{NetNs, NetNsError};
use crate::offloads::{OffloadError, Offloads, Switched};

/// The right to change an interface; what was changed through it is put back when it is dropped.
#[derive(Debug)]
pub struct Lease {
    offloads: Offloads,
    journal: Flock<File>,
    path: PathBuf,
    /// What each change replaced, oldest first.
    replaced: Vec<Replaced>,
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
}

/// Why an interface could not be leased or changed.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// A living process holds it.
    #[error("interface {interface} is already in use by another farwire{holder}")]
    InUse {
        /// The interface.
        interface: String,
        /// " (pid N)" where known.
        holder: String,
    },
    /// The journal could not be kept.
    #[error("cannot keep the journal {path}: {source}")]
    Journal {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The interface could not be looked up.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// It could not be read or changed.
    #[error(transparent)]
    Offload(#[from] OffloadError),
    /// Its namespace could not be told.
    #[error(transparent)]
    NetNs(#[from] NetNsError),
}

/// The journal's first line.
#[derive(Serialize, Deserialize)]
struct Holder {
    pid: u32,
    /// The interface's hardware address: another interface may since have taken its name and number.
    mac: [u8; 6],
}

impl Lease {
    /// Leases `interface` of the calling thread's namespace, and first undoes what a killed process left changed.
    ///
    /// The journal is kept under `/run/farwire`, or where that cannot be written under `$XDG_RUNTIME_DIR/farwire`,
    /// else in a directory of the user's own for temporary files.
    ///
    /// # Errors
    /// When another farwire holds the interface, or the journal cannot be kept.
    pub fn take(interface: &str) -> Result<Self, LeaseError> {
        Self::take_in(&runtime_dir()?, interface)
    }

    /// As [`Lease::take`], with the journal in the directory `dir`.
    ///
    /// # Errors
    /// As [`Lease::take`].
    pub fn take_in(dir: &Path, interface: &str) -> Result<Self, LeaseError> {
        let found = Interface::find(interface)?;
        let ns = NetNs::current()?.inode()?;
        let path = dir.join(format!("{ns}-{}-{interface}.json", found.index));
        let journal = lock(&path, interface)?;
        let mut lease = Self {
            offloads: Offloads::open(interface)?,
            replaced: left_behind(&journal, found.mac),
            journal,
            path,
        };
        lease.restore()?;
        lease.replaced.clear();
        lease.write_holder(found.mac)?;
        Ok(lease)
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
    /// As [`Lease::switch`].
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

    /// What the changes so far have replaced, oldest first.
    #[must_use]
    pub fn replaced(&self) -> &[Replaced] {
        &self.replaced
    }

    /// Writes down what a change is about to replace.
    fn note(&mut self, replaced: Replaced) -> Result<(), LeaseError> {
        self.write_line(&replaced)?;
        self.replaced.push(replaced);
        Ok(())
    }

    fn write_holder(&self, mac: [u8; 6]) -> Result<(), LeaseError> {
        self.journal.set_len(0).map_err(|e| self.journal_error(e))?;
        self.write_line(&Holder {
            pid: std::process::id(),
            mac,
        })
    }

    fn write_line(&self, line: &impl Serialize) -> Result<(), LeaseError> {
        let mut text = serde_json::to_vec(line).map_err(|e| self.journal_error(e.into()))?;
        text.push(b'\n');
        (&*self.journal)
            .write_all(&text)
            .map_err(|e| self.journal_error(e))
    }

    fn journal_error(&self, source: io::Error) -> LeaseError {
        LeaseError::Journal {
            path: self.path.clone(),
            source,
        }
    }

    /// Puts back all that was replaced, latest first; goes on past a failure and tells of the first.
    fn restore(&self) -> Result<(), OffloadError> {
        let mut first_failure = Ok(());
        for replaced in self.replaced.iter().rev() {
            let done = match replaced {
                Replaced::Feature { name, on } => self.offloads.switch(name, *on).map(drop),
                Replaced::Up(up) => self.offloads.set_up(*up),
            };
            first_failure = first_failure.and(done);
        }
        first_failure
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The journal stays when something could not be put back, unless the interface itself is gone.
        let done = self.restore();
        let gone = done
            .as_ref()
            .is_err_and(|e| e.source.raw_os_error() == Some(libc::ENODEV));
        if done.is_ok() || gone {
            // Removed while locked: whoever waits for the lock sees that the file has gone.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Opens and locks the journal at `path`; the lock ends with the process.
fn lock(path: &Path, interface: &str) -> Result<Flock<File>, LeaseError> {
    let error = |source| LeaseError::Journal {
        path: path.to_owned(),
        source,
    };
    loop {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)
            .map_err(error)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            // The last holder may have removed it between opening and locking.
            Ok(journal) if journal.metadata().map_err(error)?.nlink() == 0 => {}
            Ok(journal) => return Ok(journal),
            Err((file, Errno::EWOULDBLOCK)) => {
                return Err(LeaseError::InUse {
                    interface: interface.to_owned(),
                    holder: read_holder(&mut BufReader::new(&file))
                        .map(|holder| format!(" (pid {})", holder.pid))
                        .unwrap_or_default(),
                });
            }
            Err((_, errno)) => return Err(error(errno.into())),
        }
    }
}

fn read_holder(journal: &mut BufReader<&File>) -> Option<Holder> {
    let mut line = String::new();
    journal.read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

/// What a killed process had replaced on the interface with the hardware address `mac`.
fn left_behind(journal: &File, mac: [u8; 6]) -> Vec<Replaced> {
    let mut journal = BufReader::new(journal);
    if read_holder(&mut journal).is_none_or(|holder| holder.mac != mac) {
        return Vec::new();
    }
    // A line cut short was never acted upon: the change comes after the line.
    let lines = journal.lines().map_while(Result::ok);
    lines
        .map_while(|line| serde_json::from_str(&line).ok())
        .collect()
}

/// The directory for journals: one that all farwires of this machine and user share.
fn runtime_dir() -> Result<PathBuf, LeaseError> {
    let run = PathBuf::from("/run/farwire");
    let user = std::env::var_os("XDG_RUNTIME_DIR").map(|dir| Path::new(&dir).join("farwire"));
    let temporary = std::env::temp_dir().join(format!("farwire-{}", geteuid()));
    let candidates = [Some(run), user, Some(temporary)].into_iter().flatten();
    let mut failure = None;
    for dir in candidates {
        match make_own_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(source) => failure = Some(LeaseError::Journal { path: dir, source }),
        }
    }
    Err(failure.expect("there is at least one candidate"))
}

/// Makes `dir` unless it is there; refuses one that is another user's, or a link.
fn make_own_dir(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = std::fs::symlink_metadata(dir)?;
    if found.is_dir() && found.uid() == geteuid().as_raw() {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "not a directory of this user's",
    ))
}
