//! What all services of the far end share: who may test, how much, and when to end.

mod accept;
mod bound;
mod budget;
mod congestion;
mod log;
mod tally;

use crate::error::Result;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use model::Bytes;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::sysinfo::sysinfo;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) use self::accept::{ACCEPT_PAUSE, accept_all, await_input, keep_alive, listen};
pub(crate) use self::bound::BoundService;
use self::budget::Shortage;
pub use self::budget::{ClientKey, ResourceBudget, Share, Unit};
pub use self::congestion::check_congestion;
use self::congestion::{Choices, effective_congestion, set_congestion};
pub use self::log::Log;
use self::tally::Counts;
pub use self::tally::{RefusalCause, TESTS, Tally};
use netio::stop::Stop;
use record::Measurement;

/// One protocol, served from threads of its own until the stop that all services share rises.
#[derive(Debug)]
pub struct RunningService {
    /// As users call it: "http".
    pub name: &'static str,
    /// Where it listens.
    pub address: SocketAddr,
    /// Ends within 200 ms of the stop.
    pub(crate) thread: JoinHandle<()>,
}

/// What no client can pass.
#[derive(Clone, Copy, Debug)]
pub struct ServiceLimits {
    /// Tests at a time, of all protocols together.
    pub tests: usize,
    /// Those among them that one source may have: an IPv4 address, or an IPv6 network of 64 bits. Of connections and of
    /// memory it may have the same part.
    pub tests_per_source: usize,
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
    /// What clients may choose, told once privileges are given up.
    choices: OnceLock<Choices>,
    limits: ServiceLimits,
    allow: Vec<IpNet>,
    log: Log,
    counts: Counts,
    stop: Arc<AtomicBool>,
    tests: ResourceBudget,
    memory: ResourceBudget,
    connections: ResourceBudget,
    waiting: ResourceBudget,
}

/// A client's connection, or a socket of its test; it no longer counts when dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    _connection: Share,
    /// Until its test begins.
    waiting: Mutex<Option<Share>>,
}

/// The right to run one test; given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    _shares: [Share; 3],
    shared: Arc<Shared>,
    test: &'static str,
    peer: SocketAddr,
    began: Instant,
}

/// A limited number of places.
#[derive(Clone, Debug)]
pub(crate) struct PermitPool(Arc<Semaphore>);

/// One of them; given back when dropped.
pub(crate) type PoolPermit = OwnedSemaphorePermit;

/// What a test takes beside its control connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TestResources {
    /// Bytes of buffers.
    pub(crate) memory: u64,
    /// Sockets, each of which may have a thread.
    pub(crate) sockets: u64,
}

/// Why a test may not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AdmissionRefusal {
    /// The client's address is in none of the networks that are allowed.
    #[error("this address is not allowed to test here")]
    NotAllowed,
    /// There is no more of something.
    #[error("busy: {0}")]
    Busy(Shortage),
}

/// Connections of all services that have not begun a test.
pub(crate) const MOST_WAITING: usize = 512;
/// Descriptors that no client gets: for listening, the log, and saying to one too many that it is so.
const RESERVED_DESCRIPTORS: u64 = 256;
/// Connections at a time where there are descriptors for more: each may have a thread.
const MOST_CONNECTIONS: u64 = 16_384;

