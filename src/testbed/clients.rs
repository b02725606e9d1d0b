//! Many clients and one far end in namespaces of this machine: the test bed `netns` with `clients`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use netio::bed::{BedConfig, SERVER, Star};
use netio::netns::NetNs;
use netio::stop::Stop;

use super::listener::{serve_in, start_far_end};
use super::stalls::StallWatch;
use super::{ClientWork, LinkSummaries, Testbed, TestbedSpec, environment};
use crate::forward::thread::{EMULATOR_DIED, ForwarderHandle, ForwarderOptions};
use crate::forward::threads::{self, Forwarders, ThreadCount, distribute, place};
use instruments::external::{Running, Tool};
use instruments::measure::FarEnd;
use instruments::serve::{FarEndServer, raise_descriptor_limit};
use record::Measurement;
use record::bed::Pair;
use record::lateness::{LateBudget, LinkDepartures};

/// One namespace per client, and the forwarders of their links.
struct Clients {
    stalls: StallWatch,
    bed: Star,
    running: Forwarders,
    late_budget: LateBudget,
    died: Arc<AtomicBool>,
    /// The names of the links, in the order of the clients.
    names: Vec<String>,
    far_end: FarEndServer,
    http: u16,
    mtu: u32,
    offloads: bool,
}

/// Sets up the test bed of `spec`, which must be of this kind.
pub(super) fn set_up(
    spec: &TestbedSpec<'_>,
    pair: &Pair,
    seed: u64,
    threads: ThreadCount,
    options: ForwarderOptions,
) -> Result<Box<dyn Testbed>> {
    // Each namespace keeps a descriptor open, and a test needs several at each end.
    raise_descriptor_limit();
    let config = BedConfig {
        mtu: pair.mtu,
        offloads: pair.offloads,
        ..BedConfig::default()
    };
    let clients = u16::try_from(pair.clients).context("clients")?;
    let (names, links): (Vec<_>, Vec<_>) = spec.bed.links(spec.link, seed)?.into_iter().unzip();
    let bed = Star::build(&config, clients)?;
    let port_names = bed.ports();
    let ports: Vec<&str> = port_names.iter().map(String::as_str).collect();
    let shares = distribute(links.len(), threads.of_links(links.len()));
    let sets = bed.emulator().run(|| {
        // Each link has two ports.
        let open = |share: &Range<usize>| threads::open(&ports[2 * share.start..2 * share.end]);
        shares.iter().map(open).collect::<Result<Vec<_>, _>>()
    })??;
    let died = Arc::clone(&options.died);
    let late_budget = options.late_budget;
    let running = Forwarders::start(place(sets, &shares, links), shares, options)?;
    let far_end = start_far_end(bed.server(), SERVER.v4.into(), spec.congestion, clients)?;
    Ok(Box::new(Clients {
        stalls: StallWatch::begin(late_budget)?,
        bed,
        running,
        late_budget,
        died,
        names,
        http: far_end.address("http")?.port(),
        far_end,
        mtu: pair.mtu,
        offloads: pair.offloads,
    }))
}

impl Testbed for Clients {
    fn far_end(&self) -> FarEnd {
        FarEnd {
            address: SERVER.v4.into(),
            http: self.http,
        }
    }

    fn environment(&self) -> BTreeMap<String, String> {
        environment(&self.far_end, self.mtu, self.offloads)
    }

    fn clients(&self) -> usize {
        self.bed.clients().len()
    }

    fn in_client(&self, client: usize, work: ClientWork<'_>) -> Result<Measurement> {
        Ok(self.bed.clients()[client].run(work)?)
    }

    fn far_namespace(&self) -> Option<&NetNs> {
        Some(self.bed.server())
    }

    fn serve_with(&self, tool: &Tool, arguments: &[String], port: u16) -> Result<Option<Running>> {
        serve_in(self.bed.server(), tool, arguments, port).map(Some)
    }

    /// Returns the departures of all links together, because one entry per link would make records
    /// very large.
    fn departures(&self) -> Vec<LinkDepartures> {
        let name = format!("all {} links", self.names.len());
        vec![LinkDepartures::of_all(
            name,
            self.late_budget,
            self.running.departures(),
        )]
    }

    fn forwarders(&self) -> Vec<(ForwarderHandle, usize)> {
        let all = (0..self.names.len()).map(|link| self.running.of_link(link));
        all.map(|(forwarder, number)| (forwarder.clone(), number))
            .collect()
    }

    fn spoilt(&self) -> Option<String> {
        self.stalls.spoilt()
    }

    fn stops(&self, stop: &Stop) -> Stop {
        stop.or(&self.died, EMULATOR_DIED)
    }

    fn tear_down(self: Box<Self>) -> Result<LinkSummaries> {
        drop(self.far_end);
        Ok(self.names.into_iter().zip(self.running.stop()?).collect())
    }
}
