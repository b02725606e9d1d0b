//! The load beside which probes are sent: streams over iperf3's protocol.

use std::fmt::{self, Formatter};
use std::net::SocketAddr;
use std::str::FromStr;

use model::BitsPerSec;

use crate::codec::as_text;
use crate::endpoint::Local;
use crate::error::{Error, Result, bail, ensure};
use crate::iperf3::client::Iperf3Server;
use crate::iperf3::plan::{Iperf3Test, MOST_STREAMS, TestDirection, Transport, Until};
use crate::iperf3::{tcp, udp};
use crate::stamp::loaded_latency::BackgroundLoad;

/// The key of the congestion control in the text of a load.
const CONGESTION: &str = "congestion";
/// The correct forms of a load, for error messages.
const RIGHT: &str = "write tcp:3 for three TCP streams, or udp:10mbit for a UDP stream, then up, down or both, as in tcp:4,down";

/// A load: what it sends, in which directions, and how its TCP streams control congestion.
///
/// Text: `tcp:4`, `tcp:4,down`, `udp:10mbit,both`, `tcp:4,up,congestion=bbr`. Without a direction, it sends up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    /// The streams in each direction.
    streams: LoadStreams,
    /// The direction of the payload.
    pub(crate) direction: TestDirection,
    /// TCP_CONGESTION of the senders; the default of each end when absent.
    congestion: Option<String>,
}

/// The streams of a load in each of its directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoadStreams {
    /// This number of TCP streams, as fast as they go.
    Tcp(u32),
    /// A UDP stream with this rate of payload.
    Udp(BitsPerSec),
}

impl Load {
    /// Returns a load of this number of TCP streams in each direction.
    pub(crate) fn tcp(streams: u32, direction: TestDirection, congestion: Option<String>) -> Self {
        Self {
            streams: LoadStreams::Tcp(streams),
            direction,
            congestion,
        }
    }

    /// Returns the load as an iperf3 test of unspecified duration.
    pub(crate) fn plan(&self) -> Iperf3Test {
        let plan = match self.streams {
            LoadStreams::Tcp(streams) => Iperf3Test {
                parallel: streams,
                ..Iperf3Test::new(Transport::Tcp)
            },
            LoadStreams::Udp(rate) => Iperf3Test {
                bitrate: Some(rate.get()),
                ..Iperf3Test::new(Transport::Udp)
            },
        };
        Iperf3Test {
            direction: self.direction,
            congestion: self.congestion.clone(),
            ..plan
        }
    }

    /// Returns whether its payload is in TCP streams.
    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self.streams, LoadStreams::Tcp(_))
    }

    /// Sets the congestion control of its TCP senders, unless the load names one.
    pub(crate) fn use_congestion(&mut self, name: &str) {
        if self.is_tcp() && self.congestion.is_none() {
            self.congestion = Some(name.to_owned());
        }
    }

    /// Checks that this end may use the congestion control, if it sends and the load names one.
    ///
    /// # Errors
    /// Returns an error that lists the names that may be used.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.congestion {
            Some(name) if self.direction.goes_up() => crate::service::check_congestion(name),
            _ => Ok(()),
        }
    }
}

/// Returns the load of `plan`, which sends to and from the iperf3 server at `address`. The part of its time that the
/// plan omits at the start is not in its figures.
pub(crate) fn background(
    plan: Iperf3Test,
    address: SocketAddr,
    local: Option<Local>,
) -> BackgroundLoad<'static> {
    let server = Iperf3Server {
        local,
        ..Iperf3Server::at(address)
    };
    Box::new(move |lasting, session, started| {
        let server = Iperf3Server {
            started: Some(started),
            ..server
        };
        let plan = Iperf3Test {
            until: Until::For(lasting.saturating_sub(plan.omit)),
            ..plan
        };
        match plan.protocol {
            Transport::Tcp => tcp::measure::measure(&server, &plan, session).measurement,
            Transport::Udp => udp::measure(&server, &plan, session).measurement,
        }
    })
}

as_text!(Load);

