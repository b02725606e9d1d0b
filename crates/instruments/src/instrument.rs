//! What every instrument is: arguments that people write, what it makes of a far end, and what it says of its numbers.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result, ensure};
use clap::Args;
use model::Nanos;
use record::Measurement;
use record::lateness::Traffic;
use record::metric_table::MetricTable;
use record::pace::PathPace;
use record::profile::InstrumentProfile;
use record::table::Table;
use serde_json::Value;

use crate::Session;
use crate::endpoint::{Family, Local};
use crate::external::{FarTool, Tool};
use crate::failure::Failure;

/// What all instruments take.
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

/// An instrument with its arguments. What a plan keeps of them is their serde form; what names a host, or concerns the
/// terminal, is skipped there.
pub trait Instrument: Sync {
    /// What reports need to know of its numbers.
    fn profile(&self) -> InstrumentProfile;

    /// The metrics of which it states figures.
    ///
    /// # Errors
    /// Its arguments contradict each other.
    fn metrics(&self) -> Result<MetricTable>;

    /// Which packets its figures are of, so that an emulator's lateness counts against those alone.
    fn traffic(&self) -> Vec<Traffic>;

    /// Measures toward `far_end` from now on.
    fn aim(&mut self, far_end: &FarEnd);

    /// Its TCP senders use this congestion control unless its arguments say otherwise.
    fn use_congestion(&mut self, _name: &str) {}

    /// The file that it sends, its option `file`.
    fn file(&self) -> Option<&Path> {
        None
    }

    /// The same file, for a scenario to make a whole path of it.
    fn file_mut(&mut self) -> Option<&mut PathBuf> {
        None
    }

    /// Whether it has a CSV of its own, for [`Session::csv`].
    fn writes_csv(&self) -> bool {
        false
    }

    /// How long it should take, where its arguments say so.
    fn expected(&self) -> Option<Duration> {
        None
    }

    /// About how long it takes over a path of this pace, or over one that is not known, where that can be said.
    fn estimate(&self, _pace: Option<&PathPace>) -> Option<Duration> {
        self.expected()
    }

    /// The server that it needs besides `farwire serve`.
    ///
    /// # Errors
    /// It is not on this machine, or cannot do what is asked for.
    fn server(&self) -> Result<Option<FarTool>> {
        Ok(None)
    }

    /// The external tool that measures, if it is not farwire itself.
    ///
    /// # Errors
    /// It is not on this machine.
    fn tool(&self) -> Result<Option<Tool>> {
        Ok(None)
    }

    /// Measures.
    ///
    /// # Errors
    /// What was asked for cannot be; what goes wrong while measuring is part of the measurement.
    fn measure(&self, session: &Session) -> Result<MeasureOutput, Failure>;

    /// What people see above the figures.
    fn text(&self, _measurement: &Measurement) -> String {
        String::new()
    }

    /// A table of the instrument's own, which takes the place of the figures.
    ///
    /// # Errors
    /// What was asked for cannot be.
    fn table(&self, _measurement: &Measurement) -> Result<Option<Table>, Failure> {
        Ok(None)
    }
}

/// Where the client reaches `farwire serve`.
#[derive(Clone, Debug)]
pub struct FarEnd {
    /// Of the host.
    pub address: IpAddr,
    /// Of its web server.
    pub http: u16,
}

/// What an instrument found.
#[derive(Debug, Default)]
pub struct MeasureOutput {
    /// What goes into a record.
    pub measurement: Measurement,
    /// Of a test over iperf3's protocol with details: the measurement as iperf3's JSON has it.
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
    /// The IP version asked for.
    pub fn family(&self) -> Family {
        match (self.ipv4, self.ipv6) {
            (true, _) => Family::V4,
            (_, true) => Family::V6,
            _ => Family::Any,
        }
    }
}

/// The time of `-i` that is not 0: bare seconds as with ping(8) and iperf3, or with a unit.
pub(crate) fn interval(text: &str) -> Result<Nanos> {
    let time = seconds(text)?;
    ensure!(Input, time > Nanos::ZERO, "must be above 0");
    Ok(time)
}

/// A time, whose unit is the second where it has none.
pub(crate) fn seconds(text: &str) -> Result<Nanos> {
    match text.parse::<f64>() {
        Ok(number) => Ok(Duration::try_from_secs_f64(number)?.into()),
        Err(_) => Ok(text.parse()?),
    }
}

/// The longest time that is estimated: ten years, so that sums of estimates stay times.
const LONGEST: Duration = Duration::from_secs(3650 * 24 * 3600);

/// This many seconds of an estimate, at most ten years.
pub(crate) fn estimated(seconds: f64) -> Duration {
    let time = Duration::try_from_secs_f64(seconds);
    time.map_or(LONGEST, |time| time.min(LONGEST))
}

/// The time that `count` intervals take, at most ten years.
pub(crate) fn intervals(interval: Duration, count: u32) -> Duration {
    interval.saturating_mul(count).min(LONGEST)
}

/// A time that is not 0.
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
    fn an_interval_is_bare_seconds_or_has_a_unit() {
        let ms = |text| interval(text).unwrap();
        assert_eq!(ms("0.05"), Nanos::from_millis(50));
        assert_eq!(ms("1"), Nanos::from_secs(1));
        assert_eq!(ms("50ms"), Nanos::from_millis(50));
        for wrong in ["0", "0s", "-1", "nan", "inf", "soon"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
