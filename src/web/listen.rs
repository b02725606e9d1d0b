//! The place where the API listens: an address and port, or a Unix socket.

use std::fmt;
use std::fs::Permissions;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use instruments::endpoint::cannot_listen;
use netio::private_dir::PrivateDir;

use super::access::Access;
use super::own_profiles::{self, OwnProfile};
use super::tls::{CertificateFiles, Pin, Tls};
use crate::profile_folders::ProfileFolders;

/// The option whose value says where the API listens.
pub(crate) const LISTEN: &str = "--listen";

/// The value of `--listen`, and of `--at` of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    /// An address and a port.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// An open socket, and the access rules for its clients.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(super) socket: Socket,
    pub(super) access: Access,
    pub(super) tls: Option<Tls>,
    /// The token that was generated for this socket, which is part of its URL.
    token: Option<String>,
    /// The user's own profiles, which the API of links offers.
    pub(super) own_profiles: Arc<[OwnProfile]>,
}

/// An open socket.
#[derive(Debug)]
pub(super) enum Socket {
    /// A TCP socket with its address.
    Tcp(TcpListener, SocketAddr),
    /// A Unix socket with its file.
    Unix(UnixListener, SocketFile),
}

/// The file of a Unix socket. It is removed when this is dropped, if the process still may do so.
#[derive(Debug)]
pub(super) struct SocketFile {
    /// The path as the user gave it.
    given: PathBuf,
    /// The absolute path, which is independent of the working directory.
    path: PathBuf,
    /// The device and inode. A later file with this path may belong to another process.
    id: Option<(u64, u64)>,
}

