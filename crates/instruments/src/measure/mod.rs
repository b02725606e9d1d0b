//! Instruments as users call them: the options of `farwire measure KIND`, which a scenario's instruments take too.

mod scenario;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::{Args, Subcommand};
use model::Nanos;
use serde_json::Value;

use crate::Session;
use crate::endpoint::{Family, Local};
use crate::external::Tool;
use crate::failure::Failure;
use record::Measurement;
use record::table::Table;

pub use scenario::{FarEnd, KindOptions, OptionText, Parameters};

/// One kind of instrument with its options.
#[derive(Debug, Subcommand)]
pub enum Asked {
    Ping(crate::ping::args::PingArgs),
    Http(crate::http::args::HttpArgs),
    Capacity(crate::capacity::args::CapacityArgs),
    Pingpong(crate::messages::pingpong_args::PingpongArgs),
    Blast(crate::messages::blast_args::BlastArgs),
    Transfer(crate::messages::transfer_args::TransferArgs),
    Tcp(crate::iperf3::args::TcpArgs),
    Probe(crate::stamp::args::ProbeArgs),
    Udp(crate::udp::args::UdpArgs),
}

/// What all instruments take.
#[derive(Args, Debug)]
pub struct Common {
    /// Send from this address, or through this interface
    #[arg(short = 'B', long, value_name = "ADDR|IF")]
    pub bind: Option<Local>,
    /// IPv4 only
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// IPv6 only
    #[arg(short = '6', long)]
    ipv6: bool,
    /// Write the measurement as JSON there; - is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// No line while measuring
    #[arg(short, long)]
    pub quiet: bool,
}

/// An instrument as users call it.
pub trait Instrument: Sync {
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

    /// A table of the instrument's own, which takes the place of the figures.
    ///
    /// # Errors
    /// What was asked for cannot be.
    fn table(&self, _measurement: &Measurement) -> Result<Option<Table>, Failure> {
        Ok(None)
    }
}

/// A tool's own server, to run at the far end.
pub struct FarTool {
    pub tool: Tool,
    pub arguments: Vec<String>,
    /// Where it listens.
    pub port: u16,
}

/// What an instrument found, and how it is shown.
pub struct Shown {
    pub measurement: Measurement,
    /// What people see above the facts.
    pub text: String,
    /// What a test over iperf3's protocol was set up with, as `start` of iperf3's JSON.
    pub start: Option<Value>,
}

impl Asked {
    /// The instrument that was asked for.
    pub fn instrument(&self) -> &dyn Instrument {
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

impl Shown {
    /// A measurement whose figures say all.
    pub fn of(measurement: Measurement) -> Self {
        Self {
            measurement,
            text: String::new(),
            start: None,
        }
    }

    /// With `text` above the figures.
    pub fn below(mut self, text: String) -> Self {
        self.text = text;
        self
    }

    /// Of a test over iperf3's protocol that was set up so.
    pub fn started(mut self, start: Value) -> Self {
        self.start = Some(start);
        self
    }
}

impl Common {
    /// The IP version asked for.
    pub fn family(&self) -> Family {
        match (self.ipv4, self.ipv6) {
            (true, _) => Family::V4,
            (_, true) => Family::V6,
            _ => Family::Any,
        }
    }
}

pub fn above_zero(text: &str) -> Result<Nanos> {
    let time: Nanos = text.parse()?;
    if time == Nanos::ZERO {
        Err(anyhow!("must be above 0"))
    } else {
        Ok(time)
    }
}
