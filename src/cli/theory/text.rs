//! What theory says, as text for a terminal.

use std::fmt;

use super::Theory;
use stats::layers::Protocol;
use stats::theory::PathConditions;
use stats::theory::limits::Limits;
use stats::theory::loss::Congestion;
use stats::theory::nettest::{FASTEST_BLAST, Overhead};
use stats::theory::sizes::{Carried, OfSize};

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
    writeln!(f, "nettest's own theory (document 003)")?;
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
