//! Test beds: a client and a far end with a network between them.
//!
//! Each kind of test bed has a file: `namespaces` (`netns` and `chain`), `clients` (`netns` with
//! several clients), `nics` and `external`.

mod clients;
mod emulated;
mod external;
mod listener;
mod namespaces;
mod nics;
mod processor_time;
mod stalls;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use netio::CpuUse;
use netio::netns::NetNs;
use netio::stop::Stop;
use netio::userns::{self, Privilege};
use nix::unistd::{geteuid, getuid};

use crate::forward::overload::LateLimit;
use crate::forward::packet_log::PacketLog;
use crate::forward::thread::{ForwarderHandle, ForwarderOptions};
use crate::forward::threads::ThreadCount;
use conditions::LinkSpec;
use instruments::external::{Running, Tool};
use instruments::failure::{Blame, Failure};
use instruments::measure::FarEnd;
use instruments::serve::{self, FarEndServer};
use record::Measurement;
use record::bed::{Bed, Nics};
use record::lateness::{LateBudget, LinkDepartures};
use record::summary::Summary;

pub(crate) use self::emulated::EmulatedBed;
pub(crate) use self::listener::{await_listener, serve_confined};
use self::nics::HeldNics;
pub(crate) use self::nics::hold as hold_nics;
pub(crate) use self::stalls::StallWatch;

/// Work of an instrument that must run in the client's namespace.
pub(crate) type ClientWork<'a> = Box<dyn FnOnce() -> Measurement + Send + 'a>;

/// The summary of each emulated link with its name, in order.
pub(crate) type LinkSummaries = Vec<(String, Summary)>;

/// A client and a far end with a network between them.
pub(crate) trait Testbed: Sync {
    /// Returns the far end as the client reaches it.
    fn far_end(&self) -> FarEnd;

    /// Returns the settings in effect: the far end's congestion control as read back, offloads and
    /// MTU.
    fn environment(&self) -> BTreeMap<String, String>;

    /// Returns the number of clients.
    fn clients(&self) -> usize {
        1
    }

