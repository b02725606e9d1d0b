//! Writes files below one directory so that no symbolic link in it, whoever created it, leads a write elsewhere.
//!
//! The directory is held open by its descriptor. Files are named relative to it and opened without following links
//! (openat(2) with `O_NOFOLLOW`). To replace a file, the new content is written under a temporary name that is then
//! renamed, so that the old content remains until the new content is complete. Where the system allows no new file or
//! no renaming, the file itself is written.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{File, Metadata, Permissions};
use std::io::{self, Seek as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::regular_file::{self, NEVER_WAIT};

/// Permissions of a new file, before the umask is applied.
const FILE_MODE: Mode = Mode::from_bits_truncate(0o666);
/// Permissions of a new directory, before the umask is applied.
const DIRECTORY_MODE: Mode = Mode::from_bits_truncate(0o777);

/// An open directory into which files are written.
#[derive(Debug)]
pub struct OutputDirectory {
    path: PathBuf,
    directory: File,
}

/// A file that gets its final name when it is complete. Until then it has a temporary name. Dropping this removes a
/// file that is not complete.
#[derive(Debug)]
struct NewFile<'a> {
    within: &'a OutputDirectory,
    temporary: OsString,
}

impl OutputDirectory {
    /// Opens the directory at `path`. The path is the user's choice, so links on the way to the directory are followed.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(path: &Path) -> io::Result<Self> {
        let here = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let directory = nix::fcntl::open(here, flags, Mode::empty())?;
        Ok(Self {
            path: path.to_owned(),
            directory: directory.into(),
        })
    }

    /// Opens the directory that contains `file`, and returns it with the name of `file` in it.
    ///
    /// # Errors
    /// Those of the system, and [`Errno::EISDIR`] if `file` does not end in a name.
    pub fn of(file: &Path) -> io::Result<(Self, &OsStr)> {
        let name = file.file_name().ok_or(Errno::EISDIR)?;
        Ok((Self::open(file.parent().unwrap_or(Path::new("")))?, name))
    }

    /// Returns the path as the user gave it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the subdirectory `name`, and creates it if it does not exist.
    ///
    /// # Errors
    /// Those of the system, also if `name` is something else, such as a symbolic link.
    pub fn directory(&self, name: &str) -> io::Result<Self> {
        let name = single(name.as_ref())?;
        match mkdirat(&self.directory, name, DIRECTORY_MODE) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let directory = self.open_at(name, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
        Ok(Self {
            path: self.path.join(name),
            directory,
        })
    }

    /// Opens the regular file `name` for reading.
    ///
    /// # Errors
    /// Those of the system, also if `name` is something else, such as a symbolic link.
    pub fn read(&self, name: &OsStr) -> io::Result<File> {
        let file = self.open_at(name, OFlag::O_RDONLY)?;
        regular_file::check(&file.metadata()?)?;
        Ok(file)
    }

    /// Opens the regular file `name` for reading and appending.
    ///
    /// # Errors
    /// Those of [`OutputDirectory::read`]. A file with several hard links is refused, too, because one of them may be
    /// outside the directory.
    pub fn append(&self, name: &OsStr) -> io::Result<File> {
        self.open_own(name, OFlag::O_RDWR | OFlag::O_APPEND)
    }

    /// Opens the regular file `name` for writing, without truncating it. The file is created if it does not exist.
    ///
    /// # Errors
    /// Those of [`OutputDirectory::append`].
    pub(crate) fn write(&self, name: &OsStr) -> io::Result<File> {
        self.open_own(name, OFlag::O_WRONLY | OFlag::O_CREAT)
    }

    /// Opens the regular file `name` for reading and writing, without truncating it. The file is created if it does not
    /// exist.
    ///
    /// # Errors
    /// Those of [`OutputDirectory::append`].
    pub fn read_write(&self, name: &OsStr) -> io::Result<File> {
        self.open_own(name, OFlag::O_RDWR | OFlag::O_CREAT)
    }

    /// Creates an empty file `name`, in place of any file or link that has this name.
    ///
    /// # Errors
    /// Those of the system, also if a directory has this name.
    pub fn create(&self, name: &OsStr) -> io::Result<File> {
        self.remove(name)?;
        self.create_new(name)
    }

    /// Replaces the file `name` by the output of `write` when it is complete. A replaced file passes its permissions
    /// on, and its owner and group as far as this process may set them.
    ///
    /// An existing file that no new file can replace is written in place: the user may write the file but not its
    /// directory, or the file is a mount point, as in a container.
    ///
    /// # Errors
    /// Those of `write` and of the system. On an error nothing has changed, except in a file that is written in place.
    /// Such a file is refused in the cases of [`OutputDirectory::append`].
    pub fn replace<E: From<io::Error>>(
        &self,
        name: &OsStr,
        write: impl FnOnce(&File) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut file, new) = match NewFile::begin(self, name) {
            Ok(begun) => begun,
            Err(error) => return write(&self.emptied(name, error)?),
        };
        if let Ok(old) = self.read(name).and_then(|old| old.metadata()) {
            pass_on(&old, &file)?;
        }
        write(&file)?;
        if let Err(error) = new.finish(name) {
            let mut old = self.emptied(name, error)?;
            file.rewind()?;
            io::copy(&mut file, &mut old)?;
        }
        Ok(())
    }

    /// Renames the file `from` to `to`, in place of any file that has this name.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let (from, to) = (single(from)?, single(to)?);
        Ok(renameat(&self.directory, from, &self.directory, to)?)
    }

    /// Removes the file `name` if it exists. If it is a symbolic link, only the link is removed.
    ///
    /// # Errors
    /// Those of the system.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        match unlinkat(&self.directory, single(name)?, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Waits until files that were created, renamed or removed in the directory are so on the disk.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn sync(&self) -> io::Result<()> {
        match self.directory.sync_all() {
            // Some file systems do not support this for directories.
            Err(error) if error.kind() != io::ErrorKind::InvalidInput => Err(error),
            _ => Ok(()),
        }
    }

    fn create_new(&self, name: &OsStr) -> io::Result<File> {
        self.open_at(name, OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL)
    }

    /// Opens the file `name` and removes its content, if `error` says that the system does not let a new file replace
    /// it. Otherwise, and if there is no such file, `error` is returned.
    fn emptied(&self, name: &OsStr, error: io::Error) -> io::Result<File> {
        let errno = error.raw_os_error().map(Errno::from_raw);
        // The user may not write the directory, it is read-only, or the file is a mount point. EPERM is missing: in a
        // directory with the sticky bit, such as /tmp, it means that the file belongs to somebody else.
        let in_place = [Errno::EACCES, Errno::EROFS, Errno::EBUSY];
        if !errno.is_some_and(|errno| in_place.contains(&errno)) {
            return Err(error);
        }
        let file = match self.open_own(name, OFlag::O_WRONLY) {
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Err(error),
            opened => opened?,
        };
        file.set_len(0)?;
        Ok(file)
    }

    fn open_own(&self, name: &OsStr, flags: OFlag) -> io::Result<File> {
        let file = self.open_at(name, flags)?;
        let found = file.metadata()?;
        regular_file::check(&found)?;
        if found.nlink() > 1 {
            return Err(io::Error::other(
                "the file has several names (hard links), and writing would change all of them: copy it first",
            ));
        }
        Ok(file)
    }

    fn open_at(&self, name: &OsStr, flags: OFlag) -> io::Result<File> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | NEVER_WAIT;
        match openat(&self.directory, single(name)?, flags, FILE_MODE) {
            Ok(file) => Ok(file.into()),
            Err(Errno::ELOOP) => Err(io::Error::other(
                "the file is a symbolic link, which may lead out of the directory: replace it by the file itself",
            )),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl<'a> NewFile<'a> {
    /// Creates an empty file beside `name`.
    fn begin(within: &'a OutputDirectory, name: &OsStr) -> io::Result<(File, Self)> {
        let mut temporary = OsString::from(".");
        temporary.push(single(name)?);
        temporary.push(format!(".{:016x}.partial", fastrand::u64(..)));
        let file = within.create_new(&temporary)?;
        Ok((file, Self { within, temporary }))
    }

    fn finish(self, name: &OsStr) -> io::Result<()> {
        self.within.rename(&self.temporary, name)
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        // A file that was renamed no longer has this name, so nothing is removed.
        let _ = self.within.remove(&self.temporary);
    }
}

/// Gives a new file the permissions of the old one and, where the system allows it, its owner and group.
fn pass_on(old: &Metadata, new: &File) -> io::Result<()> {
    new.set_permissions(Permissions::from_mode(old.mode() & 0o777))?;
    // Only root may give a file to another user. Everybody may give it to a group of theirs.
    if fchown(new, Some(old.uid()), Some(old.gid())).is_err() {
        let _ = fchown(new, None, Some(old.gid()));
    }
    Ok(())
}

/// Returns `name` if it is the name of a single file and not a path.
fn single(name: &OsStr) -> io::Result<&OsStr> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(only)), None) if only == name => Ok(name),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("`{}` is not the name of a file", name.display()),
        )),
    }
}

