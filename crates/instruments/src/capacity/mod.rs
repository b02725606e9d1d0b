//! The maximum IP-layer capacity of a path (RFC 9097), measured with the UDP Speed Test Protocol (RFC 9946).
//!
//! The server searches: from the receiver's feedback it decides how fast the sender, which is the server or the client,
//! sends.

mod channel;
mod client;
mod exchange;
mod outcome;
mod pacer;
mod proof;
mod rates;
mod receiver;
mod results;
mod search;
pub(crate) mod server;
mod session;
pub mod wire;

use std::time::Duration;

use crate::error::{Context, Result, ensure};
use clap::Args;
use model::Nanos;
use serde::{Deserialize, Serialize};

use self::client::measure;
use self::wire::{Algorithm, CONTROL_PORT, Sizes, StartRow, TestParameters, Thresholds};
use crate::failure::{Blame, Failure};
use crate::instrument::{CommonArgs, FarEnd, Instrument, MeasureOutput, seconds};
use crate::measured::failed;
use crate::{Session, endpoint};
use record::lateness::Traffic;
use record::metric_table::MetricTable;
use record::profile::{Calibration, Headline, HostLimit, InstrumentProfile, SampleKind};
use record::{Direction, Measurement, Metric, Sample, Statistic};

/// Measure the maximum IP-layer capacity of a path (RFC 9097)
///
/// The far end is `farwire serve` or obudpst. The load rises until datagrams are lost or the round-trip time grows, and the best
/// sub-interval counts. The test fills the path, which disturbs all other traffic.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct CapacityArgs {
    /// Name or address, and the port if it differs from --port: HOST:PORT
    #[serde(skip)]
    host: String,
    /// Measure from the server to here (default)
    #[arg(long, conflicts_with = "up")]
    down: bool,
    /// Measure from here to the server
    #[arg(long)]
    up: bool,
    /// Duration, in whole seconds
    #[arg(short, long, value_name = "TIME", default_value = "10s", value_parser = whole_seconds)]
    time: Nanos,
    /// Sub-interval over which the capacity is averaged, 100ms to 10s
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = sub_interval)]
    interval: Nanos,
    /// Search algorithm
    #[arg(short = 'A', long, value_enum, default_value_t, help_heading = SEARCH, hide_short_help = true)]
    algorithm: Algorithm,
    /// Treat a feedback (of 50 ms) as congested if more datagrams than this are missing
    #[arg(long, value_name = "COUNT", default_value_t = Thresholds::default().sequence_errors, help_heading = SEARCH, hide_short_help = true)]
    loss_threshold: u16,
    /// Rise of the round-trip time above its minimum: congested above HIGH, clean below LOW
    #[arg(long, value_name = "LOW,HIGH", default_value = "30ms,90ms", value_parser = delay_thresholds, help_heading = SEARCH, hide_short_help = true)]
    delay_thresholds: (Nanos, Nanos),
    /// Raise the rate by single steps after this many congested feedbacks
    #[arg(long, value_name = "COUNT", default_value_t = Thresholds::default().slow, value_parser = clap::value_parser!(u16).range(1..), help_heading = SEARCH, hide_short_help = true)]
    slow_threshold: u16,
    /// Raise the rate at first by this many steps of 1 Mbit/s
    #[arg(long, value_name = "ROWS", default_value_t = Thresholds::default().high_speed_delta, value_parser = clap::value_parser!(u8).range(1..), help_heading = SEARCH, hide_short_help = true)]
    high_speed_delta: u8,
    /// Sizes of the datagrams [default: standard, or the server's choice]
    #[arg(long, value_enum, help_heading = SEARCH, hide_short_help = true)]
    datagrams: Option<Datagrams>,
    /// UDP port of the server [default: 24601; 25000 for obudpst before release 9]
    #[arg(short, long, default_value_t = CONTROL_PORT, hide_default_value = true)]
    port: u16,
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) common: CommonArgs,
}

/// The heading of the options of the search in help.
const SEARCH: &str = "Search";

impl Instrument for CapacityArgs {
    fn profile(&self) -> InstrumentProfile {
        let at_l2 = Headline::new(Metric::L2RateBitPerS, Statistic::Max);
        let metrics = results::metrics(self.direction());
        let usual = metrics.profile(at_l2.toward(self.direction()), HostLimit::UdpRate);
        InstrumentProfile {
            direction: Some(self.direction()),
            samples: Some(SampleKind::Intervals),
            calibration: Calibration {
                sub_interval_s: Some(self.interval.0 as f64 / 1e9),
                ..usual.calibration
            },
            ..usual
        }
    }

    fn metrics(&self) -> Result<MetricTable> {
        Ok(results::metrics(self.direction()))
    }

