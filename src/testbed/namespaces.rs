//! Client, emulators and far end in namespaces of this machine: the test beds `netns` and `chain`.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::{Result, bail};
use netio::bed::{BedConfig, Endpoint, SegmentEnd, WAN};
use netio::netns::NetNs;
use netio::stop::Stop;
use netio::tbf::TbfConfig;

use super::emulated::EmulatedBed;
use super::listener::{serve_in, start_far_end};
use super::stalls::StallWatch;
use super::{ClientWork, LinkSummaries, Testbed, TestbedSpec, environment};
use crate::forward::thread::{EMULATOR_DIED, ForwarderHandle, ForwarderOptions};
use conditions::EmulatedLink;
use instruments::external::{Running, Tool};
use instruments::measure::FarEnd;
use instruments::serve::FarEndServer;
use record::Measurement;
use record::bed::{Bed, Ends};
use record::lateness::{LateBudget, LinkDepartures};

/// A test bed of namespaces that it creates itself.
struct Namespaces {
    stalls: StallWatch,
    bed: EmulatedBed,
    /// The names of the links, in order.
    names: Vec<String>,
    ends: Ends,
    far_end: FarEndServer,
    /// The address of the far end.
    address: Ipv4Addr,
    http: u16,
    mtu: u32,
    offloads: bool,
}

/// Sets up the test bed of `spec`, which must be one of these two kinds. `options` returns the
/// options of each link's forwarder.
pub(super) fn set_up(
    spec: &TestbedSpec<'_>,
    seed: u64,
    late_budget: LateBudget,
    options: impl Fn() -> Result<ForwarderOptions>,
) -> Result<Box<dyn Testbed>> {
    let (mtu, offloads, ends) = match spec.bed {
        Bed::Netns(pair) => (pair.mtu, pair.offloads, Ends::OF_PAIR),
        Bed::Chain(chain) => {
            let ends = chain.ends(spec.between)?;
            (chain.mtu, chain.offloads, ends)
        }
        Bed::External(_) | Bed::Nics(_) => bail!("not a bed of namespaces alone"),
    };
    let config = BedConfig {
        mtu,
        offloads,
        ..BedConfig::default()
    };
    let links = spec.bed.links(spec.link, seed)?;
    let with_options = |(number, (name, link)): (usize, (String, EmulatedLink))| {
        let options = ForwarderOptions {
            number,
            ..options()?
        };
        Ok((name, (link, options)))
    };
    let links = links.into_iter().enumerate().map(with_options);
    let links: Vec<_> = links.collect::<Result<_>>()?;
    let (names, links): (Vec<_>, Vec<_>) = links.into_iter().unzip();
    let bed = EmulatedBed::up(&config, links)?;
    if let Some(bucket) = spec.bed.token_bucket() {
        let bucket = TbfConfig {
            rate: bucket.rate,
            burst: bucket.burst,
            limit: bucket.limit,
        };
        bucket.put_on(bed.client(), WAN)?;
    }
    let address = address_of_server(ends)?.v4;
    let far_end = start_far_end(
        &bed.nodes()[ends.server],
        address.into(),
        spec.congestion,
        1,
    )?;
    Ok(Box::new(Namespaces {
        stalls: StallWatch::begin(late_budget)?,
        bed,
        names,
        ends,
        address,
        http: far_end.address("http")?.port(),
        far_end,
        mtu,
        offloads,
    }))
}

/// Returns the far end's addresses on the side of the client.
fn address_of_server(Ends { client, server }: Ends) -> Result<Endpoint> {
    let node = u8::try_from(server)?;
    Ok(if client < server {
        Endpoint::on(node - 1, SegmentEnd::Server)
    } else {
        Endpoint::on(node, SegmentEnd::Client)
    })
}

impl Namespaces {
    fn server(&self) -> &NetNs {
        &self.bed.nodes()[self.ends.server]
    }
}

impl Testbed for Namespaces {
    fn far_end(&self) -> FarEnd {
        FarEnd {
            address: self.address.into(),
            http: self.http,
        }
    }

    fn environment(&self) -> BTreeMap<String, String> {
        environment(&self.far_end, self.mtu, self.offloads)
    }

    fn in_client(&self, _: usize, work: ClientWork<'_>) -> Result<Measurement> {
        Ok(self.bed.nodes()[self.ends.client].run(work)?)
    }

    fn far_namespace(&self) -> Option<&NetNs> {
        Some(self.server())
    }

    fn serve_with(&self, tool: &Tool, arguments: &[String], port: u16) -> Result<Option<Running>> {
        serve_in(self.server(), tool, arguments, port).map(Some)
    }

    fn departures(&self) -> Vec<LinkDepartures> {
        let mut links = self.bed.departures(&self.names);
        if self.ends.client > self.ends.server {
            // Up is the direction from the client, also if the client is at the end of the chain.
            let flows = links.iter_mut().flat_map(|link| &mut link.flows);
            flows.for_each(|flow| std::mem::swap(&mut flow.up, &mut flow.down));
        }
        links
    }

    fn forwarders(&self) -> Vec<(ForwarderHandle, usize)> {
        self.bed
            .forwarders()
            .map(|link| (link.clone(), 0))
            .collect()
    }

    fn spoilt(&self) -> Option<String> {
        self.stalls.spoilt()
    }

    fn stops(&self, stop: &Stop) -> Stop {
        stop.or(self.bed.died(), EMULATOR_DIED)
    }

    fn tear_down(self: Box<Self>) -> Result<LinkSummaries> {
        let Self {
            bed,
            names,
            far_end,
            ..
        } = *self;
        drop(far_end);
        // The rings are closed while the next run is set up.
        Ok(names.into_iter().zip(bed.down_soon()?).collect())
    }
}
