//! `--listen`: a page and an API that show the links of a command and change them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, ensure};
use clap::Args;

use super::headings;
use super::screen::{self, LiveScreen};
use crate::experiment::Plan;
use crate::experiment::captures::RunCaptures;
use crate::live::{Keeper, Links, NewLink};
use crate::notes::{note, warn};
use crate::profile_folders::ProfileFolders;
use crate::toml_file::text_of;
use crate::web::{Access, CertificateFiles, LISTEN, Listen, Listening, WebServer};
use instruments::failure::{Blame, Failure};

/// The environment variable of the full-access token.
pub(crate) const TOKEN: &str = "FARWIRE_TOKEN";

/// The environment variable of the read-only token.
const READ_TOKEN: &str = "FARWIRE_READ_TOKEN";

/// The longest token, in bytes.
const LONGEST: usize = 4_096;

/// The address at which a page and an API serve the links, and who may use them.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ListenArg {
    /// Serve a page and an API at ADDR:PORT or unix:PATH [default: a Unix socket]
    ///
    /// Serve a page and an API at ADDR:PORT, with a token in the printed URL, or at unix:PATH [default: a Unix socket that
    /// `farwire links` finds]
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, help_heading = headings::LIVE)]
    listen: Option<Option<Listen>>,
    /// Require no token on loopback, so that every user here can change the links
    #[arg(
        long,
        requires = "listen",
        conflicts_with_all = ["token_file", "read_token_file"],
        help_heading = headings::LIVE,
        hide_short_help = true
    )]
    no_token: bool,
    /// File with the full-access token [default: $FARWIRE_TOKEN]
    #[arg(
        long,
        value_name = "FILE",
        requires = "listen",
        help_heading = headings::LIVE,
        hide_short_help = true
    )]
    token_file: Option<PathBuf>,
    /// File with the read-only token [default: $FARWIRE_READ_TOKEN]
    #[arg(
        long,
        value_name = "FILE",
        requires = "listen",
        help_heading = headings::LIVE,
        hide_short_help = true
    )]
    read_token_file: Option<PathBuf>,
    /// Certificate chain for TLS, in PEM [default: a self-signed certificate]
    #[arg(
        long,
        value_name = "FILE",
        requires_all = ["listen", "tls_key"],
        help_heading = headings::LIVE,
        hide_short_help = true
    )]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_cert",
        help_heading = headings::LIVE,
        hide_short_help = true
    )]
    tls_key: Option<PathBuf>,
}

/// The ways in which the runs of experiments are shown and captured.
pub(crate) struct LiveRuns {
    links: Links,
    /// The open socket until the first experiment is ready. No thread may run before.
    listening: Option<Listening>,
    server: Option<LiveServer>,
    has_screen: bool,
    /// The keeper of the links; `None` if the API has one.
    keeper: Option<Keeper>,
    captures: Option<RunCaptures>,
}

/// The runs of an experiment while they are shown. Dropping this restores the terminal.
pub(crate) struct WatchedRuns<'a> {
    /// The place for the links of the runs, if anybody may see them.
    pub(crate) links: Option<&'a Links>,
    /// The captures of every run, if there are any.
    pub(crate) captures: Option<&'a RunCaptures>,
    _screen: Option<LiveScreen>,
}

/// A server of links, which ends when this is dropped. It removes the links before the server ends.
pub(crate) struct LiveServer {
    links: Links,
    _server: WebServer,
}

impl ListenArg {
    /// Opens the socket, before this process enters another network namespace. `name` is the name of the default socket. The profiles in
    /// `folders` are read now, because a box may not read files while it forwards.
    ///
    /// # Errors
    /// The address cannot or must not be used, or a token or a certificate is wrong.
    pub(crate) fn open(
        &self,
        name: &str,
        folders: &ProfileFolders,
    ) -> Result<Option<Listening>, Failure> {
        let opened = self.listen.as_ref().map(|listen| {
            let all = token(self.token_file.as_deref(), TOKEN)?;
            let read = token(self.read_token_file.as_deref(), READ_TOKEN)?;
            let access = Access::new(all.as_deref(), read.as_deref())?;
            let files = self.tls_cert.clone().zip(self.tls_key.clone());
            let files = files.map(|(certificate, key)| CertificateFiles { certificate, key });
            ensure!(
                !self.no_token || !access.is_guarded(),
                "--no-token: {TOKEN} contains a token: unset the variable, or leave --no-token out"
            );
            let Some(listen) = listen else {
                ensure!(
                    files.is_none(),
                    "--tls-cert: the default socket of --listen does not use TLS: name an address"
                );
                return Listen::open_private(name, &access);
            };
            if !self.no_token {
                return listen.open_guarded(access, files.as_ref());
            }
            let opened = listen.open(LISTEN, access, files.as_ref())?;
            if matches!(listen, Listen::Tcp(_)) {
                warn(format_args!(
                    "--no-token: every user of this machine can change the links at {opened}"
                ));
            }
            Ok(opened)
        });
        let opened = opened.transpose().or_bad_input()?;
        Ok(opened.map(|listening| listening.with_profiles(folders)))
    }
}