impl SocketFile {
    fn of(given: &Path) -> Result<Self> {
        let path = std::path::absolute(given)?;
        Ok(Self {
            given: given.to_owned(),
            id: id_of(&path),
            path,
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.id.is_some() && id_of(&self.path) == self.id {
            // A forwarding box may not remove files (docs/hardening.md); the next process that
            // listens there removes it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn id_of(path: &Path) -> Option<(u64, u64)> {
    let found = path.symlink_metadata().ok()?;
    Some((found.dev(), found.ino()))
}

impl Listen {
    /// Opens a socket that only this machine can reach, without a token.
    ///
    /// # Errors
    /// Fails as [`Listen::open`] does, or if the address is not loopback.
    pub(crate) fn open_local(&self) -> Result<Listening> {
        if let Self::Tcp(address) = self {
            ensure!(
                address.ip().is_loopback(),
                "{LISTEN} {address}: anyone who reaches this address could read the records: listen on 127.0.0.1, [::1] or \
                 unix:PATH, and reach it through ssh -L"
            );
        }
        self.open(LISTEN, Access::default(), None)
    }

    /// Opens the socket as [`Listen::open`] does. For a loopback address, which every user of this
    /// machine can reach, a token is generated if `access` requires none.
    ///
    /// # Errors
    /// Fails as [`Listen::open`] does.
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
                    ..self.open(LISTEN, access, certificate)?
                })
            }
            _ => self.open(LISTEN, access, certificate),
        }
    }

    /// Opens a Unix socket that only this user can reach: `NAME.sock` in the user's private
    /// directory, or `NAME-2.sock` and so on if others already listen there.
    ///
    /// # Errors
    /// Fails if there is no such directory or if the socket cannot be created.
    pub(crate) fn open_private(name: &str, access: &Access) -> Result<Listening> {
        let dir = PrivateDir::own().context("--listen: name an address or unix:PATH")?;
        let mut number = 1;
        loop {
            let path = dir.path().join(socket_name(name, number));
            let opened = Self::Unix(path.clone()).open(LISTEN, access.clone(), None);
            match opened {
                Err(error) if is_in_use(&error) && number < MOST_WITH_ONE_NAME => number += 1,
                opened => {
                    let opened = opened?;
                    std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
                    return Ok(opened);
                }
            }
        }
    }

    /// Returns the sockets of [`Listen::open_private`] that have a listener, in the order of their
    /// names. Also returns the one whose first name is `name`.
    pub(crate) fn private(name: Option<&str>) -> (Vec<Self>, Option<Self>) {
        let dirs = PrivateDir::all_own();
        let entries = dirs.iter().filter_map(|dir| dir.path().read_dir().ok());
        let paths = entries.flatten().flatten().map(|entry| entry.path());
        let is_socket = |path: &PathBuf| path.extension().is_some_and(|end| end == "sock");
        let is_answered = |path: &PathBuf| UnixStream::connect(path).is_ok();
        let mut found: Vec<PathBuf> = paths.filter(is_socket).filter(is_answered).collect();
        found.sort();
        let wanted = name.map(|name| socket_name(name, 1));
        let named = wanted
            .and_then(|wanted| found.iter().find(|path| path.ends_with(&wanted)))
            .cloned()
            .map(Self::Unix);
        (found.into_iter().map(Self::Unix).collect(), named)
    }

    /// Opens the socket, which `option` asks for, in the network namespace of the calling thread. An
    /// address other than loopback uses TLS, with this certificate or a generated one.
    ///
    /// # Errors
    /// Fails if an address other than loopback has no token, if the address is in use or does not
    /// belong to this machine, or if the certificate is invalid.
    pub(crate) fn open(
        &self,
        option: &str,
        access: Access,
        certificate: Option<&CertificateFiles>,
    ) -> Result<Listening> {
        match self {
            Self::Tcp(address) => {
                let is_local = address.ip().is_loopback();
                ensure!(
                    is_local || access.is_guarded(),
                    "{option} {address}: anyone who reaches this address could change the link: add a token (--token-file FILE or \
                     FARWIRE_TOKEN), or listen on 127.0.0.1, [::1] or unix:PATH and reach it through ssh -L"
                );
                let listener = TcpListener::bind(address)
                    .map_err(|error| cannot_listen(*address, error))
                    .with_context(|| option.to_owned())?;
                listener.set_nonblocking(true)?;
                let bound = listener.local_addr()?;
                let tls = match certificate {
                    Some(files) => Some(Tls::read(files)?),
                    None if is_local => None,
                    None => Some(Tls::self_signed(bound)?),
                };
                Ok(Listening {
                    socket: Socket::Tcp(listener, bound),
                    access,
                    tls,
                    token: None,
                    own_profiles: Arc::default(),
                })
            }
            Self::Unix(path) => {
                ensure!(
                    certificate.is_none(),
                    "{option} {self}: a Unix socket does not use TLS: leave --tls-cert out"
                );
                remove_stale(path)?;
                let listener = UnixListener::bind(path).map_err(|error| {
                    let why = match error.kind() {
                        ErrorKind::AddrInUse => format!(
                            "{option} {self}: another program listens there, or another file has this name: choose another path"
                        ),
                        _ => format!("{option}: cannot listen on {self}"),
                    };
                    anyhow::Error::from(error).context(why)
                })?;
                listener.set_nonblocking(true)?;
                Ok(Listening {
                    socket: Socket::Unix(listener, SocketFile::of(path)?),
                    access,
                    tls: None,
                    token: None,
                    own_profiles: Arc::default(),
                })
            }
        }
    }
}

impl Listening {
    /// Reads the user's own profiles in `folders`, which the API of links then offers.
    pub(crate) fn with_profiles(self, folders: &ProfileFolders) -> Self {
        Self {
            own_profiles: own_profiles::read(folders),
            ..self
        }
    }

    /// Returns the address, or `None` for a Unix socket.
    pub(super) fn bound(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(_, address) => Some(*address),
            Socket::Unix(..) => None,
        }
    }

    /// Returns the scheme of the URLs.
    pub(super) fn scheme(&self) -> &'static str {
        match self.tls {
            Some(_) => "https://",
            None => "http://",
        }
    }

    /// Returns the fingerprint of the certificate, if there is one.
    pub(crate) fn pin(&self) -> Option<Pin> {
        self.tls.as_ref().map(|tls| tls.pin)
    }
}

