//! `farwire measure`: one instrument against a host.

mod blast;
mod capacity;
mod http;
mod messages;
mod ping;
mod pingpong;
mod probe;
mod tcp;
mod tool;
mod transfer;
mod udp;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::{Args, Subcommand};
use model::Nanos;
use serde_json::Value;

use super::output::{self, Prepared};
use crate::endpoint::{Family, Local};
use crate::exit::{Blame, Failure};
use crate::instrument::{Live, Measurement, Session, Stop};
use crate::report;

/// Measure with one instrument
#[derive(Args, Debug)]
pub(crate) struct MeasureArgs {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, Subcommand)]
enum Kind {
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
struct Common {
    /// Send from this address, or through this interface
    #[arg(short = 'B', long, value_name = "ADDR|IF")]
    bind: Option<Local>,
    /// IPv4 only
    #[arg(short = '4', conflicts_with = "ipv6")]
    ipv4: bool,
    /// IPv6 only
    #[arg(short = '6')]
    ipv6: bool,
    /// Write the measurement as JSON there; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// No line while measuring
    #[arg(short, long)]
    quiet: bool,
}

/// An instrument as users call it.
trait Instrument {
    /// What it takes as all do.
    fn common(&self) -> &Common;

    /// Measures.
    ///
    /// # Errors
    /// What was asked for cannot be; what goes wrong while measuring is part of what is shown.
    fn measure(&self, session: &Session) -> Result<Shown, Failure>;
}

/// What an instrument found, and how it is shown.
struct Shown {
    measurement: Measurement,
    /// What people see above the facts.
    text: String,
    /// Whether every figure follows the text, a line each.
    figures: bool,
    /// What the JSON says beside the measurement, in the words of another tool.
    beside: Option<Value>,
}

impl MeasureArgs {
    /// Measures; 0 when it was measured, 1 when not.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let instrument = self.kind.instrument();
        let common = instrument.common();
        let json = common.prepare_json().or_bad_input()?;
        let shown = instrument.measure(&common.session()?)?;
        let written = common.write_json(&shown, json);
        common.show(&shown)?;
        written?;
        Ok(if shown.measurement.failure.is_some() {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    }
}

impl Kind {
    fn instrument(&self) -> &dyn Instrument {
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

    fn session(&self) -> Result<Session> {
        Ok(Session {
            stop: Stop::on_signals()?,
            live: if self.quiet {
                Live::quiet()
            } else {
                Live::on_terminal()
            },
        })
    }

    /// Where the JSON goes, unless that is standard output or nowhere.
    fn prepare_json(&self) -> Result<Option<Prepared>> {
        let file = self.json.as_deref();
        let file = file.filter(|file| !output::is_stdout(file));
        file.map(Prepared::open).transpose()
    }

    fn write_json(&self, shown: &Shown, file: Option<Prepared>) -> Result<()> {
        if self.json.is_none() {
            return Ok(());
        }
        let mut json = serde_json::to_value(&shown.measurement)?;
        if let (Value::Object(all), Some(Value::Object(more))) = (&mut json, &shown.beside) {
            all.extend(more.clone());
        }
        let json = output::json(&json)?;
        match file {
            Some(file) => file.replace(|mut file| Ok(file.write_all(json.as_bytes())?)),
            None => output::write(None, &json),
        }
    }

    fn show(&self, shown: &Shown) -> Result<()> {
        let measurement = &shown.measurement;
        if let Some(cause) = &measurement.failure {
            eprintln!("farwire: {cause}");
        }
        let facts = measurement.facts.iter();
        let facts: String = facts
            .map(|(name, value)| format!("{name}: {value}\n"))
            .collect();
        let figures = if shown.figures {
            report::figures(measurement)
        } else {
            String::new()
        };
        let text = format!("{}{figures}{facts}", shown.text);
        if self.json.as_deref().is_some_and(output::is_stdout) {
            io::stderr().write_all(text.as_bytes())?;
            return Ok(());
        }
        output::write(None, &text)
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
