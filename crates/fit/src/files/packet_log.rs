//! Packet logs of farwire in CSV.

use conditions::Direction;
use stats::losses::Losses;

use super::FileError;
use crate::observations::{Probe, ProbeSession};
use crate::{DIRECTIONS, index};

/// Reads a packet log of farwire in CSV. Losses are those that the link drew; packets that it dropped for other reasons do
/// not count. The time by which packets left after they were due is no property of the link.
pub(super) fn read(text: &str) -> Result<ProbeSession, FileError> {
    let mut lines = (1..).zip(text.lines());
    let header: Vec<&str> = lines
        .next()
        .map_or(Vec::new(), |(_, line)| line.split(',').collect());
    let place = |name: &str| header.iter().position(|column| *column == name);
    let columns = [
        "direction",
        "arrival_ns",
        "verdict",
        "due_ns",
        "departure_ns",
    ]
    .map(place);
    let [
        Some(way),
        Some(arrival),
        Some(verdict),
        Some(due),
        Some(departure),
    ] = columns
    else {
        return Err(FileError::UnknownForm);
    };
    let mut packets: Vec<(u64, Direction, Option<u64>)> = Vec::new();
    for (line, text) in lines {
        let cells: Vec<&str> = text.split(',').collect();
        let cell = |place: usize| cells.get(place).copied().unwrap_or_default();
        let way = match cell(way) {
            "up" => Direction::Up,
            "down" => Direction::Down,
            other => {
                let cause = format!("direction: `{other}` is neither up nor down");
                return Err(FileError::Line { line, cause });
            }
        };
        let time = |place| cell(place).parse::<u64>().ok();
        let Some(arrival) = time(arrival) else {
            let cause = format!("arrival_ns: `{}` is no whole number", cell(arrival));
            return Err(FileError::Line { line, cause });
        };
        match cell(verdict) {
            "delivered" => packets.push((arrival, way, time(due).or(time(departure)))),
            "loss" => packets.push((arrival, way, None)),
            _ => {}
        }
    }
    packets.sort_by_key(|(arrival, ..)| *arrival);
    let start = packets.first().map_or(0, |(arrival, ..)| *arrival);
    let lost_of = |of: Direction| {
        let mine = packets.iter().filter(|(_, way, _)| *way == of);
        Some(Losses::in_order(mine.map(|(_, _, left)| left.is_none())))
    };
    let losses = DIRECTIONS.map(lost_of);
    let probes = packets.iter().map(|(arrival, way, left)| {
        let mut probe = Probe {
            at_s: (arrival - start) as f64 / 1e9,
            lost: left.is_none().then_some(*way),
            ..Probe::default()
        };
        let delay_ms = left.map(|left| left.saturating_sub(*arrival) as f64 / 1e6);
        probe.one_way_ms[index(*way)] = delay_ms;
        probe
    });
    Ok(ProbeSession {
        probes: probes.collect(),
        losses,
        ..ProbeSession::default()
    })
}
