//! `farwire theory`: what a line, an MTU and a protocol allow.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use model::{BitsPerSec, Bytes, Nanos, Probability};
use serde::Serialize;

use instruments::failure::{Blame, Failure};
use instruments::messages::sizes::{MessageSizes, Sweep};
use stats::layers::{Protocol, Stack};
use stats::theory::ceilings::{self, Ceiling};
use stats::theory::limits::{Explained, Limits};
use stats::theory::loss::Congestion;
use stats::theory::nettest::{self, FASTEST_BLAST, Overhead};
use stats::theory::rfc6349::{self, NeededWindow};
use stats::theory::sizes::{self, Carried, OfSize};
use stats::theory::{Impossible, PathConditions};

/// Say what a line rate, an MTU and a protocol allow, and what holds a TCP transfer up
///
/// Every rate names its layer: L1 is the wire with preamble and gap, L2 the frame, L3 the IP packet, L4 the payload
/// (goodput). The formulas and their sources are in docs/theory.md.
#[derive(Args, Debug)]
pub(crate) struct TheoryArgs {
    /// Rate of the slowest Ethernet on the path (L1)
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    rate: BitsPerSec,
    /// Largest L3 packet in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    mtu: u32,
    /// IPv4, as without either
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// IPv6
    #[arg(short = '6', long)]
    ipv6: bool,
    /// VLAN tags on a frame
    #[arg(long, value_name = "TAGS", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=2))]
    vlan: u8,
    /// TCP without the timestamps of RFC 7323
    #[arg(long)]
    no_timestamps: bool,
    /// A shaper on the path, counting L2 bytes without FCS as tbf does: 50mbit
    #[arg(long, value_name = "RATE")]
    shaper: Option<BitsPerSec>,
    /// Round-trip time without queues: 20ms
    #[arg(long, value_name = "TIME")]
    rtt: Option<Nanos>,
    /// The TCP receiver's window: 4MiB
    #[arg(long, value_name = "SIZE", requires = "rtt")]
    window: Option<Bytes>,
    /// Random loss of data packets: 1%
    #[arg(long, value_name = "PERCENT", requires = "rtt")]
    loss: Option<Probability>,
    /// The TCP sender's congestion control
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion: Congestion,
    /// Say the ideal time of a TCP transfer of so much payload (RFC 6349): 500mb
    #[arg(long, value_name = "SIZE")]
    transfer: Option<Bytes>,
    /// Explain a measured TCP goodput (L4): 93.5mbit
    #[arg(long, value_name = "RATE")]
    measured: Option<BitsPerSec>,
    /// The most that messages of these sizes reach, in bytes: one, a list 1,64,1KiB or a doubling range 1..131072
    #[arg(long, value_name = "SIZES", conflicts_with = "sweep")]
    size: Option<MessageSizes>,
    /// MessageSizes of a published table instead, and the table's own theory beside the correct one
    #[arg(long, value_name = "NAME")]
    sweep: Option<Sweep>,
    /// Write everything as JSON; - is standard output, in place of the text
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// All that is said.
#[derive(Debug, Serialize)]
struct Theory {
    conditions: PathConditions,
    ceilings: Vec<Ceiling>,
    /// Full packets a second.
    packets_per_s: f64,
    tcp: Limits,
    udp: Limits,
    #[serde(skip_serializing_if = "Option::is_none")]
    needed_window: Option<NeededWindow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transfer: Option<Transfer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<Explained>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sizes: Vec<OfSize>,
    /// The published table of overheads of nettest; empty unless its sweep was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    overheads: Vec<Overhead>,
}

/// A transfer in the ideal case.
#[derive(Debug, Serialize)]
struct Transfer {
    bytes: u64,
    ideal_s: f64,
}

impl TheoryArgs {
    /// Works it out.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let theory = self.theory().or_bad_input()?;
        super::show(
            self.json.as_deref(),
            &theory,
            &theory.to_string(),
            io::sink(),
        )?;
        Ok(ExitCode::SUCCESS)
    }

    fn theory(&self) -> Result<Theory, Impossible> {
        let conditions = self.conditions();
        let tcp = Limits::of(&conditions)?;
        let transfer = self.transfer.map(|size| Transfer {
            bytes: size.0,
            ideal_s: rfc6349::ideal_transfer_s(&conditions, size),
        });
        let measured = self.measured.map(|rate| tcp.explain(rate.get() as f64));
        let of_size = |size| sizes::of_size(&conditions, Bytes(size));
        let sizes = self.sizes().into_iter().map(of_size);
        let overheads = self.sweep.map(|Sweep::Nettest| nettest::overheads());
        Ok(Theory {
            ceilings: ceilings::ceilings(&conditions),
            packets_per_s: ceilings::packets_per_s(&conditions),
            udp: Limits::of(&conditions.with_udp())?,
            tcp,
            needed_window: rfc6349::needed_window(&conditions),
            transfer,
            measured,
            sizes: sizes.collect::<Result<_, _>>()?,
            overheads: overheads.map_or_else(Vec::new, Vec::from),
            conditions,
        })
    }

