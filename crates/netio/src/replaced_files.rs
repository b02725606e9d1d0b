//! Files that a command and its children see with other contents than the rest of the machine.
//!
//! The command gets its own mount namespace, in which files of memory are mounted over the real ones. Nothing is written
//! to a disk, and nothing is left when the command ends, however it ends.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::write;

/// The directory over which the memory is mounted while the files are written. Every machine has it, and farwire cannot
/// run without it.
const STAGE: &CStr = c"/proc";

/// A file with other contents.
#[derive(Clone, Debug)]
pub struct ReplacedFile {
    path: CString,
    text: Vec<u8>,
}

/// The reason why a file cannot be replaced.
#[derive(Debug, thiserror::Error)]
#[error("cannot replace {path} for the command: {source}")]
pub struct ReplaceError {
    /// Path of the file.
    pub path: PathBuf,
    /// The cause.
    pub source: io::Error,
}

impl ReplacedFile {
    /// Describes the file at `path` with the contents `text`. A symbolic link is followed. A socket is replaced by a plain
    /// file, to which nobody can connect.
    ///
    /// # Errors
    /// There is no such file, it is a directory, or the path contains a zero byte.
    pub fn new(path: &Path, text: impl Into<Vec<u8>>) -> Result<Self, ReplaceError> {
        let failed = |source| ReplaceError {
            path: path.to_owned(),
            source,
        };
        let real = path.canonicalize().map_err(failed)?;
        if real.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        let path = CString::new(real.as_os_str().as_bytes());
        let path = path.map_err(|error| failed(error.into()))?;
        let text = text.into();
        Ok(Self { path, text })
    }
}

/// Lets `command` see `files`. The process that starts it must have CAP_SYS_ADMIN in its user namespace.
pub fn replace_files(command: &mut Command, files: Vec<ReplacedFile>) {
    let numbers = 0..files.len();
    let staged = numbers.map(|number| format!("/proc/{number}"));
    let staged = staged.map(|path| CString::new(path).expect("a path without a zero byte"));
    let files: Vec<(CString, ReplacedFile)> = staged.zip(files).collect();
    // SAFETY: between fork and exec the closure only makes system calls. All paths were allocated before.
    unsafe { command.pre_exec(move || Ok(mount_files(&files)?)) };
}

/// Mounts the files in a new mount namespace of the calling process. It only makes system calls.
fn mount_files(files: &[(CString, ReplacedFile)]) -> Result<(), Errno> {
    const NOTHING: Option<&CStr> = None;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    let harmless = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(NOTHING, c"/", NOTHING, private, NOTHING)?;
    mount(
        Some(c"tmpfs"),
        STAGE,
        Some(c"tmpfs"),
        harmless,
        Some(c"mode=755"),
    )?;
    for (staged, file) in files {
        write_file(staged, &file.text)?;
        let (from, to) = (Some(staged.as_c_str()), file.path.as_c_str());
        mount(from, to, NOTHING, MsFlags::MS_BIND, NOTHING)?;
    }
    // The mounted files keep the memory.
    umount2(STAGE, MntFlags::MNT_DETACH)
}

fn write_file(path: &CStr, mut text: &[u8]) -> Result<(), Errno> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_CLOEXEC;
    let readable = Mode::from_bits_truncate(0o644);
    let file = open(path, flags, readable)?;
    // The umask does not apply here.
    fchmod(&file, readable)?;
    while !text.is_empty() {
        let written = write(&file, text)?;
        text = &text[written..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_that_exists_is_replaced() {
        let missing = ReplacedFile::new(Path::new("/no/such/file"), "").unwrap_err();
        assert!(missing.to_string().contains("/no/such/file"), "{missing}");
        assert!(ReplacedFile::new(Path::new("/"), "").is_err());
        assert!(ReplacedFile::new(Path::new("/proc/self/exe"), "").is_ok());
    }
}
