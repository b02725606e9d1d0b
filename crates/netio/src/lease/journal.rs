//! The files that record changes before they are made: their location, and the process to which they belong.
//!
//! The name of a journal consists of the number of its network namespace, which is never reused, and the number of its
//! interface, which remains when the interface is renamed.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};
use serde::{Deserialize, Serialize};

use super::{LeaseError, ReplacedSetting};
use crate::netns;
use crate::private_dir::PrivateDir;

/// Time for which a journal may be locked, or the table of a box may exist, before the interface counts as in use. A
/// process that restores an interface, or that is dying, holds them only briefly.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(5);
/// Largest number of bytes that are read of a journal.
const LONGEST: u64 = 64 << 10;

/// The journals of one network namespace in one directory.
#[derive(Debug)]
pub(super) struct JournalDir {
    dir: PrivateDir,
    /// The number of the namespace.
    namespace: u64,
    /// The kernel's id of the boot.
    boot: String,
}

/// A locked journal. The lock ends with the process.
#[derive(Debug)]
pub(super) struct LeaseJournal {
    file: Flock<File>,
    dir: Arc<JournalDir>,
    name: String,
}

/// The first line of a journal.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Holder {
    pid: u32,
    /// The kernel's id of the boot, because the numbers of namespaces start anew after a reboot.
    boot: String,
    /// Name of the interface when it was leased.
    pub(super) interface: String,
    /// Hardware address of the interface, because another interface may have got its number since.
    pub(super) mac: [u8; 6],
}

impl JournalDir {
    /// Keeps the journals of the namespace of the calling thread in `dir`.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub(super) fn new(dir: PrivateDir) -> Result<Self, LeaseError> {
        match netns::cookie_here() {
            Ok(namespace) => Ok(Self {
                dir,
                namespace,
                boot: boot(),
            }),
            Err(source) => Err(dir_error(&dir, source)),
        }
    }

    /// Returns the numbers of the interfaces that have journals.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(super) fn interfaces(&self) -> Result<Vec<u32>, LeaseError> {
        let error = |source| dir_error(&self.dir, source);
        let prefix = format!("{}-", self.namespace);
        let mut found = Vec::new();
        for entry in std::fs::read_dir(self.dir.path()).map_err(error)? {
            let name = entry.map_err(error)?.file_name();
            let index = name.to_str().and_then(|name| {
                let index = name.strip_prefix(&prefix)?.strip_suffix(".json")?;
                index.parse::<u32>().ok()
            });
            found.extend(index);
        }
        found.sort_unstable();
        Ok(found)
    }
}

impl LeaseJournal {
    /// Locks the journal of the interface with the number `index`. `None` if there is no journal, unless `create` is set.
    /// `interface` is the name for the error.
    ///
    /// # Errors
    /// Another process holds the lock, or the journal cannot be opened.
    pub(super) fn lock(
        dir: &Arc<JournalDir>,
        index: u32,
        interface: &str,
        create: bool,
    ) -> Result<Option<Self>, LeaseError> {
        let name = format!("{}-{index}.json", dir.namespace);
        let error = |source| LeaseError::Journal {
            path: dir.dir.path().join(&name),
            source,
        };
        let mut flags = OFlag::O_RDWR
            | OFlag::O_APPEND
            | OFlag::O_CLOEXEC
            | OFlag::O_NOFOLLOW
            | OFlag::O_NONBLOCK;
        flags.set(OFlag::O_CREAT, create);
        let end = Instant::now() + LOCK_TIMEOUT;
        loop {
            let file = match openat(
                &dir.dir,
                name.as_str(),
                flags,
                Mode::S_IRUSR | Mode::S_IWUSR,
            ) {
                Ok(file) => File::from(file),
                Err(Errno::ENOENT) if !create => return Ok(None),
                Err(errno) => return Err(error(errno.into())),
            };
            if !file.metadata().map_err(error)?.is_file() {
                return Err(error(io::Error::other("not a file")));
            }
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                // The last holder may have removed it between opening and locking.
                Ok(file) if file.metadata().map_err(error)?.nlink() == 0 => {}
                Ok(file) => {
                    let dir = Arc::clone(dir);
                    return Ok(Some(Self { file, dir, name }));
                }
                Err((file, Errno::EWOULDBLOCK)) if Instant::now() > end => {
                    let holder =
                        contents(&file).map(|(holder, _)| format!(" (pid {})", holder.pid));
                    return Err(LeaseError::InUse {
                        interface: interface.to_owned(),
                        holder: holder.unwrap_or_default(),
                    });
                }
                Err((_, Errno::EWOULDBLOCK)) => std::thread::sleep(RETRY_INTERVAL),
                Err((_, errno)) => return Err(error(errno.into())),
            }
        }
    }

    /// Returns the process that last held the interface and the replaced settings, latest last, if the journal was
    /// written since the last boot.
    pub(super) fn left_behind(&self) -> Option<(Holder, Vec<ReplacedSetting>)> {
        contents(&self.file).filter(|(holder, _)| holder.boot == self.dir.boot)
    }

    /// Truncates the journal and writes this process as its holder.
    pub(super) fn begin(&self, interface: &str, mac: [u8; 6]) -> Result<(), LeaseError> {
        self.file.set_len(0).map_err(|e| self.error(e))?;
        self.write(&Holder {
            pid: std::process::id(),
            boot: self.dir.boot.clone(),
            interface: interface.to_owned(),
            mac,
        })
    }

    /// Adds a line.
    pub(super) fn write(&self, line: &impl Serialize) -> Result<(), LeaseError> {
        let mut text = serde_json::to_vec(line).map_err(|e| self.error(e.into()))?;
        text.push(b'\n');
        (&*self.file).write_all(&text).map_err(|e| self.error(e))
    }

    /// Removes the journal while it is locked. A process that waits for the lock notices that the file is gone.
    pub(super) fn remove(&self) {
        // An error can be ignored: the next holder reads and removes a journal that remains.
        let _ = unlinkat(
            &self.dir.dir,
            self.name.as_str(),
            UnlinkatFlags::NoRemoveDir,
        );
    }

    fn error(&self, source: io::Error) -> LeaseError {
        LeaseError::Journal {
            path: self.dir.dir.path().join(&self.name),
            source,
        }
    }
}

fn dir_error(dir: &PrivateDir, source: io::Error) -> LeaseError {
    LeaseError::Journal {
        path: dir.path().to_owned(),
        source,
    }
}

/// Returns the holder and the changes in `file`.
fn contents(mut file: &File) -> Option<(Holder, Vec<ReplacedSetting>)> {
    file.seek(SeekFrom::Start(0)).ok()?;
    let mut lines = BufReader::new(file.take(LONGEST))
        .lines()
        .map_while(Result::ok);
    let holder = serde_json::from_str(&lines.next()?).ok()?;
    // A truncated line can be ignored, because the change would have followed after it.
    let replaced = lines.map_while(|line| serde_json::from_str(&line).ok());
    Some((holder, replaced.collect()))
}

fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}