    fn conditions(&self) -> PathConditions {
        PathConditions {
            rate: self.rate,
            mtu: self.mtu,
            stack: Stack {
                ipv6: self.ipv6,
                vlan_tags: self.vlan,
                protocol: Protocol::Tcp {
                    timestamps: !self.no_timestamps,
                },
            },
            shaper: self.shaper,
            rtt: self.rtt,
            window: self.window,
            loss: self.loss,
            congestion: self.congestion,
        }
    }

    fn sizes(&self) -> Vec<u64> {
        if let Some(sweep) = self.sweep {
            let loads = sweep.blast(None);
            return loads.iter().map(|load| load.size as u64).collect();
        }
        let sizes = self.size.iter().flat_map(MessageSizes::list);
        sizes.map(|size| *size as u64).collect()
    }
}

impl fmt::Display for Theory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.title(f)?;
        self.layers(f)?;
        self.path(f)?;
        limits("TCP", &self.tcp, f)?;
        if let (Congestion::Bbr, Some(_)) = (self.conditions.congestion, self.conditions.loss) {
            writeln!(f, "BBR: no law says what a loss costs it")?;
        }
        limits("UDP", &self.udp, f)?;
        if let Some(explained) = &self.measured {
            writeln!(f, "measured: {explained}\n")?;
        }
        sizes(&self.sizes, f)?;
        overheads(&self.overheads, f)
    }
}

impl Theory {
    fn title(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PathConditions {
            rate, mtu, stack, ..
        } = self.conditions;
        let ip = if stack.ipv6 { "IPv6" } else { "IPv4" };
        let tags = match stack.vlan_tags {
            0 => "",
            1 => ", one VLAN tag",
            _ => ", two VLAN tags",
        };
        let timestamps = match stack.protocol {
            Protocol::Tcp { timestamps: false } => "TCP without timestamps",
            _ => "TCP with timestamps",
        };
        writeln!(f, "{rate} Ethernet, MTU {mtu}{tags}, {ip}, {timestamps}\n")
    }

    fn layers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, rate, share) = ("bytes a packet", "Mb/s", "% of the line");
        let counts = "counts";
        writeln!(f, "   {counts:28} {bytes:>14} {rate:>12} {share:>14}")?;
        for ceiling in &self.ceilings {
            let (layer, counts) = (ceiling.layer, ceiling.counts);
            let (bytes, share) = (ceiling.packet_bytes, ceiling.percent);
            let rate = ceiling.bit_per_s / 1e6;
            writeln!(
                f,
                "{layer} {counts:28} {bytes:>14} {rate:>12.3} {share:>14.3}"
            )?;
        }
        let packets = self.packets_per_s;
        writeln!(f, "full packets: {packets:.0} a second\n")
    }

    fn path(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(window), Some(rtt)) = (self.needed_window, self.conditions.rtt) {
            let (bytes, segments) = (window.bytes, window.segments);
            let scale = window.scale.map_or_else(
                || "more than TCP can state".to_owned(),
                |scale| format!("window scale {scale}"),
            );
            writeln!(
                f,
                "bandwidth-delay product at {rtt}: {bytes:.0} bytes of payload, {segments:.1} segments: the window must be as large ({scale})",
            )?;
        }
        if let Some(transfer) = &self.transfer {
            let (bytes, seconds) = (transfer.bytes, transfer.ideal_s);
            writeln!(
                f,
                "ideal transfer time of {bytes} bytes: {seconds:.3} s (RFC 6349)"
            )?;
        }
        Ok(())
    }
}

fn limits(protocol: &str, limits: &Limits, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (heading, rate) = (format!("{protocol} goodput, at most"), "Mb/s");
    writeln!(f, "{heading:31} {rate:>14}")?;
    for limit in &limits.all {
        let (name, rate) = (limit.cause.name(), limit.bit_per_s / 1e6);
        let binds = if *limit == limits.binding {
            "  binds"
        } else {
            ""
        };
        writeln!(f, "  {name:29} {rate:>14.3}{binds}")?;
    }
    writeln!(f)
}

fn sizes(sizes: &[OfSize], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if sizes.is_empty() {
        return Ok(());
    }
    writeln!(
        f,
        "each message in packets of its own (TCP messages that run together reach the ceiling above at any size)"
    )?;
    writeln!(f, "{:>9} {:^49} {:^49}", "message", "TCP", "UDP")?;
    let columns = "packets   on wire          us       Mb/s        %";
    writeln!(f, "{:>9} {columns:>49} {columns:>49}", "bytes")?;
    for size in sizes {
        let udp = size.udp.map_or_else(|| "too long".to_owned(), cells);
        writeln!(f, "{:>9} {} {udp:>49}", size.bytes, cells(size.tcp))?;
    }
    writeln!(f)
}

