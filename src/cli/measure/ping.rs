//! `farwire measure ping`.

use clap::Args;
use model::Nanos;

use super::{Common, Instrument, Shown, above_zero};
use crate::endpoint;
use crate::exit::{Blame, Failure};
use crate::instrument::ping::{self, PingPlan};
use crate::instrument::{Metric, Sample, Session};

/// ICMP echo, as ping(8) measures it
#[derive(Args, Debug)]
pub(super) struct PingArgs {
    /// Name or address
    host: String,
    /// Payload bytes
    #[arg(short, long, value_name = "BYTES", default_value_t = 56, value_parser = clap::value_parser!(u16).range(..=65_507))]
    size: u16,
    /// Echo requests to send
    #[arg(short, long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// From one request to the next: 1s, 20ms
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = above_zero)]
    interval: Nanos,
    /// After which an answer is late and its request lost
    #[arg(short = 'W', long, value_name = "TIME", default_value = "3s")]
    timeout: Nanos,
    #[command(flatten)]
    common: Common,
}

impl Instrument for PingArgs {
    fn common(&self) -> &Common {
        &self.common
    }

    fn measure(&self, session: &Session) -> Result<Shown, Failure> {
        let target = endpoint::resolve(&self.host, 0, self.common.family()).or_bad_input()?;
        let plan = PingPlan {
            size: self.size,
            count: self.count,
            interval: self.interval.into(),
            timeout: self.timeout.into(),
        };
        let measurement = ping::measure(target.ip(), &plan, session);
        let lines: String = measurement.samples.iter().filter_map(line).collect();
        Ok(Shown::of(measurement).below(lines))
    }
}

fn line(sample: &Sample) -> Option<String> {
    let (index, value) = (sample.index, sample.value);
    match sample.metric {
        Metric::RttMs => Some(format!("{index}: {value:.3} ms\n")),
        Metric::LostPackets => Some(format!("{index}: lost\n")),
        Metric::LateRttMs => Some(format!("{index}: late, {value:.3} ms\n")),
        Metric::DuplicateRttMs => Some(format!("{index}: duplicate, {value:.3} ms\n")),
        _ => None,
    }
}
