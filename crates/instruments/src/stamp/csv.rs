//! One line a probe: netprobe's eleven columns in their places, and what farwire knows besides.

use std::io::Write;

use anyhow::Result;

use super::{Outcome, loss};
use record::Direction;

/// What stands in the columns is written in docs/instruments/probe.md.
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

/// Writes the probes of these phases, one after the other.
///
/// # Errors
/// They cannot be written.
pub(crate) fn write(to: impl Write, phases: &[(&str, &Outcome)]) -> Result<()> {
    let mut writer = ::csv::Writer::from_writer(to);
    writer.write_record(HEADER)?;
    for (phase, outcome) in phases {
        lines(&mut writer, phase, outcome)?;
    }
    Ok(writer.flush()?)
}

fn lines(writer: &mut ::csv::Writer<impl Write>, phase: &str, outcome: &Outcome) -> Result<()> {
    let journal = &outcome.journal;
    let ipdv = [Direction::Up, Direction::Down].map(|direction| outcome.ipdv(direction));
    let overtaken = loss::overtaken(journal);
    let mut duplicates = vec![0_u32; journal.probes.len()];
    for answer in journal.answers.iter().filter(|answer| answer.duplicate) {
        duplicates[answer.probe] += 1;
    }
    let mut delays = outcome.delays.iter().peekable();
    let mut received = 0_u64;
    for (probe, sent) in journal.probes.iter().enumerate() {
        let found = delays.next_if(|delays| delays.probe == probe);
        received += u64::from(found.is_some());
        let answer = sent.answer.map(|place| &journal.answers[place]);
        let sent_ms = outcome.at_s(probe) * 1e3;
        let up = found.and_then(|delays| outcome.one_way(delays, Direction::Up));
        let down = found.and_then(|delays| outcome.one_way(delays, Direction::Down));
        let way = outcome.losses.ways.get(&probe).copied();
        writer.write_record([
            format!("{sent_ms:.6}"),
            up.map_or_else(String::new, |up| format!("{:.6}", sent_ms + up)),
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
            answer.map_or_else(String::new, |answer| answer.number.to_string()),
            answer.map_or_else(String::new, |answer| answer.ttl.to_string()),
            (*phase).to_owned(),
            probe.to_string(),
        ])?;
    }
    Ok(())
}

fn flag(set: bool) -> String {
    u8::from(set).to_string()
}

fn millis(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| format!("{value:.6}"))
}
