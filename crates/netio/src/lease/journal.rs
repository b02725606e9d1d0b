//! The files that record changes before they are made, and the locks of the interfaces.
//!
//! The name of a journal consists of the number of its network namespace, which is never reused, and the number of its
//! interface, which remains when the interface is renamed. All interfaces are locked by ranges of one file, whose locks
//! belong to its open file description (F_OFD_SETLK in fcntl(2)), so that a process with many leases needs few descriptors.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, openat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, fchown, unlinkat};
use serde::{Deserialize, Serialize};

use super::{LeaseError, ReplacedSetting};
use crate::netns;
use crate::private_dir::PrivateDir;

/// Time for which an interface may be locked, or the table of a box may exist, before the interface counts as in use. A
/// process that restores an interface, or that is dying, holds them only briefly.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(5);
/// Largest number of bytes that are read of a journal.
const LONGEST: u64 = 64 << 10;
/// Name of the file whose ranges lock the interfaces.
const LOCKS: &str = "interfaces.lock";
/// The flags of a file that another user may have replaced.
const SAFELY: OFlag = OFlag::O_CLOEXEC
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_NONBLOCK);

/// The journals of one network namespace in one directory.
#[derive(Debug)]
pub(super) struct JournalDir {
    dir: PrivateDir,
    /// The number of the namespace.
    namespace: u64,
    /// The kernel's id of the boot.
    boot: String,
    /// The file whose ranges lock the interfaces.
    locks: File,
    /// The interfaces that are locked through `locks`. The kernel would grant these locks again.
    locked: Mutex<BTreeSet<u32>>,
}

/// The journal of an interface that is locked. The lock ends with the process.
#[derive(Debug)]
pub(super) struct LeaseJournal {
    lock: InterfaceLock,
    name: String,
}

/// The lock of one interface.
#[derive(Debug)]
struct InterfaceLock {
    dir: Arc<JournalDir>,
    index: u32,
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
    /// The process has no descriptor left, or the file of the locks cannot be opened.
    pub(super) fn new(dir: PrivateDir) -> Result<Self, LeaseError> {
        let namespace = netns::cookie_here().map_err(|source| dir_error(&dir, source))?;
        let locks = locks(&dir).map_err(|source| LeaseError::Journal {
            path: dir.path().join(LOCKS),
            source,
        })?;
        Ok(Self {
            dir,
            namespace,
            boot: boot(),
            locks,
            locked: Mutex::default(),
        })
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

    /// Returns the settings in the journal of the interface with the number `index`, which need not be locked; none if it
    /// cannot be read.
    pub(super) fn replaced(&self, index: u32) -> Vec<ReplacedSetting> {
        let journal = open(&self.dir, &self.name(index), OFlag::O_RDONLY);
        let contents = journal.ok().flatten().and_then(contents);
        contents.map(|(_, replaced)| replaced).unwrap_or_default()
    }

    fn name(&self, index: u32) -> String {
        format!("{}-{index}.json", self.namespace)
    }

    /// Locks the interface with the number `index`, and returns whether nobody else holds it.
    fn try_lock(&self, index: u32) -> io::Result<bool> {
        let mut locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        if locked.contains(&index) {
            return Ok(false);
        }
        match self.set_lock(index, libc::F_WRLCK) {
            Ok(()) => Ok(locked.insert(index)),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    fn unlock(&self, index: u32) {
        let mut locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        locked.remove(&index);
        // Only the end of a part of a locked range could fail, for want of memory. The process then keeps the lock until
        // it ends.
        let _ = self.set_lock(index, libc::F_UNLCK);
    }

    /// Sets the lock of an interface. Its byte in the file has the number of the namespace in the upper 32 bits of its
    /// offset, and the number of the interface, of which the kernel uses 31 bits, in the lower ones.
    #[expect(clippy::cast_possible_truncation, reason = "the constants are below 4")]
    fn set_lock(&self, index: u32, kind: libc::c_int) -> nix::Result<()> {
        let offset = (self.namespace & u64::from(u32::MAX)) << 31 | u64::from(index & !(1 << 31));
        let range = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: offset.cast_signed(),
            l_len: 1,
            l_pid: 0,
        };
        fcntl(&self.locks, FcntlArg::F_OFD_SETLK(&range)).map(drop)
    }
}

impl Drop for InterfaceLock {
    fn drop(&mut self) {
        self.dir.unlock(self.index);
    }
}

impl LeaseJournal {
    /// Locks the interface with the number `index` and returns its journal, which need not exist. `interface` is the name
    /// for the error.
    ///
    /// # Errors
    /// Another lease holds the interface, or the kernel refuses the lock.
    pub(super) fn lock(
        dir: &Arc<JournalDir>,
        index: u32,
        interface: &str,
    ) -> Result<Self, LeaseError> {
        let end = Instant::now() + LOCK_TIMEOUT;
        let name = dir.name(index);
        loop {
            match dir.try_lock(index) {
                Ok(true) => {
                    let dir = Arc::clone(dir);
                    let lock = InterfaceLock { dir, index };
                    return Ok(Self { lock, name });
                }
                Ok(false) if Instant::now() > end => {
                    let journal = open(&dir.dir, &name, OFlag::O_RDONLY).ok().flatten();
                    let holder = journal.and_then(contents).map(|(holder, _)| holder.pid);
                    return Err(LeaseError::InUse {
                        interface: interface.to_owned(),
                        holder: holder
                            .map(|pid| format!(" (pid {pid})"))
                            .unwrap_or_default(),
                    });
                }
                Ok(false) => std::thread::sleep(RETRY_INTERVAL),
                Err(source) => {
                    let path = dir.dir.path().join(LOCKS);
                    return Err(LeaseError::Journal { path, source });
                }
            }
        }
    }

    /// Returns whether there is a journal.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) fn exists(&self) -> Result<bool, LeaseError> {
        Ok(self.open(OFlag::O_RDONLY)?.is_some())
    }

    /// Returns the process that last held the interface and the replaced settings, latest last, if a journal was
    /// written since the last boot.
    ///
    /// # Errors
    /// The journal cannot be opened.
    pub(super) fn left_behind(&self) -> Result<Option<(Holder, Vec<ReplacedSetting>)>, LeaseError> {
        let left = self.open(OFlag::O_RDONLY)?.and_then(contents);
        Ok(left.filter(|(holder, _)| holder.boot == self.dir().boot))
    }

    /// Begins a new journal, with this process as the holder.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn begin(&self, interface: &str, mac: [u8; 6]) -> Result<(), LeaseError> {
        let holder = Holder {
            pid: std::process::id(),
            boot: self.dir().boot.clone(),
            interface: interface.to_owned(),
            mac,
        };
        let (file, length) = self.write_with(OFlag::O_CREAT, &holder)?;
        // The file is not truncated before it is written, because ext4 would then write it to the disk when it is closed.
        // If this process is killed before the file is shortened, settings remain in it that are in force again.
        file.set_len(length).map_err(|e| self.error(e))
    }

