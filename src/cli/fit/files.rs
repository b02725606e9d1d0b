//! Files of measurements, which are fitted in place of a path, and the part of their probes that is held out.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use fit::{PathObservations, ProbeSession};
use record::Record;
use stats::layers::ip_header;

use super::OBSERVATIONS;
use super::costs::Limits;
use super::held_out::{HeldOut, HeldOutPlan, NO_PROOF};
use super::measure::{HEADERS, INTERVAL, PROBE_BYTES, probes_in};

/// The words by which a record is recognised.
const RECORD: &str = "\"farwire-record\"";
/// The fewest delays that are held out, and the fewest probes that are compared with them. The percentiles of fewer, and their
/// bootstrap in twenty blocks, show little.
const FEWEST: usize = 50;
/// The reason why the loads of files are not compared.
const NO_LOADS: &str = "files have no path to load again, so that no load is held out";
/// The reason why nothing is held out of tables of throughput.
const NO_PROBES: &str = "files without probes have no delays to compare";
/// The largest payload of a probe in bytes that fits into a frame.
const LARGEST: u32 = 1472;

/// The observations of files that are fitted, and what is held out of them.
pub(super) struct Divided {
    /// The observations to fit, one session for each file.
    pub(super) fitted: Vec<PathObservations>,
    /// The probes that are held out, or the reason why there are none.
    pub(super) held_out: Result<HeldOut, String>,
}

/// Reads the observations of files, one session each.
pub(super) fn read(files: &[&Path]) -> Result<Vec<PathObservations>> {
    let read_one = |file: &&Path| {
        let file = match file.join(OBSERVATIONS) {
            observations if observations.exists() => observations,
            _ => file.to_path_buf(),
        };
        let named = || file.display().to_string();
        if file.is_dir() {
            let record = Record::read(&file)?;
            return fit::read_record(&record).with_context(named);
        }
        let bytes = fs::read(&file).with_context(named)?;
        if fit::is_capture(&bytes) {
            return fit::read_capture(&bytes).with_context(named);
        }
        let text = String::from_utf8(bytes).with_context(named)?;
        // The first line of a record is JSON that says so.
        match text
            .lines()
            .next()
            .is_some_and(|head| head.contains(RECORD))
        {
            true => fit::read_record(&Record::read(&file)?).with_context(named),
            false => fit::read(&text).with_context(named),
        }
    };
    files.iter().map(read_one).collect()
}

/// Holds out the last third of the idle probes of each session, at most as many as can be replayed within `limits`. All
/// probes are fitted if too few delays would be held out, or too few probes be compared with them.
pub(super) fn divide(sessions: &[PathObservations], limits: &Limits) -> Divided {
    let whole = |cause: &str| Divided {
        fitted: sessions.to_vec(),
        held_out: Err(cause.to_owned()),
    };
    if !limits.with_proof {
        return whole(NO_PROOF);
    }
    if sessions.iter().all(|one| one.idle.probes.is_empty()) {
        return whole(NO_PROBES);
    }
    let longest_s = limits.proof_idle_s() / sessions.len().max(1) as f64;
    // Delays of a direction are not compared if there are round trips.
    let with_round_trips = sessions.iter().any(|one| one.idle.has_round_trips());
    let mut held_out = ProbeSession::default();
    let mut seconds = 0.0;
    let mut fitted = Vec::new();
    for session in sessions {
        let is_compared = session.idle.has_round_trips() == with_round_trips;
        let parts = is_compared.then(|| session.hold_out(longest_s)).flatten();
        let Some((earlier, later)) = parts else {
            fitted.push(session.clone());
            continue;
        };
        seconds += later.probes.last().map_or(0.0, |last| last.at_s.max(0.0));
        held_out.join(later);
        fitted.push(earlier);
    }
    let arrivals = held_out.arrivals();
    let Some(plan) = plan(&held_out, seconds).filter(|_| arrivals >= FEWEST) else {
        return whole(&format!(
            "at least {FEWEST} delays would have to be held out, but the last third of the probes, at most for {:.0} s, has {arrivals}: \
             measure for longer, or raise --time",
            limits.proof_idle_s()
        ));
    };
    // The packets of a short capture are many, but the probes that are compared with them are few.
    if (plan.count as usize) < FEWEST {
        let count = plan.count;
        return whole(&format!(
            "the last third of the packets lasts {seconds:.2} s, in which {count} probes would be sent, and at least {FEWEST} are needed: \
             capture for longer"
        ));
    }
    let probes = sessions.iter().map(|one| one.idle.probes.len());
    let (held, all) = (held_out.probes.len(), probes.sum::<usize>());
    let name = if with_round_trips {
        "idle probes"
    } else {
        "packets"
    };
    let description = match sessions {
        [_] => format!("the last {held} of {all} {name}"),
        _ => format!("{held} of {all} {name}, the last ones of the files"),
    };
    Divided {
        fitted,
        held_out: Ok(HeldOut {
            description,
            plan,
            measurement: held_out.to_measurement(),
        }),
    }
}

