//! A protocol between binding its ports and serving on them: privileges are dropped in between, before any thread is started.

use crate::error::Result;
use std::fmt;
use std::net::SocketAddr;
use std::thread;

use super::RunningService;

/// A protocol whose ports are bound, and which no thread serves yet.
pub(crate) struct BoundService {
    name: &'static str,
    address: SocketAddr,
    serve: Box<dyn FnOnce() + Send>,
}

impl BoundService {
    /// Of users' name `name`, listening on `address`; `serve` returns within 200 ms of the stop that all services share.
    pub(crate) fn new(
        name: &'static str,
        address: SocketAddr,
        serve: impl FnOnce() + Send + 'static,
    ) -> Self {
        let serve = Box::new(serve);
        Self {
            name,
            address,
            serve,
        }
    }

    /// As users call it.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves from a thread of its own.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(crate) fn start(self) -> Result<RunningService> {
        let thread = thread::Builder::new().name(self.name.to_owned());
        Ok(RunningService {
            name: self.name,
            address: self.address,
            thread: thread.spawn(self.serve)?,
        })
    }
}

impl fmt::Debug for BoundService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundService")
            .field("name", &self.name)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
