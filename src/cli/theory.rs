//! `farwire theory`: the goodput that a line rate, an MTU and a protocol allow.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use model::{BitsPerSec, Bytes, Nanos, Probability};
use serde::Serialize;

use super::args::headings;
use instruments::failure::{Blame, Failure};
use instruments::messages::sizes::{MessageSizes, Sweep};
use record::quantity::counted;
use record::table::{Column, Table};
use report::{Terminal, prose, table_text};
use stats::layers::{Stack, TransportProtocol};
use stats::theory::ceilings::{self, Ceiling};
use stats::theory::limits::{Explained, GoodputLimits, Limit, rate_unit};
use stats::theory::loss::Congestion;
use stats::theory::nettest::{self, FASTEST_BLAST, Overhead};
use stats::theory::rfc6349::{self, NeededWindow};
use stats::theory::sizes::{self, MessageCost, OfSize};
use stats::theory::{Impossible, PathConditions};

/// Calculate the goodput that a line rate, an MTU and TCP or UDP allow
///
/// Every rate names its layer: L1 is the wire with preamble and gap, L2 the frame, L3 the IP packet, L7 the payload (goodput). The
/// formulas and their sources are in docs/theory.md.
#[derive(Args, Debug)]
pub(crate) struct TheoryArgs {
    /// Rate of the slowest Ethernet link on the path (L1)
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    rate: BitsPerSec,
    /// Largest packet at L3, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    mtu: u32,
    /// Use IPv4 (default)
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use IPv6
    #[arg(short = '6', long)]
    ipv6: bool,
    /// Number of VLAN tags per frame
    #[arg(long, value_name = "TAGS", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=2))]
    vlan: u8,
    /// Use TCP without the timestamps of RFC 7323
    #[arg(long)]
    no_timestamps: bool,
    /// Rate of a shaper on the path, which counts L2 bytes without FCS as tbf does: 50mbit
    #[arg(long, value_name = "RATE")]
    shaper: Option<BitsPerSec>,
    /// Round-trip time without queues: 20ms
    #[arg(long, value_name = "TIME")]
    rtt: Option<Nanos>,
    /// Window of the TCP receiver: 4MiB
    #[arg(long, value_name = "SIZE", requires = "rtt")]
    window: Option<Bytes>,
    /// Random loss of data packets: 1%
    #[arg(long, value_name = "PERCENT", requires = "rtt")]
    loss: Option<Probability>,
    /// Congestion control of the TCP sender
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion: Congestion,
    /// Calculate the ideal time of a TCP transfer (RFC 6349): 500mb
    #[arg(long, value_name = "SIZE")]
    transfer: Option<Bytes>,
    /// Explain a measured TCP goodput (L7): 93.5mbit
    #[arg(long, value_name = "RATE")]
    measured: Option<BitsPerSec>,
    /// Calculate the goodput of messages of these sizes: 64, a list 1,64,1KiB, or a doubling range 1..131072
    #[arg(long, value_name = "SIZES", conflicts_with = "sweep")]
    size: Option<MessageSizes>,
    /// Use the message sizes of a published table, and show its theory beside the correct one
    #[arg(long, value_name = "NAME")]
    sweep: Option<Sweep>,
    /// Write everything as JSON to FILE (- for standard output, instead of text)
    #[arg(long, value_name = "FILE", help_heading = headings::OUTPUT)]
    json: Option<PathBuf>,
}

/// The results.
#[derive(Debug, Serialize)]
struct Theory {
    conditions: PathConditions,
    ceilings: Vec<Ceiling>,
    /// Full packets per second.
    packets_per_s: f64,
    tcp: GoodputLimits,
    udp: GoodputLimits,
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

/// The ideal time of a transfer.
#[derive(Debug, Serialize)]
struct Transfer {
    bytes: u64,
    ideal_s: f64,
}

impl TheoryArgs {
    /// Calculates and prints the results.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let theory = self.theory().or_bad_input()?;
        super::show(
            self.json.as_deref(),
            &theory,
            &theory.text(super::terminal()),
            io::sink(),
        )?;
        Ok(ExitCode::SUCCESS)
    }