/// Returns the instrument that sends the same packets through the link: one that knows the direction of losses only if the
/// file does, so that the same losses are compared. Packets of single directions are not sent again: probes show the delay
/// of each direction for as many seconds.
fn plan(held_out: &ProbeSession, seconds: f64) -> Option<HeldOutPlan> {
    let loads_s = Err(NO_LOADS.to_owned());
    if !held_out.has_round_trips() {
        return Some(HeldOutPlan {
            idle: "probe",
            count: probes_in(seconds),
            interval: INTERVAL,
            size: PROBE_BYTES,
            trains: None,
            loads_s,
        });
    }
    let headers = HEADERS + ip_header(false);
    let payload = held_out.wire_bytes.saturating_sub(headers);
    let (idle, size) = match held_out.losses {
        [Some(_), Some(_)] => ("probe", size_of_stamp(payload)),
        _ => ("ping", payload),
    };
    Some(HeldOutPlan {
        idle,
        count: u32::try_from(held_out.probes.len()).unwrap_or(u32::MAX),
        interval: Duration::from_secs_f64(held_out.interval_s()?),
        size: size.min(LARGEST),
        trains: None,
        loads_s,
    })
}

/// Returns the nearest payload that a probe of STAMP can have: its extensions take at least four bytes (RFC 8972).
fn size_of_stamp(payload: u32) -> u32 {
    match payload {
        ..48 => 44,
        105..108 => 108,
        possible => possible,
    }
}

#[cfg(test)]
mod tests {
    use fit::Probe;
    use record::Phase;
    use stats::losses::Losses;

    use super::*;

    fn limits(time_s: f64, with_proof: bool) -> Limits {
        Limits {
            time_s,
            budget: 0.0,
            with_proof,
        }
    }

    /// Returns a session of answered pings, one every 100 ms.
    fn pings(count: u32) -> PathObservations {
        let probes = (0..count).map(|at| Probe {
            at_s: 0.1 * f64::from(at),
            rtt_ms: Some(20.0),
            ..Probe::default()
        });
        PathObservations {
            idle: ProbeSession {
                wire_bytes: 98,
                probes: probes.collect(),
                ..ProbeSession::default()
            },
            ..PathObservations::default()
        }
    }

    #[test]
    fn the_last_third_of_a_file_is_replayed_as_it_was_sent() {
        let Divided { fitted, held_out } = divide(&[pings(300)], &limits(180.0, true));
        let held_out = held_out.unwrap();
        assert_eq!(fitted[0].idle.probes.len(), 200);
        assert_eq!(held_out.description, "the last 100 of 300 idle probes");
        let plan = &held_out.plan;
        assert_eq!((plan.idle, plan.count, plan.size), ("ping", 100, 56));
        assert_eq!(plan.interval.as_millis(), 100);
        assert!(plan.loads_s.is_err());
        let samples = &held_out.measurement.samples;
        assert_eq!(samples.len(), 100);
        assert!(samples.iter().all(|one| one.phase == Some(Phase::Idle)));
    }

