//! `farwire measure`: one instrument against a host.

mod http;
mod ping;
mod tcp;
mod udp;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::{Args, Subcommand};
use model::Nanos;
use serde_json::Value;

use super::output;
use crate::endpoint::{Family, Local};
use crate::exit::Failure;
use crate::instrument::{Live, Measurement, Session, Stop};
use crate::report;

/// Measure with one instrument
#[derive(Args, Debug)]
pub(crate) struct MeasureArgs {
    #[command(subcommand)]
    instrument: Instrument,
}

#[derive(Debug, Subcommand)]
enum Instrument {
    Ping(ping::PingArgs),
    Http(http::HttpArgs),
    Tcp(tcp::TcpArgs),
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

/// What an instrument found, and how it is shown.
struct Shown {
    measurement: Measurement,
    /// What people see, above the figures and facts that every instrument shows.
    text: String,
    /// What the JSON says beside the measurement, in the words of another tool.
    beside: Option<Value>,
}

impl MeasureArgs {
    /// Measures; 0 when it was measured, 1 when not.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let common = match &self.instrument {
            Instrument::Ping(args) => &args.common,
            Instrument::Http(args) => &args.common,
            Instrument::Tcp(args) => &args.common,
            Instrument::Udp(args) => &args.common,
        };
        let session = common.session()?;
        let shown = match &self.instrument {
            Instrument::Ping(args) => args.measure(&session)?,
            Instrument::Http(args) => args.measure(&session)?,
            Instrument::Tcp(args) => args.measure(&session)?,
            Instrument::Udp(args) => args.measure(&session)?,
        };
        common.show(&shown)?;
        Ok(if shown.measurement.failure.is_some() {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
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

    fn show(&self, shown: &Shown) -> Result<()> {
        let measurement = &shown.measurement;
        if let Some(file) = &self.json {
            let mut json = serde_json::to_value(measurement)?;
            if let (Value::Object(all), Some(Value::Object(more))) = (&mut json, &shown.beside) {
                all.extend(more.clone());
            }
            output::write_json(file, &json)?;
        }
        if let Some(cause) = &measurement.failure {
            eprintln!("farwire: {cause}");
        }
        let facts = measurement.facts.iter();
        let facts: String = facts
            .map(|(name, value)| format!("{name}: {value}\n"))
            .collect();
        let text = format!("{}{}{facts}", shown.text, report::figures(measurement));
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
