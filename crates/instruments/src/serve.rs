//! The far end of every instrument, for many clients at once.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::error::{Context, Result};
use netio::sandbox::Capability;

use crate::capacity::server as capacity;
use crate::capacity::wire::CONTROL_PORT as CAPACITY_PORT;
use crate::endpoint::{self, Local};
use crate::http::server as http;
use crate::iperf3::server as iperf3;
use crate::messages::server as messages;
use crate::messages::wire::DEFAULT_PORT as MESSAGES_PORT;
use crate::service::{BoundService, Shared};
pub use crate::service::{
    ClientKey, Log, RefusalCause, ResourceBudget, RunningService, ServiceLimits, Share, TESTS,
    Tally, Unit, check_congestion, raise_descriptor_limit,
};
use crate::stamp::reflector as stamp;
use crate::stamp::wire::PORT as STAMP_PORT;

/// Where to listen, how to send, and what clients may ask for.
#[derive(Debug, Default)]
pub struct ServeConfig {
    /// All addresses of both IP versions when absent.
    pub bind: Option<Local>,
    /// On which port each protocol is served.
    pub ports: ServicePorts,
    /// TCP_CONGESTION of the sending sockets, where the client does not choose; the system's default when absent.
    pub congestion: Option<String>,
    /// What no client can pass.
    pub limits: ServiceLimits,
    /// Whose tests are taken; everyone's when empty.
    pub allow: Vec<ipnet::IpNet>,
    /// Where tests are logged.
    pub log: Log,
}

/// A port for each protocol; 0 takes a free one.
#[derive(Clone, Copy, Debug)]
pub struct ServicePorts {
    /// TCP: HTTP/1.1.
    pub http: u16,
    /// TCP, and UDP where a client asks for it: pingpong, blast and transfer.
    pub messages: u16,
    /// TCP and UDP: iperf3.
    pub iperf3: u16,
    /// UDP: the UDP Speed Test Protocol.
    pub capacity: u16,
    /// UDP: STAMP.
    pub stamp: u16,
}

/// A running far end; ends, with its connections, when dropped.
#[derive(Debug)]
pub struct FarEndServer {
    pub(crate) shared: Arc<Shared>,
    services: Vec<RunningService>,
}

/// A far end whose ports are bound, and which serves nobody yet: it has no thread, so that privileges can be dropped.
#[derive(Debug)]
pub struct BoundServer {
    pub(crate) shared: Arc<Shared>,
    services: Vec<BoundService>,
}

/// Listens in the calling thread's network namespace, and serves from threads of its own.
///
/// # Errors
/// An address cannot be bound, or the congestion control is not available.
pub fn start(config: ServeConfig) -> Result<FarEndServer> {
    bind(config)?.start()
}

/// Listens in the calling thread's network namespace.
///
/// # Errors
/// As [`start`].
pub fn bind(config: ServeConfig) -> Result<BoundServer> {
    let ServeConfig { bind, ports, .. } = config;
    let shared = Shared::new(config.congestion, config.limits, config.allow, config.log)?;
    let (shared, bind) = (Arc::new(shared), bind.as_ref());
    let share = || Arc::clone(&shared);
    let services = [
        http::bind(bind, ports.http, share())?,
        messages::bind(bind, ports.messages, share())?,
        iperf3::bind(bind, ports.iperf3, share())?,
        capacity::bind(bind, ports.capacity, share())?,
        stamp::bind(bind, ports.stamp, share())?,
    ];
    Ok(BoundServer {
        services: services.into(),
        shared,
    })
}

impl BoundServer {
    /// The capabilities without which it could not serve as it is to: CAP_NET_BIND_SERVICE, where a client's UDP gets a socket of its
    /// own on a port that needs it.
    pub fn needs(&self) -> &'static [Capability] {
        const SHARED_BY_CLIENTS: [&str; 2] = ["iperf3", "messages"];
        let mut shared = self.services.iter();
        let needs = |service: &BoundService| {
            let is_shared = SHARED_BY_CLIENTS.contains(&service.name());
            is_shared && service.address().port() < endpoint::first_free_port()
        };
        match shared.any(needs) {
            true => &[Capability::CAP_NET_BIND_SERVICE],
            false => &[],
        }
    }

    /// Serves, from threads that have what the calling one has of privileges.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(self) -> Result<FarEndServer> {
        self.shared.fix_choices();
        self.shared.start_log()?;
        let mut server = FarEndServer {
            services: Vec::new(),
            shared: self.shared,
        };
        for service in self.services {
            server.services.push(service.start()?);
        }
        Ok(server)
    }
}

impl FarEndServer {
    /// Where the service of this name listens.
    ///
    /// # Errors
    /// There is none.
    pub fn address(&self, name: &str) -> Result<SocketAddr> {
        let mut services = self.services.iter();
        let service = services.find(|service| service.name == name);
        service
            .map(|service| service.address)
            .with_context(|| format!("{name} is not served"))
    }

    /// Every service.
    pub fn services(&self) -> &[RunningService] {
        &self.services
    }

    /// Logs refusals that were counted and not logged one by one, those of the last seconds excepted; to be called often.
    pub fn log_refusals(&self) {
        self.shared.log_refusals(false);
    }

    /// Returns a function that reads the present counts from any thread.
    pub fn counts(&self) -> impl Fn() -> Tally + Clone + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.tally()
    }

    /// The congestion control in effect, as read back from a socket.
    pub fn congestion(&self) -> &str {
        self.shared.congestion()
    }
}

impl Drop for FarEndServer {
    fn drop(&mut self) {
        self.shared.stop();
        for service in self.services.drain(..) {
            // A panic there was printed there; there is nothing to add to it while dropping.
            let _ = service.thread.join();
        }
        self.shared.log_refusals(true);
    }
}

impl Default for ServicePorts {
    fn default() -> Self {
        Self::USUAL
    }
}

impl ServicePorts {
    /// What clients try first.
    const USUAL: Self = Self {
        http: 8080,
        messages: MESSAGES_PORT,
        iperf3: 5201,
        capacity: CAPACITY_PORT,
        stamp: STAMP_PORT,
    };

    /// In a test bed, where every port is free: HTTP's is the usual one of the web.
    pub const IN_BED: Self = Self {
        http: 80,
        ..Self::USUAL
    };

    /// Free ones only.
    pub fn free() -> Self {
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
    pub fn on_loopback() -> Self {
        let loopback = std::net::Ipv4Addr::LOCALHOST;
        Self {
            bind: Some(Local::Address(loopback.into())),
            ports: ServicePorts::free(),
            ..Self::default()
        }
    }

    /// The same for so many tests at a time.
    #[cfg(test)]
    pub(crate) fn on_loopback_for(tests: usize) -> Self {
        let limits = ServiceLimits {
            tests,
            tests_per_source: tests,
            ..ServiceLimits::default()
        };
        Self {
            limits,
            ..Self::on_loopback()
        }
    }
}
