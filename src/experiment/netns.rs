//! The laboratory of network namespaces: client, emulator and far end on this machine.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use model::LinkConfig;
use netio::CpuUse;
use netio::bed::{BedConfig, SERVER, WAN};

use super::plan::{Case, Plan};
use super::runner::{ClientWork, Laboratory, Rig};
use crate::endpoint::Local;
use crate::exit::{Blame, Failure};
use crate::forward::summary::Summary;
use crate::instrument::Measurement;
use crate::instrument::external::{Launcher as _, Running, Tool, Within};
use crate::measure::FarEnd;
use crate::rig;
use crate::serve::{self, Limits, Ports, ServeConfig, Server};

/// How long a tool may take to listen.
const SERVER_PATIENCE: Duration = Duration::from_secs(10);

/// Makes a test bed for each run.
pub(crate) struct NetnsLaboratory {
    /// Whether the forwarder may spin to be on time.
    pub(crate) cpu: CpuUse,
}

impl NetnsLaboratory {
    /// Sets one run of `plan` up and takes it down again, so that what would fail in every run fails before the first.
    ///
    /// # Errors
    /// A congestion control that is not here is bad input; a bed that cannot be had is the machine's.
    pub(crate) fn try_out(&self, plan: &Plan) -> Result<(), Failure> {
        for case in &plan.cases {
            serve::check_congestion(&case.congestion)
                .with_context(|| format!("case `{}`", case.name))
                .or_bad_input()?;
        }
        let Some(case) = plan.cases.first() else {
            return Ok(());
        };
        let rig = self.set_up(case, plan.seed).or_machine()?;
        rig.tear_down().map(drop).or_machine()
    }
}

struct NetnsRig {
    rig: rig::Rig,
    far_end: Server,
    http: u16,
    mtu: u32,
    offloads: bool,
}

impl Laboratory for NetnsLaboratory {
    fn set_up(&self, case: &Case, seed: u64) -> Result<Box<dyn Rig>> {
        let bed = BedConfig {
            mtu: case.bed.mtu,
            offloads: case.bed.offloads,
            ..BedConfig::default()
        };
        let link = LinkConfig {
            seed,
            link: 0,
            hops: vec![case.bed.wire.to_hop("wire")?, case.link.to_hop("box")?],
        };
        let rig = rig::Rig::up(&bed, &link, self.cpu)?;
        if let Some(bucket) = case.bed.token_bucket() {
            bucket.put_on(rig.client(), WAN)?;
        }
        let config = ServeConfig {
            bind: Some(Local::Address(SERVER.v4.into())),
            ports: Ports::IN_BED,
            congestion: Some(case.congestion.clone()),
            limits: Limits::IN_BED,
            ..ServeConfig::default()
        };
        let far_end = rig
            .server()
            .run(|| serve::start(config))?
            .context("the far end")?;
        let (mtu, offloads) = (bed.mtu, bed.offloads);
        Ok(Box::new(NetnsRig {
            rig,
            http: far_end.address("http")?.port(),
            far_end,
            mtu,
            offloads,
        }))
    }
}

impl Rig for NetnsRig {
    fn far_end(&self) -> FarEnd {
        FarEnd {
            address: SERVER.v4.into(),
            http: self.http,
        }
    }

    fn environment(&self) -> BTreeMap<String, String> {
        let offloads = if self.offloads { "on" } else { "off" };
        [
            (
                "TCP congestion control of the far end, read back",
                self.far_end.congestion().to_owned(),
            ),
            ("MTU", self.mtu.to_string()),
            (
                "segmentation and checksum offloads of client and far end",
                offloads.to_owned(),
            ),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    fn in_client(&self, work: ClientWork<'_>) -> Result<Measurement> {
        Ok(self.rig.client().run(work)?)
    }

    fn serve_with(&self, tool: &Tool, arguments: &[String], port: u16) -> Result<Running> {
        let server = self.rig.server();
        let running = server.run(|| Within.start(tool, arguments))??;
        let listens = rig::await_listener(server, Some(port), SERVER_PATIENCE)?;
        ensure!(
            listens,
            "{} does not listen on port {port} within {SERVER_PATIENCE:?}",
            tool.path.display()
        );
        Ok(running)
    }

    fn tear_down(self: Box<Self>) -> Result<Summary> {
        let Self { rig, far_end, .. } = *self;
        drop(far_end);
        Ok(rig.down())
    }
}