impl fmt::Display for Load {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.streams {
            LoadStreams::Tcp(streams) => write!(f, "tcp:{streams}")?,
            LoadStreams::Udp(rate) => write!(f, "udp:{rate}")?,
        }
        match self.direction {
            TestDirection::Up => Ok(()),
            TestDirection::Down => f.write_str(",down"),
            TestDirection::Both => f.write_str(",both"),
        }?;
        match &self.congestion {
            Some(name) => write!(f, ",{CONGESTION}={name}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Load {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parts = text.split(',').map(str::trim);
        let mut load = Self {
            streams: parts.next().unwrap_or_default().parse()?,
            direction: TestDirection::Up,
            congestion: None,
        };
        let mut has_direction = false;
        for part in parts {
            let direction = match part {
                "up" => Some(TestDirection::Up),
                "down" => Some(TestDirection::Down),
                "both" => Some(TestDirection::Both),
                _ => None,
            };
            if let Some(direction) = direction {
                ensure!(
                    Input,
                    !has_direction,
                    "`{text}` has two directions: {RIGHT}"
                );
                (load.direction, has_direction) = (direction, true);
                continue;
            }
            let named = part.split_once('=').filter(|(key, _)| *key == CONGESTION);
            match named {
                Some((_, name)) if !name.is_empty() && load.congestion.is_none() => {
                    load.congestion = Some(name.to_owned());
                }
                _ => bail!(
                    Input,
                    "`{part}` is no part of a load: {RIGHT}, and for TCP a congestion control, as in tcp:4,both,{CONGESTION}=bbr"
                ),
            }
        }
        ensure!(
            Input,
            load.is_tcp() || load.congestion.is_none(),
            "a UDP stream has no congestion control: leave {CONGESTION} out"
        );
        Ok(load)
    }
}

impl FromStr for LoadStreams {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (kind, amount) = text.split_once(':').unwrap_or((text, "1"));
        match kind {
            "tcp" => {
                let streams: u32 = amount
                    .parse()
                    .map_err(|_| Error::Input(format!("`{amount}` is not a number of streams")))?;
                let most = MOST_STREAMS;
                ensure!(
                    Input,
                    (1..=most).contains(&streams),
                    "a load has 1 to {most} streams, not {streams}"
                );
                Ok(Self::Tcp(streams))
            }
            "udp" => amount.parse().map(Self::Udp).map_err(Into::into),
            _ => Err(Error::Input(format!("`{kind}` is not a load: {RIGHT}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_printed_as_it_was_written() {
        for text in [
            "tcp:3",
            "tcp:4,down",
            "tcp:1,both,congestion=bbr",
            "udp:10mbit",
            "udp:10mbit,both",
        ] {
            let load: Load = text.parse().unwrap();
            assert_eq!(load.to_string(), text);
        }
        let one: Load = "tcp".parse().unwrap();
        assert_eq!(one, Load::tcp(1, TestDirection::Up, None));
        let up: Load = "tcp:2,up,congestion=cubic".parse().unwrap();
        assert_eq!(up.to_string(), "tcp:2,congestion=cubic");
    }

    #[test]
    fn a_load_becomes_a_test_in_its_directions() {
        let plan = |text: &str| text.parse::<Load>().unwrap().plan();
        let tcp = plan("tcp:4,down,congestion=reno");
        assert_eq!((tcp.parallel, tcp.direction), (4, TestDirection::Down));
        assert_eq!(tcp.congestion.as_deref(), Some("reno"));
        let udp = plan("udp:10mbit,both");
        assert_eq!(
            (udp.bitrate, udp.direction),
            (Some(10_000_000), TestDirection::Both)
        );
    }

    #[test]
    fn a_scenario_s_congestion_control_is_used_unless_the_load_names_one() {
        let used = |text: &str| {
            let mut load: Load = text.parse().unwrap();
            load.use_congestion("reno");
            load.plan().congestion
        };
        assert_eq!(used("tcp:2").as_deref(), Some("reno"));
        assert_eq!(used("tcp:2,congestion=bbr").as_deref(), Some("bbr"));
        assert_eq!(used("udp:1mbit"), None);
    }

    #[test]
    fn a_wrong_load_is_refused_with_the_correct_form() {
        for (wrong, cause) in [
            ("tcp:0", "1 to 128 streams, not 0"),
            ("tcp:x", "`x` is not a number of streams"),
            ("udp:fast", "fast"),
            ("quic:1", "`quic` is not a load: write tcp:3"),
            ("tcp:4,left", "`left` is no part of a load"),
            ("tcp:4,up,down", "has two directions"),
            ("tcp:4,congestion=", "as in tcp:4,both,congestion=bbr"),
            (
                "udp:1mbit,congestion=bbr",
                "a UDP stream has no congestion control",
            ),
        ] {
            let error = wrong.parse::<Load>().unwrap_err().to_string();
            assert!(error.contains(cause), "{error}");
        }
    }
}