/// The text before the token in a URL.
pub(crate) const TOKEN_FRAGMENT: &str = "#token=";

/// The largest number of sockets with the same name, each of which belongs to one command of this
/// user.
const MOST_WITH_ONE_NAME: u32 = 1_000;

/// The longest part of a name in a socket's file name. The whole path of a socket has at most 107
/// bytes (unix(7)).
const LONGEST_NAME: usize = 40;

/// Returns the name of a socket's file. Characters with a meaning to a shell or a path are
/// replaced.
fn socket_name(name: &str, number: u32) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let plain: String = name
        .chars()
        .take(LONGEST_NAME)
        .map(|c| if is_plain(c) { c } else { '-' })
        .collect();
    match number {
        1 => format!("{plain}.sock"),
        number => format!("{plain}-{number}.sock"),
    }
}

fn is_in_use(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<std::io::Error>();
    cause.is_some_and(|cause| cause.kind() == ErrorKind::AddrInUse)
}

/// Removes a socket without a listener, which a killed process left.
fn remove_stale(path: &Path) -> Result<()> {
    let is_socket = path
        .symlink_metadata()
        .is_ok_and(|found| found.file_type().is_socket());
    // A socket that refuses this user, or that is too busy to answer, is still in use.
    let is_stale = || {
        UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    };
    if is_socket && is_stale() {
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
    /// Formats the URL or path as a browser or a client accepts it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.socket {
            Socket::Tcp(_, address) => {
                write!(f, "{}{address}/", self.scheme())?;
                // A browser does not send the fragment of a URL.
                self.token
                    .iter()
                    .try_for_each(|token| write!(f, "{TOKEN_FRAGMENT}{token}"))
            }
            Socket::Unix(_, file) => write!(f, "unix:{}", file.given.display()),
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
    fn an_address_beyond_loopback_needs_a_token_and_uses_tls() {
        let open = |address: &str, access: Access| {
            let listen: Listen = address.parse().unwrap();
            listen.open(LISTEN, access, None)
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
    fn on_loopback_a_token_is_generated_and_is_part_of_the_url() {
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
    fn a_stale_socket_is_replaced_and_one_in_use_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        // A killed process leaves such a socket.
        drop(UnixListener::bind(&path).unwrap());
        let listen = Listen::Unix(path);
        let open = || listen.open(LISTEN, Access::default(), None);
        let _first = open().unwrap();
        let refused = open().unwrap_err();
        assert!(is_in_use(&refused), "{refused:#}");
        let refused = refused.to_string();
        assert!(refused.starts_with("--listen unix:"), "{refused}");
        assert!(refused.ends_with("choose another path"), "{refused}");
    }

    #[test]
    fn a_port_in_use_is_named_with_its_option_and_the_way_round() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = taken.local_addr().unwrap();
        let opened = Listen::Tcp(at).open("--metrics", Access::default(), None);
        let refused = format!("{:#}", opened.unwrap_err());
        let words = format!("--metrics: another program uses {at}: choose another port");
        assert!(refused.starts_with(&words), "{refused}");
    }

    #[test]
    fn a_socket_is_removed_at_the_end_but_not_a_file_in_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listen = Listen::Unix(path.clone());
        let open = || listen.open(LISTEN, Access::default(), None).unwrap();
        drop(open());
        assert!(!path.exists());
        let first = open();
        // The new file exists beside the first one, so that their inodes differ.
        let other = directory.path().join("other");
        std::fs::write(&other, "of somebody").unwrap();
        std::fs::rename(other, &path).unwrap();
        drop(first);
        assert_eq!(std::fs::read_to_string(path).unwrap(), "of somebody");
    }
}
