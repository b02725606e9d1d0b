//! Test beds: a client and a far end, with a network between them.
//!
//! Each kind of bed has a file: `namespaces` (`netns` and `chain`), `clients` (`netns` with several clients), `nics`, `external`.

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

use crate::forward::packet_log::PacketLog;
use crate::forward::thread::{ForwarderHandle, ForwarderOptions};
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

/// Work of an instrument that must happen where the client is.
pub(crate) type ClientWork<'a> = Box<dyn FnOnce() -> Measurement + Send + 'a>;

/// What each emulated link did, by its name, in a row.
pub(crate) type LinkSummaries = Vec<(String, Summary)>;

/// A client and a far end with a network between them.
pub(crate) trait Testbed: Sync {
    /// The far end, as the client reaches it.
    fn far_end(&self) -> FarEnd;

    /// What is in effect: the far end's congestion control as read back, offloads, MTU.
    fn environment(&self) -> BTreeMap<String, String>;

    /// How many clients there are.
    fn clients(&self) -> usize {
        1
    }

    /// Does `work` in a thread that is in a client's network namespace; the first is number 0.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    fn in_client(&self, client: usize, work: ClientWork<'_>) -> Result<Measurement>;

    /// Starts `tool` as a server where the far end is, contained, and waits until it listens on `port`; it ends when the
    /// result is dropped. Nothing where the far end is another machine's.
    ///
    /// # Errors
    /// It does not start, or does not listen.
    fn serve_with(&self, tool: &Tool, arguments: &[String], port: u16) -> Result<Option<Running>>;

    /// The far end's network namespace; absent where the far end is another machine's. Where there is one, both ends are in
    /// namespaces, so that tools can be contained there.
    fn far_namespace(&self) -> Option<&NetNs>;

    /// What has left each emulated link so far; nothing where there is none.
    fn departures(&self) -> Vec<LinkDepartures> {
        Vec::new()
    }

    /// What forwards each emulated link, in the order of the bed's links, and the link's number there.
    fn forwarders(&self) -> Vec<(ForwarderHandle, usize)> {
        Vec::new()
    }

    /// Why the machine, beside the links, spoilt what was measured so far, if so.
    fn spoilt(&self) -> Option<String>;

    /// `stop`, and when the test bed fails under what is measured on it.
    fn stops(&self, stop: &Stop) -> Stop {
        stop.clone()
    }

    /// Takes everything down; what the links did.
    ///
    /// # Errors
    /// Something that was part of the test bed had failed.
    fn tear_down(self: Box<Self>) -> Result<LinkSummaries>;
}

/// What is in effect in a bed of namespaces.
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

/// The test bed that is wanted.
pub(crate) struct TestbedSpec<'a> {
    /// What needs it, as messages name it.
    pub(crate) user: String,
    pub(crate) bed: &'a Bed,
    /// Of a chain, from which node to which; from the first to the last when absent.
    pub(crate) between: Option<&'a [String; 2]>,
    /// The conditions of the box.
    pub(crate) link: &'a LinkSpec,
    /// TCP congestion control of the far end.
    pub(crate) congestion: &'a str,
    /// That of senders which have their own.
    pub(crate) of_senders: Vec<&'a str>,
}

/// Sets up test beds of every kind.
pub(crate) struct TestbedBuilder {
    /// Whether forwarders may spin to be on time.
    cpu: CpuUse,
    /// Whether links keep what every flow adds up to.
    by_flow: bool,
    /// What counts as late.
    late_budget: LateBudget,
    /// Interfaces stay borrowed from one test bed to the next: hardware takes seconds to have a carrier.
    nics: Mutex<Option<Arc<HeldNics>>>,
}

/// Makes namespaces possible for this process; to be called before it starts any thread.
pub(crate) fn gain_privilege() -> Result<(), Failure> {
    if getuid() != geteuid() {
        return Err(Failure::machine(
            "the farwire program has the set-user-ID bit, by which its commands would have another user's rights: \
             remove it (chmod u-s)",
        ));
    }
    match Privilege::detect() {
        Privilege::Root => Ok(()),
        Privilege::UserNamespace => userns::enter().or_machine(),
        Privilege::None { why } => Err(Failure::machine(format!(
            "a test bed needs root or user namespaces, and this machine refuses those: {why}; \
             run as root, or see `farwire doctor`"
        ))),
    }
}

impl TestbedBuilder {
    /// For the test beds in `specs`; gains the privileges that they need, so it must come before any thread.
    ///
    /// # Errors
    /// A congestion control or privileges that cannot be had are the machine's.
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
            None => gain_privilege()?,
            // What is in a user namespace of its own reaches neither the network nor the interfaces of this machine.
            Some(other) if !is_root && (!own.is_empty() || others.iter().any(nics)) => {
                return Err(Failure::machine(format!(
                    "{}: the bed `nics`, and `external` together with beds of namespaces, need root: run as root",
                    other.user
                )));
            }
            Some(_) => {}
        }
        let check = |spec: &&TestbedSpec<'_>| {
            let mut all = [spec.congestion].into_iter().chain(spec.of_senders.clone());
            let checked = all.try_for_each(serve::check_congestion);
            checked.with_context(|| spec.user.clone())
        };
        others.iter().try_for_each(check).or_machine()?;
        if !own.is_empty() {
            // In a namespace of farwire's own every control that is available may be set; on the host, some take root.
            let namespace = NetNs::create().or_machine()?;
            let checked = namespace.run(|| own.iter().try_for_each(check));
            checked.or_machine()?.or_machine()?;
        }
        Ok(Self {
            cpu,
            by_flow: false,
            late_budget,
            nics: Mutex::default(),
        })
    }

    /// Has emulated links keep what every flow adds up to, or not.
    pub(crate) fn keeping_flows(self, by_flow: bool) -> Self {
        Self { by_flow, ..self }
    }

    /// Sets up each bed of `specs` once and takes it down again, so that what would always fail fails at the start.
    ///
    /// # Errors
    /// A bed that cannot be had is the machine's.
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

    /// The test bed under the conditions of `spec`, its far end listening.
    ///
    /// # Errors
    /// What the machine refused.
    pub(crate) fn set_up(&self, spec: &TestbedSpec<'_>, seed: u64) -> Result<Box<dyn Testbed>> {
        match spec.bed {
            Bed::Netns(pair) if pair.clients > 1 => {
                clients::set_up(spec, pair, seed, self.forwarder()?)
            }
            Bed::Netns(_) | Bed::Chain(_) => {
                namespaces::set_up(spec, seed, self.late_budget, || self.forwarder())
            }
            Bed::External(bed) => external::set_up(bed, self.late_budget),
            Bed::Nics(nics) => nics::set_up(self.hold(nics)?, spec.congestion, self.late_budget),
        }
    }

    /// How the links of a test bed are forwarded.
    fn forwarder(&self) -> Result<ForwarderOptions> {
        let packet_log = self.by_flow.then_some(PacketLog::ByFlow);
        Ok(ForwarderOptions {
            packet_log,
            late_budget: self.late_budget,
            ..self.cpu.into()
        })
    }

    /// The interfaces, borrowed unless they are already; others are given back first.
    fn hold(&self, nics: &Nics) -> Result<Arc<HeldNics>> {
        let mut held = self.nics.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = held.as_ref().filter(|held| held.is_of(nics)) {
            return Ok(Arc::clone(held));
        }
        *held = None;
        Ok(Arc::clone(held.insert(Arc::new(HeldNics::borrow(nics)?))))
    }
}
