//! The CSV with one line per probe. Its first eleven columns are those of netprobe in the same order; farwire's follow.

use crate::error::Result;
use std::io::Write;

use super::probe_log::ProbeAnswer;
use super::{ProbeResults, loss};
use record::Direction;

/// The names of the columns, which docs/instruments/probe.md explains.
const HEADER: [&str; 20] = [
    "sent_ms",
    "received_ms",
    "lost",
    "delay_ms",
    "ipdv_ms",
    "duplicates",
    "reordered",
    "late",
    "tx_probes",
    "rx_probes",
    "lost_way",
    "rtt_ms",
    "network_rtt_ms",
    "host_ms",
    "down_delay_ms",
    "down_ipdv_ms",
    "far_number",
    "far_ttl",
    "phase",
    "probe",
];

/// Writes the probes of these phases, one phase after the other.
///
/// # Errors
/// Returns an error if they cannot be written.
pub(crate) fn write(to: impl Write, phases: &[(&str, &ProbeResults)]) -> Result<()> {
    let mut writer = ::csv::Writer::from_writer(to);
    writer.write_record(HEADER)?;
    for (phase, results) in phases {
        let log = &results.log;
        let ipdv = [Direction::Up, Direction::Down].map(|direction| results.ipdv(direction));
        let overtaken = loss::overtaken(log);
        let mut duplicates = vec![0_u32; log.probes.len()];
        for answer in log.answers.iter().filter(|answer| answer.duplicate) {
            duplicates[answer.probe] += 1;
        }
        let mut delays = results.delays.iter().peekable();
        let mut received = 0_u64;
        for (probe, sent) in log.probes.iter().enumerate() {
            let found = delays.next_if(|delays| delays.probe == probe);
            received += u64::from(found.is_some());
            let answer = sent.answer.map(|place| &log.answers[place]);
            let sent_ms = results.at_s(probe) * 1e3;
            let one_way = |direction| found.and_then(|delays| results.one_way(delays, direction));
            let (up, down) = (one_way(Direction::Up), one_way(Direction::Down));
            let of_answer = |pick: fn(&ProbeAnswer) -> String| answer.map(pick).unwrap_or_default();
            let way = results.losses.ways.get(&probe).copied();
            writer.write_record([
                millis(Some(sent_ms)),
                millis(up.map(|up| sent_ms + up)),
                flag(way.is_some()),
                millis(up),
                millis(ipdv[0].get(&probe).copied()),
                duplicates[probe].to_string(),
                flag(overtaken.contains(&probe)),
                flag(answer.is_some_and(|answer| answer.late)),
                (probe + 1).to_string(),
                received.to_string(),
                way.map_or("", |way| way.map_or("unknown", Direction::name))
                    .to_owned(),
                millis(found.map(|delays| delays.rtt)),
                millis(found.and_then(|delays| delays.network)),
                millis(found.and_then(|delays| Some(delays.rtt - delays.network?))),
                millis(down),
                millis(ipdv[1].get(&probe).copied()),
                of_answer(|answer| answer.number.to_string()),
                of_answer(|answer| answer.ttl.to_string()),
                (*phase).to_owned(),
                probe.to_string(),
            ])?;
        }
    }
    Ok(writer.flush()?)
}

fn flag(set: bool) -> String {
    u8::from(set).to_string()
}

fn millis(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| format!("{value:.6}"))
}
