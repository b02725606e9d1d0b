//! Services whose ports are bound but which do not serve yet. Privileges are dropped at this point, before any thread
//! starts.

use crate::error::Result;
use std::fmt;
use std::net::SocketAddr;
use std::thread;

use super::RunningService;

/// A protocol whose ports are bound and which has no thread yet.
pub(crate) struct BoundService {
    name: &'static str,
    address: SocketAddr,
    serve: Box<dyn FnOnce() + Send>,
}

impl BoundService {
    /// Returns the service that users know as `name`, which listens on `address`. `serve` must return within 200 ms
    /// after the stop that all services share.
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

    /// Returns the name that users know.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the address where the service listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves from a thread of the service.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
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
