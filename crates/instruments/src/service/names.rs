//! The names of clients.

use std::fmt;
use std::net::IpAddr;

/// Finds the names of clients, for the log and for people who watch the far end.
pub trait PeerNames: fmt::Debug + Send + Sync {
    /// Returns the name of the host with this address, or `None` until it is found. It never waits, and begins to look
    /// up a name that it does not know.
    fn name_of(&self, address: IpAddr) -> Option<String>;
}
