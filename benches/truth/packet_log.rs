//! The packet log, as far as a figure's truth needs it.

use anyhow::{Context, Result, ensure};

/// What left by one side of the link, in the order of leaving.
pub(crate) struct Delivered {
    /// Seconds since 1970, and bytes of L2 without FCS.
    packets: Vec<(f64, f64)>,
}

impl Delivered {
    /// Reads what `--packet-log` wrote, of one direction ("up", "down").
    pub(crate) fn read(text: &str, direction: &str) -> Result<Self> {
        let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let header = lines.next().context("a header")?;
        let column = |name: &str| header.iter().position(|column| *column == name);
        let column = |name| column(name).with_context(|| format!("a column {name}"));
        let (way, verdict) = (column("direction")?, column("verdict")?);
        let (departure, bytes) = (column("departure_ns")?, column("bytes")?);
        let place = column("number")?;
        let mut packets = Vec::new();
        for (number, row) in (1..).zip(lines) {
            ensure!(
                row[place] == u64::to_string(&number),
                "a packet was not kept"
            );
            if row[way] == direction && row[verdict] == "delivered" {
                let seconds = row[departure].parse::<f64>()? / 1e9;
                packets.push((seconds, row[bytes].parse()?));
            }
        }
        Ok(Self { packets })
    }

    /// Packets of so many bytes.
    pub(crate) fn of_length(&self, bytes: f64) -> usize {
        let packets = self.packets.iter();
        packets.filter(|(_, length)| *length == bytes).count()
    }

    /// The rate over the `length` seconds that end at `end`, in bit/s.
    pub(crate) fn rate(&self, end: f64, length: f64) -> f64 {
        let within = |at: f64| at > end - length && at <= end;
        let packets = self.packets.iter().filter(|(at, _)| within(*at));
        packets.map(|(_, bytes)| bytes).sum::<f64>() * 8.0 / length
    }
}