impl fmt::Display for OutputDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::symlink;

    use nix::unistd::mkfifo;

    /// Creates a directory, and outside of it a file that must remain unchanged.
    fn directories() -> (tempfile::TempDir, OutputDirectory, PathBuf) {
        let all = tempfile::tempdir().unwrap();
        let (inside, outside) = (all.path().join("inside"), all.path().join("outside"));
        fs::create_dir(&inside).unwrap();
        fs::write(&outside, "untouched").unwrap();
        let directory = OutputDirectory::open(&inside).unwrap();
        (all, directory, outside)
    }

    fn written(directory: &OutputDirectory, name: &str, text: &str) -> io::Result<()> {
        directory.replace(name.as_ref(), |mut file| file.write_all(text.as_bytes()))
    }

    #[test]
    fn a_symbolic_link_is_replaced_or_refused_and_never_followed() {
        let (all, directory, outside) = directories();
        let link = |name: &str| symlink(&outside, directory.path().join(name)).unwrap();
        for name in ["replaced", "created", "written", "appended", "read"] {
            link(name);
        }
        symlink(all.path(), directory.path().join("folder")).unwrap();
        written(&directory, "replaced", "new").unwrap();
        directory.create("created".as_ref()).unwrap();
        let refused = [
            directory.write("written".as_ref()).map(drop),
            directory.append("appended".as_ref()).map(drop),
            directory.read("read".as_ref()).map(drop),
        ];
        for error in refused {
            let error = error.unwrap_err().to_string();
            assert!(error.contains("symbolic link"), "{error}");
        }
        assert!(directory.directory("folder").is_err());
        let replaced = directory.path().join("replaced");
        assert_eq!(fs::read_to_string(&replaced).unwrap(), "new");
        assert!(replaced.symlink_metadata().unwrap().is_file());
        assert_eq!(fs::read_to_string(&outside).unwrap(), "untouched");
    }

    #[test]
    fn a_name_with_a_directory_is_refused() {
        let (_all, directory, outside) = directories();
        for name in ["../outside", "/etc/passwd", ".", "..", "", "a/b", "a/"] {
            assert!(written(&directory, name, "new").is_err(), "{name}");
            assert!(directory.create(name.as_ref()).is_err(), "{name}");
            assert!(directory.directory(name).is_err(), "{name}");
        }
        assert_eq!(fs::read_to_string(outside).unwrap(), "untouched");
    }

    #[test]
    fn a_hard_linked_file_and_a_fifo_are_refused_without_blocking() {
        let (_all, directory, outside) = directories();
        fs::hard_link(&outside, directory.path().join("linked")).unwrap();
        mkfifo(&directory.path().join("fifo"), FILE_MODE).unwrap();
        for name in ["linked", "fifo"] {
            assert!(directory.append(name.as_ref()).is_err(), "{name}");
            assert!(directory.write(name.as_ref()).is_err(), "{name}");
        }
        assert_eq!(fs::read_to_string(outside).unwrap(), "untouched");
    }

    #[test]
    fn a_failed_write_leaves_only_the_old_file() {
        let (_all, directory, _) = directories();
        written(&directory, "file", "old").unwrap();
        let file = directory.path().join("file");
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        let failed = directory.replace("file".as_ref(), |mut file| {
            file.write_all(b"half")?;
            Err(io::Error::other("no room"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "no room");
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        written(&directory, "file", "new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
    }
}