    #[test]
    fn the_replay_takes_at_most_half_of_the_time_for_all_files_together() {
        let files = [pings(3000), pings(3000)];
        let Divided { fitted, held_out } = divide(&files, &limits(41.0, true));
        // Each has 10.25 s.
        let lengths: Vec<usize> = fitted.iter().map(|one| one.idle.probes.len()).collect();
        assert_eq!(lengths, [2898, 2898]);
        let held_out = held_out.unwrap();
        assert_eq!(held_out.plan.count, 204);
        let expected = "204 of 6000 idle probes, the last ones of the files";
        assert_eq!(held_out.description, expected);
    }

    #[test]
    fn too_few_probes_are_all_fitted_and_so_are_all_without_a_comparison() {
        let cause = |count, limits: &Limits| {
            let Divided { fitted, held_out } = divide(&[pings(count)], limits);
            assert_eq!(fitted[0].idle.probes.len(), count as usize);
            held_out.err().unwrap()
        };
        let few = cause(147, &limits(180.0, true));
        let expected = "at least 50 delays would have to be held out, but the last third of the probes, at most for 90 s, has 49";
        assert!(few.starts_with(expected), "{few}");
        assert_eq!(cause(300, &limits(180.0, false)), NO_PROOF);
    }

    /// Returns a session of packets up, one in each interval of this number of seconds.
    fn packets(count: u32, interval_s: f64) -> PathObservations {
        let mut packets = pings(count);
        for (at, probe) in (0_u32..).zip(&mut packets.idle.probes) {
            probe.at_s = interval_s * f64::from(at);
            probe.one_way_ms[0] = probe.rtt_ms.take();
        }
        packets
    }

    #[test]
    fn packets_for_too_short_a_time_are_all_fitted() {
        let Divided { fitted, held_out } = divide(&[packets(600, 0.001)], &limits(180.0, true));
        assert_eq!(fitted[0].idle.probes.len(), 600);
        let cause = held_out.err().unwrap();
        let expected = "the last third of the packets lasts 0.20 s, in which 19 probes would be sent, and at least 50 are needed: capture for longer";
        assert_eq!(cause, expected);
    }

    #[test]
    fn packets_of_single_directions_are_compared_with_probes_for_as_many_seconds() {
        let packets = packets(300, 0.1);
        let held_out = divide(std::slice::from_ref(&packets), &limits(180.0, true)).held_out;
        let held_out = held_out.unwrap();
        assert_eq!(held_out.description, "the last 100 of 300 packets");
        let plan = &held_out.plan;
        assert_eq!((plan.idle, plan.interval), ("probe", INTERVAL));
        // A probe every 10 ms for 9.9 s.
        assert!((985..=990).contains(&plan.count), "{}", plan.count);
        // Beside round trips, they are all fitted.
        let Divided { fitted, held_out } = divide(&[packets, pings(300)], &limits(180.0, true));
        let lengths: Vec<usize> = fitted.iter().map(|one| one.idle.probes.len()).collect();
        assert_eq!(lengths, [300, 200]);
        assert_eq!(held_out.unwrap().plan.idle, "ping");
        let table = [PathObservations::default()];
        let nothing = divide(&table, &limits(180.0, true)).held_out;
        assert_eq!(nothing.err().unwrap(), NO_PROBES);
    }

    #[test]
    fn probes_whose_losses_have_a_direction_are_replayed_with_probes() {
        let mut session = pings(300);
        session.idle.losses = [Some(Losses::independent(0, 300)); 2];
        let held_out = divide(&[session], &limits(180.0, true)).held_out;
        let plan = held_out.unwrap().plan;
        assert_eq!((plan.idle, plan.size), ("probe", 56));
        assert_eq!(
            [0, 46, 48, 104, 106].map(size_of_stamp),
            [44, 44, 48, 104, 108]
        );
    }
}