    fn theory(&self) -> Result<Theory, Impossible> {
        let conditions = self.conditions();
        let tcp = GoodputLimits::of(&conditions)?;
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
            udp: GoodputLimits::of(&conditions.with_udp())?,
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
                protocol: TransportProtocol::Tcp {
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

impl Theory {
    /// Returns the results as text for people.
    fn text(&self, terminal: Terminal) -> String {
        let paragraphs = [self.title(), self.path(), self.no_law(), self.explained()];
        let [title, path, no_law, explained] = paragraphs.map(|text| prose(&text, terminal));
        let tables = [
            self.layers(),
            limits("TCP", &self.tcp),
            limits("UDP", &self.udp),
            sizes(&self.sizes),
            overheads(&self.overheads),
        ];
        let [layers, tcp, udp, sizes, overheads] = tables.map(|table| table_text(&table, terminal));
        let parts = [
            title, layers, path, tcp, no_law, udp, explained, sizes, overheads,
        ];
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join("\n")
    }

    fn title(&self) -> String {
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
            TransportProtocol::Tcp { timestamps: false } => "TCP without timestamps",
            _ => "TCP with timestamps",
        };
        format!("{rate} Ethernet, MTU {mtu}{tags}, {ip}, {timestamps}")
    }

    fn layers(&self) -> Table {
        let (by, unit) = rate_unit(greatest(self.ceilings.iter().map(|of| of.bit_per_s)));
        let columns = [
            Column::words("layer"),
            Column::words("counts"),
            Column::numbers("per packet\nbytes"),
            Column::numbers(format!("rate\n{unit}")),
            Column::numbers("share of line\n%"),
        ];
        let row = |ceiling: &Ceiling| {
            [
                ceiling.layer.to_string(),
                ceiling.counts.to_string(),
                ceiling.packet_bytes.to_string(),
                format!("{:.3}", ceiling.bit_per_s / by),
                format!("{:.3}", ceiling.percent),
            ]
        };
        let mut table = Table::new("", columns).with(self.ceilings.iter().map(row));
        table.note = format!("full packets: {:.0} per second", self.packets_per_s);
        table
    }

    fn path(&self) -> String {
        let mut lines = Vec::new();
        if let (Some(window), Some(rtt)) = (self.needed_window, self.conditions.rtt) {
            let (bytes, segments) = (window.bytes, window.segments);
            let scale = window.scale.map_or_else(
                || "more than TCP can announce".to_owned(),
                |scale| format!("window scale {scale}"),
            );
            lines.push(format!(
                "bandwidth-delay product at {rtt}: {bytes:.0} bytes of payload or {segments:.1} segments; the receive window must be at least this large ({scale})"
            ));
        }
        if let Some(transfer) = &self.transfer {
            let (bytes, seconds) = (transfer.bytes, transfer.ideal_s);
            let bytes = counted(bytes, "byte");
            lines.push(format!(
                "ideal transfer time of {bytes}: {seconds:.3} s (RFC 6349)"
            ));
        }
        lines.join("\n")
    }

    fn no_law(&self) -> String {
        match (self.conditions.congestion, self.conditions.loss) {
            (Congestion::Bbr, Some(_)) => {
                "BBR: there is no formula for the effect of loss".to_owned()
            }
            _ => String::new(),
        }
    }

    fn explained(&self) -> String {
        let explained = self.measured.as_ref();
        explained.map_or(String::new(), |explained| format!("measured: {explained}"))
    }
}

fn greatest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

fn limits(protocol: &str, limits: &GoodputLimits) -> Table {
    // The binding limit decides the unit, because other limits may be a thousand times as high.
    let binding = limits.expected.unwrap_or(limits.binding);
    let (by, unit) = rate_unit(binding.bit_per_s);
    let columns = [
        Column::words(format!("{protocol} goodput")),
        Column::numbers(unit),
        Column::words(""),
    ];
    let row = |limit: &Limit| {
        let binds = match *limit {
            own if own == limits.binding => "lowest limit",
            own if Some(own) == limits.expected => {
                "expected average (a model; transfers can be faster)"
            }
            own if own.cause.is_average() => "average of a model",
            _ => "limit",
        };
        [
            limit.cause.name().to_owned(),
            format!("{:.3}", limit.bit_per_s / by),
            binds.to_owned(),
        ]
    };
    Table::new("", columns).with(limits.all.iter().map(row))
}

fn sizes(sizes: &[OfSize]) -> Table {
    let goodputs = sizes.iter().flat_map(|size| [Some(size.tcp), size.udp]);
    let goodputs = goodputs.flatten().map(|of| of.goodput_bit_per_s);
    let (by, unit) = rate_unit(greatest(goodputs));
    let of_protocol = |protocol: &str| {
        let first = Column::numbers(format!("{protocol}\npackets"));
        let rest = [
            "on wire\nbytes",
            "time\nus",
            &format!("goodput\n{unit}"),
            "of line\n%",
        ];
        let rest = rest.map(|title| Column::numbers(title).beside());
        std::iter::once(first).chain(rest).collect::<Vec<_>>()
    };
    let columns = [
        vec![Column::words("message, bytes")],
        of_protocol("TCP"),
        of_protocol("UDP"),
    ];
    let row = |size: &OfSize| {
        let too_long = || ["too long", "–", "–", "–", "–"].map(str::to_owned);
        let udp = size.udp.map_or_else(too_long, |udp| cells(udp, by));
        let bytes = vec![size.bytes.to_string()];
        [bytes, cells(size.tcp, by).into(), udp.into()].concat()
    };
    let title = "goodput if each message travels in its own packets (TCP messages that share packets reach the limit above at any size)";
    Table::new(title, columns.concat()).with(sizes.iter().map(row))
}

/// Makes the cells of a row, with rates in units of `by` bit/s.
fn cells(carried: MessageCost, by: f64) -> [String; 5] {
    [
        carried.counted.packets.to_string(),
        carried.counted.l1.to_string(),
        format!("{:.3}", carried.wire_s * 1e6),
        format!("{:.3}", carried.goodput_bit_per_s / by),
        format!("{:.3}", carried.percent),
    ]
}

fn overheads(overheads: &[Overhead]) -> Table {
    let columns = [
        Column::words("overhead"),
        Column::numbers("published"),
        Column::numbers("correct"),
        Column::words(""),
    ];
    let row = |overhead: &Overhead| {
        [
            overhead.what.to_string(),
            overhead.published.to_string(),
            overhead.correct.to_string(),
            overhead.why.to_string(),
        ]
    };
    let title = "nettest's own theory (Experiment on Oct 10, with nettest on kernel 2.4.10)";
    let mut table = Table::new(title, columns).with(overheads.iter().map(row));
    let ceiling = 12_500_000.0 * 1448.0 / 1538.0;
    let percent = 100.0 * FASTEST_BLAST / ceiling;
    table.note = format!(
        "nettest's fastest blast, {FASTEST_BLAST:.0} bytes/s, is {percent:.2} % of {ceiling:.0} bytes/s (1448/1538 of 100 Mbit/s)"
    );
    table
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
        // Wide enough for every table in one piece.
        let wide = Terminal {
            width: 120,
            ..Terminal::NONE
        };
        Ok(theory.text(wide))
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
        let tcp = "L7 TCP payload (goodput) 1448 941.482 94.148";
        let udp = "L7 UDP payload (goodput) 1472 957.087 95.709";
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
                "packets not lost 47.342 lowest limit",
                "Reno-friendly CUBIC's loss model 7.094 expected average",
                "UDP",
            ],
        );
        says("--rtt 20ms", &["2353706 bytes", "window scale 6"]);
        says("--congestion bbr --rtt 20ms --loss 1%", &["no formula"]);
    }

    #[test]
    fn a_measured_goodput_is_explained() {
        let fast = "--rate 100mbit --measured";
        says(
            &format!("{fast} 94.1mbit"),
            &["99.9 % of 94.148 Mbit/s (line rate)"],
        );
        says(
            &format!("{fast} 94.4mbit"),
            &["100.3 %", "more than can be"],
        );
        // 23.0 of 7.094 Mbit/s are 324 %: a law is no limit, and nothing is said to be impossible.
        let lossy = "--rtt 20ms --shaper 50mbit --loss 1% --measured 23mbit";
        says(
            lossy,
            &[
                "324.2 % of 7.094 Mbit/s (Reno-friendly CUBIC's loss model), which is the model's average and not a limit",
                "the limit is 47.342 Mbit/s (packets not lost)",
            ],
        );
        assert!(!text(lossy).unwrap().contains("can be delivered"));
        says("--transfer 500mb --shaper 100mbit", &["41.823 s"]);
    }

    #[test]
    fn rates_below_1_mbit_are_in_kbit() {
        says(
            "--rate 256kbit --measured 200kbit",
            &[
                "kbit/s",
                "256.000",
                "200.000 kbit/s is 83.0 % of 241.020 kbit/s (line rate)",
            ],
        );
        says(
            "--rtt 600ms --loss 20%",
            &["TCP goodput kbit/s", "line rate 941482.445"],
        );
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
            ("--mtu 60", "IPv4 allows 68 to 65535"),
            ("-6 --mtu 1000", "IPv6 allows 1280"),
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
