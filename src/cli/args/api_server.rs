//! `--listen`: lets the links of a command be watched and changed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, ensure};
use clap::Args;

use super::screen::{self, LiveScreen};
use crate::experiment::Plan;
use crate::experiment::captures::RunCaptures;
use crate::live::{Keeper, Links, NewLink};
use crate::notes::{note, warn};
use crate::toml_file::text_of;
use crate::web::{Access, CertificateFiles, Listen, Listening, WebServer};
use instruments::failure::{Blame, Failure};

/// The variable of the token that lets do all.
pub(crate) const TOKEN: &str = "FARWIRE_TOKEN";

/// The variable of the token that lets watch.
const READ_TOKEN: &str = "FARWIRE_READ_TOKEN";

/// The longest file that is read for a token.
const LONGEST: usize = 4_096;

/// Where the links can be watched and changed, and by whom.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ListenArg {
    /// Serve a page and an API by which links can be watched and changed while they run (those of `run` can only be watched), at
    /// 127.0.0.1:7700 or unix:PATH [default: a Unix socket of this user]
    ///
    /// The default socket is NAME.sock in $XDG_RUNTIME_DIR/farwire, as root in /run/farwire; `farwire links` and `farwire set` look
    /// there first. Only its user reaches it. A loopback address asks for a token, which is made at the start and is part of the URL
    /// that is printed. Other addresses require a token and use TLS.
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1)]
    listen: Option<Option<Listen>>,
    /// Ask for no token on a loopback address, where every user of this machine can then change the links
    #[arg(long, requires = "listen", conflicts_with_all = ["token_file", "read_token_file"])]
    no_token: bool,
    /// The token that lets do all, in this file; that of FARWIRE_TOKEN when absent
    #[arg(long, value_name = "FILE", requires = "listen")]
    token_file: Option<PathBuf>,
    /// A token that lets watch only, in this file; that of FARWIRE_READ_TOKEN when absent
    #[arg(long, value_name = "FILE", requires = "listen")]
    read_token_file: Option<PathBuf>,
    /// The certificate of TLS in PEM form, with those that lead to one that clients know; its own, made anew at each start, when absent
    #[arg(long, value_name = "FILE", requires_all = ["listen", "tls_key"])]
    tls_cert: Option<PathBuf>,
    /// The certificate's key in PEM form
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

/// Where the runs of experiments are watched, if anywhere.
pub(crate) struct LiveRuns {
    links: Links,
    /// Until the first experiment is ready: no thread may run before.
    listening: Option<Listening>,
    server: Option<LiveServer>,
    has_screen: bool,
    /// Absent where the API has one.
    keeper: Option<Keeper>,
    captures: Option<RunCaptures>,
}

/// The runs of an experiment, watched until this is dropped: then the terminal is as it was.
pub(crate) struct WatchedRuns<'a> {
    /// Where the runs' links are to be put, if anybody may see them.
    pub(crate) links: Option<&'a Links>,
    /// What is captured of every run, if anything.
    pub(crate) captures: Option<&'a RunCaptures>,
    _screen: Option<LiveScreen>,
}

/// Serves links until it is dropped; what serves them first, then they are gone.
pub(crate) struct LiveServer {
    links: Links,
    _server: WebServer,
}

impl ListenArg {
    /// Opens the socket, before this process enters another network namespace. `name` is that of the default socket.
    ///
    /// # Errors
    /// An address that cannot be had, or must not; a token or a certificate that is none.
    pub(crate) fn open(&self, name: &str) -> Result<Option<Listening>, Failure> {
        let opened = self.listen.as_ref().map(|listen| {
            let all = token(self.token_file.as_deref(), TOKEN)?;
            let read = token(self.read_token_file.as_deref(), READ_TOKEN)?;
            let access = Access::new(all.as_deref(), read.as_deref())?;
            let files = self.tls_cert.clone().zip(self.tls_key.clone());
            let files = files.map(|(certificate, key)| CertificateFiles { certificate, key });
            ensure!(
                !self.no_token || !access.is_guarded(),
                "--no-token: {TOKEN} has a token: take the variable out of the environment, or leave --no-token out"
            );
            let Some(listen) = listen else {
                ensure!(
                    files.is_none(),
                    "--tls-cert: the default socket of --listen has no TLS: name an address"
                );
                return Listen::open_private(name, &access);
            };
            if !self.no_token {
                return listen.open_guarded(access, files.as_ref());
            }
            let opened = listen.open(access, files.as_ref())?;
            if matches!(listen, Listen::Tcp(_)) {
                warn(format_args!(
                    "--no-token: every user of this machine can change the links at {opened}"
                ));
            }
            Ok(opened)
        });
        opened.transpose().or_bad_input()
    }
}

