//! The parts that all services of the far end share: admission, limits, the log and the stop.

mod accept;
mod bound;
mod budget;
mod congestion;
mod log;
mod names;
mod running;
mod tally;

use crate::error::Result;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use model::Bytes;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::sysinfo::sysinfo;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

pub(crate) use self::accept::{ACCEPT_PAUSE, accept_all, await_input, keep_alive, listen};
pub(crate) use self::bound::BoundService;
use self::budget::Shortage;
pub use self::budget::{ClientKey, ResourceBudget, Share, Unit};
pub use self::congestion::check_congestion;
use self::congestion::{CongestionChoices, effective_congestion, set_congestion};
use self::log::EndedTest;
pub use self::log::Log;
pub use self::names::PeerNames;
pub(crate) use self::running::TrafficPublisher;
pub use self::running::{DirectionTraffic, PacketLoss, TestRow, TestSnapshot, TestTraffic};
use self::running::{RunningTests, TestRowGuard};
use self::tally::Counts;
pub use self::tally::{RefusalCause, TESTS, Tally};
use netio::Alarm;
use netio::stop::Stop;
use record::Measurement;

/// A protocol that is served by its own threads until the stop that all services share.
#[derive(Debug)]
pub struct RunningService {
    /// The name that users know, such as "http".
    pub name: &'static str,
    /// The address where the service listens.
    pub address: SocketAddr,
    /// The thread of the service. It ends immediately after the stop, or within 200 ms while tests run.
    pub(crate) thread: JoinHandle<()>,
}

/// The limits that no client can exceed.
#[derive(Clone, Copy, Debug)]
pub struct ServiceLimits {
    /// The number of simultaneous tests of all protocols.
    pub tests: usize,
    /// The number of simultaneous tests of one source, which is an IPv4 address or an IPv6 /64 network. One source may
    /// have the same share of all connections and of all memory.
    pub tests_per_source: usize,
    /// The longest duration of one test.
    pub duration: Duration,
    /// The most buffer memory of one test: the number of streams times the block length and window.
    pub memory: Bytes,
    /// The silence after which a client counts as gone.
    pub idle: Duration,
}

/// The state that the threads of all services share.
#[derive(Debug)]
pub(crate) struct Shared {
    congestion: String,
    /// The congestion controls that clients may choose, determined after privileges are dropped.
    choices: OnceLock<CongestionChoices>,
    limits: ServiceLimits,
    allow: Vec<IpNet>,
    log: Log,
    /// The names of clients, if the operator wants them.
    names: Option<Arc<dyn PeerNames>>,
    counts: Counts,
    running: Arc<RunningTests>,
    /// The flag that running tests read.
    stop: Arc<AtomicBool>,
    /// Rings from the stop on, for threads that wait for clients.
    stop_alarm: Alarm,
    /// The same for the one runtime in which clients are awaited, that of HTTP.
    stop_notice: Notify,
    tests: ResourceBudget,
    memory: ResourceBudget,
    connections: ResourceBudget,
    waiting: ResourceBudget,
}

/// The permit of a client's connection, or of a socket of its test. Dropping it frees its place.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    _connection: Share,
    /// The place among the waiting connections, until the test begins.
    waiting: Mutex<Option<Share>>,
}

/// The permit to run one test. Dropping it gives its resources back.
#[derive(Debug)]
pub(crate) struct Permit {
    _shares: [Share; 3],
    row: TestRowGuard,
    shared: Arc<Shared>,
    test: &'static str,
    peer: SocketAddr,
    began: Instant,
}

/// The time of a test that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestTime {
    /// The duration of the test.
    pub(crate) lasted: Duration,
    /// The time since its end.
    pub(crate) ended_ago: Duration,
}

/// A limited number of permits.
#[derive(Clone, Debug)]
pub(crate) struct PermitPool(Arc<Semaphore>);

/// A permit from a pool. Dropping it gives it back.
pub(crate) type PoolPermit = OwnedSemaphorePermit;

