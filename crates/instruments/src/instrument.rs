//! The interface of every instrument: its command-line arguments, its measurement, and the description of its figures.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result, bail, ensure};
use clap::Args;
use model::Nanos;
use record::lateness::Traffic;
use record::metric_table::MetricTable;
use record::pace::PathPace;
use record::profile::InstrumentProfile;
use record::table::Table;
use record::{Figure, Measurement};
use serde_json::Value;

use crate::Session;
use crate::endpoint::{Family, Local};
use crate::external::{FarTool, Tool};
use crate::failure::Failure;

/// The arguments that all instruments take.
#[derive(Args, Clone, Debug, Default)]
pub struct CommonArgs {
    /// Send from this address, or through this interface
    #[arg(short = 'B', long, value_name = "ADDR|IF", help_heading = NETWORK)]
    pub bind: Option<Local>,
    /// Use IPv4 only
    #[arg(short = '4', long, conflicts_with = "ipv6", help_heading = NETWORK)]
    ipv4: bool,
    /// Use IPv6 only
    #[arg(short = '6', long, help_heading = NETWORK)]
    ipv6: bool,
    /// Write the measurement as JSON to FILE (- for standard output, instead of text)
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub json: Option<PathBuf>,
}

/// The heading of addresses, interfaces and marks of packets in help.
pub(crate) const NETWORK: &str = "Network";
/// The heading of files that an instrument writes in help.
pub(crate) const OUTPUT: &str = "Output";
/// The heading of options of sockets in help.
pub(crate) const SOCKETS: &str = "Sockets";

/// The round trips that a measurement of few connections may take beyond its expected time.
pub(crate) const ROUND_TRIPS: u32 = 20;

/// An instrument with its arguments. A plan records the arguments in their serde form, without those that name a host
/// or concern the terminal.
pub trait Instrument: Sync {
    /// Returns the description of its figures that reports need.
    fn profile(&self) -> InstrumentProfile;

    /// Returns the metrics and statistics that it states as figures.
    ///
    /// # Errors
    /// Returns an error if the arguments contradict each other.
    fn metrics(&self) -> Result<MetricTable>;

    /// Returns the traffic that its figures describe. The emulator's lateness matters only for these packets.
    fn traffic(&self) -> Vec<Traffic>;

    /// Sets the far end to measure towards.
    fn set_far_end(&mut self, far_end: &FarEnd);

    /// Sets the congestion control of its TCP senders, unless its arguments name one.
    fn use_congestion(&mut self, _name: &str) {}

    /// Returns the file that it sends, given by its option `file`.
    fn file(&self) -> Option<&Path> {
        None
    }

    /// Returns the path of the same file, so that a scenario can resolve it against its own directory.
    fn file_mut(&mut self) -> Option<&mut PathBuf> {
        None
    }

    /// Returns whether it writes a CSV to [`Session::csv`].
    fn writes_csv(&self) -> bool {
        false
    }

    /// Returns how long the measurement takes, if its arguments determine that.
    fn expected(&self) -> Option<Duration> {
        None
    }

    /// Estimates how long the measurement takes over a path of this pace, or over an unknown path. `None` means that
    /// there is no estimate.
    fn estimate(&self, _pace: Option<&PathPace>) -> Option<Duration> {
        self.expected()
    }

    /// Returns how many round trips of the path the measurement may take beyond its expected time: to connect, to agree
    /// on the test, to open its streams and to exchange results.
    fn round_trips(&self) -> u32 {
        ROUND_TRIPS
    }

    /// Returns the server that the far end needs besides `farwire serve`, if any.
    ///
    /// # Errors
    /// Returns an error if the server is not on this machine, or cannot do what the arguments ask for.
    fn server(&self) -> Result<Option<FarTool>> {
        Ok(None)
    }

    /// Returns the external tool that measures, or `None` if farwire itself measures.
    ///
    /// # Errors
    /// Returns an error if the tool is not on this machine.
    fn tool(&self) -> Result<Option<Tool>> {
        Ok(None)
    }

