//! The far end of every instrument, for many clients at once.

mod accept;
mod capacity;
mod http;
mod iperf3;
mod log;
mod messages;
mod shared;
mod stamp;

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context, Result};

pub(crate) use self::http::CONGESTION_HEADER;
pub(crate) use self::log::Log;
pub(crate) use self::shared::{Limits, Shared, check_congestion};
use crate::endpoint::Local;
use crate::instrument::capacity::wire::CONTROL_PORT as CAPACITY_PORT;
use crate::instrument::messages::wire::DEFAULT_PORT as MESSAGES_PORT;
use crate::instrument::stamp::wire::PORT as STAMP_PORT;

/// Where to listen, how to send, and what clients may ask for.
#[derive(Debug, Default)]
pub(crate) struct ServeConfig {
    /// All addresses of both IP versions when absent.
    pub(crate) bind: Option<Local>,
    pub(crate) ports: Ports,
    /// TCP_CONGESTION of the sending sockets, where the client does not choose; the system's default when absent.
    pub(crate) congestion: Option<String>,
    pub(crate) limits: Limits,
    /// Whose tests are taken; everyone's when empty.
    pub(crate) allow: Vec<ipnet::IpNet>,
    pub(crate) log: Log,
}

/// A port for each protocol; 0 takes a free one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    /// TCP: HTTP/1.1.
    pub(crate) http: u16,
    /// TCP, and UDP where a client asks for it: pingpong, blast and transfer.
    pub(crate) messages: u16,
    /// TCP and UDP: iperf3.
    pub(crate) iperf3: u16,
    /// UDP: the UDP Speed Test Protocol.
    pub(crate) capacity: u16,
    /// UDP: STAMP.
    pub(crate) stamp: u16,
}

/// One protocol, served from threads of its own until the stop of [`Shared`] rises.
#[derive(Debug)]
pub(crate) struct Service {
    /// As users call it: "http".
    pub(crate) name: &'static str,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Ends within 200 ms of the stop.
    pub(crate) thread: JoinHandle<()>,
}

/// A running far end; ends, with its connections, when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    shared: Arc<Shared>,
    services: Vec<Service>,
}

/// Listens in the calling thread's network namespace, and serves from threads of its own.
///
/// # Errors
/// An address cannot be bound, or the congestion control is not available.
pub(crate) fn start(config: ServeConfig) -> Result<Server> {
    let ServeConfig {
        bind,
        ports,
        congestion,
        limits,
        allow,
        log,
    } = config;
    let shared = Arc::new(Shared::new(congestion, limits, allow, log)?);
    let mut server = Server {
        services: Vec::new(),
        shared,
    };
    let bind = bind.as_ref();
    let shared = || Arc::clone(&server.shared);
    let services = [
        http::start(bind, ports.http, shared()),
        messages::start(bind, ports.messages, shared()),
        iperf3::start(bind, ports.iperf3, shared()),
        capacity::start(bind, ports.capacity, shared()),
        stamp::start(bind, ports.stamp, shared()),
    ];
    for service in services {
        server.services.push(service?);
    }
    Ok(server)
}

impl Server {
    /// Where the service of this name listens.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn address(&self, name: &str) -> Result<SocketAddr> {
        let mut services = self.services.iter();
        let service = services.find(|service| service.name == name);
        service
            .map(|service| service.address)
            .with_context(|| format!("{name} is not served"))
    }

    /// Every service.
    pub(crate) fn services(&self) -> &[Service] {
        &self.services
    }

    /// The congestion control in effect, as read back from a socket.
    pub(crate) fn congestion(&self) -> &str {
        self.shared.congestion()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop();
        for service in self.services.drain(..) {
            // A panic there was printed there; there is nothing to add to it while dropping.
            let _ = service.thread.join();
        }
    }
}

impl Default for Ports {
    fn default() -> Self {
        Self::USUAL
    }
}

impl Ports {
    /// What clients try first.
    const USUAL: Self = Self {
        http: 8080,
        messages: MESSAGES_PORT,
        iperf3: 5201,
        capacity: CAPACITY_PORT,
        stamp: STAMP_PORT,
    };

    /// In a test bed, where every port is free: HTTP's is the usual one of the web.
    pub(crate) const IN_BED: Self = Self {
        http: 80,
        ..Self::USUAL
    };

    /// Free ones only.
    #[cfg(test)]
    pub(crate) fn free() -> Self {
        Self {
            http: 0,
            messages: 0,
            iperf3: 0,
            capacity: 0,
            stamp: 0,
        }
    }
}

impl ServeConfig {
    /// Free ports on 127.0.0.1, with the system's congestion control.
    #[cfg(test)]
    pub(crate) fn on_loopback() -> Self {
        let loopback = std::net::Ipv4Addr::LOCALHOST;
        Self {
            bind: Some(Local::Address(loopback.into())),
            ports: Ports::free(),
            ..Self::default()
        }
    }

    /// The same for so many tests at a time.
    #[cfg(test)]
    pub(crate) fn on_loopback_for(tests: usize) -> Self {
        let limits = Limits {
            tests,
            ..Limits::default()
        };
        Self {
            limits,
            ..Self::on_loopback()
        }
    }
}
