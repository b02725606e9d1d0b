//! The maximum IP-layer capacity of a path (RFC 9097), over the UDP Speed Test Protocol (RFC 9946).
//!
//! The server searches: it tells the sender, itself or the client, how fast to send by what the receiver fed back.

pub mod args;
mod channel;
mod decider;
mod exchange;
mod loading;
mod pacer;
mod rates;
mod receiver;
mod result;
mod search;
pub mod server;
mod setup;
mod taking;
pub mod wire;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

pub(crate) use self::channel::Channel;
pub(crate) use self::decider::Decider;
pub(crate) use self::exchange::{Exchange, SILENCE, STOP_AFTER};
pub(crate) use self::rates::RateTable;
pub(crate) use self::result::{Context, measurement};
pub(crate) use self::search::{Algorithm, Thresholds};
use self::setup::Agreement;
use self::wire::{Sizes, StartRow, SubInterval, TestParameters};
use super::{Session, seconds};
use crate::endpoint::Local;
use record::{Direction, Measurement};

/// From one feedback to the next (RFC 9097).
const FEEDBACK: Duration = Duration::from_millis(50);

/// How to search for the capacity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CapacityPlan {
    /// Which way the load goes.
    pub(crate) direction: Direction,
    /// How long; whole seconds, 1 to 3,600.
    #[serde(rename = "duration_s", with = "seconds")]
    pub(crate) duration: Duration,
    /// The time over which the capacity is the mean; 100 ms to 10 s.
    #[serde(rename = "sub_interval_s", with = "seconds")]
    pub(crate) sub_interval: Duration,
    /// How the rate follows the feedback.
    pub(crate) algorithm: Algorithm,
    /// What clean and congested feedback is.
    pub(crate) thresholds: Thresholds,
    /// Which sizes to send; small ones, or those that the server wants, when absent.
    pub(crate) datagrams: Option<Datagrams>,
}

/// IP packet sizes of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Datagrams {
    /// Up to 1,250 bytes.
    Standard,
    /// Up to 1,500 bytes.
    Traditional,
    /// Up to 1,250 bytes to 1 Gb/s, to 9,000 above.
    Jumbo,
    /// Up to 1,500 bytes to 1 Gb/s, to 9,000 above.
    TraditionalJumbo,
}

/// Measures the capacity between here and the server whose control port `target` is.
pub(crate) fn measure(
    target: SocketAddr,
    local: Option<&Local>,
    plan: &CapacityPlan,
    session: &Session,
) -> Measurement {
    match run(target, local, plan, session) {
        Ok(measurement) => measurement,
        Err(error) => Measurement::failed(format!("{error:#}")),
    }
}

fn run(
    target: SocketAddr,
    local: Option<&Local>,
    plan: &CapacityPlan,
    session: &Session,
) -> Result<Measurement> {
    let agreement = setup::agree(target, local, plan, session)?;
    let Agreement {
        socket,
        version,
        sizes,
        parameters,
        rate,
        notes,
    } = agreement;
    let context = Context {
        peer: target,
        direction: plan.direction,
        version,
        sizes,
        parameters,
        server: false,
    };
    let mut on_sub_interval = |sub_interval: &SubInterval| {
        let l3 = context.l3_bit_per_s(sub_interval);
        session.live.line(format_args!(
            "{:6.2} s {:>10.2} Mbit/s at L3, {} lost, round trip up to {} ms above its least",
            f64::from(sub_interval.elapsed_ms) / 1e3,
            l3 / 1e6,
            sub_interval.lost,
            sub_interval.rtt_max_ms
        ));
    };
    let table = RateTable::new(sizes);
    let exchange = Exchange {
        channel: Channel::new(socket)?,
        version,
        parameters,
        decider: Decider::new(table, &parameters),
        ends_after: None,
        stop: &|| session.stop.cause().map(|cause| cause.to_string()),
        answer: Vec::new(),
        on_sub_interval: &mut on_sub_interval,
    };
    let outcome = match plan.direction {
        Direction::Up => exchange.send_load(rate),
        Direction::Down => exchange.take_load(),
    };
    let mut measurement = measurement(&outcome, &context);
    measurement.facts.extend(notes);
    Ok(measurement)
}

impl CapacityPlan {
    fn parameters(&self) -> TestParameters {
        let ms = |time: Duration| u16::try_from(time.as_millis()).unwrap_or(u16::MAX);
        TestParameters {
            low_ms: self.thresholds.low_ms,
            upper_ms: self.thresholds.upper_ms,
            feedback_ms: ms(FEEDBACK),
            duration_s: u16::try_from(self.duration.as_secs()).unwrap_or(u16::MAX),
            dscp_ecn: 0,
            start: StartRow::Lowest,
            one_way: false,
            high_speed_delta: self.thresholds.high_speed_delta,
            slow_threshold: self.thresholds.slow,
            sequence_errors: self.thresholds.sequence_errors,
            ignore_reordering: true,
            random_payload: true,
            algorithm: match self.algorithm {
                Algorithm::B => 0,
                Algorithm::C => 1,
            },
            ecn_threshold: 0,
            sub_interval_ms: ms(self.sub_interval),
            suppressed: 0,
        }
    }
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
