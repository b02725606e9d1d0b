//! The directory of a user's files that exist as long as the machine runs: journals of interfaces, and sockets.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, geteuid};

use crate::netns;
use crate::userns::outside;

/// A directory that belongs to one user and in which nobody else can write. Otherwise others could lock or forge files
/// there.
#[derive(Debug)]
pub struct PrivateDir {
    dir: File,
    path: PathBuf,
}

/// Error for a directory that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the directory {path}: {source}")]
pub struct PrivateDirError {
    /// Path of the directory.
    pub path: PathBuf,
    /// The cause.
    pub source: io::Error,
}

impl PrivateDir {
    /// Opens this user's directory: `/run/farwire` or, if that cannot be written, `farwire` in `$XDG_RUNTIME_DIR` or
    /// else a directory in `/tmp` whose name has the user's number. It is created if it does not exist.
    ///
    /// # Errors
    /// None of them can be used. The error is that of the last one.
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

    /// Opens all of this user's directories that exist, the preferred one first. Processes with different environments
    /// may use different ones.
    pub fn all_own() -> Vec<Self> {
        let own = geteuid().as_raw();
        let opened = Self::candidates()
            .into_iter()
            .filter_map(|path| Self::open(&path).ok());
        opened.filter(|dir| dir.is_only_of(own)).collect()
    }

    /// Returns the possible paths of this user's directory, the preferred one first. They need not exist.
    pub fn candidates() -> Vec<PathBuf> {
        let user = std::env::var_os("XDG_RUNTIME_DIR").map(|dir| Path::new(&dir).join("farwire"));
        let own = geteuid().as_raw();
        let all = [Some("/run/farwire".into()), user, Some(temporary(own))];
        all.into_iter().flatten().collect()
    }

    /// Opens the directories of the user who owns the network namespace of the calling thread, if that is another user.
    /// The owner of a namespace may change its interfaces anyway. The result is empty for everybody except root.
    pub(crate) fn of_namespace_owner() -> Vec<Self> {
        let own = geteuid();
        let owner = netns::owner_here().ok();
        let Some(owner) = owner.filter(|owner| own.is_root() && *owner != own.as_raw()) else {
            return Vec::new();
        };
        let runtime = format!("/run/user/{owner}/farwire").into();
        let opened = [runtime, temporary(owner)]
            .map(|path| Self::open(&path).ok())
            .into_iter()
            .flatten();
        opened.filter(|dir| dir.is_only_of(owner)).collect()
    }

    /// Creates `path` if it does not exist, and opens it.
    ///
    /// # Errors
    /// It belongs to another user, others may write in it, or it is a link.
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
            "it must be a directory that belongs to this user and that only this user can write to",
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

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the user and the group to which it belongs.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub(crate) fn owner(&self) -> io::Result<(Uid, Gid)> {
        let found = self.dir.metadata()?;
        Ok((Uid::from_raw(found.uid()), Gid::from_raw(found.gid())))
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

/// Returns the path of the last resort of `user`. Its name has the user's number outside all user namespaces, so that a
/// process in another environment finds it.
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
    fn a_directory_writable_by_others_and_a_link_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("farwire");
        assert_eq!(PrivateDir::make(&path).unwrap().path(), path);
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        for open in [0o720, 0o702, 0o777] {
            set_permissions(&path, Permissions::from_mode(open)).unwrap();
            let refused = PrivateDir::make(&path).unwrap_err();
            assert!(
                refused.to_string().contains("only this user can write to"),
                "{refused}"
            );
        }
        set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        assert!(PrivateDir::make(&path).is_ok());
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(PrivateDir::make(&link).is_err());
    }
}
