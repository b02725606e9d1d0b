//! `--listen`: lets the links of a command be watched and changed.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::Args;

use super::screen::{self, LiveScreen};
use crate::experiment::Plan;
use crate::experiment::captures::RunCaptures;
use crate::live::{Keeper, Links, NewLink};
use crate::notes::note;
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
    /// Let links be watched and changed while they run, by a page and an API at this address: 127.0.0.1:7700, or unix:PATH; those
    /// of `run` are only watched
    ///
    /// Any other address than one of the loopback takes a token, and has TLS.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<Listen>,
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
    /// Opens the socket, before this process enters another network namespace.
    ///
    /// # Errors
    /// An address that cannot be had, or must not; a token or a certificate that is none.
    pub(crate) fn open(&self) -> Result<Option<Listening>, Failure> {
        let opened = self.listen.as_ref().map(|listen| {
            let all = token(self.token_file.as_deref(), TOKEN)?;
            let read = token(self.read_token_file.as_deref(), READ_TOKEN)?;
            let access = Access::new(all.as_deref(), read.as_deref())?;
            let files = self.tls_cert.clone().zip(self.tls_key.clone());
            let files = files.map(|(certificate, key)| CertificateFiles { certificate, key });
            listen.open(access, files.as_ref())
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

/// The token in a file, or else of a variable of the environment.
///
/// # Errors
/// A file that cannot be read, or has something else in it than a token; names it.
pub(crate) fn token(file: Option<&Path>, variable: &str) -> Result<Option<String>> {
    let Some(file) = file else {
        let said = std::env::var(variable).ok();
        return Ok(said.filter(|token| !token.is_empty()));
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
