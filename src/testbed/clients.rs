//! Many clients and one far end in namespaces of this machine: the test bed `netns` with `clients`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use netio::AfPacket;
use netio::bed::{BedConfig, SERVER, Star};
use netio::netns::NetNs;
use netio::stop::Stop;

use super::listener::{serve_in, start_far_end};
use super::stalls::StallWatch;
use super::{ClientWork, LinkSummaries, Testbed, TestbedSpec, environment};
use crate::forward::PortId;
use crate::forward::thread::{
    EMULATOR_DIED, ForwarderHandle, ForwarderOptions, ForwarderThread, PlacedLink, RING_SLOTS,
};
use instruments::external::{Running, Tool};
use instruments::measure::FarEnd;
use instruments::serve::{FarEndServer, raise_descriptor_limit};
use record::Measurement;
use record::bed::Pair;
use record::lateness::LinkDepartures;

/// One namespace per client, and one forwarder for all their links.
struct Clients {
    stalls: StallWatch,
    bed: Star,
    running: ForwarderThread,
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
    let shared = bed
        .emulator()
        .run(|| AfPacket::open_all(&ports, RING_SLOTS))??;
    let joined = (0..).zip(links).map(|(number, link)| PlacedLink {
        ports: PortId::in_one_set(number),
        link,
    });
    let died = Arc::clone(&options.died);
    let running = ForwarderThread::start_all(vec![shared], joined.collect(), options)?;
    let far_end = start_far_end(bed.server(), SERVER.v4.into(), spec.congestion, clients)?;
    Ok(Box::new(Clients {
        stalls: StallWatch::begin(running.handle().late_budget())?,
        bed,
        running,
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
        let budget = self.running.handle().late_budget();
        let links = self.running.handle().departures().unwrap_or_default();
        vec![LinkDepartures::of_all(name, budget, links)]
    }

    fn forwarders(&self) -> Vec<(ForwarderHandle, usize)> {
        let all = 0..self.names.len();
        all.map(|link| (self.running.handle().clone(), link))
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
