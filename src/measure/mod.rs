//! Instruments as users call them: the options of `farwire measure KIND`, which a scenario's instruments take too.

mod blast;
mod capacity;
mod http;
mod messages;
mod ping;
mod pingpong;
mod probe;
mod scenario;
mod tcp;
mod tool;
mod transfer;
mod udp;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::{Args, Subcommand};
use model::Nanos;
use serde_json::Value;
use strum::{EnumDiscriminants, EnumIter, IntoStaticStr};

use crate::endpoint::{Family, Local};
use crate::exit::Failure;
use crate::instrument::external::Tool;
use crate::instrument::{Measurement, Session};

pub(crate) use scenario::{FarEnd, OptionText, Parameters};

/// One kind of instrument with its options.
#[derive(Debug, Subcommand, EnumDiscriminants)]
#[strum_discriminants(
    name(Kind),
    derive(
        EnumIter,
        IntoStaticStr,
        PartialOrd,
        Ord,
        serde::Serialize,
        serde::Deserialize,
        schemars::JsonSchema
    ),
    serde(rename_all = "kebab-case"),
    strum(serialize_all = "kebab-case"),
    doc = "The kinds of instruments.",
    vis(pub(crate))
)]
pub(crate) enum Asked {
    Ping(ping::PingArgs),
    Http(http::HttpArgs),
    Capacity(capacity::CapacityArgs),
    Pingpong(pingpong::PingpongArgs),
    Blast(blast::BlastArgs),
    Transfer(transfer::TransferArgs),
    Tcp(tcp::TcpArgs),
    Probe(probe::ProbeArgs),
    Udp(udp::UdpArgs),
}

/// What all instruments take.
#[derive(Args, Debug)]
pub(crate) struct Common {
    /// Send from this address, or through this interface
    #[arg(short = 'B', long, value_name = "ADDR|IF")]
    bind: Option<Local>,
    /// IPv4 only
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// IPv6 only
    #[arg(short = '6', long)]
    ipv6: bool,
    /// Write the measurement as JSON there; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// No line while measuring
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// An instrument as users call it.
pub(crate) trait Instrument: Sync {
    /// What it takes as all do.
    fn common(&self) -> &Common;

    /// How long it should take, where its options say so.
    fn expected(&self) -> Option<Duration> {
        None
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
    /// What was asked for cannot be; what goes wrong while measuring is part of what is shown.
    fn measure(&self, session: &Session) -> Result<Shown, Failure>;
}

/// A tool's own server, to run at the far end.
pub(crate) struct FarTool {
    pub(crate) tool: Tool,
    pub(crate) arguments: Vec<String>,
    /// Where it listens.
    pub(crate) port: u16,
}

/// What an instrument found, and how it is shown.
pub(crate) struct Shown {
    pub(crate) measurement: Measurement,
    /// What people see above the facts.
    pub(crate) text: String,
    /// Whether every figure follows the text, a line each.
    pub(crate) figures: bool,
    /// What the JSON says beside the measurement, in the words of another tool.
    pub(crate) beside: Option<Value>,
}

impl Asked {
    /// The instrument that was asked for.
    pub(crate) fn instrument(&self) -> &dyn Instrument {
        match self {
            Self::Ping(args) => args,
            Self::Http(args) => args,
            Self::Probe(args) => args,
            Self::Capacity(args) => args,
            Self::Pingpong(args) => args,
            Self::Blast(args) => args,
            Self::Transfer(args) => args,
            Self::Tcp(args) => args,
            Self::Udp(args) => args,
        }
    }
}

impl Kind {
    /// As the command line and a scenario call it.
    pub(crate) fn name(self) -> &'static str {
        self.into()
    }
}

impl Shown {
    /// A measurement whose figures say all.
    fn of(measurement: Measurement) -> Self {
        Self {
            measurement,
            text: String::new(),
            figures: true,
            beside: None,
        }
    }

    /// With `text` above the figures.
    fn below(mut self, text: String) -> Self {
        self.text = text;
        self
    }

    /// With a table of the instrument's own in place of the figures.
    fn tabled(mut self, table: String) -> Self {
        self.text = table;
        self.figures = false;
        self
    }

    /// With `json` beside the measurement.
    fn beside(mut self, json: Value) -> Self {
        self.beside = Some(json);
        self
    }
}

impl Common {
    /// The IP version asked for.
    fn family(&self) -> Family {
        match (self.ipv4, self.ipv6) {
            (true, _) => Family::V4,
            (_, true) => Family::V6,
            _ => Family::Any,
        }
    }
}

fn above_zero(text: &str) -> Result<Nanos> {
    let time: Nanos = text.parse()?;
    if time == Nanos::ZERO {
        Err(anyhow!("must be above 0"))
    } else {
        Ok(time)
    }
}