/// The resources that a test needs in addition to its control connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TestResources {
    /// Buffer memory in bytes.
    pub(crate) memory: u64,
    /// The number of sockets. Each may have a thread.
    pub(crate) sockets: u64,
}

/// The reason why a test may not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AdmissionRefusal {
    /// The client's address is in none of the allowed networks.
    #[error("this address is not allowed to test here")]
    NotAllowed,
    /// A resource is used up.
    #[error("busy: {0}")]
    Busy(Shortage),
}

/// The most connections of all services that may wait for their test to begin.
pub(crate) const MOST_WAITING: usize = 512;
/// The descriptors kept from clients: for listening, for the log, and for telling a surplus client that the server is
/// busy.
const RESERVED_DESCRIPTORS: u64 = 256;
/// The most simultaneous connections, even with more descriptors, since each connection may have a thread.
const MOST_CONNECTIONS: u64 = 16_384;

/// Raises this process's limit of open descriptors to the hard limit (setrlimit(2)), for tests with many clients. Child
/// processes inherit the limit; those that call select(2) cannot handle descriptors above 1023.
pub fn raise_descriptor_limit() {
    // If the limit cannot be raised, the number of accepted connections follows the current one.
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

impl Shared {
    /// Returns the shared state. It uses the system's congestion control if `congestion` is absent, and admits everyone
    /// if `allow` is empty.
    ///
    /// # Errors
    /// Returns an error if the congestion control is not available, or the process has no file descriptor left.
    pub(crate) fn new(
        congestion: Option<String>,
        limits: ServiceLimits,
        allow: Vec<IpNet>,
        log: Log,
    ) -> Result<Self> {
        let budget = |unit, most| ResourceBudget::new(unit, most, limits.of_source(most));
        let tests = limits.tests as u64;
        // The total allows at least one test of the largest size.
        let memory = memory_in_all().max(limits.memory.0);
        Ok(Self {
            congestion: effective_congestion(congestion.as_deref())?,
            choices: OnceLock::new(),
            limits,
            allow,
            log,
            names: None,
            counts: Counts::default(),
            running: Arc::default(),
            stop: Arc::default(),
            stop_alarm: Alarm::new().map_err(io::Error::from)?,
            stop_notice: Notify::new(),
            tests: budget(Unit::Tests, tests),
            memory: budget(Unit::Memory, memory),
            connections: budget(Unit::Connections, connections_in_all()),
            waiting: budget(Unit::Waiting, MOST_WAITING.max(limits.tests) as u64),
        })
    }

    /// Returns the same state with the names of clients in its log.
    pub(crate) fn with_names(self, names: Option<Arc<dyn PeerNames>>) -> Self {
        Self { names, ..self }
    }

    /// Admits a connection of `peer` to the service `protocol`; its test has not begun yet.
    ///
    /// # Errors
    /// Returns a refusal if the peer may not test, or has too many connections.
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

    /// Returns whether half of the places for waiting connections are taken, so that none should wait for long.
    pub(crate) fn is_crowded(&self) -> bool {
        self.waiting.is_half_taken()
    }

    /// Admits a test of `peer` that users know as `test` and that takes the resources `needs`.
    ///
    /// # Errors
    /// Returns the refusal if the test may not run.
    pub(crate) fn admit(
        self: &Arc<Self>,
        peer: SocketAddr,
        test: &'static str,
        needs: TestResources,
    ) -> Result<Permit, AdmissionRefusal> {
        let admit = || {
            let source = self.source(peer.ip())?;
            let shares = [
                self.tests.take(Some(source), 1)?,
                self.memory.take(Some(source), needs.memory)?,
                self.connections.take(Some(source), needs.sockets)?,
            ];
            let peer = canonical(peer);
            self.prepare_name(peer);
            Ok(Permit {
                _shares: shares,
                row: self.running.begin(test, peer),
                shared: Arc::clone(self),
                test,
                peer,
                began: Instant::now(),
            })
        };
        self.counting_refusal(test, peer, admit())
    }

    /// Returns the source under which a client is counted.
    ///
    /// # Errors
    /// Returns a refusal if the address may not test.
    fn source(&self, address: IpAddr) -> Result<ClientKey, AdmissionRefusal> {
        if self.allows(address) {
            Ok(ClientKey::of(address))
        } else {
            Err(AdmissionRefusal::NotAllowed)
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

    /// Counts and logs that the test or service `test` was refused to `peer`, and why.
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

    /// Logs refusals that were counted but not logged: those that are due, or all of them at the end.
    pub(crate) fn log_refusals(&self, is_end: bool) {
        self.counts.log_refusals(&self.log, is_end);
    }

    /// Returns the current counts.
    pub(crate) fn tally(&self) -> Tally {
        self.counts.tally()
    }

    /// Returns the tests that run now.
    pub(crate) fn running(&self) -> &Arc<RunningTests> {
        &self.running
    }

    /// Counts and logs a test that is over.
    pub(crate) fn log(
        &self,
        test: &'static str,
        peer: SocketAddr,
        time: TestTime,
        measurement: &Measurement,
    ) {
        self.counts.test(test, measurement);
        let peer = canonical(peer);
        let ended = EndedTest {
            test,
            peer,
            peer_name: self.name_of(peer),
            time,
        };
        self.log.test(ended, measurement);
    }

    /// Begins to look up the name of a client, so that it is known when the test ends.
    pub(crate) fn prepare_name(&self, peer: SocketAddr) {
        let _ = self.name_of(peer);
    }

    /// Returns the name of a client if it is known, and otherwise begins to look it up.
    fn name_of(&self, peer: SocketAddr) -> Option<String> {
        self.names.as_ref()?.name_of(peer.ip())
    }

    /// Returns whether the address of `peer` may test at all, and counts a refusal.
    pub(crate) fn check_allowed(&self, protocol: &'static str, peer: SocketAddr) -> bool {
        let source = self.source(peer.ip());
        self.counting_refusal(protocol, peer, source).is_ok()
    }

    /// Returns whether `address` may test at all.
    fn allows(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.allow.is_empty() || self.allow.iter().any(|net| net.contains(&address))
    }

    /// Checks that `peer` may run one more test by `protocol` now.
    ///
    /// # Errors
    /// Returns a refusal if there is no room.
    pub(crate) fn check_room(
        &self,
        protocol: &'static str,
        peer: SocketAddr,
    ) -> Result<(), AdmissionRefusal> {
        let taken = self.tests.take(Some(ClientKey::of(peer.ip())), 1);
        self.counting_refusal(protocol, peer, taken.map(drop).map_err(Into::into))
    }

    /// Starts to write the log.
    ///
    /// # Errors
    /// Returns an error if a thread cannot be started.
    pub(crate) fn start_log(&self) -> io::Result<()> {
        self.log.start()
    }

    /// Writes a line about a running test to the log for people.
    pub(crate) fn print_progress(&self, text: &str) {
        self.log.progress(text);
    }

    /// Writes a note to the operator that concerns no single test.
    pub(crate) fn note(&self, text: &str) {
        self.log.note(text);
    }

    /// Returns the limits that no client can exceed.
    pub(crate) fn limits(&self) -> ServiceLimits {
        self.limits
    }

    /// Returns the congestion control of sending sockets, unless the client chooses another.
    pub(crate) fn congestion(&self) -> &str {
        &self.congestion
    }

    /// Limits the choice of clients to the congestion controls that the calling thread can set now.
    pub(crate) fn fix_choices(&self) {
        let _ = self
            .choices
            .set(CongestionChoices::of_caller(&self.congestion));
    }

    /// Sets the choice of clients as on a host that allows `settable` and reserves `withheld` for root.
    #[cfg(test)]
    pub(crate) fn fix_choices_to(&self, settable: &[&str], withheld: &[&str]) {
        let fixed = self.choices.set(CongestionChoices::new(settable, withheld));
        fixed.expect("they are not fixed yet");
    }

    /// Returns the congestion controls that a client may choose.
    pub(crate) fn choices(&self) -> &CongestionChoices {
        self.choices
            .get_or_init(|| CongestionChoices::of_caller(&self.congestion))
    }

    /// Returns whether to end now. Running tests check it at least every 100 ms; threads that wait for clients also wait
    /// for [`Shared::stop_alarm`].
    pub(crate) fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns the stop of the services in the form that instruments use.
    pub(crate) fn as_stop(&self) -> Stop {
        Stop::on(Arc::clone(&self.stop))
    }

    /// Returns a descriptor that is readable from the stop on.
    pub(crate) fn stop_alarm(&self) -> BorrowedFd<'_> {
        self.stop_alarm.as_fd()
    }

    /// Waits until the far end stops. Only one task may wait.
    pub(crate) async fn stopped(&self) {
        self.stop_notice.notified().await;
    }

    /// Makes every service end.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        // Nobody acknowledges the alarm, so it wakes every thread.
        self.stop_alarm.ring();
        self.stop_notice.notify_one();
    }
}

impl ConnectionPermit {
    /// Marks the connection as one whose test has begun, or that belongs to a running test.
    pub(crate) fn begin(&self) {
        drop(self.waiting.lock().map(|mut waiting| waiting.take()));
    }
}

impl Permit {
    /// Returns a publisher of the test's traffic, for people who watch.
    pub(crate) fn publisher(&self) -> TrafficPublisher {
        self.row.publisher()
    }

    /// Ends the test and logs its measurement.
    pub(crate) fn finish(self, measurement: &Measurement) {
        let time = TestTime::until_now(self.began);
        self.shared.log(self.test, self.peer, time, measurement);
    }
}

impl TestTime {
    /// Returns the time of a test that began at `began` and ends now.
    pub(crate) fn until_now(began: Instant) -> Self {
        Self {
            lasted: began.elapsed(),
            ended_ago: Duration::ZERO,
        }
    }
}

impl PermitPool {
    /// Returns a pool whose permits are all free.
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))))
    }

    /// Takes a permit, if one is free.
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
    /// The limits for a far end where anyone may test.
    pub const USUAL: Self = Self {
        tests: 64,
        tests_per_source: 16,
        duration: Duration::from_secs(3600),
        memory: Bytes(1 << 30),
        idle: Duration::from_secs(30),
    };

    /// Returns the limits in a test bed with this number of clients of one user. A test may last as long as any
    /// instrument's test.
    pub fn in_bed(clients: u16) -> Self {
        let tests = Self::USUAL.tests * usize::from(clients);
        Self {
            tests,
            tests_per_source: tests,
            duration: Duration::from_secs(86_400),
            ..Self::USUAL
        }
    }

    /// Returns the share of `all` that one source may have.
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

/// Returns the address in its canonical form: an IPv4-mapped IPv6 address becomes IPv4.
pub(crate) fn canonical(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}

impl From<Shortage> for AdmissionRefusal {
    fn from(shortage: Shortage) -> Self {
        Self::Busy(shortage)
    }
}

/// Returns the most simultaneous connections that the limit of descriptors allows (getrlimit(2)).
fn connections_in_all() -> u64 {
    let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    let reserved = RESERVED_DESCRIPTORS.min(descriptors / 2);
    (descriptors - reserved).min(MOST_CONNECTIONS)
}

/// Returns half of this machine's memory in bytes (sysinfo(2)).
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
        let message = |refused: Result<Permit, AdmissionRefusal>| refused.unwrap_err().to_string();
        let first = test("192.0.2.1:9").unwrap();
        assert_eq!(
            message(test("192.0.2.1:10")),
            "busy: 1 tests are already running for this address"
        );
        let second = test("192.0.2.2:9").unwrap();
        assert_eq!(
            message(test("192.0.2.3:9")),
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
