//! The JSON of irtt.

use conditions::Direction;
use serde::Deserialize;
use serde_json::Value;
use stats::losses::Losses;

use super::FileError;
use crate::DIRECTIONS;
use crate::observations::{Probe, ProbeSession, UDP_HEADERS};

/// The JSON of irtt, as far as it is needed. Times are in nanoseconds.
#[derive(Deserialize)]
pub(super) struct Irtt {
    round_trips: Vec<IrttRoundTrip>,
    #[serde(default)]
    config: IrttConfig,
    #[serde(default)]
    stats: IrttStats,
}

#[derive(Default, Deserialize)]
struct IrttConfig {
    /// The payload in bytes.
    length: Option<u32>,
}

#[derive(Default, Deserialize)]
struct IrttStats {
    #[serde(default)]
    duplicates: u64,
    #[serde(default)]
    late_packets: u64,
}

#[derive(Deserialize)]
struct IrttRoundTrip {
    /// A text or a truth value: `false`, `true`, `true_up` or `true_down`.
    lost: Value,
    timestamps: IrttTimestamps,
    #[serde(default)]
    delay: IrttDelay,
}

#[derive(Deserialize)]
struct IrttTimestamps {
    client: IrttClient,
}

#[derive(Deserialize)]
struct IrttClient {
    send: IrttStamp,
}

#[derive(Default, Deserialize)]
struct IrttStamp {
    wall: Option<i64>,
    monotonic: Option<i64>,
}

#[derive(Default, Deserialize)]
struct IrttDelay {
    rtt: Option<f64>,
}

impl Irtt {
    /// Returns the time at which it began, in nanoseconds since 1970, if it has one.
    pub(super) fn began_ns(&self) -> Option<i64> {
        let mut stamps = self.round_trips.iter();
        stamps.find_map(|one| one.timestamps.client.send.wall)
    }
}

/// Reads irtt's JSON. Its one-way delays are differences of two clocks whose relation it does not state, so that only
/// its round trips are used.
pub(super) fn read(parsed: Irtt) -> Result<ProbeSession, FileError> {
    let time = |one: &IrttRoundTrip| {
        let send = &one.timestamps.client.send;
        send.monotonic.or(send.wall)
    };
    let start = parsed
        .round_trips
        .first()
        .and_then(time)
        .unwrap_or_default();
    let mut knows_direction = false;
    let mut probes = Vec::new();
    for one in &parsed.round_trips {
        let sent =
            time(one).ok_or_else(|| FileError::Json("a probe has no send time".to_owned()))?;
        let (is_lost, lost) = match &one.lost {
            Value::Bool(is_lost) => (*is_lost, None),
            Value::String(text) => match text.as_str() {
                "false" => (false, None),
                "true" => (true, None),
                "true_up" => (true, Some(Direction::Up)),
                "true_down" => (true, Some(Direction::Down)),
                other => return Err(FileError::Json(format!("`{other}` is no value of lost"))),
            },
            other => return Err(FileError::Json(format!("`{other}` is no value of lost"))),
        };
        knows_direction |= lost.is_some();
        probes.push(Probe {
            at_s: sent.saturating_sub(start) as f64 / 1e9,
            rtt_ms: one.delay.rtt.filter(|_| !is_lost).map(|ns| ns / 1e6),
            lost,
            ..Probe::default()
        });
    }
    let all_known = probes
        .iter()
        .all(|probe| probe.rtt_ms.is_some() || probe.lost.is_some());
    let losses = DIRECTIONS.map(|way| {
        let entered = probes.iter().filter(|probe| probe.entered(way));
        (knows_direction && all_known)
            .then(|| Losses::in_order(entered.map(|probe| !probe.passed(way))))
    });
    Ok(ProbeSession {
        wire_bytes: parsed
            .config
            .length
            .unwrap_or_default()
            .saturating_add(UDP_HEADERS),
        losses,
        reordered: [false, parsed.stats.late_packets > 0],
        duplicates: parsed.stats.duplicates,
        probes,
        ..ProbeSession::default()
    })
}
