//! The arguments that `pingpong`, `blast` and `transfer` share.

use crate::error::{Result, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::endpoint;
use crate::instrument::{CommonArgs, FarEnd};
use crate::messages::sizes::{MessageLoad, MessageSizes, Sweep};
use crate::messages::wire::{DEFAULT_PORT, SIZES};
use crate::messages::{MessageTarget, SILENCE};
use record::metric_table::MetricTable;
use record::profile::{Calibration, Carrier, Headline, HostLimit, InstrumentProfile};
use record::{Direction, Metric, Statistic};

/// The far end and the settings of the TCP connection.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ConnectionArgs {
    /// Name or address of `farwire serve`, and its port if it is not 5203: HOST:PORT
    #[serde(skip)]
    pub(crate) host: String,
    /// Number of runs of each size, each on its own connection
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,
    /// Keep Nagle's algorithm on, as nettest does
    #[arg(long)]
    pub(crate) nagle: bool,
    /// TCP maximum segment size in bytes [default: the path's]
    #[arg(short = 'M', long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(88..=32_767))]
    pub(crate) set_mss: Option<u32>,
}

/// The messages to send.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Messages {
    /// Message size in bytes: 64, a list 1,64,1KiB, or a doubling range 1..131072; at most 1,000,000
    #[arg(
        short,
        long,
        value_name = "SIZES",
        default_value = "1",
        conflicts_with = "sweep"
    )]
    pub(crate) size: MessageSizes,
    /// Use the sizes and counts of a published table
    #[arg(long, value_name = "NAME")]
    pub(crate) sweep: Option<Sweep>,
    /// Messages per run [default: 100]; with --sweep, the largest count, to which the others are scaled
    #[arg(short, long, visible_alias = "iterations", value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) count: Option<u64>,
}

impl ConnectionArgs {
    /// Sets the far end to measure towards.
    pub(crate) fn set_far_end(&mut self, far_end: &FarEnd) {
        self.host = far_end.address.to_string();
    }

    /// Returns the profile of an instrument with these metrics that sends to the far end in runs, all received by the
    /// far end.
    pub(crate) fn profile(&self, metrics: &MetricTable) -> InstrumentProfile {
        let goodput = Headline::new(Metric::GoodputBitPerS, Statistic::Mean).toward(Direction::Up);
        let usual = metrics.profile(goodput, HostLimit::TcpRate);
        InstrumentProfile {
            direction: Some(Direction::Up),
            carrier: Some(Carrier::Tcp {
                streams: 1,
                congestion: None,
            }),
            calibration: Calibration {
                runs: Some(self.runs),
                answers: true,
                ..usual.calibration
            },
            ..usual
        }
    }

    /// Resolves the far end.
    pub(crate) fn far_end(&self, common: &CommonArgs) -> Result<MessageTarget> {
        Ok(MessageTarget {
            address: endpoint::resolve(&self.host, DEFAULT_PORT, common.family())?,
            local: common.bind.clone(),
            mss: self.set_mss,
            silence: SILENCE,
        })
    }
}

impl Messages {
    /// Returns the sizes that the user asked for, or those of the sweep.
    pub(crate) fn loads(
        &self,
        of_sweep: impl FnOnce(Sweep, Option<u64>) -> Vec<MessageLoad>,
    ) -> Result<Vec<MessageLoad>> {
        const COUNT: u64 = 100;
        if let Some(sweep) = self.sweep {
            return Ok(of_sweep(sweep, self.count));
        }
        let largest = *SIZES.end();
        let loads = self.size.loads(self.count.unwrap_or(COUNT));
        for load in &loads {
            ensure!(
                Input,
                load.size as u64 <= largest,
                "a message of {} bytes is too large: at most {largest} are allowed",
                load.size
            );
        }
        Ok(loads)
    }
}
