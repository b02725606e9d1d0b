//! Passes a capture through an emulated link in virtual time: without privileges, without waiting, and with the same result every time.
//!
//! ```text
//! cargo run --example pcap_through_link -- IN.pcap OUT.pcap
//! ```
//!
//! Each frame of IN enters the link at its time in IN. OUT has the frames that leave at the other end, each with its departure time.
//! `tcpdump -w` and `editcap -F nsecpcap` write files that this program reads.
#![allow(
    clippy::disallowed_macros,
    reason = "it prints its results, and nobody else uses it"
)]

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use model::{
    BitsPerSec, Delay, Effect, Framing, Link, LinkConfig, Nanos, Probability, QueueLimit, Rate,
    StageSpec,
};
use netio::{Frame, MemoryPort, Offload};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::{DataLink, TsResolution};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [input, output] = arguments.as_slice() else {
        bail!("give two files: IN.pcap OUT.pcap");
    };
    let capture = File::open(input).with_context(|| format!("cannot read {input}"))?;
    let result = File::create(output).with_context(|| format!("cannot write {output}"))?;
    let (came, left) = pass(BufReader::new(capture), BufWriter::new(result), link()?)
        .with_context(|| format!("{input} to {output}"))?;
    println!("{came} frames went into the link, {left} came out");
    Ok(())
}

/// Makes a link of 10 Mbit/s with a queue of 100 packets, 1 % random loss and 20 ms, the same in both directions.
fn link() -> Result<Link> {
    let rate = Effect::Rate(Rate {
        rate: Some(BitsPerSec::new(10_000_000)?),
        burst: None,
        framing: Framing::L2,
        queue: QueueLimit::Packets(100).into(),
        fluctuation: None,
    });
    let loss = Effect::Loss(Probability::from_percent(1.0)?.into());
    let delay = Effect::Delay(Delay {
        time: Nanos::from_millis(20),
        ..Delay::default()
    });
    let stages = |way: &str| {
        let stage = |kind: &str, effect: &Effect| {
            StageSpec::new(format!("wan.{way}.{kind}"), effect.clone())
        };
        vec![
            stage("rate", &rate),
            stage("loss", &loss),
            stage("delay", &delay),
        ]
    };
    let config = LinkConfig::new(1, stages("up"), stages("down"));
    Ok(Link::new(&config)?)
}

/// Passes the frames of `input` through `link` from side A to side B; returns how many entered and left.
fn pass(input: impl Read, output: impl Write, link: Link) -> Result<(usize, usize)> {
    let mut capture = PcapReader::new(input)?;
    let header = capture.header();
    ensure!(
        header.datalink == DataLink::ETHERNET,
        "a capture of Ethernet is needed, not of {:?}",
        header.datalink
    );
    let mut port = MemoryPort::new(false);
    let (mut came, mut last) = (0, Nanos::ZERO);
    while let Some(packet) = capture.next_packet() {
        let packet = packet?;
        came += 1;
        ensure!(
            packet.data.len() == packet.orig_len as usize,
            "frame {came} was not captured whole"
        );
        // Captures may be slightly out of order; a port is not.
        last = last.max(Nanos(u64::try_from(packet.timestamp.as_nanos())?));
        port.arrive(Frame::new(last, Offload::default(), None, &packet.data));
    }

    let [_, mut far] = farwire::forward::run_to_end([port, MemoryPort::new(false)], link);

    let header = PcapHeader {
        ts_resolution: TsResolution::NanoSecond,
        ..header
    };
    let mut result = PcapWriter::with_header(output, header)?;
    let sent = far.sent();
    for frame in &sent {
        let at = Duration::from_nanos(frame.departure.0);
        let length = u32::try_from(frame.bytes.len())?;
        result.write_packet(&PcapPacket::new(at, length, &frame.bytes))?;
    }
    result.into_writer().flush()?;
    Ok((came, sent.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of frames: 1 ms apart, 500 bytes each, numbered; one in ten is ARP, which passes unimpaired.
    const FRAMES: u32 = 1_000;
    const START: Duration = Duration::from_secs(1_700_000_000);
    const GAP: Duration = Duration::from_millis(1);
    const LENGTH: usize = 500;

    fn is_arp(number: u32) -> bool {
        number.is_multiple_of(10)
    }

    fn capture() -> Vec<u8> {
        let mut pcap = PcapWriter::new(Vec::new()).unwrap();
        for number in 0..FRAMES {
            let mut frame = vec![0; LENGTH];
            frame[12..14].copy_from_slice(if is_arp(number) { &[8, 6] } else { &[8, 0] });
            frame[14] = 0x45;
            frame[LENGTH - 4..].copy_from_slice(&number.to_be_bytes());
            let packet = PcapPacket::new_owned(START + GAP * number, 500, frame);
            pcap.write_packet(&packet).unwrap();
        }
        pcap.into_writer()
    }

    /// Reads number and time of each frame of a capture.
    fn read(pcap: &[u8]) -> Vec<(u32, Duration)> {
        let mut reader = PcapReader::new(pcap).unwrap();
        let mut frames = Vec::new();
        while let Some(packet) = reader.next_packet() {
            let packet = packet.unwrap();
            assert_eq!(packet.data.len(), LENGTH);
            let number = packet.data[LENGTH - 4..].try_into().unwrap();
            frames.push((u32::from_be_bytes(number), packet.timestamp));
        }
        frames
    }

    fn passed() -> Vec<u8> {
        let mut output = Vec::new();
        let (came, left) = pass(capture().as_slice(), &mut output, link().unwrap()).unwrap();
        assert_eq!((came, left), (FRAMES as usize, read(&output).len()));
        output
    }

    #[test]
    fn frames_leave_when_the_link_says_to_the_nanosecond() {
        // A frame takes 4,000 bits at 10 Mbit/s, then 20 ms; at 4 Mbit/s in total nothing ever waits.
        let delay = Duration::from_micros(400) + Duration::from_millis(20);
        for (number, left) in read(&passed()) {
            let after = if is_arp(number) {
                Duration::ZERO
            } else {
                delay
            };
            assert_eq!(left, START + GAP * number + after, "frame {number}");
        }
    }

    #[test]
    fn some_are_lost_and_the_rest_come_once() {
        let mut numbers: Vec<u32> = read(&passed()).into_iter().map(|(n, _)| n).collect();
        numbers.sort_unstable();
        let lost: Vec<u32> = (0..FRAMES)
            .filter(|n| numbers.binary_search(n).is_err())
            .collect();
        assert!(!lost.is_empty() && lost.len() < 30, "{lost:?}");
        assert!(!lost.iter().any(|n| is_arp(*n)), "{lost:?}");
        assert_eq!(numbers.len() + lost.len(), FRAMES as usize);
    }

    #[test]
    fn one_seed_gives_the_same_capture_again() {
        assert_eq!(passed(), passed());
    }
}