/// Lets this process open as many descriptors as it may have (setrlimit(2)), for the tests of many clients. Programs that it
/// starts inherit that, and select(2) cannot handle it.
pub fn raise_descriptor_limit() {
    // What cannot be raised is what there is: the connections that are taken in follow it.
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

impl Shared {
    /// Takes the system's congestion control where none is named, and everyone's tests where `allow` is empty.
    ///
    /// # Errors
    /// The congestion control is not available.
    pub(crate) fn new(
        congestion: Option<String>,
        limits: ServiceLimits,
        allow: Vec<IpNet>,
        log: Log,
    ) -> Result<Self> {
        let budget = |unit, most| ResourceBudget::new(unit, most, limits.of_source(most));
        let tests = limits.tests as u64;
        // At least one test that takes all that one may.
        let memory = memory_in_all().max(limits.memory.0);
        Ok(Self {
            congestion: effective_congestion(congestion.as_deref())?,
            choices: OnceLock::new(),
            limits,
            allow,
            log,
            counts: Counts::default(),
            stop: Arc::default(),
            tests: budget(Unit::Tests, tests),
            memory: budget(Unit::Memory, memory),
            connections: budget(Unit::Connections, connections_in_all()),
            waiting: budget(Unit::Waiting, MOST_WAITING.max(limits.tests) as u64),
        })
    }

    /// Takes a connection of `peer` to the service `protocol` in, which has yet to begin a test.
    ///
    /// # Errors
    /// It may not test, or has too many already.
    pub(crate) fn enter(
        &self,
        protocol: &'static str,
        peer: SocketAddr,
    ) -> Result<ConnectionPermit, AdmissionRefusal> {
        let enter = || {
            let source = self.source(peer.ip())?;
            Ok(ConnectionPermit {
                _connection: self.connections.take(Some(source), 1)?,
                waiting: Mutex::new(Some(self.waiting.take(Some(source), 1)?)),
            })
        };
        self.counting_refusal(protocol, peer, enter())
    }

    /// Lets `peer` run a test that users know as `test` and that takes `needs`, if it may.
    ///
    /// # Errors
    /// It may not, and why.
    pub(crate) fn admit(
        self: &Arc<Self>,
        peer: SocketAddr,
        test: &'static str,
        needs: TestResources,
    ) -> Result<Permit, AdmissionRefusal> {
        let admit = || {
            let source = self.source(peer.ip())?;
            Ok(Permit {
                _shares: [
                    self.tests.take(Some(source), 1)?,
                    self.memory.take(Some(source), needs.memory)?,
                    self.connections.take(Some(source), needs.sockets)?,
                ],
                shared: Arc::clone(self),
                test,
                peer: canonical(peer),
                began: Instant::now(),
            })
        };
        self.counting_refusal(test, peer, admit())
    }

    /// The address or network under which a client is counted.
    ///
    /// # Errors
    /// It may not test.
    fn source(&self, address: IpAddr) -> Result<ClientKey, AdmissionRefusal> {
        match self.allows(address) {
            true => Ok(ClientKey::of(address)),
            false => Err(AdmissionRefusal::NotAllowed),
        }
    }

    fn counting_refusal<T>(
        &self,
        test: &'static str,
        peer: SocketAddr,
        admitted: Result<T, AdmissionRefusal>,
    ) -> Result<T, AdmissionRefusal> {
        admitted.inspect_err(|refusal| self.refused(test, peer, refusal.cause(), refusal))
    }

    /// Counts and logs that `peer` was refused the test or the service `test`, and why.
    pub(crate) fn refused(
        &self,
        test: &'static str,
        peer: SocketAddr,
        cause: RefusalCause,
        why: &dyn fmt::Display,
    ) {
        let peer = canonical(peer);
        self.counts.refusal(&self.log, test, peer, (cause, why));
    }

    /// Logs refusals that were counted only, at the end all of them.
    pub(crate) fn log_refusals(&self, is_end: bool) {
        self.counts.log_refusals(&self.log, is_end);
    }

    /// The present counts.
    pub(crate) fn tally(&self) -> Tally {
        self.counts.tally()
    }

    /// Counts and logs a test that ended now.
    pub(crate) fn log(
        &self,
        test: &'static str,
        peer: SocketAddr,
        lasted: Duration,
        measurement: &Measurement,
    ) {
        self.counts.test(test, measurement);
        self.log.test(test, canonical(peer), lasted, measurement);
    }

    /// Whether `peer` may test by `protocol` at all; that it may not is counted.
    pub(crate) fn check_allowed(&self, protocol: &'static str, peer: SocketAddr) -> bool {
        let source = self.source(peer.ip());
        self.counting_refusal(protocol, peer, source).is_ok()
    }

    /// Whether `address` may test at all.
    fn allows(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.allow.is_empty() || self.allow.iter().any(|net| net.contains(&address))
    }

    /// Whether one more test of `peer` by `protocol` may run now.
    ///
    /// # Errors
    /// It may not.
    pub(crate) fn check_room(
        &self,
        protocol: &'static str,
        peer: SocketAddr,
    ) -> Result<(), AdmissionRefusal> {
        let taken = self.tests.take(Some(ClientKey::of(peer.ip())), 1);
        self.counting_refusal(protocol, peer, taken.map(drop).map_err(Into::into))
    }

    /// Has the log written.
    ///
    /// # Errors
    /// There are no threads to be had.
    pub(crate) fn start_log(&self) -> io::Result<()> {
        self.log.start()
    }

    /// Says to the operator what no test is to be blamed for.
    pub(crate) fn note(&self, text: &str) {
        self.log.note(text);
    }

    /// What no client can pass.
    pub(crate) fn limits(&self) -> ServiceLimits {
        self.limits
    }

    /// The congestion control of sending sockets where the client does not choose.
    pub(crate) fn congestion(&self) -> &str {
        &self.congestion
    }

    /// Has clients choose among the congestion controls that the calling thread can set now, and no others.
    pub(crate) fn fix_choices(&self) {
        let _ = self.choices.set(Choices::of_caller(&self.congestion));
    }

    /// Has clients choose as on a host that has these and keeps the others for root.
    #[cfg(test)]
    pub(crate) fn fix_choices_to(&self, settable: &[&str], withheld: &[&str]) {
        let fixed = self.choices.set(Choices::new(settable, withheld));
        fixed.expect("they are not fixed yet");
    }

    /// What a client may choose of congestion control.
    pub(crate) fn choices(&self) -> &Choices {
        self.choices
            .get_or_init(|| Choices::of_caller(&self.congestion))
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

impl ConnectionPermit {
    /// Its test begins, or it turns out to belong to one.
    pub(crate) fn begin(&self) {
        drop(self.waiting.lock().map(|mut waiting| waiting.take()));
    }
}

impl Permit {
    /// Ends the test and logs what it found.
    pub(crate) fn finish(self, measurement: &Measurement) {
        self.shared
            .log(self.test, self.peer, self.began.elapsed(), measurement);
    }
}

impl PermitPool {
    /// All of them free.
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))))
    }

    /// One of them, if one is free.
    pub(crate) fn take(&self) -> Option<PoolPermit> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }
}

