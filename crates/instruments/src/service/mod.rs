//! What all services of the far end share: who may test, how much, and when to end.

mod accept;
mod log;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ipnet::IpNet;
use model::Bytes;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) use self::accept::{ACCEPT_PAUSE, WAITING_ROOM, accept_all, await_input, listen};
pub use self::log::Log;
use netio::stop::Stop;
use record::Measurement;

/// One protocol, served from threads of its own until the stop that all services share rises.
#[derive(Debug)]
pub struct Service {
    /// As users call it: "http".
    pub name: &'static str,
    /// Where it listens.
    pub address: SocketAddr,
    /// Ends within 200 ms of the stop.
    pub(crate) thread: JoinHandle<()>,
}

/// What no client can pass.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Tests at a time, of all protocols together.
    pub tests: usize,
    /// How long one test may last.
    pub duration: Duration,
    /// Buffers of one test: streams times block length and window.
    pub memory: Bytes,
    /// After which silence a client is taken to be gone.
    pub idle: Duration,
}

/// Shared by the threads of every service.
#[derive(Debug)]
pub(crate) struct Shared {
    congestion: String,
    limits: Limits,
    allow: Vec<IpNet>,
    log: Log,
    stop: Arc<AtomicBool>,
    running: Slots,
}

/// The right to run one test; given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    _slot: Slot,
    shared: Arc<Shared>,
    test: &'static str,
    peer: SocketAddr,
    began: Instant,
}

/// A limited number of places.
#[derive(Clone, Debug)]
pub(crate) struct Slots(Arc<Semaphore>);

/// One of them; given back when dropped.
pub(crate) type Slot = OwnedSemaphorePermit;

/// Why a test may not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The client's address is in none of the networks that are allowed.
    #[error("this address may not test here")]
    NotAllowed,
    /// So many tests run already.
    #[error("busy: {0} tests run already")]
    Busy(usize),
}

/// Whether a socket in the calling thread's network namespace may have the congestion control `name`.
///
/// # Errors
/// It may not: names those that it may have.
pub fn check_congestion(name: &str) -> Result<()> {
    effective_congestion(Some(name)).map(drop)
}

impl Shared {
    /// Takes the system's congestion control where none is named, and everyone's tests where `allow` is empty.
    ///
    /// # Errors
    /// The congestion control is not available.
    pub(crate) fn new(
        congestion: Option<String>,
        limits: Limits,
        allow: Vec<IpNet>,
        log: Log,
    ) -> Result<Self> {
        Ok(Self {
            congestion: effective_congestion(congestion.as_deref())?,
            limits,
            allow,
            log,
            stop: Arc::default(),
            running: Slots::new(limits.tests),
        })
    }

    /// Lets `peer` run a test that users know as `test`, if it may.
    ///
    /// # Errors
    /// It may not, and why.
    pub(crate) fn admit(
        self: &Arc<Self>,
        peer: SocketAddr,
        test: &'static str,
    ) -> Result<Permit, Refusal> {
        if !self.allows(peer.ip()) {
            return Err(Refusal::NotAllowed);
        }
        let slot = self.running.take();
        Ok(Permit {
            _slot: slot.ok_or(Refusal::Busy(self.limits.tests))?,
            shared: Arc::clone(self),
            test,
            peer: SocketAddr::new(peer.ip().to_canonical(), peer.port()),
            began: Instant::now(),
        })
    }

    /// Logs a test that ended now and needed no permit.
    pub(crate) fn log(
        &self,
        test: &'static str,
        peer: SocketAddr,
        lasted: Duration,
        measurement: &Measurement,
    ) {
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        self.log.test(test, peer, lasted, measurement);
    }

    /// Whether `address` may test at all.
    pub(crate) fn allows(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.allow.is_empty() || self.allow.iter().any(|net| net.contains(&address))
    }

    /// Whether one more test may run now.
    pub(crate) fn has_room(&self) -> bool {
        self.running.0.available_permits() > 0
    }

    /// What no client can pass.
    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// The congestion control of sending sockets where the client does not choose.
    pub(crate) fn congestion(&self) -> &str {
        &self.congestion
    }

