//! `farwire measure connect`.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use model::Nanos;
use serde::{Deserialize, Serialize};

use crate::connect::{self, ConnectPlan};
use crate::failure::{Blame, Failure};
use crate::instrument::{Common, FarEnd, Instrument, MeasureOutput, above_zero};
use crate::{Session, endpoint};
use record::profile::{Calibration, Headline, HostLimit, Profile, SampleKind};
use record::{Measurement, Metric, Sample, Statistic};

/// Of the web, where HOST says none.
const DEFAULT_PORT: u16 = 80;

/// How long a TCP handshake takes
///
/// Every TCP server answers, and a host that refuses the connection too.
#[derive(Args, Debug, Serialize, Deserialize)]
pub struct ConnectArgs {
    /// Name or address, and the TCP port if it is not 80
    #[arg(value_name = "HOST[:PORT]")]
    #[serde(skip)]
    host: String,
    /// Connections to ask for, one after the other
    #[arg(short, long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// From one to the next: 1s, 20ms
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = above_zero)]
    interval: Nanos,
    /// After which a connection that is neither there nor refused is lost
    #[arg(short = 'W', long, value_name = "TIME", default_value = "3s", value_parser = above_zero)]
    timeout: Nanos,
    #[command(flatten)]
    #[serde(skip)]
    common: Common,
}

impl Instrument for ConnectArgs {
    fn common(&self) -> &Common {
        &self.common
    }

    fn profile(&self) -> Profile {
        let connect = Headline::new(Metric::ConnectMs, Statistic::Median);
        let profile = Profile::new(connect, HostLimit::RoundTrip);
        Profile {
            headlines: vec![connect, Headline::new(Metric::LostPercent, Statistic::Mean)],
            samples: Some(SampleKind::Probes),
            calibration: Calibration {
                sends_again: true,
                ..profile.calibration
            },
            ..profile
        }
    }

    fn aim(&mut self, far_end: &FarEnd) {
        self.host = SocketAddr::new(far_end.address, far_end.http).to_string();
    }

    fn expected(&self) -> Option<Duration> {
        Some(self.plan().longest())
    }

    fn measure(&self, session: &Session) -> Result<MeasureOutput, Failure> {
        let family = self.common.family();
        let target = endpoint::resolve(&self.host, DEFAULT_PORT, family).or_bad_input()?;
        let local = self.common.bind.as_ref();
        Ok(connect::measure(target, &self.plan(), local, session).into())
    }

    fn text(&self, measurement: &Measurement) -> String {
        measurement.samples.iter().filter_map(line).collect()
    }
}

impl ConnectArgs {
    fn plan(&self) -> ConnectPlan {
        ConnectPlan {
            count: self.count,
            interval: self.interval.into(),
            timeout: self.timeout.into(),
        }
    }
}

fn line(sample: &Sample) -> Option<String> {
    let (index, value) = (sample.index, sample.value);
    match sample.metric {
        Metric::ConnectMs => Some(format!("{index}: {value:.3} ms\n")),
        Metric::LostPackets => Some(format!("{index}: lost\n")),
        _ => None,
    }
}
