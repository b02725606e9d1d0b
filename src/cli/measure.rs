//! `farwire measure`: one instrument against a host.

use std::io::{self, Write};
use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::{Args, Subcommand};
use model::{Bytes, Nanos};

use super::output;
use crate::exit::{Blame, Failure};
use crate::instrument::http::{Amount, HttpPlan, HttpTarget};
use crate::instrument::ping::PingPlan;
use crate::instrument::{Measurement, Metric, Stop, Summary, http, ping};

/// Measure with one instrument
#[derive(Args, Debug)]
pub(crate) struct MeasureArgs {
    #[command(subcommand)]
    instrument: Instrument,
}

#[derive(Debug, Subcommand)]
enum Instrument {
    /// ICMP echo, as ping(8) measures it
    Ping(PingArgs),
    /// An HTTP/1.1 download
    Http(HttpArgs),
}

#[derive(Args, Debug)]
struct PingArgs {
    /// Name or address
    host: String,
    /// Payload bytes
    #[arg(short, long, value_name = "BYTES", default_value_t = 56, value_parser = clap::value_parser!(u16).range(..=65_507))]
    size: u16,
    /// Echo requests to send
    #[arg(short, long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// From one request to the next: 1s, 20ms
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = above_zero)]
    interval: Nanos,
    /// After which an answer is late and its request lost
    #[arg(short = 'W', long, value_name = "TIME", default_value = "3s")]
    timeout: Nanos,
    /// IPv4 only
    #[arg(short = '4', conflicts_with = "ipv6")]
    ipv4: bool,
    /// IPv6 only
    #[arg(short = '6')]
    ipv6: bool,
    /// Write the measurement there; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct HttpArgs {
    /// `http://HOST[:PORT]/PATH`; `farwire serve` has /bytes/N and /seconds/T
    url: String,
    /// End after so many bytes
    #[arg(long, value_name = "SIZE", conflicts_with = "duration")]
    bytes: Option<Bytes>,
    /// End after so long
    #[arg(long, value_name = "TIME", value_parser = above_zero)]
    duration: Option<Nanos>,
    /// Length of the intervals in which bytes are counted
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = above_zero)]
    interval: Nanos,
    /// Write the measurement there; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl MeasureArgs {
    /// Measures; 0 when it was measured, 1 when not.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let stop = Stop::on_signals()?;
        let (measurement, json) = match &self.instrument {
            Instrument::Ping(args) => {
                let target = resolve(args).or_bad_input()?;
                let plan = PingPlan {
                    size: args.size,
                    count: args.count,
                    interval: args.interval.into(),
                    timeout: args.timeout.into(),
                };
                (ping::measure(target, &plan, &stop), &args.json)
            }
            Instrument::Http(args) => {
                let target = HttpTarget::resolve(&args.url).or_bad_input()?;
                let plan = HttpPlan {
                    amount: args.amount(),
                    interval: args.interval.into(),
                };
                (http::measure(&target, &plan, &stop), &args.json)
            }
        };
        show(&measurement, json.as_deref())?;
        Ok(if measurement.failure.is_some() {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    }
}

impl HttpArgs {
    fn amount(&self) -> Amount {
        match (self.bytes, self.duration) {
            (Some(Bytes(bytes)), _) => Amount::Bytes(bytes),
            (None, Some(time)) => Amount::For(time.into()),
            (None, None) => Amount::Whole,
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

fn resolve(args: &PingArgs) -> Result<IpAddr> {
    let wanted = |address: &IpAddr| match address {
        IpAddr::V4(_) => !args.ipv6,
        IpAddr::V6(_) => !args.ipv4,
    };
    let found = (args.host.as_str(), 0).to_socket_addrs();
    let mut addresses = found
        .with_context(|| format!("{} does not resolve", args.host))?
        .map(|found| found.ip());
    addresses
        .find(wanted)
        .with_context(|| format!("{} has no such address", args.host))
}

fn show(measurement: &Measurement, json: Option<&Path>) -> Result<()> {
    if let Some(file) = json {
        output::write(
            Some(file),
            &(serde_json::to_string_pretty(measurement)? + "\n"),
        )?;
    }
    if let Some(cause) = &measurement.failure {
        eprintln!("farwire: {cause}");
    }
    let text = text(measurement);
    if json.is_some_and(output::is_stdout) {
        io::stderr().write_all(text.as_bytes())?;
        return Ok(());
    }
    output::write(None, &text)
}

/// Samples of probes, the summary and what the numbers are.
fn text(measurement: &Measurement) -> String {
    let probes = measurement.samples.iter().filter_map(|sample| {
        let (index, value) = (sample.index, sample.value);
        match sample.metric {
            Metric::RttMs => Some(format!("{index}: {value:.3} ms")),
            Metric::LostPackets => Some(format!("{index}: lost")),
            Metric::LateRttMs => Some(format!("{index}: late, {value:.3} ms")),
            Metric::DuplicateRttMs => Some(format!("{index}: duplicate, {value:.3} ms")),
            Metric::ReceivedBytes => None,
        }
    });
    let facts = measurement
        .facts
        .iter()
        .map(|(name, value)| format!("{name}: {value}"));
    let lines = probes
        .chain(measurement.summary.iter().map(summary))
        .chain(facts);
    lines.map(|line| line + "\n").collect()
}

fn summary(summary: &Summary) -> String {
    match summary {
        Summary::Ping(p) => {
            let counts = format!(
                "{} sent, {} received, {:.1} % lost, {} late, {} duplicates",
                p.sent, p.received, p.lost_percent, p.late, p.duplicates
            );
            p.rtt_ms.map_or(counts.clone(), |rtt| {
                format!(
                    "{counts}\nrtt min/avg/max/mdev = {:.3}/{:.3}/{:.3}/{:.3} ms, median {:.3} ms",
                    rtt.min, rtt.mean, rtt.max, rtt.mdev, rtt.median
                )
            })
        }
        Summary::Download(d) => {
            let first = d.first_byte_s.map_or_else(String::new, |time| {
                format!(", first byte after {:?}", Duration::from_secs_f64(time))
            });
            format!(
                "{} bytes in {:.3} s: {:.3} MB/s ({:.3} Mb/s) of payload{first}",
                d.bytes,
                d.duration_s,
                d.goodput_bytes_per_s / 1e6,
                d.goodput_bytes_per_s * 8.0 / 1e6
            )
        }
    }
}
