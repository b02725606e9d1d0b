//! Opens files that somebody else may have put there, such as records and the files beside them.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::fcntl::OFlag;

/// Flags that keep open(2) from waiting for the other end of a FIFO and from making a terminal the controlling one.
pub(crate) const NEVER_WAIT: OFlag = OFlag::O_NONBLOCK.union(OFlag::O_NOCTTY);

/// Opens the regular file at `path` for reading, through symbolic links.
///
/// It never waits. A device is not even opened, because opening it may already have an effect.
///
/// # Errors
/// Those of the system, also if the file is a directory, a FIFO, a socket or a device.
pub fn open(path: &Path) -> io::Result<File> {
    check(&fs::metadata(path)?)?;
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(NEVER_WAIT.bits())
        .open(path)?;
    // Another file may have taken this name in between.
    check(&file.metadata()?)?;
    Ok(file)
}

/// Checks that a file is a regular one.
///
/// # Errors
/// A file of another kind, which the error names.
pub(crate) fn check(found: &Metadata) -> io::Result<()> {
    let kind = found.file_type();
    let what = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    let why = format!("it is {what}, not a regular file");
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    #[test]
    fn only_a_regular_file_is_opened_and_without_blocking() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("file"), "text").unwrap();
        symlink(at("file"), at("link")).unwrap();
        mkfifo(&at("fifo"), Mode::S_IRUSR).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        for name in ["file", "link"] {
            let mut text = String::new();
            let mut opened = open(&at(name)).unwrap();
            opened.read_to_string(&mut text).unwrap();
            assert_eq!(text, "text");
        }
        for (path, what) in [
            (directory.path().to_owned(), "a directory"),
            (at("fifo"), "a FIFO"),
            (at("socket"), "a socket"),
            ("/dev/zero".into(), "a device"),
        ] {
            let error = open(&path).unwrap_err().to_string();
            assert!(error.starts_with(&format!("it is {what}")), "{error}");
        }
        let missing = open(&at("missing")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
