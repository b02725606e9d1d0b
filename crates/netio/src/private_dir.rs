//! The directory of a user's own files that live as long as the machine runs: journals of interfaces, and sockets.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::geteuid;

use crate::netns;
use crate::userns::outside;

/// A directory that belongs to one user and in which nobody else can write. Whoever else could would lock files there, or forge them.
#[derive(Debug)]
pub struct PrivateDir {
    dir: File,
    path: PathBuf,
}

/// A directory that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the directory {path}: {source}")]
pub struct PrivateDirError {
    /// Its path.
    pub path: PathBuf,
    /// The cause.
    pub source: io::Error,
}

impl PrivateDir {
    /// This user's own: `/run/farwire`, or where that cannot be written `farwire` in `$XDG_RUNTIME_DIR`, else in `/tmp` one with
    /// the user's number. It is made unless it exists.
    ///
    /// # Errors
    /// None of them can be used; says why the last could not.
    pub fn own() -> Result<Self, PrivateDirError> {
        let mut failure = None;
        for path in Self::candidates() {
            match Self::make(&path) {
                Ok(dir) => return Ok(dir),
                Err(source) => failure = Some(PrivateDirError { path, source }),
            }
        }
        Err(failure.expect("there is at least one candidate"))
    }

    /// Those of this user that exist, the preferred one first: processes with different environments may use different ones.
    pub fn all_own() -> Vec<Self> {
        let own = geteuid().as_raw();
        let opened = Self::candidates().into_iter();
        let opened = opened.filter_map(|path| Self::open(&path).ok());
        opened.filter(|dir| dir.is_only_of(own)).collect()
    }

    /// The paths at which this user's own may be, the preferred one first; they need not exist.
    pub fn candidates() -> Vec<PathBuf> {
        let user = std::env::var_os("XDG_RUNTIME_DIR").map(|dir| Path::new(&dir).join("farwire"));
        let own = geteuid().as_raw();
        let all = [Some("/run/farwire".into()), user, Some(temporary(own))];
        all.into_iter().flatten().collect()
    }

    /// Those of the user who owns the calling thread's network namespace, where that is another one: who owns a namespace may
    /// change its interfaces anyway. None for anybody but root.
    pub(crate) fn of_namespace_owner() -> Vec<Self> {
        let own = geteuid();
        let owner = netns::owner_here().ok();
        let Some(owner) = owner.filter(|owner| own.is_root() && *owner != own.as_raw()) else {
            return Vec::new();
        };
        let runtime = format!("/run/user/{owner}/farwire").into();
        let opened = [runtime, temporary(owner)].map(|path| Self::open(&path).ok());
        let opened = opened.into_iter().flatten();
        opened.filter(|dir| dir.is_only_of(owner)).collect()
    }

    /// Makes `path` unless it exists.
    ///
    /// # Errors
    /// It is another user's, others may write in it, or it is a link.
    pub(crate) fn make(path: &Path) -> io::Result<Self> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let dir = Self::open(path)?;
        if dir.is_only_of(geteuid().as_raw()) {
            return Ok(dir);
        }
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it must be a directory that belongs to this user and that only this user can write",
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

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn is_only_of(&self, user: u32) -> bool {
        const WRITABLE_BY_OTHERS: u32 = 0o022;
        let found = self.dir.metadata();
        found.is_ok_and(|found| found.uid() == user && found.mode() & WRITABLE_BY_OTHERS == 0)
    }
}

impl AsFd for PrivateDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

/// The last resort of `user`. The name has the user's number outside of all user namespaces, so that a process in another
/// environment finds it again.
fn temporary(user: u32) -> PathBuf {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let uid = outside(&map, user).unwrap_or(user);
    PathBuf::from(format!("/tmp/farwire-{uid}"))
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_directory_in_which_others_can_write_and_a_link_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("farwire");
        assert_eq!(PrivateDir::make(&path).unwrap().path(), path);
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        for open in [0o720, 0o702, 0o777] {
            set_permissions(&path, Permissions::from_mode(open)).unwrap();
            let refused = PrivateDir::make(&path).unwrap_err();
            assert!(refused.to_string().contains("nobody else"), "{refused}");
        }
        set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        assert!(PrivateDir::make(&path).is_ok());
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(PrivateDir::make(&link).is_err());
    }
}
