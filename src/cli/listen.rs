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
    /// Let the link be watched and changed while it runs, by a page and an API at this address: 127.0.0.1:7700, or unix:PATH
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<Listen>,
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

impl LiveServer {
    /// Starts to serve these links, and says where.
    pub(super) fn start(
        listening: Listening,
        all: impl IntoIterator<Item = NewLink>,
    ) -> Result<Self> {
        let links = Links::default();
        all.into_iter().for_each(|link| links.put(link));
        let said = format!("farwire: watch and change it at {listening}");
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
