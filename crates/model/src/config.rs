//! A link's conditions: plain data, checked by [`crate::Link::new`].

use core::fmt::Display;

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::time::Nanos;
use crate::units::{BitsPerSec, Bytes, Factor, Framing, Probability, QueueLimit};

/// The longest delay and the longest queue in time: a longer one is taken for a mistaken unit.
const LONGEST: Nanos = Nanos::from_secs(3_600);

/// The shortest time for which a rate lasts: serving a packet costs a step for every interval it spans.
const SHORTEST_HOLD: Nanos = Nanos::from_millis(1);

/// The longest packet that a delay by size must carry within [`LONGEST`]: a whole GSO frame.
const LARGEST_PACKET: Bytes = Bytes(65_550);

/// A whole link: the seed of its randomness and its hops in the order in which a packet going up meets them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkConfig {
    /// Every random draw follows from it; the same seed gives the same verdicts.
    pub seed: u64,
    /// Tells links of one experiment apart, so that two of them never lose the same packets.
    pub link: u64,
    /// At least one; a packet going down meets them in reverse.
    pub hops: Vec<HopConfig>,
}

/// One hop: conditions up and down, and what both directions share.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HopConfig {
    /// Names the hop in counters and keys its randomness: "wire", "box".
    pub name: String,
    /// From A to B.
    pub up: Conditions,
    /// From B to A.
    pub down: Conditions,
    /// One server that stands in both paths, before `up` and `down`.
    pub toffee: Option<Toffee>,
}

/// One direction of one hop, in the order of its path: rate and queue, loss, delay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Conditions {
    /// Bottleneck server, if any.
    pub rate: Option<Rate>,
    /// Bernoulli loss after the queue; `Probability::ZERO` for none.
    pub loss: Probability,
    /// Propagation delay, one way.
    pub delay: Nanos,
    /// Propagation that grows with the packet: microseconds = L2 bytes / factor.
    pub size_delay: Option<Factor>,
}

/// A bottleneck: how fast it serves, what it counts, how much may wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Service rate; in the mean, if it fluctuates.
    pub rate: BitsPerSec,
    /// How it varies, if it does.
    pub fluctuation: Option<Fluctuation>,
    /// The bytes it counts.
    pub framing: Framing,
    /// What may wait, the packet in service not counted.
    pub queue: QueueLimit,
}

/// A rate that is drawn anew at regular intervals, as a radio channel's rate varies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fluctuation {
    /// How far the rate may lie from its mean, each value equally likely; below 100 %.
    pub spread: Probability,
    /// How long each rate lasts, 1 ms to 1 h; the first interval begins with the first packet.
    pub hold: Nanos,
}

/// TOFFEE-Mocha's kind of emulator: a delay is the service time of one server that both directions share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Toffee {
    /// Constant service time a packet.
    pub delay: Nanos,
    /// Service time that grows with the packet: microseconds = L2 bytes / factor.
    pub dynamic: Option<Factor>,
    /// Bernoulli loss in each direction, before everything else that the direction has; `Probability::ZERO` for none.
    pub loss: Probability,
    /// What may wait for the server, both directions together.
    pub queue: QueueLimit,
}

/// Conditions that contradict each other or lie out of range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A link without a hop.
    #[error("the link has no hop: give it at least one")]
    NoHop,
    /// A hop without a name could not be told from another in counters and draws.
    #[error("hop {0} has no name: give it one, such as box")]
    Unnamed(usize),
    /// Two hops of one name would lose the same packets.
    #[error("two hops are named {0}: give each a name of its own")]
    SameName(String),
    /// A value that its field cannot have.
    #[error("hop {hop}: {field} = {value} is out of range: {right}")]
    OutOfRange {
        /// The hop's name.
        hop: String,
        /// The field, with its direction.
        field: String,
        /// What was given.
        value: String,
        /// What would be right.
        right: &'static str,
    },
}

impl LinkConfig {
    /// Refuses what no link can be built from.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.hops.is_empty() {
            return Err(ConfigError::NoHop);
        }
        for (index, hop) in self.hops.iter().enumerate() {
            if hop.name.is_empty() {
                return Err(ConfigError::Unnamed(index + 1));
            }
            if self.hops[..index]
                .iter()
                .any(|other| other.name == hop.name)
            {
                return Err(ConfigError::SameName(hop.name.clone()));
            }
            hop.check()?;
        }
        Ok(())
    }
}

