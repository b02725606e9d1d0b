//! The arguments of `farwire measure ping`.

use crate::error::Result;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::echo_stats::{self, lines};
use crate::external::Tool;
use crate::failure::{Blame, Failure};
use crate::instrument::{CommonArgs, FarEnd, Instrument, MeasureOutput, estimated, intervals};
use crate::ping::tool::{self, PingTool};
use crate::ping::{self, PingPlan};
use crate::{Session, endpoint};
use record::lateness::Traffic;
use record::metric_table::{MetricRow, MetricTable};
use record::pace::PathPace;
use record::profile::{Headline, HostLimit, InstrumentProfile, SampleKind};
use record::{Measurement, Metric, Statistic};

/// Measure the round-trip time and loss of ICMP echo requests, as ping(8) does
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct PingArgs {
    /// Name or address to ping
    #[serde(skip)]
    host: String,
    #[command(flatten)]
    #[serde(flatten)]
    plan: PingPlan,
    /// Measure with another program
    #[arg(long, value_name = "TOOL")]
    tool: Option<PingTool>,
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) common: CommonArgs,
}

impl Instrument for PingArgs {
    fn profile(&self) -> InstrumentProfile {
        let rtt = Headline::new(Metric::RttMs, Statistic::Median);
        InstrumentProfile {
            samples: Some(SampleKind::Probes),
            ..self.table().profile(rtt, HostLimit::RoundTrip)
        }
    }

    fn metrics(&self) -> Result<MetricTable> {
        Ok(self.table())
    }

    fn traffic(&self) -> Vec<Traffic> {
        vec![Traffic::Icmp]
    }

    fn set_far_end(&mut self, far_end: &FarEnd) {
        self.host = far_end.address.to_string();
    }

    fn expected(&self) -> Option<Duration> {
        Some(self.plan.longest())
    }

    fn estimate(&self, pace: Option<&PathPace>) -> Option<Duration> {
        let plan = &self.plan;
        // The estimate assumes that the last answer arrives. An unknown path counts as 0 s.
        let round_trip = pace.map(|pace| pace.round_trip_s(plan.size.into(), plan.size.into()));
        let sent = intervals(plan.interval(), plan.count.saturating_sub(1));
        Some(sent + estimated(round_trip.unwrap_or(0.0)))
    }

    fn tool(&self) -> Result<Option<Tool>> {
        self.tool.map(|_| tool::tool()).transpose()
    }

    fn measure(&self, session: &Session) -> Result<MeasureOutput, Failure> {
        let target = endpoint::resolve(&self.host, 0, self.common.family()).or_bad_input()?;
        let plan = &self.plan;
        let local = self.common.bind.as_ref();
        let measurement = match self.tool {
            Some(PingTool::Ping) => tool::measure(target.ip(), plan, local, session)?,
            None => {
                ping::check(target.ip()).or_machine()?;
                ping::measure(target.ip(), plan, local, session)
            }
        };
        Ok(measurement.into())
    }

    fn text(&self, measurement: &Measurement) -> String {
        lines(measurement)
    }
}

impl PingArgs {
    fn table(&self) -> MetricTable {
        let hosts = MetricRow::new(Metric::HostMs, &[Statistic::Max]);
        echo_stats::metrics().and(self.tool.is_none().then_some(hosts))
    }
}