    /// Whether to end now; asked for at least every 100 ms.
    pub(crate) fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The same as an instrument asks for it.
    pub(crate) fn as_stop(&self) -> Stop {
        Stop::on(Arc::clone(&self.stop))
    }

    /// Makes every service end.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Permit {
    /// Of a test that is known by this name from now on.
    pub(crate) fn called(mut self, test: &'static str) -> Self {
        self.test = test;
        self
    }

    /// Ends the test and logs what it found.
    pub(crate) fn finish(self, measurement: &Measurement) {
        let lasted = self.began.elapsed();
        self.shared
            .log
            .test(self.test, self.peer, lasted, measurement);
    }
}

impl Slots {
    /// All of them free.
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))))
    }

    /// One of them, if one is free.
    pub(crate) fn take(&self) -> Option<Slot> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }
}

impl Service {
    /// Serves from a thread of its own.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(crate) fn start(
        name: &'static str,
        address: SocketAddr,
        serve: impl FnOnce() + Send + 'static,
    ) -> Result<Self> {
        Ok(Self {
            name,
            address,
            thread: thread::Builder::new().name(name.to_owned()).spawn(serve)?,
        })
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::USUAL
    }
}

impl Limits {
    /// Where anyone may test.
    pub const USUAL: Self = Self {
        tests: 64,
        duration: Duration::from_secs(3600),
        memory: Bytes(1 << 30),
        idle: Duration::from_secs(30),
    };

    /// In a test bed, whose user is the only client: as long as any instrument's test can be.
    pub const IN_BED: Self = Self {
        duration: Duration::from_secs(86_400),
        ..Self::USUAL
    };
}

/// The congestion control that a new socket has, once set to `name` where one is named.
fn effective_congestion(name: Option<&str>) -> Result<String> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    if let Some(name) = name {
        set_congestion(&socket, name)?;
    }
    // The kernel pads the name with zeros.
    let padded = socket
        .tcp_congestion()
        .context("reading TCP_CONGESTION back")?;
    let text = padded.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// Sets TCP_CONGESTION.
///
/// # Errors
/// It is not available, or not to this user: names those that are.
fn set_congestion(socket: &Socket, name: &str) -> Result<()> {
    let set = socket.set_tcp_congestion(name.as_bytes());
    set.map_err(|error: io::Error| {
        let (problem, which, remedy) = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                ("needs root here; allowed are", "allowed", String::new())
            }
            _ => (
                "is not available; there are",
                "available",
                format!("; as root, `modprobe tcp_{name}` loads it where the kernel has it"),
            ),
        };
        let sysctl = format!("tcp_{which}_congestion_control");
        let names = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{sysctl}"));
        let names = names.unwrap_or_default();
        anyhow::anyhow!(error).context(format!(
            "TCP congestion control `{name}` {problem}: {} (net.ipv4.{sysctl}){remedy}",
            names.trim()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(tests: usize, allow: &[&str]) -> Arc<Shared> {
        let limits = Limits {
            tests,
            ..Limits::default()
        };
        let allow = allow.iter().map(|net| net.parse().unwrap()).collect();
        Arc::new(Shared::new(None, limits, allow, Log::default()).unwrap())
    }

    #[test]
    fn no_more_tests_run_at_a_time_than_the_limit() {
        let (shared, peer) = (shared(1, &[]), "127.0.0.1:9".parse().unwrap());
        let first = shared.admit(peer, "tcp").unwrap();
        assert_eq!(shared.admit(peer, "tcp").unwrap_err(), Refusal::Busy(1));
        drop(first);
        assert!(shared.admit(peer, "tcp").is_ok());
    }

    #[test]
    fn only_allowed_networks_may_test() {
        let shared = shared(9, &["10.0.0.0/8", "fd00::/8"]);
        for (address, allowed) in [
            ("10.1.2.3:1", true),
            ("[::ffff:10.1.2.3]:1", true),
            ("[fd77::1]:1", true),
            ("11.1.2.3:1", false),
            ("[::1]:1", false),
        ] {
            let admitted = shared.admit(address.parse().unwrap(), "tcp");
            assert_eq!(admitted.is_ok(), allowed, "{address}");
        }
    }
}
