//! The kinds of instruments.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{EnumIter, IntoStaticStr};

/// The kinds of instruments, in the order of `farwire measure`.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    EnumIter,
    IntoStaticStr,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Kind {
    /// ICMP echo.
    Ping,
    /// A web server's answers.
    Http,
    /// The UDP Speed Test Protocol (RFC 9946).
    Capacity,
    /// Round trips of messages.
    Pingpong,
    /// Messages one after the other.
    Blast,
    /// Blocks written to one connection.
    Transfer,
    /// iperf3's TCP test.
    Tcp,
    /// STAMP (RFC 8762).
    Probe,
    /// iperf3's UDP test.
    Udp,
}

impl Kind {
    /// As the command line and a scenario call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}
