//! Where the API listens: an address and a port, or a socket in the file system.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, ensure};

/// `--listen`, and `--at` of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A socket's path.
    Unix(PathBuf),
}

/// A socket that is open.
#[derive(Debug)]
pub(crate) enum Listening {
    /// By TCP.
    Tcp(TcpListener, SocketAddr),
    /// In the file system.
    Unix(UnixListener, PathBuf),
}

impl Listen {
    /// Opens the socket, in the network namespace that the calling thread is in.
    ///
    /// # Errors
    /// An address that is not loopback, for which nothing protects the API; one that is taken or not this machine's.
    pub(crate) fn open(&self) -> Result<Listening> {
        match self {
            Self::Tcp(address) => {
                ensure!(
                    address.ip().is_loopback(),
                    "--listen {address}: whoever reaches that address could change the link: listen on 127.0.0.1 or [::1], or on \
                     unix:PATH, and reach it through ssh -L"
                );
                let listener = TcpListener::bind(address)
                    .with_context(|| format!("--listen {address}: cannot listen there"))?;
                listener.set_nonblocking(true)?;
                let bound = listener.local_addr()?;
                Ok(Listening::Tcp(listener, bound))
            }
            Self::Unix(path) => {
                remove_left(path)?;
                let listener = UnixListener::bind(path)
                    .with_context(|| format!("--listen {self}: cannot listen there"))?;
                listener.set_nonblocking(true)?;
                Ok(Listening::Unix(listener, path.clone()))
            }
        }
    }
}

/// Removes a socket that nobody listens on any more: what was killed leaves it.
fn remove_left(path: &Path) -> Result<()> {
    let is_socket = path
        .symlink_metadata()
        .is_ok_and(|found| found.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err() {
        std::fs::remove_file(path).with_context(|| {
            format!(
                "--listen unix:{}: cannot remove what is left there",
                path.display()
            )
        })?;
    }
    Ok(())
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err(
                    "unix: needs the path of a socket: unix:/run/user/1000/farwire.sock".to_owned(),
                ),
                path => Ok(Self::Unix(path.into())),
            };
        }
        let address = text.parse().map_err(|_| {
            "it is an address and a port, such as 127.0.0.1:7700, [::1]:0 (any free port), or unix:PATH".to_owned()
        })?;
        Ok(Self::Tcp(address))
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Display for Listening {
    /// As a browser or a client takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(_, address) => write!(f, "http://{address}/"),
            Self::Unix(_, path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_listens_on_an_address_or_in_the_file_system() {
        let read = |text: &str| text.parse::<Listen>();
        assert_eq!(read("127.0.0.1:0").unwrap().to_string(), "127.0.0.1:0");
        assert_eq!(read("[::1]:7700").unwrap().to_string(), "[::1]:7700");
        assert_eq!(read("unix:/a/b").unwrap(), Listen::Unix("/a/b".into()));
        for wrong in ["7700", "localhost", "unix:", "127.0.0.1"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn beyond_loopback_nothing_is_opened() {
        let refused = "0.0.0.0:0".parse::<Listen>().unwrap().open().unwrap_err();
        assert!(refused.to_string().contains("ssh -L"), "{refused}");
    }

    #[test]
    fn a_socket_that_was_left_is_taken_and_one_in_use_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let listen = Listen::Unix(directory.path().join("socket"));
        let first = listen.open().unwrap();
        let refused = format!("{:#}", listen.open().unwrap_err());
        assert!(refused.contains("in use"), "{refused}");
        drop(first);
        listen.open().unwrap();
    }
}
