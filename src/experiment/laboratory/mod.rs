//! Where runs take place.

mod external;
mod namespaces;
mod nics;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use netio::CpuUse;
use netio::netns::NetNs;
use netio::userns::Privilege;

use crate::rig;
pub(crate) use instruments::external::{Launcher, Running, Tool};
use instruments::failure::{Blame, Failure};
use instruments::measure::FarEnd;
use instruments::serve;
use record::Measurement;
use record::bed::{Bed, Nics};
use record::plan::{Case, Plan};
use record::summary::Summary;

use self::nics::Kept;
pub(crate) use self::nics::keep;

/// How long a tool may take to listen.
const SERVER_PATIENCE: Duration = Duration::from_secs(10);

/// Work of an instrument that must happen where the client is.
pub(crate) type ClientWork<'a> = Box<dyn FnOnce() -> Measurement + Send + 'a>;

/// What each emulated link did, by its name, in a row.
pub(crate) type Links = Vec<(String, Summary)>;

/// What makes rigs.
pub(crate) trait Laboratory {
    /// A rig under the conditions of `case`, its far end listening.
    ///
    /// # Errors
    /// What the machine refused.
    fn set_up(&self, case: &Case, seed: u64) -> Result<Box<dyn Rig>>;
}

/// A client and a far end with a network between them.
pub(crate) trait Rig: Sync {
    /// The far end, as the client reaches it.
    fn far_end(&self) -> FarEnd;

    /// What is in effect: the far end's congestion control as read back, offloads, MTU.
    fn environment(&self) -> BTreeMap<String, String>;

    /// Does `work` in a thread that is in the client's network namespace.
    ///
    /// # Errors
    /// The namespace cannot be entered.
    fn in_client(&self, work: ClientWork<'_>) -> Result<Measurement>;

    /// Starts `tool` as a server where the far end is, contained, and waits until it listens on `port`; it ends when the
    /// result is dropped. Nothing where the far end is another machine's.
    ///
    /// # Errors
    /// It does not start, or does not listen.
    fn serve_with(&self, tool: &Tool, arguments: &[String], port: u16) -> Result<Option<Running>>;

    /// Whether both ends are in namespaces, so that tools can be contained there.
    fn is_in_namespaces(&self) -> bool {
        true
    }

    /// Why the machine, beside the links, spoilt what was measured so far, if so.
    fn spoilt(&self) -> Option<String>;

    /// Takes everything down; what the links did.
    ///
    /// # Errors
    /// Something that was part of the rig had failed.
    fn tear_down(self: Box<Self>) -> Result<Links>;
}

/// Makes the rig that each case asks for.
pub(crate) struct AnyBed {
    /// Whether forwarders may spin to be on time.
    cpu: CpuUse,
    /// Interfaces stay borrowed from one run to the next: hardware takes seconds to have a carrier.
    kept: Mutex<Option<Arc<Kept>>>,
}

impl AnyBed {
    /// For the runs of `plan`; gains the privileges that its beds need, so it must come before any thread.
    ///
    /// # Errors
    /// A congestion control that is not here is bad input; privileges that cannot be had are the machine's.
    pub(crate) fn prepare(plan: &Plan, cpu: CpuUse) -> Result<Self, Failure> {
        let (own, others): (Vec<&Case>, _) = plan.cases.iter().partition(|c| c.bed.is_own());
        let is_root = Privilege::detect() == Privilege::Root;
        let nics = |case: &&Case| matches!(case.bed, Bed::Nics(_));
        match others.first() {
            None => rig::gain_privilege()?,
            // What is in a user namespace of its own reaches neither the network nor the interfaces of this machine.
            Some(other) if !is_root && (!own.is_empty() || others.iter().any(nics)) => {
                return Err(Failure::machine(format!(
                    "case `{}`: a bed `nics`, or `external` beside beds of namespaces, needs root: run as root",
                    other.name
                )));
            }
            Some(_) => {}
        }
        if !own.is_empty() {
            // In a namespace of farwire's own every control that is available may be set; on the host, some take root.
            let namespace = NetNs::create().or_machine()?;
            let check = |case: &&Case| {
                serve::check_congestion(&case.congestion)
                    .with_context(|| format!("case `{}`", case.name))
            };
            let checked = namespace.run(|| own.iter().try_for_each(check));
            checked.or_machine()?.or_bad_input()?;
        }
        Ok(Self {
            cpu,
            kept: Mutex::default(),
        })
    }

    /// Sets up a run in every bed of `plan` and takes it down again, so that what would fail in every run fails before the
    /// first.
    ///
    /// # Errors
    /// A bed that cannot be had is the machine's.
    pub(crate) fn try_out(&self, plan: &Plan) -> Result<(), Failure> {
        let mut tried = Vec::new();
        for case in &plan.cases {
            if !tried.contains(&&case.bed) {
                let rig = self.set_up(case, plan.seed).or_machine()?;
                rig.tear_down().map(drop).or_machine()?;
                tried.push(&case.bed);
            }
        }
        Ok(())
    }
}

impl AnyBed {
    /// The interfaces, borrowed unless they are already; others are given back first.
    fn kept(&self, nics: &Nics) -> Result<Arc<Kept>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = kept.as_ref().filter(|kept| kept.is_of(nics)) {
            return Ok(Arc::clone(kept));
        }
        *kept = None;
        Ok(Arc::clone(kept.insert(Arc::new(Kept::borrow(nics)?))))
    }
}

impl Laboratory for AnyBed {
    fn set_up(&self, case: &Case, seed: u64) -> Result<Box<dyn Rig>> {
        match &case.bed {
            Bed::Netns(_) | Bed::Chain(_) => namespaces::set_up(case, seed, self.cpu),
            Bed::External(bed) => external::set_up(bed),
            Bed::Nics(nics) => nics::set_up(self.kept(nics)?, case),
        }
    }
}

/// Starts `tool` as a server in `namespace`, contained, and waits until it listens on `port`.
fn serve_in(namespace: &NetNs, tool: &Tool, arguments: &[String], port: u16) -> Result<Running> {
    let running = namespace.run(|| Launcher::InTestBed.start(tool, arguments))??;
    let listens = rig::await_listener(namespace, Some(port), SERVER_PATIENCE)?;
    ensure!(
        listens,
        "{} does not listen on port {port} within {SERVER_PATIENCE:?}",
        tool.path.display()
    );
    Ok(running)
}