impl Default for ServiceLimits {
    fn default() -> Self {
        Self::USUAL
    }
}

impl ServiceLimits {
    /// Where anyone may test.
    pub const USUAL: Self = Self {
        tests: 64,
        tests_per_source: 16,
        duration: Duration::from_secs(3600),
        memory: Bytes(1 << 30),
        idle: Duration::from_secs(30),
    };

    /// In a test bed of so many clients, which are all one user's: as long as any instrument's test can be.
    pub fn in_bed(clients: u16) -> Self {
        let tests = Self::USUAL.tests * usize::from(clients);
        Self {
            tests,
            tests_per_source: tests,
            duration: Duration::from_secs(86_400),
            ..Self::USUAL
        }
    }

    /// What one source may have of `all`.
    pub(crate) fn of_source(&self, all: u64) -> u64 {
        let (part, whole) = (self.tests_per_source as u128, self.tests.max(1) as u128);
        let share = (u128::from(all) * part).div_ceil(whole);
        u64::try_from(share).map_or(all, |share| share.min(all))
    }
}

impl AdmissionRefusal {
    fn cause(self) -> RefusalCause {
        match self {
            Self::NotAllowed => RefusalCause::OutsideAllow,
            Self::Busy(_) => RefusalCause::Busy,
        }
    }
}

/// Returns the address with a mapped IPv4 address as IPv4.
fn canonical(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}

impl From<Shortage> for AdmissionRefusal {
    fn from(shortage: Shortage) -> Self {
        Self::Busy(shortage)
    }
}

/// As many as there are descriptors for (getrlimit(2)).
fn connections_in_all() -> u64 {
    let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    let reserved = RESERVED_DESCRIPTORS.min(descriptors / 2);
    (descriptors - reserved).min(MOST_CONNECTIONS)
}

/// Half of this machine's memory, in bytes (sysinfo(2)).
fn memory_in_all() -> u64 {
    sysinfo().map_or(u64::MAX, |info| info.ram_total() / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(tests: usize, allow: &[&str]) -> Arc<Shared> {
        let limits = ServiceLimits {
            tests,
            tests_per_source: tests.div_ceil(2),
            ..ServiceLimits::default()
        };
        let allow = allow.iter().map(|net| net.parse().unwrap()).collect();
        Arc::new(Shared::new(None, limits, allow, Log::default()).unwrap())
    }

    #[test]
    fn no_more_tests_run_at_a_time_than_the_limit() {
        let shared = shared(2, &[]);
        let test =
            |peer: &str| shared.admit(peer.parse().unwrap(), "tcp", TestResources::default());
        let said = |refused: Result<Permit, AdmissionRefusal>| refused.unwrap_err().to_string();
        let first = test("192.0.2.1:9").unwrap();
        assert_eq!(
            said(test("192.0.2.1:10")),
            "busy: 1 tests are already running for this address"
        );
        let second = test("192.0.2.2:9").unwrap();
        assert_eq!(
            said(test("192.0.2.3:9")),
            "busy: 2 tests are already running"
        );
        drop((first, second));
        assert!(test("192.0.2.1:9").is_ok());
    }

    #[test]
    fn a_connection_waits_until_its_test_begins() {
        let shared = shared(MOST_WAITING, &[]);
        let address = "192.0.2.1";
        let enter =
            |address: &str| shared.enter("http", SocketAddr::new(address.parse().unwrap(), 9));
        let mut waiting: Vec<_> = std::iter::from_fn(|| enter(address).ok()).collect();
        assert!((MOST_WAITING / 4..MOST_WAITING).contains(&waiting.len()));
        assert!(enter("192.0.2.2").is_ok());
        waiting.pop().unwrap().begin();
        assert!(enter(address).is_ok());
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
            let admitted = shared.admit(address.parse().unwrap(), "tcp", TestResources::default());
            assert_eq!(admitted.is_ok(), allowed, "{address}");
        }
    }
}