impl LiveRuns {
    /// Returns runs that are neither shown nor captured.
    pub(crate) fn nowhere() -> Self {
        Self::at(None, false, None)
    }

    /// Returns runs that are shown at an open socket, on this terminal, or both, and captured.
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

    /// Refuses a plan without packets to capture, if captures are asked for.
    ///
    /// # Errors
    /// No case has an emulated link.
    pub(crate) fn check(&self, plan: &Plan) -> Result<()> {
        self.captures.iter().try_for_each(|of| of.check(plan))
    }

    /// Starts the server, and shows the runs of an experiment that is about to begin. The process must catch signals, because
    /// leaving the screen raises one.
    ///
    /// # Errors
    /// A thread or a descriptor cannot be created, or the terminal cannot be set up.
    pub(crate) fn watch(&mut self) -> Result<WatchedRuns<'_>> {
        if let Some(listening) = self.listening.take() {
            self.server = Some(LiveServer::of(listening, self.links.clone())?);
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

/// Returns the token in a file, or else in an environment variable.
///
/// # Errors
/// The file or the variable cannot be read, or contains no valid token. The message names it.
pub(crate) fn token(file: Option<&Path>, variable: &str) -> Result<Option<String>> {
    let Some(file) = file else {
        return of_variable(variable, std::env::var_os(variable));
    };
    let name = file.display();
    let text = text_of(file)?;
    let token = text.trim();
    ensure!(!token.is_empty(), "{name}: the file contains no token");
    let is_one = token.len() <= LONGEST && token.bytes().all(|byte| byte.is_ascii_graphic());
    ensure!(
        is_one,
        "{name}: the file must contain one word of ASCII, the token, and nothing else"
    );
    Ok(Some(token.to_owned()))
}

/// Returns the token in a variable. An empty variable is refused: that mistake must not open the links to everybody.
fn of_variable(variable: &str, value: Option<OsString>) -> Result<Option<String>> {
    let Some(value) = value else {
        return Ok(None);
    };
    let text = value.into_string();
    let text = text.map_err(|_| anyhow!("{variable}: the token is not UTF-8"))?;
    ensure!(
        !text.is_empty(),
        "{variable}: the variable is empty: unset it, or set a token (`openssl rand -hex 16` makes one)"
    );
    Ok(Some(text))
}

impl LiveServer {
    /// Starts to serve these links, and prints the address.
    pub(crate) fn start(
        listening: Listening,
        all: impl IntoIterator<Item = NewLink>,
    ) -> Result<Self> {
        let links = Links::default();
        all.into_iter().for_each(|link| links.put(link));
        Self::of(listening, links)
    }

    fn of(listening: Listening, links: Links) -> Result<Self> {
        let pin = listening.pin();
        let said = format!("farwire: live page and API: {listening}");
        let server = WebServer::start(listening, links.clone())?;
        if let Some(pin) = pin {
            note(format_args!(
                "farwire: certificate fingerprint, for --pin: {pin}"
            ));
        }
        note(said);
        Ok(Self {
            links,
            _server: server,
        })
    }

    /// The links that it serves.
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
            (&b""[..], "the variable is empty"),
            (b"\xff0123456789abcdef", "not UTF-8"),
        ] {
            let refused = of(wrong).unwrap_err().to_string();
            assert!(refused.starts_with("FARWIRE_TOKEN: "), "{refused}");
            assert!(refused.contains(words), "{refused}");
        }
    }
}
