//! Where the API listens: at an address and port, or at a socket in the file system.

use std::fmt;
use std::fs::Permissions;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use netio::private_dir::PrivateDir;

use super::access::Access;
use super::tls::{CertificateFiles, Pin, Tls};

/// `--listen`, and `--at` of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A socket's path.
    Unix(PathBuf),
}

/// A socket that is open, and who may ask there.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(super) socket: Socket,
    pub(super) access: Access,
    pub(super) tls: Option<Tls>,
    /// The token that was made for this socket, which is part of its URL.
    token: Option<String>,
}

/// What is listened on.
#[derive(Debug)]
pub(super) enum Socket {
    /// By TCP.
    Tcp(TcpListener, SocketAddr),
    /// In the file system.
    Unix(UnixListener, SocketFile),
}

/// A socket's file, which is removed when this is dropped, where this process still may.
#[derive(Debug)]
pub(super) struct SocketFile {
    /// As it was asked for.
    said: PathBuf,
    /// The same from the root, wherever this process is by then.
    path: PathBuf,
    /// Device and inode: what stands there later may be another's.
    id: Option<(u64, u64)>,
}

impl SocketFile {
    fn of(said: &Path) -> Result<Self> {
        let path = std::path::absolute(said)?;
        Ok(Self {
            said: said.to_owned(),
            id: id_of(&path),
            path,
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.id.is_some() && id_of(&self.path) == self.id {
            // A box that forwards may remove nothing (docs/hardening.md): the next to listen there does.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn id_of(path: &Path) -> Option<(u64, u64)> {
    let found = path.symlink_metadata().ok()?;
    Some((found.dev(), found.ino()))
}

impl Listen {
    /// Opens the socket where this machine alone reaches it and no token is asked for.
    ///
    /// # Errors
    /// As [`Listen::open`], and an address that is not loopback.
    pub(crate) fn open_local(&self) -> Result<Listening> {
        if let Self::Tcp(address) = self {
            ensure!(
                address.ip().is_loopback(),
                "--listen {address}: anyone who reaches this address could read the records: listen on 127.0.0.1, [::1] or \
                 unix:PATH, and reach it through ssh -L"
            );
        }
        self.open(Access::default(), None)
    }

    /// Opens the socket as [`Listen::open`] does. On a loopback address, which every user of this machine reaches, a token is made
    /// where `access` asks for none.
    ///
    /// # Errors
    /// As [`Listen::open`].
    pub(crate) fn open_guarded(
        &self,
        access: Access,
        certificate: Option<&CertificateFiles>,
    ) -> Result<Listening> {
        match self {
            Self::Tcp(address) if address.ip().is_loopback() && !access.is_guarded() => {
                let (access, token) = Access::generate()?;
                Ok(Listening {
                    token: Some(token),
                    ..self.open(access, certificate)?
                })
            }
            _ => self.open(access, certificate),
        }
    }

    /// Opens a socket in the file system that only this user reaches: `NAME.sock` in the user's own directory, or `NAME-2.sock` and
    /// so on while others listen there.
    ///
    /// # Errors
    /// There is no such directory, or the socket cannot be made.
    pub(crate) fn open_private(name: &str, access: &Access) -> Result<Listening> {
        let dir = PrivateDir::own().context("--listen: name an address or unix:PATH")?;
        let mut number = 1;
        loop {
            let path = dir.path().join(socket_name(name, number));
            let opened = Self::Unix(path.clone()).open(access.clone(), None);
            match opened {
                Err(error) if is_in_use(&error) && number < MOST_OF_A_NAME => number += 1,
                opened => {
                    let opened = opened?;
                    std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
                    return Ok(opened);
                }
            }
        }
    }

    /// The sockets of [`Listen::open_private`] on which somebody listens, in the order of their names; and among them the one whose
    /// first name is `name`.
    pub(crate) fn private(name: Option<&str>) -> (Vec<Self>, Option<Self>) {
        let dirs = PrivateDir::all_own();
        let entries = dirs.iter().filter_map(|dir| dir.path().read_dir().ok());
        let paths = entries.flatten().flatten().map(|entry| entry.path());
        let is_socket = |path: &PathBuf| path.extension().is_some_and(|end| end == "sock");
        let is_answered = |path: &PathBuf| UnixStream::connect(path).is_ok();
        let mut found: Vec<PathBuf> = paths.filter(is_socket).filter(is_answered).collect();
        found.sort();
        let wanted = name.map(|name| socket_name(name, 1));
        let named = wanted.and_then(|wanted| found.iter().find(|path| path.ends_with(&wanted)));
        let named = named.cloned().map(Self::Unix);
        (found.into_iter().map(Self::Unix).collect(), named)
    }

    /// Opens the socket, in the network namespace that the calling thread is in. An address beyond loopback has TLS, with this
    /// certificate or one of its own.
    ///
    /// # Errors
    /// An address that is not loopback, and no token; one that is taken or not this machine's; a certificate that is none.
    pub(crate) fn open(
        &self,
        access: Access,
        certificate: Option<&CertificateFiles>,
    ) -> Result<Listening> {
        match self {
            Self::Tcp(address) => {
                let is_local = address.ip().is_loopback();
                ensure!(
                    is_local || access.is_guarded(),
                    "--listen {address}: anyone who reaches this address could change the link: add a token (--token-file FILE or \
                     FARWIRE_TOKEN), or listen on 127.0.0.1, [::1] or unix:PATH and reach it through ssh -L"
                );
                let listener = TcpListener::bind(address)
                    .with_context(|| format!("cannot listen on {address}"))?;
                listener.set_nonblocking(true)?;
                let bound = listener.local_addr()?;
                let tls = match certificate {
                    Some(files) => Some(Tls::read(files)?),
                    None if is_local => None,
                    None => Some(Tls::own(bound)?),
                };
                Ok(Listening {
                    socket: Socket::Tcp(listener, bound),
                    access,
                    tls,
                    token: None,
                })
            }
            Self::Unix(path) => {
                ensure!(
                    certificate.is_none(),
                    "--listen {self}: a Unix socket does not use TLS: leave --tls-cert out"
                );
                remove_left(path)?;
                let listener =
                    UnixListener::bind(path).with_context(|| format!("cannot listen on {self}"))?;
                listener.set_nonblocking(true)?;
                Ok(Listening {
                    socket: Socket::Unix(listener, SocketFile::of(path)?),
                    access,
                    tls: None,
                    token: None,
                })
            }
        }
    }
}

impl Listening {
    /// The address, of one that has any.
    pub(super) fn bound(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(_, address) => Some(*address),
            Socket::Unix(..) => None,
        }
    }

    /// What its URLs begin with.
    pub(super) fn scheme(&self) -> &'static str {
        match self.tls {
            Some(_) => "https://",
            None => "http://",
        }
    }

    /// By what clients know its certificate.
    pub(crate) fn pin(&self) -> Option<Pin> {
        self.tls.as_ref().map(|tls| tls.pin)
    }
}

/// The text of a URL before the token.
pub(crate) const TOKEN_FRAGMENT: &str = "#token=";

/// Sockets of one name: as many commands of one user that listen without an address.
const MOST_OF_A_NAME: u32 = 1_000;

/// The longest name in that of a socket, whose whole path has at most 107 bytes (unix(7)).
const LONGEST_NAME: usize = 40;

/// A socket's file, in which no character of `name` means anything to a shell or a path.
fn socket_name(name: &str, number: u32) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let plain = name.chars().take(LONGEST_NAME);
    let plain: String = plain.map(|c| if is_plain(c) { c } else { '-' }).collect();
    match number {
        1 => format!("{plain}.sock"),
        number => format!("{plain}-{number}.sock"),
    }
}

fn is_in_use(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<std::io::Error>();
    cause.is_some_and(|cause| cause.kind() == ErrorKind::AddrInUse)
}

/// Removes a socket that nobody listens on any more: what was killed leaves it.
fn remove_left(path: &Path) -> Result<()> {
    let is_socket = path
        .symlink_metadata()
        .is_ok_and(|found| found.file_type().is_socket());
    // One that this user may not ask, or that is too busy to answer, is still somebody's.
    let is_left = || {
        UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    };
    if is_socket && is_left() {
        std::fs::remove_file(path).with_context(|| {
            format!(
                "--listen unix:{}: cannot remove the old socket",
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
                    "unix: needs the path of a socket, such as unix:/run/user/1000/farwire.sock"
                        .to_owned(),
                ),
                path => Ok(Self::Unix(path.into())),
            };
        }
        let address = text.parse().map_err(|_| {
            "write an address and a port, such as 127.0.0.1:7700 or [::1]:0 (any free port), or unix:PATH".to_owned()
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
        match &self.socket {
            Socket::Tcp(_, address) => {
                write!(f, "{}{address}/", self.scheme())?;
                // A browser keeps a fragment to itself.
                self.token
                    .iter()
                    .try_for_each(|token| write!(f, "{TOKEN_FRAGMENT}{token}"))
            }
            Socket::Unix(_, file) => write!(f, "unix:{}", file.said.display()),
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
    fn beyond_loopback_there_is_a_token_and_tls_or_nothing() {
        let open = |address: &str, access: Access| {
            let listen: Listen = address.parse().unwrap();
            listen.open(access, None)
        };
        let refused = open("0.0.0.0:0", Access::default()).unwrap_err();
        assert!(refused.to_string().contains("--token-file"), "{refused}");
        let access = Access::new(Some("0123456789abcdef"), None).unwrap();
        let opened = open("0.0.0.0:0", access.clone()).unwrap();
        assert!(opened.pin().is_some());
        assert!(
            opened.to_string().starts_with("https://0.0.0.0:"),
            "{opened}"
        );
        let local = open("127.0.0.1:0", access).unwrap();
        assert!(local.pin().is_none(), "{local}");
    }

    #[test]
    fn on_loopback_a_token_is_made_and_is_part_of_the_url() {
        let listen: Listen = "127.0.0.1:0".parse().unwrap();
        let made = listen.open_guarded(Access::default(), None).unwrap();
        let url = made.to_string();
        let token = url.split_once("/#token=").unwrap().1;
        assert!(made.access.is_guarded() && token.len() == 32, "{url}");
        let access = Access::new(Some("0123456789abcdef"), None).unwrap();
        let given = listen.open_guarded(access, None).unwrap().to_string();
        assert!(!given.contains('#'), "{given}");
    }

    #[test]
    fn a_socket_has_a_plain_name() {
        assert_eq!(socket_name("link", 1), "link.sock");
        assert_eq!(socket_name("eth0-../a b", 2), "eth0----a-b-2.sock");
        assert!(socket_name(&"x".repeat(300), 1_000).len() < 60);
    }

    #[test]
    fn a_socket_that_was_left_is_taken_and_one_in_use_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        // As what is killed leaves it.
        drop(UnixListener::bind(&path).unwrap());
        let listen = Listen::Unix(path);
        let open = || listen.open(Access::default(), None);
        let _first = open().unwrap();
        let refused = format!("{:#}", open().unwrap_err());
        assert!(refused.contains("in use"), "{refused}");
    }

    #[test]
    fn a_socket_is_removed_at_the_end_and_what_took_its_place_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listen = Listen::Unix(path.clone());
        let open = || listen.open(Access::default(), None).unwrap();
        drop(open());
        assert!(!path.exists());
        let first = open();
        // Beside the first one, whose inode is another then.
        let other = directory.path().join("other");
        std::fs::write(&other, "of somebody").unwrap();
        std::fs::rename(other, &path).unwrap();
        drop(first);
        assert_eq!(std::fs::read_to_string(path).unwrap(), "of somebody");
    }
}
