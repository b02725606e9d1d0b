//! The far end of every instrument, which serves many clients simultaneously.

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
    ClientKey, DirectionTraffic, Log, PacketLoss, PeerNames, RefusalCause, ResourceBudget,
    RunningService, ServiceLimits, Share, TESTS, Tally, TestRow, TestSnapshot, TestTraffic, Unit,
    check_congestion, raise_descriptor_limit,
};
use crate::stamp::reflector as stamp;
use crate::stamp::wire::PORT as STAMP_PORT;

/// The configuration of a far end: where it listens, how it sends, and what clients may ask for.
#[derive(Debug, Default)]
pub struct ServeConfig {
    /// The address or interface to listen on. Absent, the far end listens on all addresses of both IP versions.
    pub bind: Option<Local>,
    /// The port of each protocol.
    pub ports: ServicePorts,
    /// TCP_CONGESTION of sending sockets, unless the client chooses it. Absent, the system's default is used.
    pub congestion: Option<String>,
    /// The limits that no client can exceed.
    pub limits: ServiceLimits,
    /// The networks whose clients may test. If the list is empty, everyone may.
    pub allow: Vec<ipnet::IpNet>,
    /// The log of tests.
    pub log: Log,
    /// The names of clients for the log. Absent, the log has only addresses.
    pub names: Option<Arc<dyn PeerNames>>,
}

/// The port of each protocol; 0 means any free port.
#[derive(Clone, Copy, Debug)]
pub struct ServicePorts {
    /// TCP port for HTTP/1.1.
    pub http: u16,
    /// TCP port for pingpong, blast and transfer, and UDP port if a client asks for UDP.
    pub messages: u16,
    /// TCP and UDP port for iperf3.
    pub iperf3: u16,
    /// UDP port for the UDP Speed Test Protocol.
    pub capacity: u16,
    /// UDP port for STAMP.
    pub stamp: u16,
}

/// A running far end. Dropping it ends it and its connections.
#[derive(Debug)]
pub struct FarEndServer {
    pub(crate) shared: Arc<Shared>,
    services: Vec<RunningService>,
}

/// A far end whose ports are bound but which serves nobody yet. It has no threads, so that the caller can drop
/// privileges.
#[derive(Debug)]
pub struct BoundServer {
    pub(crate) shared: Arc<Shared>,
    services: Vec<BoundService>,
}

/// Listens in the calling thread's network namespace and serves from its own threads.
///
/// # Errors
/// Returns an error if an address cannot be bound, the congestion control is not available, or a thread cannot be
/// started.
pub fn start(config: ServeConfig) -> Result<FarEndServer> {
    bind(config)?.start()
}

/// Listens in the calling thread's network namespace.
///
/// # Errors
/// Returns an error if an address cannot be bound or the congestion control is not available.
pub fn bind(config: ServeConfig) -> Result<BoundServer> {
    let ServeConfig { bind, ports, .. } = config;
    let shared = Shared::new(config.congestion, config.limits, config.allow, config.log)?;
    let shared = shared.with_names(config.names);
    let (shared, bind) = (Arc::new(shared), bind.as_ref());
    let share = || Arc::clone(&shared);
    let http = http::bind(bind, ports.http, share());
    let messages = messages::bind(bind, ports.messages, share());
    let iperf3 = iperf3::bind(bind, ports.iperf3, share());
    let capacity = capacity::bind(bind, ports.capacity, share());
    let stamp = stamp::bind(bind, ports.stamp, share());
    let services = [
        http.context("the service of --http-port")?,
        messages.context("the service of --messages-port")?,
        iperf3.context("the service of --iperf3-port")?,
        capacity.context("the service of --capacity-port")?,
        stamp.context("the service of --stamp-port")?,
    ];
    Ok(BoundServer {
        services: services.into(),
        shared,
    })
}

impl BoundServer {
    /// Returns the capabilities that serving needs. CAP_NET_BIND_SERVICE is needed if a service opens a UDP socket for
    /// each client on its own port and that port is privileged.
    pub fn needs(&self) -> &'static [Capability] {
        const SHARED_BY_CLIENTS: [&str; 2] = ["iperf3", "messages"];
        let needs_bind_service = |service: &BoundService| {
            SHARED_BY_CLIENTS.contains(&service.name())
                && service.address().port() < endpoint::first_free_port()
        };
        if self.services.iter().any(needs_bind_service) {
            &[Capability::CAP_NET_BIND_SERVICE]
        } else {
            &[]
        }
    }

    /// Starts to serve. The threads have the privileges of the calling thread.
    ///
    /// # Errors
    /// Returns an error if a thread cannot be started.
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
    /// Returns the address where the service of this name listens.
    ///
    /// # Errors
    /// Returns an error if there is no such service.
    pub fn address(&self, name: &str) -> Result<SocketAddr> {
        self.services
            .iter()
            .find(|service| service.name == name)
            .map(|service| service.address)
            .with_context(|| format!("{name} is not served"))
    }

    /// Returns all services.
    pub fn services(&self) -> &[RunningService] {
        &self.services
    }

    /// Logs the refusals that were counted instead of logged, except those of the last few seconds. Call it often.
    pub fn log_refusals(&self) {
        self.shared.log_refusals(false);
    }

    /// Returns a function that reads the current counts from any thread.
    pub fn counts(&self) -> impl Fn() -> Tally + Clone + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.tally()
    }

    /// Returns a function that reads the running tests from any thread, without holding up any of them.
    pub fn running_tests(&self) -> impl Fn() -> TestSnapshot + Clone + Send + Sync + 'static {
        let running = Arc::clone(self.shared.running());
        move || running.snapshot()
    }

    /// Writes a line about a running test, with the time, to the log for people.
    pub fn print_progress(&self, text: &str) {
        self.shared.print_progress(text);
    }

    /// Returns the congestion control in effect, as read back from a socket.
    pub fn congestion(&self) -> &str {
        self.shared.congestion()
    }
}

impl Drop for FarEndServer {
    fn drop(&mut self) {
        self.shared.stop();
        for service in self.services.drain(..) {
            // A panic of the thread has already been printed, and a destructor has nothing to add.
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
    /// The ports that clients try first.
    const USUAL: Self = Self {
        http: 8080,
        messages: MESSAGES_PORT,
        iperf3: 5201,
        capacity: CAPACITY_PORT,
        stamp: STAMP_PORT,
    };

    /// The ports in a test bed, where every port is free. HTTP uses its well-known port 80.
    pub const IN_BED: Self = Self {
        http: 80,
        ..Self::USUAL
    };

    /// Returns a configuration with any free port for each protocol.
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
    /// Returns a configuration with free ports on 127.0.0.1 and the system's congestion control.
    pub fn on_loopback() -> Self {
        let loopback = std::net::Ipv4Addr::LOCALHOST;
        Self {
            bind: Some(Local::Address(loopback.into())),
            ports: ServicePorts::free(),
            ..Self::default()
        }
    }

    /// Returns the same configuration with a limit of `tests` simultaneous tests.
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
