//! The limits of a line, an MTU, a protocol and a path, without I/O. docs/theory.md has every formula with its source.

pub mod ceilings;
pub mod limits;
pub mod loss;
pub mod nettest;
pub mod rfc6349;
pub mod sizes;

use model::{BitsPerSec, Bytes, Nanos, Probability};
use serde::Serialize;
use thiserror::Error;

use crate::layers::{Stack, TransportProtocol};
use loss::Congestion;

/// A path, and the traffic on it.
#[derive(Clone, Debug, Serialize)]
pub struct PathConditions {
    /// The rate of the slowest Ethernet on the path, at L1.
    pub rate: BitsPerSec,
    /// The largest L3 packet in bytes.
    pub mtu: u32,
    /// The headers around a payload.
    pub stack: Stack,
    /// The rate of a slower shaper on the path, at L2 without FCS, as tbf counts.
    pub shaper: Option<BitsPerSec>,
    /// The round-trip time without queues.
    pub rtt: Option<Nanos>,
    /// The receiver's window: the payload bytes that may be unacknowledged.
    pub window: Option<Bytes>,
    /// The random loss of data packets.
    pub loss: Option<Probability>,
    /// The sender's response to loss.
    pub congestion: Congestion,
}

/// The reason why a path cannot exist.
#[derive(Debug, Error, PartialEq)]
pub enum Impossible {
    /// The MTU is out of range: at least 68 bytes by RFC 791, 1280 by RFC 8200, and at most 65535 by the length fields.
    #[error("an MTU of {mtu} bytes is out of range: {ip} allows {least} to 65535")]
    Mtu {
        /// The given MTU, in bytes.
        mtu: u32,
        /// "IPv4" or "IPv6".
        ip: &'static str,
        /// The least MTU, in bytes.
        least: u32,
    },
    /// The RTT is 0.
    #[error("an RTT of 0 allows any goodput: leave the RTT out")]
    NoRtt,
    /// A value has no effect without a round-trip time.
    #[error("{0} depends on the round-trip time: set the RTT too")]
    NeedsRtt(&'static str),
    /// Every packet is lost.
    #[error("a loss of 100% lets nothing through")]
    AllLost,
    /// The window is 0, so that nothing can be sent.
    #[error("a window of 0 bytes lets nothing through")]
    NoWindow,
    /// The message is longer than [`sizes::LONGEST`].
    #[error("a message of {0} bytes is too long: at most {most} are allowed", most = sizes::LONGEST)]
    Message(u64),
}

impl PathConditions {
    /// Refuses a path that cannot exist.
    ///
    /// # Errors
    /// Returns an error for an MTU out of range, an RTT or a window of 0, a loss of 100 %, and a window or a loss
    /// without an RTT.
    pub fn check(&self) -> Result<(), Impossible> {
        let (ip, least) = if self.stack.ipv6 {
            ("IPv6", 1280)
        } else {
            ("IPv4", 68)
        };
        if !(least..=65_535).contains(&self.mtu) {
            let mtu = self.mtu;
            return Err(Impossible::Mtu { mtu, ip, least });
        }
        match (self.rtt, self.window, self.loss) {
            (Some(Nanos::ZERO), ..) => Err(Impossible::NoRtt),
            (_, Some(Bytes(0)), _) => Err(Impossible::NoWindow),
            (.., Some(loss)) if loss.fraction() >= 1.0 => Err(Impossible::AllLost),
            (None, Some(_), _) => Err(Impossible::NeedsRtt("the window")),
            (None, None, Some(_)) => Err(Impossible::NeedsRtt("the loss law")),
            _ => Ok(()),
        }
    }

    /// Returns the same path with UDP datagrams in full packets, which no window limits.
    pub fn with_udp(&self) -> Self {
        Self {
            stack: Stack {
                protocol: TransportProtocol::Udp,
                ..self.stack
            },
            ..self.clone()
        }
    }

    /// Returns the round-trip time in seconds.
    fn rtt_s(&self) -> Option<f64> {
        self.rtt.map(|rtt| rtt.0 as f64 / 1e9)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a path with 1gbit, an MTU of 1500, IPv4, and TCP with timestamps and CUBIC, without anything else.
    pub(crate) fn gigabit() -> PathConditions {
        PathConditions {
            rate: "1gbit".parse().unwrap(),
            mtu: 1500,
            stack: Stack {
                ipv6: false,
                vlan_tags: 0,
                protocol: TransportProtocol::Tcp { timestamps: true },
            },
            shaper: None,
            rtt: None,
            window: None,
            loss: None,
            congestion: Congestion::Cubic,
        }
    }

    #[test]
    fn impossible_conditions_are_refused_by_name() {
        let cause = |change: fn(&mut PathConditions)| {
            let mut conditions = gigabit();
            change(&mut conditions);
            conditions.check().unwrap_err().to_string()
        };
        assert_eq!(gigabit().check(), Ok(()));
        assert!(cause(|c| c.mtu = 67).contains("IPv4 allows 68 to 65535"));
        assert!(cause(|c| c.mtu = 65_536).contains("65536"));
        let short = cause(|c| {
            c.stack.ipv6 = true;
            c.mtu = 1279;
        });
        assert!(short.contains("IPv6 allows 1280"), "{short}");
        assert!(cause(|c| c.rtt = Some(Nanos::ZERO)).contains("RTT of 0"));
        let all_lost = cause(|c| c.loss = Some("100%".parse().unwrap()));
        assert!(all_lost.contains("nothing through"));
        assert!(cause(|c| c.window = Some(Bytes(1))).contains("set the RTT"));
        assert!(cause(|c| c.loss = Some(Probability::ZERO)).contains("set the RTT"));
    }
}