impl HopConfig {
    fn check(&self) -> Result<(), ConfigError> {
        self.check_direction("up", &self.up)?;
        self.check_direction("down", &self.down)?;
        let Some(toffee) = &self.toffee else {
            return Ok(());
        };
        self.check_delay("toffee.delay", toffee.delay)?;
        self.check_by_size("toffee.dynamic", toffee.dynamic)?;
        self.check_queue("toffee.queue", toffee.queue)
    }

    fn check_direction(&self, direction: &str, own: &Conditions) -> Result<(), ConfigError> {
        self.check_delay(format_args!("{direction}.delay"), own.delay)?;
        self.check_by_size(format_args!("{direction}.size_delay"), own.size_delay)?;
        let Some(rate) = own.rate else {
            return Ok(());
        };
        self.check_queue(format_args!("{direction}.queue"), rate.queue)?;
        let Some(Fluctuation { spread, hold }) = rate.fluctuation else {
            return Ok(());
        };
        self.require(
            spread.fraction() < 1.0,
            format_args!("{direction}.fluctuation.spread"),
            spread,
            "a rate fluctuates by less than 100%",
        )?;
        self.require(
            (SHORTEST_HOLD..=LONGEST).contains(&hold),
            format_args!("{direction}.fluctuation.hold"),
            hold,
            "a rate lasts 1ms to 3600s",
        )
    }

    fn check_delay(&self, field: impl Display, delay: Nanos) -> Result<(), ConfigError> {
        self.require(delay <= LONGEST, field, delay, "a delay is at most 3600s")
    }

    fn check_by_size(&self, field: impl Display, k: Option<Factor>) -> Result<(), ConfigError> {
        let right = "the factor is so small that a long packet takes more than 3600s";
        k.map_or(Ok(()), |k| {
            self.require(k.time_for(LARGEST_PACKET) <= LONGEST, field, k, right)
        })
    }

    fn check_queue(&self, field: impl Display, queue: QueueLimit) -> Result<(), ConfigError> {
        let within = match queue {
            QueueLimit::Packets(packets) => packets > 0,
            QueueLimit::Bytes(bytes) => bytes.0 > 0,
            QueueLimit::Time(time) => time.0 > 0 && time <= LONGEST,
        };
        let right = "a queue is above 0 and at most 3600s";
        self.require(within, field, queue, right)
    }

    fn require(
        &self,
        within: bool,
        field: impl Display,
        value: impl Display,
        right: &'static str,
    ) -> Result<(), ConfigError> {
        if within {
            return Ok(());
        }
        Err(ConfigError::OutOfRange {
            hop: self.name.clone(),
            field: field.to_string(),
            value: value.to_string(),
            right,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn hop(name: &str) -> HopConfig {
        HopConfig {
            name: name.to_string(),
            ..HopConfig::default()
        }
    }

    fn refusal(hops: Vec<HopConfig>) -> String {
        let config = LinkConfig {
            seed: 1,
            link: 0,
            hops,
        };
        config.check().unwrap_err().to_string()
    }

    #[test]
    fn hops_have_names_of_their_own() {
        assert_eq!(refusal(vec![]), "the link has no hop: give it at least one");
        assert_eq!(
            refusal(vec![hop("wire"), hop("")]),
            "hop 2 has no name: give it one, such as box"
        );
        assert_eq!(
            refusal(vec![hop("box"), hop("wire"), hop("box")]),
            "two hops are named box: give each a name of its own"
        );
    }

    #[test]
    fn a_value_out_of_range_is_named_with_its_hop_and_field() {
        let mut late = hop("box");
        late.down.delay = Nanos::from_secs(7_200);
        assert_eq!(
            refusal(vec![late]),
            "hop box: down.delay = 7200s is out of range: a delay is at most 3600s"
        );

        let mut crowded = hop("box");
        crowded.up.rate = Some(Rate {
            rate: "1mbit".parse().unwrap(),
            fluctuation: None,
            framing: Framing::L2,
            queue: QueueLimit::Packets(0),
        });
        assert_eq!(
            refusal(vec![crowded]),
            "hop box: up.queue = 0pkt is out of range: a queue is above 0 and at most 3600s"
        );

        let mut steep = hop("box");
        steep.up.size_delay = Factor::new(1e-9).ok();
        assert!(refusal(vec![steep]).starts_with("hop box: up.size_delay = 0.000000001 is out"));
    }
}
