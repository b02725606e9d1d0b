//! The arguments of `farwire measure udp`.

use crate::error::Result;
use std::time::Duration;

use clap::Args;

use crate::Session;
use crate::external::{FarTool, Tool};
use crate::failure::{Blame, Failure};
use crate::instrument::{CommonArgs, FarEnd, Instrument, MeasureOutput, SOCKETS};
use crate::iperf3::args::Iperf3Args;
use crate::iperf3::plan::{Iperf3Test, Transport};
use crate::iperf3::udp;
use record::lateness::Traffic;
use record::metric_table::MetricTable;
use record::pace::PathPace;
use record::profile::{Carrier, HostLimit, InstrumentProfile};
use serde::{Deserialize, Serialize};

/// The default rate per stream in payload bits per second, as in iperf3.
const DEFAULT_BITRATE: u64 = 1_000_000;
/// The largest payload of UDP over IPv4 in bytes.
const LONGEST_PAYLOAD: i64 = 65_507;
/// The least payload, which has room for a time and a number of 8 bytes.
const SHORTEST_PAYLOAD: i64 = 16;

/// Measure UDP goodput, loss, jitter and reordering, as iperf3 does
///
/// The far end is `farwire serve` or any iperf3 server. Options have the same letters as in iperf3.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct UdpArgs {
    #[command(flatten)]
    #[serde(flatten)]
    test: Iperf3Args,
    /// Payload of a datagram in bytes [default: the MSS of the control connection]
    #[arg(short = 'l', long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(SHORTEST_PAYLOAD..=LONGEST_PAYLOAD), help_heading = SOCKETS)]
    length: Option<u32>,
    /// Send one datagram per call, without UDP segmentation offload (slower)
    #[arg(long, conflicts_with = "reverse", help_heading = SOCKETS, hide_short_help = true)]
    #[serde(default)]
    no_gso: bool,
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) common: CommonArgs,
}

impl Instrument for UdpArgs {
    fn profile(&self) -> InstrumentProfile {
        InstrumentProfile {
            carrier: Some(Carrier::Udp {
                length: self.length,
            }),
            ..self.test.profile(Transport::Udp, HostLimit::UdpPackets)
        }
    }

    fn metrics(&self) -> Result<MetricTable> {
        Ok(self.test.metrics(Transport::Udp))
    }

    fn traffic(&self) -> Vec<Traffic> {
        vec![Traffic::Udp(self.test.known_port())]
    }

    fn set_far_end(&mut self, far_end: &FarEnd) {
        self.test.set_far_end(far_end);
    }

    fn expected(&self) -> Option<Duration> {
        self.plan().duration()
    }

    fn estimate(&self, pace: Option<&PathPace>) -> Option<Duration> {
        self.plan().estimate(pace)
    }

    fn round_trips(&self) -> u32 {
        self.plan().round_trips()
    }

    fn server(&self) -> Result<Option<FarTool>> {
        self.test.far_tool(&self.plan())
    }

    fn tool(&self) -> Result<Option<Tool>> {
        self.test.find_tool()
    }

    fn measure(&self, session: &Session) -> Result<MeasureOutput, Failure> {
        let server = self.test.server(&self.common).or_bad_input()?;
        let plan = self.plan();
        if let Some(measurement) = self.test.with_tool(&server, &plan, session) {
            return measurement.map(MeasureOutput::from);
        }
        Ok(udp::measure(&server, &plan, session))
    }
}

impl UdpArgs {
    fn plan(&self) -> Iperf3Test {
        let bitrate = self.test.bitrate.unwrap_or(DEFAULT_BITRATE);
        Iperf3Test {
            length: self.length,
            trains: !self.no_gso,
            bitrate: Some(bitrate).filter(|rate| *rate > 0),
            ..self.test.plan(Transport::Udp)
        }
    }
}