    fn traffic(&self) -> Vec<Traffic> {
        vec![Traffic::Udp(None)]
    }

    fn set_far_end(&mut self, far_end: &FarEnd) {
        self.host = far_end.address.to_string();
    }

    fn expected(&self) -> Option<Duration> {
        Some(self.time.into())
    }

    fn measure(&self, session: &Session) -> Result<MeasureOutput, Failure> {
        let family = self.common.family();
        let target = endpoint::resolve(&self.host, self.port, family).or_bad_input()?;
        let parameters = self.parameters().or_bad_input()?;
        let measurement = measure(target, self, &parameters, session);
        Ok(measurement.unwrap_or_else(failed).into())
    }

    fn text(&self, measurement: &Measurement) -> String {
        measurement.samples.iter().filter_map(line).collect()
    }
}

impl CapacityArgs {
    /// Returns the parameters to request from the server.
    ///
    /// # Errors
    /// Returns an error if a threshold is not in whole milliseconds, or too long.
    fn parameters(&self) -> Result<TestParameters> {
        let ms = |time: Nanos| u16::try_from(Duration::from(time).as_millis()).unwrap_or(u16::MAX);
        let (low, upper) = self.delay_thresholds;
        Ok(TestParameters {
            thresholds: Thresholds {
                sequence_errors: self.loss_threshold,
                low_ms: in_milliseconds(low)?,
                upper_ms: in_milliseconds(upper)?,
                slow: self.slow_threshold,
                high_speed_delta: self.high_speed_delta,
            },
            algorithm: self.algorithm,
            feedback_ms: FEEDBACK_MS,
            duration_s: u16::try_from(Duration::from(self.time).as_secs()).unwrap_or(u16::MAX),
            sub_interval_ms: ms(self.interval.min(self.time)),
            start: StartRow::Lowest,
            one_way: false,
            ignore_reordering: true,
            random_payload: true,
        })
    }

    fn direction(&self) -> Direction {
        if self.up {
            Direction::Up
        } else {
            Direction::Down
        }
    }
}

fn line(sample: &Sample) -> Option<String> {
    let mbit = sample.value / 1e6;
    (sample.metric == Metric::IpCapacityBitPerS)
        .then(|| format!("{}: {mbit:.3} Mbit/s at L3\n", sample.index))
}

fn whole_seconds(text: &str) -> Result<Nanos> {
    let seconds = match text.parse::<u64>() {
        Ok(seconds) => seconds,
        Err(_) => {
            let time = Duration::from(text.parse::<Nanos>()?);
            ensure!(Input, time.subsec_nanos() == 0, "must be whole seconds");
            time.as_secs()
        }
    };
    ensure!(Input, (1..=3600).contains(&seconds), "must be 1 to 3600 s");
    Ok(Nanos::from_secs(seconds))
}

fn sub_interval(text: &str) -> Result<Nanos> {
    let time = seconds(text)?;
    let ms = in_milliseconds(time)?;
    ensure!(Input, (100..=10_000).contains(&ms), "must be 100ms to 10s");
    Ok(time)
}

fn delay_thresholds(text: &str) -> Result<(Nanos, Nanos)> {
    let (low, upper) = text
        .split_once(',')
        .context("write both, as in 30ms,90ms")?;
    let times = (low.parse()?, upper.parse()?);
    let (low, upper) = (in_milliseconds(times.0)?, in_milliseconds(times.1)?);
    ensure!(Input, low >= 1 && upper <= 10_000, "must be 1ms to 10s");
    ensure!(
        Input,
        low <= upper,
        "the first must not be above the second"
    );
    Ok(times)
}

fn in_milliseconds(time: Nanos) -> Result<u16> {
    let time = Duration::from(time);
    ensure!(
        Input,
        time.subsec_nanos() % 1_000_000 == 0,
        "must be whole milliseconds"
    );
    u16::try_from(time.as_millis()).context("must be at most 10s")
}

/// The time between two feedback messages in milliseconds (RFC 9097).
const FEEDBACK_MS: u16 = 50;

/// The IP packet sizes of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Datagrams {
    /// Up to 1,250 bytes
    Standard,
    /// Up to 1,500 bytes
    Traditional,
    /// Up to 1,250 bytes below 1 Gbit/s, up to 9,000 above
    Jumbo,
    /// Up to 1,500 bytes below 1 Gbit/s, up to 9,000 above
    TraditionalJumbo,
}

impl From<Datagrams> for Sizes {
    fn from(datagrams: Datagrams) -> Self {
        use Datagrams::{Jumbo, Traditional, TraditionalJumbo};
        Self {
            jumbo: matches!(datagrams, Jumbo | TraditionalJumbo),
            traditional: matches!(datagrams, Traditional | TraditionalJumbo),
        }
    }
}
