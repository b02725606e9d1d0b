//! `farwire measure ping`.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use model::Nanos;
use serde::{Deserialize, Serialize};

use crate::echo_stats::lines;
use crate::external::Tool;
use crate::failure::{Blame, Failure};
use crate::instrument::{Common, FarEnd, Instrument, MeasureOutput, estimated, interval};
use crate::iperf3::args::{dscp, tos};
use crate::ping::tool::{self, PingTool};
use crate::ping::{self, PingPlan};
use crate::{Session, endpoint};
use record::lateness::Traffic;
use record::pace::PathPace;
use record::profile::{FlentSeries, Headline, HostLimit, Profile, SampleKind};
use record::stated::Stated;
use record::{Measurement, Metric, Statistic};

/// ICMP echo, as ping(8) measures it
#[derive(Args, Debug, Serialize, Deserialize)]
pub struct PingArgs {
    /// Name or address
    #[serde(skip)]
    host: String,
    /// Payload bytes
    #[arg(short, long, value_name = "BYTES", default_value_t = 56, value_parser = clap::value_parser!(u16).range(..=65_507))]
    size: u16,
    /// Echo requests to send
    #[arg(short, long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// From one request to the next: seconds, or 20ms
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Nanos,
    /// After which an answer is late and its request lost
    #[arg(short = 'W', long, value_name = "TIME", default_value = "3s")]
    timeout: Nanos,
    /// The byte of type of service: decimal, 0x hexadecimal, 0 octal
    #[arg(short = 'S', long, value_name = "NUMBER", value_parser = tos, conflicts_with = "dscp")]
    tos: Option<u8>,
    /// The DSCP, 0 to 63, or a name: cs0 to cs7, af11 to af43, ef
    #[arg(long, value_name = "DSCP", value_parser = dscp)]
    dscp: Option<u8>,
    /// TTL or hop limit
    #[arg(short, long, value_name = "HOPS", value_parser = clap::value_parser!(u8).range(1..))]
    ttl: Option<u8>,
    /// Measure with another program
    #[arg(long, value_name = "TOOL")]
    tool: Option<PingTool>,
    #[command(flatten)]
    #[serde(skip)]
    common: Common,
}

impl Instrument for PingArgs {
    fn common(&self) -> &Common {
        &self.common
    }

    fn profile(&self) -> Profile {
        let rtt = Headline::new(Metric::RttMs, Statistic::Median);
        Profile {
            headlines: vec![rtt, Headline::new(Metric::LostPercent, Statistic::Mean)],
            samples: Some(SampleKind::Probes),
            flent: vec![FlentSeries::new("Ping (ms) ICMP", Metric::RttMs, None)],
            ..Profile::new(rtt, HostLimit::RoundTrip)
        }
    }

    fn figures(&self) -> Result<Stated> {
        let hosts = Stated::of(Metric::HostMs, &[Statistic::Max]);
        let figures = crate::echo_stats::stated();
        Ok(match self.tool {
            None => figures.and(hosts),
            Some(PingTool::Ping) => figures,
        })
    }

    fn traffic(&self) -> Vec<Traffic> {
        vec![Traffic::Icmp]
    }

    fn aim(&mut self, far_end: &FarEnd) {
        self.host = far_end.address.to_string();
    }

    fn expected(&self) -> Option<Duration> {
        Some(self.plan().longest())
    }

    fn estimate(&self, pace: Option<&PathPace>) -> Option<Duration> {
        let plan = self.plan();
        // The last answer comes; a path of which nothing is known takes no time.
        let round_trip = pace.map(|pace| pace.round_trip_s(plan.size.into(), plan.size.into()));
        let sent = plan.interval * plan.count.saturating_sub(1);
        Some(sent + estimated(round_trip.unwrap_or(0.0)))
    }

    fn tool(&self) -> Result<Option<Tool>> {
        self.tool.map(|_| tool::tool()).transpose()
    }

    fn measure(&self, session: &Session) -> Result<MeasureOutput, Failure> {
        let target = endpoint::resolve(&self.host, 0, self.common.family()).or_bad_input()?;
        let plan = self.plan();
        let local = self.common.bind.as_ref();
        let measurement = match self.tool {
            Some(PingTool::Ping) => tool::measure(target.ip(), &plan, local, session)?,
            None => {
                ping::check(target.ip()).or_machine()?;
                ping::measure(target.ip(), &plan, local, session)
            }
        };
        Ok(measurement.into())
    }

    fn text(&self, measurement: &Measurement) -> String {
        lines(measurement)
    }
}

impl PingArgs {
    fn plan(&self) -> PingPlan {
        PingPlan {
            size: self.size,
            count: self.count,
            interval: self.interval.into(),
            timeout: self.timeout.into(),
            tos: self.tos.or(self.dscp.map(|dscp| dscp << 2)),
            ttl: self.ttl,
        }
    }
}
