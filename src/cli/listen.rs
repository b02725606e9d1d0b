//! `--listen`: lets the links of a command be watched and changed.

use anyhow::Result;
use clap::Args;

use crate::live::{Links, NewLink};
use crate::notes::note;
use crate::web::{Listen, Listening, Server};
use instruments::failure::{Blame, Failure};

/// Where the links can be watched and changed.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ListenArg {
    /// Let links be watched and changed while they run, by a page and an API at this address: 127.0.0.1:7700, or unix:PATH; those
    /// of `run` are only watched
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<Listen>,
}

/// Where the runs of experiments are watched, if anywhere.
pub(super) struct LiveRuns {
    links: Links,
    /// Until the first experiment is ready: no thread may run before.
    listening: Option<Listening>,
    server: Option<LiveServer>,
}

/// Serves links until it is dropped; what serves them first, then they are gone.
pub(crate) struct LiveServer {
    links: Links,
    _server: Server,
}

impl ListenArg {
    /// Opens the socket, before this process enters another network namespace.
    ///
    /// # Errors
    /// An address that cannot be had, or must not.
    pub(super) fn open(&self) -> Result<Option<Listening>, Failure> {
        let opened = self.listen.as_ref().map(Listen::open);
        opened.transpose().or_bad_input()
    }
}

impl LiveRuns {
    /// At an open socket.
    pub(super) fn at(listening: Option<Listening>) -> Self {
        Self {
            links: Links::default(),
            listening,
            server: None,
        }
    }

    /// Serves from now on; where the runs' links are to be put, if anybody may see them.
    ///
    /// # Errors
    /// The machine lets no threads or descriptors be had.
    pub(super) fn serve(&mut self) -> Result<Option<&Links>> {
        if let Some(listening) = self.listening.take() {
            let said = format!("farwire: watch it at {listening}");
            self.server = Some(LiveServer::of(listening, self.links.clone(), &said)?);
        }
        Ok(self.server.is_some().then_some(&self.links))
    }
}

impl LiveServer {
    /// Starts to serve these links, and says where.
    pub(super) fn start(
        listening: Listening,
        all: impl IntoIterator<Item = NewLink>,
    ) -> Result<Self> {
        let links = Links::default();
        all.into_iter().for_each(|link| links.put(link));
        let said = format!("farwire: watch and change it at {listening}");
        Self::of(listening, links, &said)
    }

    fn of(listening: Listening, links: Links, said: &str) -> Result<Self> {
        let server = Server::start(listening, links.clone())?;
        note(said);
        Ok(Self {
            links,
            _server: server,
        })
    }
}

impl Drop for LiveServer {
    fn drop(&mut self) {
        self.links.clear();
    }
}
