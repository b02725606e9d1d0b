//! What a line, an MTU, a protocol and a path allow; pure. docs/theory.md has every formula with its source.

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

/// A path and what is sent over it.
#[derive(Clone, Debug, Serialize)]
pub struct PathConditions {
    /// Of the slowest Ethernet on the path, at L1.
    pub rate: BitsPerSec,
    /// Largest L3 packet in bytes.
    pub mtu: u32,
    /// The headers around a payload.
    pub stack: Stack,
    /// A slower shaper on the path, at L2 without FCS, as tbf counts.
    pub shaper: Option<BitsPerSec>,
    /// Round-trip time without queues.
    pub rtt: Option<Nanos>,
    /// The receiver's window: payload bytes that may be unacknowledged.
    pub window: Option<Bytes>,
    /// Random loss of data packets.
    pub loss: Option<Probability>,
    /// How the sender answers loss.
    pub congestion: Congestion,
}

/// Why there can be no such path.
#[derive(Debug, Error, PartialEq)]
pub enum Impossible {
    /// RFC 791: 68 bytes; RFC 8200: 1280; the length field of either ends at 65535.
    #[error("an MTU of {mtu} bytes is out of range: {ip} allows {least} to 65535")]
    Mtu {
        /// What was given, in bytes.
        mtu: u32,
        /// "IPv4" or "IPv6".
        ip: &'static str,
        /// The least that it takes, in bytes.
        least: u32,
    },
    /// A round trip takes some time.
    #[error("an RTT of 0 allows any goodput: leave the RTT out")]
    NoRtt,
    /// What was given means nothing without a round-trip time.
    #[error("{0} depends on the round-trip time: state the RTT too")]
    NeedsRtt(&'static str),
    /// A path delivers something.
    #[error("a loss of 100% lets nothing through")]
    AllLost,
    /// A sender may have something on its way.
    #[error("a window of 0 bytes lets nothing through")]
    NoWindow,
    /// Longer than [`sizes::LONGEST`].
    #[error("a message of {0} bytes is too long: at most {most} are allowed", most = sizes::LONGEST)]
    Message(u64),
}

impl PathConditions {
    /// Refuses what cannot be.
    ///
    /// # Errors
    /// An MTU out of range, an RTT or a window of 0, a loss of everything, a window or a loss without an RTT.
    pub fn check(&self) -> Result<(), Impossible> {
        let (ip, least) = match self.stack.ipv6 {
            true => ("IPv6", 1280),
            false => ("IPv4", 68),
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

    /// The same path with datagrams in full packets, which no window holds up.
    pub fn with_udp(&self) -> Self {
        Self {
            stack: Stack {
                protocol: TransportProtocol::Udp,
                ..self.stack
            },
            ..self.clone()
        }
    }

    /// The round-trip time in seconds.
    fn rtt_s(&self) -> Option<f64> {
        self.rtt.map(|rtt| rtt.0 as f64 / 1e9)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// 1gbit, MTU 1500, IPv4, TCP with timestamps and CUBIC, nothing else.
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
    fn what_cannot_be_is_refused_by_name() {
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
        assert!(cause(|c| c.window = Some(Bytes(1))).contains("state the RTT"));
        assert!(cause(|c| c.loss = Some(Probability::ZERO)).contains("state the RTT"));
    }
}