fn cells(carried: Carried) -> String {
    let (packets, wire) = (carried.counted.packets, carried.counted.l1);
    let (time, rate) = (carried.wire_s * 1e6, carried.goodput_bit_per_s / 1e6);
    let percent = carried.percent;
    format!("{packets:>7} {wire:>9} {time:>11.3} {rate:>10.3} {percent:>8.3}")
}

fn overheads(overheads: &[Overhead], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if overheads.is_empty() {
        return Ok(());
    }
    writeln!(
        f,
        "nettest's own theory (Experiment on Oct 10, with nettest on kernel 2.4.10)"
    )?;
    let (what, published, correct) = ("", "published", "correct");
    writeln!(f, "{what:32} {published:>19} {correct:>19}")?;
    for overhead in overheads {
        let (published, correct) = (overhead.published, overhead.correct);
        let (what, why) = (overhead.what, overhead.why);
        writeln!(
            f,
            "{what:32} {:>19} {:>19}  {why}",
            published.to_string(),
            correct.to_string()
        )?;
    }
    let ceiling = 12_500_000.0 * 1448.0 / 1538.0;
    let percent = 100.0 * FASTEST_BLAST / ceiling;
    writeln!(
        f,
        "its fastest blast, {FASTEST_BLAST:.0} bytes a second, is {percent:.2} % of {ceiling:.0} (1448/1538 of 100 Mb/s)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        theory: TheoryArgs,
    }

    fn text(line: &str) -> anyhow::Result<String> {
        let words = std::iter::once("theory").chain(line.split_whitespace());
        let theory = Program::try_parse_from(words)?.theory.theory()?;
        serde_json::to_string(&theory)?;
        Ok(theory.to_string())
    }

    #[track_caller]
    fn says(line: &str, parts: &[&str]) {
        let text = text(line).unwrap();
        // Columns are as wide as it takes.
        let plain = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in parts {
            assert!(plain.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn the_known_ceilings_are_said() {
        let tcp = "L4 TCP payload (goodput) 1448 941.482 94.148";
        let udp = "L4 UDP payload (goodput) 1472 957.087 95.709";
        says("", &["L1 frame, preamble and gap 1538 1000.000", tcp, udp]);
        says("--no-timestamps", &["1460 949.285 94.928"]);
        says("-6", &["1428 928.479 92.848"]);
        says("--vlan 1 --rate 100mbit", &["1542 100.000", "1448 93.904"]);
    }

    #[test]
    fn the_limit_that_binds_is_named() {
        let line = "--rtt 20ms --window 4MiB --loss 1% --shaper 50mbit";
        says(
            line,
            &[
                "shaper 47.820",
                "receiver's window 1677.722",
                "packets not lost 47.342",
                "Reno-friendly CUBIC's law of loss 7.094 binds",
                "UDP",
            ],
        );
        says("--rtt 20ms", &["2353706 bytes", "window scale 6"]);
        says("--congestion bbr --rtt 20ms --loss 1%", &["no law"]);
    }

    #[test]
    fn a_measured_goodput_is_explained() {
        let fast = "--rate 100mbit --measured";
        says(
            &format!("{fast} 94.1mbit"),
            &["99.9 % of 94.148 Mb/s (line rate)"],
        );
        says(
            &format!("{fast} 94.4mbit"),
            &["100.3 %", "more than can be"],
        );
        says("--transfer 500mb --shaper 100mbit", &["41.823 s"]);
    }

    #[test]
    fn nettest_s_published_table_stands_beside_the_correct_one() {
        let most = "1500/1526 98.296 % 1500/1538 97.529 % the gap of 12 bytes";
        let least = "1/72 1.389 % 1/84 1.190 %";
        says("--sweep nettest --rate 100mbit", &[most, least, "131072"]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (line, cause) in [
            ("--mtu 60", "IPv4 takes 68 to 65535"),
            ("-6 --mtu 1000", "IPv6 takes 1280"),
            ("--rtt 0ms", "RTT of 0"),
            ("--window 4MiB", "--rtt"),
            ("--loss 1%", "--rtt"),
            ("--vlan 3", "0..=2"),
            ("--rate 10", "unit"),
            ("--rtt 1ms --loss 100%", "nothing through"),
            ("-4 -6", "cannot be used with"),
            ("--size 9999GiB", "is too long"),
            ("--window 0b --rtt 1ms", "window of 0"),
        ] {
            let error = text(line).unwrap_err().to_string();
            assert!(error.contains(cause), "{line}: {error}");
        }
    }
}