impl LiveRuns {
    /// Nowhere.
    pub(crate) fn nowhere() -> Self {
        Self::at(None, false, None)
    }

    /// At an open socket, on this terminal, in captures, or all of it.
    pub(crate) fn at(
        listening: Option<Listening>,
        has_screen: bool,
        captures: Option<RunCaptures>,
    ) -> Self {
        Self {
            links: Links::default(),
            listening,
            server: None,
            has_screen,
            keeper: None,
            captures,
        }
    }

    /// Refuses a plan that cannot be watched as was asked for.
    ///
    /// # Errors
    /// It has nothing to capture.
    pub(crate) fn check(&self, plan: &Plan) -> Result<()> {
        self.captures.iter().try_for_each(|of| of.check(plan))
    }

    /// Serves from now on, and shows the runs of an experiment that is about to begin. Signals must be caught: they end it for who leaves.
    ///
    /// # Errors
    /// The machine lets no threads or descriptors be had, or the terminal not be set up.
    pub(crate) fn watch(&mut self) -> Result<WatchedRuns<'_>> {
        if let Some(listening) = self.listening.take() {
            let said = format!("farwire: watch it at {listening}");
            self.server = Some(LiveServer::of(listening, self.links.clone(), &said)?);
        }
        if self.has_screen && self.server.is_none() && self.keeper.is_none() {
            self.keeper = Some(Keeper::start(self.links.clone())?);
        }
        let shown = || LiveScreen::start(Some(self.links.clone()), [], None, screen::end);
        let screen = self.has_screen.then(shown).transpose()?;
        let is_watched = self.has_screen || self.server.is_some();
        Ok(WatchedRuns {
            links: is_watched.then_some(&self.links),
            captures: self.captures.as_ref(),
            _screen: screen,
        })
    }
}

/// The token in a file, or else in a variable of the environment.
///
/// # Errors
/// A file or a variable that cannot be read, or has something else in it than a token; names it.
pub(crate) fn token(file: Option<&Path>, variable: &str) -> Result<Option<String>> {
    let Some(file) = file else {
        return of_variable(variable, std::env::var_os(variable));
    };
    let name = file.display();
    let text = text_of(file)?;
    let token = text.trim();
    ensure!(!token.is_empty(), "{name}: there is no token in it");
    let is_one = token.len() <= LONGEST && token.bytes().all(|byte| byte.is_ascii_graphic());
    ensure!(
        is_one,
        "{name}: a token is one word of ASCII, and nothing else stands in its file"
    );
    Ok(Some(token.to_owned()))
}

/// A token by the value of a variable. One that is set and has none in it is a mistake that must not open the links to everybody.
fn of_variable(variable: &str, value: Option<OsString>) -> Result<Option<String>> {
    let Some(value) = value else {
        return Ok(None);
    };
    let text = value.into_string();
    let text = text.map_err(|_| anyhow!("{variable}: the token is not UTF-8"))?;
    ensure!(
        !text.is_empty(),
        "{variable}: there is no token in it: unset it, or give it one (`openssl rand -hex 16` makes one)"
    );
    Ok(Some(text))
}

impl LiveServer {
    /// Starts to serve these links, and says where.
    pub(crate) fn start(
        listening: Listening,
        all: impl IntoIterator<Item = NewLink>,
    ) -> Result<Self> {
        let links = Links::default();
        all.into_iter().for_each(|link| links.put(link));
        let said = format!("farwire: watch and change it at {listening}");
        Self::of(listening, links, &said)
    }

    fn of(listening: Listening, links: Links, said: &str) -> Result<Self> {
        let pin = listening.pin();
        let server = WebServer::start(listening, links.clone())?;
        if let Some(pin) = pin {
            note(format_args!(
                "farwire: clients know its certificate by --pin {pin}"
            ));
        }
        note(said);
        Ok(Self {
            links,
            _server: server,
        })
    }

    /// What it serves.
    pub(crate) fn links(&self) -> Links {
        self.links.clone()
    }
}

impl Drop for LiveServer {
    fn drop(&mut self) {
        self.links.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn a_variable_that_is_set_has_a_token_in_it() {
        let of = |bytes: &[u8]| of_variable(TOKEN, Some(OsString::from_vec(bytes.to_vec())));
        assert_eq!(of_variable(TOKEN, None).unwrap(), None);
        assert_eq!(of(b"0123").unwrap().unwrap(), "0123");
        for (wrong, words) in [
            (&b""[..], "no token in it"),
            (b"\xff0123456789abcdef", "not UTF-8"),
        ] {
            let refused = of(wrong).unwrap_err().to_string();
            assert!(refused.starts_with("FARWIRE_TOKEN: "), "{refused}");
            assert!(refused.contains(words), "{refused}");
        }
    }
}