    /// Does `work` in a thread within a client's network namespace. The first client is number 0.
    ///
    /// # Errors
    /// Fails if the namespace cannot be entered.
    fn in_client(&self, client: usize, work: ClientWork<'_>) -> Result<Measurement>;

    /// Starts `tool` as a contained server at the far end and waits until it listens on `port`. The
    /// server ends when the result is dropped. Returns `None` if the far end is on another machine.
    ///
    /// # Errors
    /// Fails if the tool does not start or does not listen.
    fn serve_with(&self, tool: &Tool, arguments: &[String], port: u16) -> Result<Option<Running>>;

    /// Returns the far end's network namespace, or `None` if the far end is on another machine. If
    /// there is one, both ends are in namespaces, so that tools can be contained there.
    fn far_namespace(&self) -> Option<&NetNs>;

    /// Returns the departures from each emulated link up to now, if there are any links.
    fn departures(&self) -> Vec<LinkDepartures> {
        Vec::new()
    }

    /// Returns the forwarder of each emulated link and the link's number there, in the order of the
    /// test bed's links.
    fn forwarders(&self) -> Vec<(ForwarderHandle, usize)> {
        Vec::new()
    }

    /// Returns the reason, other than the links, why the machine spoilt the measurements up to now,
    /// if it did.
    fn spoilt(&self) -> Option<String>;

    /// Returns a stop that is set by `stop` or if the test bed fails during a measurement.
    fn stops(&self, stop: &Stop) -> Stop {
        stop.clone()
    }

    /// Takes everything down. Returns the summaries of the links.
    ///
    /// # Errors
    /// Fails if a part of the test bed has failed.
    fn tear_down(self: Box<Self>) -> Result<LinkSummaries>;
}

/// Returns the settings in effect in a test bed of namespaces.
fn environment(far_end: &FarEndServer, mtu: u32, offloads: bool) -> BTreeMap<String, String> {
    let offloads = if offloads { "on" } else { "off" };
    [
        (
            "TCP congestion control of the far end, read back",
            far_end.congestion().to_owned(),
        ),
        ("MTU", mtu.to_string()),
        (
            "segmentation and checksum offloads of client and far end",
            offloads.to_owned(),
        ),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// The description of a test bed.
pub(crate) struct TestbedSpec<'a> {
    /// The user of the test bed, as messages name it.
    pub(crate) user: String,
    pub(crate) bed: &'a Bed,
    /// The first and the last node of the path in a chain; the chain's own first and last if
    /// `None`.
    pub(crate) between: Option<&'a [String; 2]>,
    /// The conditions of the emulated link.
    pub(crate) link: &'a LinkSpec,
    /// The TCP congestion control of the far end.
    pub(crate) congestion: &'a str,
    /// The congestion control of those senders that set their own.
    pub(crate) sender_congestions: Vec<&'a str>,
}

/// A builder for test beds of every kind.
pub(crate) struct TestbedBuilder {
    /// Says whether forwarders may spin to be on time.
    cpu: CpuUse,
    /// True if links add up their packets by flow.
    by_flow: bool,
    /// The time after the due time beyond which a departure is late.
    late_budget: LateBudget,
    /// The number of threads that forward the links of many clients.
    threads: ThreadCount,
    /// The processors on which forwarders run; without any, on all.
    cpus: Vec<usize>,
    /// The borrowed interfaces. They stay borrowed between test beds, because hardware takes
    /// seconds to get a carrier.
    nics: Mutex<Option<Arc<HeldNics>>>,
}

/// The user of the commands in a test bed, as they see it, if a user namespace is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandUser {
    /// User 0 of the namespace.
    Root,
    /// The user who started farwire, with the capabilities over the network.
    Caller,
}

/// Gets the privileges for namespaces. This must happen before the process starts any thread.
pub(crate) fn gain_privilege(user: CommandUser) -> Result<(), Failure> {
    enter_namespaces(user, false)
}

/// Does the same as [`gain_privilege`] in a user namespace, also as root.
pub(crate) fn isolate(user: CommandUser) -> Result<(), Failure> {
    enter_namespaces(user, true)
}

fn enter_namespaces(user: CommandUser, isolates_root: bool) -> Result<(), Failure> {
    if getuid() != geteuid() {
        return Err(Failure::machine(
            "the farwire program has the set-user-ID bit, by which its commands would have another user's rights: \
             remove it (chmod u-s)",
        ));
    }
    match Privilege::detect() {
        Privilege::Root if !isolates_root => Ok(()),
        Privilege::Root | Privilege::UserNamespace => match user {
            CommandUser::Root => userns::enter().or_machine(),
            CommandUser::Caller => userns::enter_as_caller().or_machine(),
        },
        Privilege::None { why } => Err(Failure::machine(format!(
            "a test bed needs root or user namespaces, and this machine refuses those: {why}; \
             run as root, or see `farwire doctor`"
        ))),
    }
}

impl TestbedBuilder {
    /// Creates a builder for the test beds in `specs` and gets the privileges that they need. This
    /// must happen before the process starts any thread.
    ///
    /// # Errors
    /// Blames the machine if a congestion control or a privilege is not available.
    pub(crate) fn prepare(
        specs: &[TestbedSpec<'_>],
        cpu: CpuUse,
        late_budget: LateBudget,
    ) -> Result<Self, Failure> {
        let (own, others): (Vec<&TestbedSpec<'_>>, _) =
            specs.iter().partition(|spec| spec.bed.is_own());
        let is_root = Privilege::detect() == Privilege::Root;
        let nics = |spec: &&TestbedSpec<'_>| matches!(spec.bed, Bed::Nics(_));
        match others.first() {
            None => gain_privilege(CommandUser::Root)?,
            // A process in a separate user namespace cannot reach the network or the interfaces of
            // this machine.
            Some(other) if !is_root && (!own.is_empty() || others.iter().any(nics)) => {
                return Err(Failure::machine(format!(
                    "{}: the bed `nics`, and `external` together with beds of namespaces, need root: run as root",
                    other.user
                )));
            }
            Some(_) => {}
        }
        let check = |spec: &&TestbedSpec<'_>| {
            let mut all = [spec.congestion]
                .into_iter()
                .chain(spec.sender_congestions.clone());
            let checked = all.try_for_each(serve::check_congestion);
            checked.with_context(|| spec.user.clone())
        };
        others.iter().try_for_each(check).or_machine()?;
        if !own.is_empty() {
            // In a namespace of farwire, every available congestion control may be set; on the
            // host, some need root.
            let namespace = NetNs::create().or_machine()?;
            let checked = namespace.run(|| own.iter().try_for_each(check));
            checked.or_machine()?.or_machine()?;
        }
        Ok(Self {
            cpu,
            by_flow: false,
            late_budget,
            threads: ThreadCount::ONE,
            cpus: Vec::new(),
            nics: Mutex::default(),
        })
    }

    /// Sets the number of threads that forward the links of many clients, and the processors on which
    /// forwarders run.
    pub(crate) fn with_threads(self, threads: ThreadCount, cpus: Vec<usize>) -> Self {
        Self {
            threads,
            cpus,
            ..self
        }
    }

    /// Says whether emulated links add up their packets by flow.
    pub(crate) fn keeping_flows(self, by_flow: bool) -> Self {
        Self { by_flow, ..self }
    }

    /// Sets up each test bed of `specs` once and takes it down again, so that permanent errors
    /// occur at the start.
    ///
    /// # Errors
    /// Blames the machine if a test bed cannot be set up.
    pub(crate) fn try_out(&self, specs: &[TestbedSpec<'_>], seed: u64) -> Result<(), Failure> {
        let mut tried = Vec::new();
        for spec in specs {
            if !tried.contains(&spec.bed) {
                let testbed = self.set_up(spec, seed).or_machine()?;
                testbed.tear_down().map(drop).or_machine()?;
                tried.push(spec.bed);
            }
        }
        Ok(())
    }

    /// Sets up the test bed of `spec`; its far end listens.
    ///
    /// # Errors
    /// Fails if the machine refuses a part of it.
    pub(crate) fn set_up(&self, spec: &TestbedSpec<'_>, seed: u64) -> Result<Box<dyn Testbed>> {
        match spec.bed {
            Bed::Netns(pair) if pair.clients > 1 => {
                clients::set_up(spec, pair, seed, self.threads, self.forwarder()?)
            }
            Bed::Netns(_) | Bed::Chain(_) => {
                namespaces::set_up(spec, seed, self.late_budget, || self.forwarder())
            }
            Bed::External(bed) => external::set_up(bed, self.late_budget),
            Bed::Nics(nics) => nics::set_up(self.hold(nics)?, spec.congestion, self.late_budget),
        }
    }

    /// Returns the options of the links' forwarders.
    fn forwarder(&self) -> Result<ForwarderOptions> {
        let first = self.by_flow.then_some(PacketLog::ByFlow);
        Ok(ForwarderOptions {
            packet_logs: first.into_iter().collect(),
            late_budget: self.late_budget,
            late_limit: LateLimit::beside(self.late_budget),
            cpus: self.cpus.clone(),
            ..self.cpu.into()
        })
    }

    /// Returns the interfaces. They are borrowed unless they already are; other interfaces are
    /// given back first.
    fn hold(&self, nics: &Nics) -> Result<Arc<HeldNics>> {
        let mut held = self.nics.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = held.as_ref().filter(|held| held.is_of(nics)) {
            return Ok(Arc::clone(held));
        }
        *held = None;
        Ok(Arc::clone(held.insert(Arc::new(HeldNics::borrow(nics)?))))
    }
}