    /// Measures.
    ///
    /// # Errors
    /// Returns a failure if the arguments cannot be fulfilled. An error during the measurement becomes part of the
    /// measurement.
    fn measure(&self, session: &Session) -> Result<MeasureOutput, Failure>;

    /// Returns which figures to print so that the result fits one screen; facts are then not printed. `None` means that
    /// everything is printed.
    fn summary(&self) -> Option<fn(&Figure) -> bool> {
        None
    }

    /// Returns the text to print above the figures.
    fn text(&self, _measurement: &Measurement) -> String {
        String::new()
    }

    /// Returns the table to print in place of the figures, if the instrument has one.
    ///
    /// # Errors
    /// Returns a failure if the arguments cannot be fulfilled.
    fn table(&self, _measurement: &Measurement) -> Result<Option<Table>, Failure> {
        Ok(None)
    }
}

/// The place where the client reaches `farwire serve`.
#[derive(Clone, Debug)]
pub struct FarEnd {
    /// Address of the host.
    pub address: IpAddr,
    /// TCP port of the web server.
    pub http: u16,
}

/// The result of an instrument.
#[derive(Debug, Default)]
pub struct MeasureOutput {
    /// The part that a record keeps.
    pub measurement: Measurement,
    /// The measurement in iperf3's JSON format: only of a test over iperf3's protocol, and only with details.
    pub iperf3: Option<Value>,
}

impl From<Measurement> for MeasureOutput {
    fn from(measurement: Measurement) -> Self {
        Self {
            measurement,
            ..Self::default()
        }
    }
}

impl CommonArgs {
    /// Returns the IP version that the user asked for.
    pub fn family(&self) -> Family {
        match (self.ipv4, self.ipv6) {
            (true, _) => Family::V4,
            (_, true) => Family::V6,
            _ => Family::Any,
        }
    }
}

/// Parses the value of `-i`, which must be above 0: seconds without a unit, as in ping(8) and iperf3, or a time with a
/// unit.
pub(crate) fn interval(text: &str) -> Result<Nanos> {
    let time = seconds(text)?;
    ensure!(Input, time > Nanos::ZERO, "must be above 0");
    Ok(time)
}

/// Parses a time. A number without a unit means seconds.
pub(crate) fn seconds(text: &str) -> Result<Nanos> {
    match text.parse::<f64>() {
        Ok(number) => match Duration::try_from_secs_f64(number) {
            Ok(time) => Ok(time.into()),
            Err(_) => bail!(
                Input,
                "`{text}` is not a time: write a number of seconds from 0 on, or a time with its unit, as in 500ms"
            ),
        },
        Err(_) => Ok(text.parse()?),
    }
}

/// The longest estimate, ten years. It keeps sums of estimates within the range of a [`Duration`].
const LONGEST: Duration = Duration::from_secs(3650 * 24 * 3600);

/// Returns this number of seconds as an estimate of at most ten years.
pub(crate) fn estimated(seconds: f64) -> Duration {
    let time = Duration::try_from_secs_f64(seconds);
    time.map_or(LONGEST, |time| time.min(LONGEST))
}

/// Returns the time that `count` intervals take, at most ten years.
pub(crate) fn intervals(interval: Duration, count: u32) -> Duration {
    interval.saturating_mul(count).min(LONGEST)
}

/// Parses a time that must be above 0.
pub(crate) fn above_zero(text: &str) -> Result<Nanos> {
    let time: Nanos = text.parse()?;
    if time == Nanos::ZERO {
        Err(Error::Input("must be above 0".to_owned()))
    } else {
        Ok(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_seconds_or_has_a_unit() {
        let ms = |text| interval(text).unwrap();
        assert_eq!(ms("0.05"), Nanos::from_millis(50));
        assert_eq!(ms("1"), Nanos::from_secs(1));
        assert_eq!(ms("50ms"), Nanos::from_millis(50));
        for wrong in ["0", "0s", "-1", "nan", "inf", "soon"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
