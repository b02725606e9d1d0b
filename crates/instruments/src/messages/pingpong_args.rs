//! `farwire measure pingpong`.

use clap::Args;
use model::Nanos;

use crate::Session;
use crate::failure::{Blame, Failure};
use crate::instrument::{Common, FarEnd, Instrument, MeasureOutput, above_zero};
use crate::messages::args::{Connection, Messages};
use crate::messages::pingpong::{self, PingpongPlan};
use crate::messages::sizes::{Load, Sweep};
use crate::messages::tables;
use crate::messages::wire::{LARGEST_DATAGRAM, Wait};
use record::profile::{Carrier, Headline, HostLimit, Profile, SampleKind};
use record::table::Table;
use record::{Measurement, Metric, Statistic};
use serde::{Deserialize, Serialize};

/// Round-trip time of messages, as nettest measured it
///
/// Each message is sent back when the whole of it has come; the next one follows.
#[derive(Args, Debug, Serialize, Deserialize)]
pub struct PingpongArgs {
    #[command(flatten)]
    #[serde(flatten)]
    connection: Connection,
    #[command(flatten)]
    #[serde(flatten)]
    messages: Messages,
    /// How both ends wait for a message
    #[arg(long, value_enum, default_value_t)]
    wait: Wait,
    /// Over UDP, one datagram a message, of at most 65,507 bytes
    #[arg(short, long)]
    udp: bool,
    /// After which an answer over UDP is late and its message lost
    #[arg(short = 'W', long, value_name = "TIME", default_value = "1s", value_parser = above_zero, requires = "udp")]
    timeout: Nanos,
    #[command(flatten)]
    #[serde(skip)]
    common: Common,
}

impl Instrument for PingpongArgs {
    fn common(&self) -> &Common {
        &self.common
    }

    fn profile(&self) -> Profile {
        let median = Headline::new(Metric::RttMs, Statistic::Median);
        let carrier = if self.udp {
            Carrier::Udp { length: None }
        } else {
            Carrier::Tcp {
                streams: 1,
                congestion: None,
            }
        };
        Profile {
            carrier: Some(carrier),
            headlines: vec![
                Headline::new(Metric::RttMs, Statistic::Mean),
                median,
                Headline::new(Metric::ElapsedS, Statistic::Mean),
            ],
            samples: Some(SampleKind::Messages),
            ..Profile::new(median, HostLimit::RoundTrip)
        }
    }

    fn aim(&mut self, far_end: &FarEnd) {
        self.connection.aim(far_end);
    }

    fn measure(&self, session: &Session) -> Result<MeasureOutput, Failure> {
        let far = self.connection.far_end(&self.common).or_bad_input()?;
        let loads = self.messages.loads(Sweep::pingpong).or_bad_input()?;
        if self.udp {
            check_datagrams(&loads)?;
        }
        let plan = PingpongPlan {
            loads,
            runs: self.connection.runs,
            wait: self.wait,
            nagle: self.connection.nagle,
            udp: self.udp.then(|| self.timeout.into()),
        };
        Ok(pingpong::measure(&far, &plan, session).into())
    }

    fn table(&self, measurement: &Measurement) -> Result<Option<Table>, Failure> {
        let sizes = self.messages.loads(Sweep::pingpong).or_bad_input()?;
        Ok(Some(tables::pingpong_table(measurement, &sizes)))
    }
}

fn check_datagrams(loads: &[Load]) -> Result<(), Failure> {
    let too_large = loads
        .iter()
        .find(|load| load.size > LARGEST_DATAGRAM.into());
    too_large.map_or(Ok(()), |load| {
        Err(Failure::bad_input(format_args!(
            "a message of {} bytes does not fit a UDP datagram: at most {LARGEST_DATAGRAM}; \
             choose smaller sizes, or TCP",
            load.size
        )))
    })
}