    /// Adds a line.
    ///
    /// # Errors
    /// The journal cannot be written, or is gone.
    pub(super) fn write(&self, line: &ReplacedSetting) -> Result<(), LeaseError> {
        self.write_with(OFlag::O_APPEND, line).map(drop)
    }

    /// Writes a line and returns the open journal with the length of the line in bytes.
    fn write_with(&self, flags: OFlag, line: &impl Serialize) -> Result<(File, u64), LeaseError> {
        let mut text = serde_json::to_vec(line).map_err(|e| self.error(e.into()))?;
        text.push(b'\n');
        let opened = self.open(OFlag::O_WRONLY | flags)?;
        let mut file = opened.ok_or_else(|| self.error(io::ErrorKind::NotFound.into()))?;
        file.write_all(&text).map_err(|e| self.error(e))?;
        Ok((file, text.len() as u64))
    }

    /// Removes the journal.
    pub(super) fn remove(&self) {
        // An error can be ignored: the next holder reads and removes a journal that remains.
        let dir = &self.dir().dir;
        let _ = unlinkat(dir, self.name.as_str(), UnlinkatFlags::NoRemoveDir);
    }

    fn open(&self, flags: OFlag) -> Result<Option<File>, LeaseError> {
        open(&self.dir().dir, &self.name, flags).map_err(|e| self.error(e))
    }

    fn dir(&self) -> &JournalDir {
        &self.lock.dir
    }

    fn error(&self, source: io::Error) -> LeaseError {
        LeaseError::Journal {
            path: self.dir().dir.path().join(&self.name),
            source,
        }
    }
}

/// Opens the file of the locks, which is created if it does not exist, for the user to whom the directory belongs.
fn locks(dir: &PrivateDir) -> io::Result<File> {
    loop {
        if let Some(found) = open(dir, LOCKS, OFlag::O_RDWR)? {
            return Ok(found);
        }
        match open(dir, LOCKS, OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL) {
            Ok(created) => {
                let created = created.ok_or(io::ErrorKind::NotFound)?;
                let (user, group) = dir.owner()?;
                fchown(&created, Some(user), Some(group))?;
                return Ok(created);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Opens a file of `dir`. `None` if there is none.
///
/// # Errors
/// It cannot be opened, or is no regular file.
fn open(dir: &PrivateDir, name: &str, flags: OFlag) -> io::Result<Option<File>> {
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    let file = match openat(dir, name, flags | SAFELY, mode) {
        Ok(file) => File::from(file),
        Err(Errno::ENOENT) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    if file.metadata()?.is_file() {
        Ok(Some(file))
    } else {
        Err(io::Error::other("not a file"))
    }
}

fn dir_error(dir: &PrivateDir, source: io::Error) -> LeaseError {
    LeaseError::Journal {
        path: dir.path().to_owned(),
        source,
    }
}

/// Returns the holder and the changes in a journal.
fn contents(journal: File) -> Option<(Holder, Vec<ReplacedSetting>)> {
    let mut lines = BufReader::new(journal.take(LONGEST))
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
