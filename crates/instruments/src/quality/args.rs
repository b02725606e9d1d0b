//! The arguments of `farwire measure quality`.

use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::plan::{PhasePlan, QualityPlan};
use super::services::{FarServices, ServicePortArgs};
use super::{phases, results, verdict};
use crate::Session;
use crate::error::Result;
use crate::failure::{Blame, Failure};
use crate::instrument::{CommonArgs, FarEnd, Instrument, MeasureOutput, OUTPUT};
use record::lateness::Traffic;
use record::metric_table::MetricTable;
use record::profile::{Headline, HostLimit, InstrumentProfile, SampleKind};
use record::table::Table;
use record::{Figure, Measurement, Metric, Statistic};

/// Find out whether the path is bloated: its latency, loss and throughput, idle and under load
///
/// quality probes the idle path, then the path under TCP loads down, up and in both directions. One verdict says how much latency the
/// loads add. Give an emulated link a rate: without one, the loads fill the emulator and no queue.
/// The far end is `farwire serve`.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct QualityArgs {
    /// Name or address of the far end
    #[serde(skip)]
    host: String,
    #[command(flatten)]
    #[serde(flatten)]
    plan: QualityPlan,
    #[command(flatten)]
    #[serde(flatten)]
    ports: ServicePortArgs,
    /// Print every figure, and how each one was measured
    #[arg(long, help_heading = OUTPUT)]
    #[serde(skip)]
    details: bool,
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) common: CommonArgs,
}

impl Instrument for QualityArgs {
    fn profile(&self) -> InstrumentProfile {
        let rtt = Headline::new(Metric::NetworkRttMs, Statistic::Median);
        InstrumentProfile {
            samples: Some(SampleKind::Probes),
            ..results::metrics().profile(rtt, HostLimit::RoundTrip)
        }
    }

    fn metrics(&self) -> Result<MetricTable> {
        Ok(results::metrics())
    }

    fn traffic(&self) -> Vec<Traffic> {
        self.ports.traffic()
    }

    fn set_far_end(&mut self, far_end: &FarEnd) {
        self.host = far_end.address.to_string();
        self.ports.set_far_end(far_end);
    }

    fn use_congestion(&mut self, name: &str) {
        self.plan.congestion.get_or_insert_with(|| name.to_owned());
    }

    fn expected(&self) -> Option<Duration> {
        Some(self.plan.time())
    }

    fn round_trips(&self) -> u32 {
        PhasePlan::of(&self.plan).round_trips()
    }

    fn measure(&self, session: &Session) -> Result<MeasureOutput, Failure> {
        let plan = PhasePlan::of(&self.plan);
        plan.check().or_bad_input()?;
        let local = self.common.bind.as_ref();
        let address = self.ports.resolve(&self.host, self.common.family());
        let address = address.or_bad_input()?;
        let services = match FarServices::find(address, &self.ports, local, session)? {
            Ok(services) => services,
            Err(cause) => return Ok(Measurement::failed(cause).into()),
        };
        let results = phases::measure(&plan, &services, local, session)?;
        let measurement = results.measurement();
        let facts = verdict::facts(&measurement);
        let measurement = facts
            .into_iter()
            .fold(measurement, |all, (name, text)| all.with_fact(name, text));
        Ok(measurement.into())
    }

    fn text(&self, measurement: &Measurement) -> String {
        verdict::text(measurement)
    }

    fn summary(&self) -> Option<fn(&Figure) -> bool> {
        // The table has them.
        match self.details {
            true => None,
            false => Some(|_| false),
        }
    }

    fn table(&self, measurement: &Measurement) -> Result<Option<Table>, Failure> {
        Ok((!self.details).then(|| verdict::table(measurement)))
    }
}
