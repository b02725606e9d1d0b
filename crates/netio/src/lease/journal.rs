//! The files that record changes before they are made: where they are, and to which process they belong.
//!
//! A journal is named by the number of its network namespace, which is never reused, and by the number of its interface, which
//! stays the same when the interface is renamed.

use std::fs::{DirBuilder, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};
use serde::{Deserialize, Serialize};

use super::{LeaseError, Replaced};
use crate::netns;
use crate::userns::outside;

/// How long a journal may stay locked before its interface counts as in use: what puts an interface back holds it only so long.
const PATIENCE: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// More than any journal has.
const LONGEST: u64 = 64 << 10;

/// A directory of journals.
#[derive(Debug)]
pub(super) struct JournalDir {
    dir: File,
    path: PathBuf,
}

/// A journal, locked; the lock ends with the process.
#[derive(Debug)]
pub(super) struct LeaseJournal {
    file: Flock<File>,
    dir: Arc<JournalDir>,
    name: String,
}

/// A journal's first line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Holder {
    pid: u32,
    /// The kernel's number for the boot: namespaces are numbered anew after the next.
    boot: String,
    /// The interface's name when it was leased.
    pub(super) interface: String,
    /// Its hardware address: another interface may since have taken its number.
    pub(super) mac: [u8; 6],
}

impl JournalDir {
    /// This user's own: `/run/farwire`, or where that cannot be written one in `$XDG_RUNTIME_DIR`, else in `/tmp`, with
    /// the user's number.
    ///
    /// # Errors
    /// None of them can be used; says why the last could not.
    pub(super) fn own() -> Result<Self, LeaseError> {
        let mut failure = None;
        for path in Self::candidates() {
            match Self::make(&path) {
                Ok(dir) => return Ok(dir),
                Err(source) => failure = Some(LeaseError::Journal { path, source }),
            }
        }
        Err(failure.expect("there is at least one candidate"))
    }

    /// Where this user's own may be, the preferred one first.
    pub(super) fn candidates() -> Vec<PathBuf> {
        let user = std::env::var_os("XDG_RUNTIME_DIR").map(|dir| Path::new(&dir).join("farwire"));
        let all = [Some("/run/farwire".into()), user, Some(temporary())];
        all.into_iter().flatten().collect()
    }

    /// Those of other users, for root; for anybody else none.
    pub(super) fn of_others() -> Vec<Self> {
        if !geteuid().is_root() {
            return Vec::new();
        }
        let entries = |dir: &str| {
            let found = std::fs::read_dir(dir).into_iter().flatten().flatten();
            found.map(|entry| entry.path())
        };
        let runtime = entries("/run/user").map(|user| user.join("farwire"));
        let in_tmp = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(TEMPORARY))
        };
        let all = runtime.chain(entries("/tmp").filter(in_tmp));
        let all = all.chain(["/run/farwire".into()]);
        let opened = all.filter_map(|path| Self::open(&path).ok());
        opened.filter(|dir| !dir.is_own()).collect()
    }

    /// Makes `path` unless it is there.
    ///
    /// # Errors
    /// It is another user's, or a link.
    pub(super) fn make(path: &Path) -> io::Result<Self> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let dir = Self::open(path)?;
        if dir.is_own() {
            return Ok(dir);
        }
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "not a directory of this user's",
        ))
    }

    fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let dir = nix::fcntl::open(path, flags, Mode::empty())?;
        Ok(Self {
            dir: dir.into(),
            path: path.to_owned(),
        })
    }

    fn is_own(&self) -> bool {
        self.dir
            .metadata()
            .is_ok_and(|found| found.uid() == geteuid().as_raw())
    }

    /// The interfaces of the calling thread's namespace that there are journals of, by number.
    pub(super) fn interfaces(&self) -> io::Result<Vec<u32>> {
        let prefix = format!("{}-", netns::cookie_here()?);
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let name = entry?.file_name();
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
    /// Locks the journal of the interface with the number `index` of the calling thread's namespace; none if there is
    /// none, unless `create`.
    ///
    /// # Errors
    /// Another process has it and keeps it, or it cannot be opened. `interface` is how the error calls it.
    pub(super) fn lock(
        dir: &Arc<JournalDir>,
        index: u32,
        interface: &str,
        create: bool,
    ) -> Result<Option<Self>, LeaseError> {
        let cookie = netns::cookie_here().map_err(|e| dir_error(dir, e))?;
        let name = format!("{cookie}-{index}.json");
        let error = |source| LeaseError::Journal {
            path: dir.path.join(&name),
            source,
        };
        let mut flags = OFlag::O_RDWR
            | OFlag::O_APPEND
            | OFlag::O_CLOEXEC
            | OFlag::O_NOFOLLOW
            | OFlag::O_NONBLOCK;
        flags.set(OFlag::O_CREAT, create);
        let end = Instant::now() + PATIENCE;
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
                Err((_, Errno::EWOULDBLOCK)) => std::thread::sleep(LOOK_AGAIN),
                Err((_, errno)) => return Err(error(errno.into())),
            }
        }
    }

    /// Whose it was and what that process had replaced, latest last, if it was written since the last boot. Of a
    /// journal that is another user's only what a box replaces is taken, whatever it says.
    pub(super) fn left_behind(&self) -> Option<(Holder, Vec<Replaced>)> {
        let (holder, mut replaced) = contents(&self.file)?;
        if holder.boot != boot() {
            return None;
        }
        let is_own = |found: std::fs::Metadata| found.uid() == geteuid().as_raw();
        if !self.file.metadata().is_ok_and(is_own) {
            replaced.retain(Replaced::is_by_a_box);
        }
        Some((holder, replaced))
    }

    /// Begins it anew, with this process as its holder.
    pub(super) fn begin(&self, interface: &str, mac: [u8; 6]) -> Result<(), LeaseError> {
        self.file.set_len(0).map_err(|e| self.error(e))?;
        self.write(&Holder {
            pid: std::process::id(),
            boot: boot(),
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

    /// Removes it, while it is locked: whoever waits for the lock sees that the file has gone.
    pub(super) fn remove(&self) {
        // There is nobody to tell: a journal that stays is read and removed by the next holder.
        let _ = unlinkat(
            &self.dir.dir,
            self.name.as_str(),
            UnlinkatFlags::NoRemoveDir,
        );
    }

    fn error(&self, source: io::Error) -> LeaseError {
        LeaseError::Journal {
            path: self.dir.path.join(&self.name),
            source,
        }
    }
}

pub(super) fn dir_error(dir: &JournalDir, source: io::Error) -> LeaseError {
    LeaseError::Journal {
        path: dir.path.clone(),
        source,
    }
}

/// What stands in `file`: its holder and the changes.
fn contents(mut file: &File) -> Option<(Holder, Vec<Replaced>)> {
    file.seek(SeekFrom::Start(0)).ok()?;
    let mut lines = BufReader::new(file.take(LONGEST))
        .lines()
        .map_while(Result::ok);
    let holder = serde_json::from_str(&lines.next()?).ok()?;
    // A line cut short was never acted upon: the change comes after the line.
    let replaced = lines.map_while(|line| serde_json::from_str(&line).ok());
    Some((holder, replaced.collect()))
}

fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

const TEMPORARY: &str = "farwire-";

/// The last resort: it has to be found again by a process with another environment.
fn temporary() -> PathBuf {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let own = geteuid().as_raw();
    let uid = outside(&map, own).unwrap_or(own);
    PathBuf::from(format!("/tmp/{TEMPORARY}{uid}"))
}
