//! Delays computed from a session's timestamps: the parts of the network and of the hosts, and the one-way delays as
//! far as the relation of the two clocks allows. All functions are pure.

use model::Nanos;
use record::Direction;

use super::probe_log::{ProbeAnswer, ProbeLog};

/// The delays of a probe that was answered in time, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ProbeDelays {
    /// The number of the probe, from 0.
    pub(crate) probe: usize,
    /// The time from before sending to after receiving, by this program's clock.
    pub(crate) rtt: f64,
    /// `rtt` without the hosts' part, from kernel to kernel in both directions. If the reflector does not report when
    /// its answer left, the way through its kernel is included.
    pub(crate) network: Option<f64>,
    /// The time from this kernel to the reflector's, as the difference of their two clocks.
    pub(crate) up: Option<f64>,
    /// The time from the reflector's kernel to this one, as the difference of their two clocks.
    pub(crate) down: Option<f64>,
}

/// The offset of the reflector's clock from this one; positive if the reflector's clock is ahead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ClockOffset {
    /// The best estimate in milliseconds.
    pub(crate) ms: f64,
    /// The lower bound in milliseconds.
    pub(crate) low: f64,
    /// The upper bound in milliseconds.
    pub(crate) high: f64,
    /// The relation of the two clocks.
    pub(crate) relation: ClockRelation,
}

/// The relation of two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClockRelation {
    /// Both ends read the same clock.
    Same,
    /// Both clocks are synchronised with UTC according to their ends, within stated errors.
    Synchronised,
    /// Nothing is known, except that no packet arrives before it was sent. Only the variation of one-way delays is
    /// known.
    Unrelated,
}

/// The tolerance for the difference of two stamps of the same clock, which is the resolution up to which software
/// stamps are reliable.
const TOLERANCE_MS: f64 = 0.001;
/// The amount by which a round trip in kernel stamps may exceed that of the monotonic clock. The wall clock may be
/// slewed by 500 ppm (adjtimex(2)); a larger difference means that it was set.
const SLEW_MS: f64 = 1.0;

/// Returns the delays of all probes that were answered in time, in the order of sending, and the number of answers with
/// impossible stamps.
pub(crate) fn delays(log: &ProbeLog) -> (Vec<ProbeDelays>, u64) {
    let mut impossible = 0;
    let delays = (0..log.probes.len()).filter_map(|probe| {
        let answer = log.answer(probe)?;
        let of_program = ProbeDelays {
            probe,
            rtt: ms(answer.read, log.probes[probe].sent),
            network: None,
            up: None,
            down: None,
        };
        let found = with_stamps(of_program, log, answer);
        impossible += u64::from(found.is_none());
        Some(found.unwrap_or(of_program))
    });
    (delays.collect(), impossible)
}

/// Returns the offset that follows from the session's packets and from the statements of both ends. `None` without
/// kernel stamps.
pub(crate) fn offset(
    log: &ProbeLog,
    delays: &[ProbeDelays],
    own_error_ms: Option<f64>,
) -> Option<ClockOffset> {
    let least = |pick: fn(&ProbeDelays) -> Option<f64>| {
        delays.iter().filter_map(pick).min_by(f64::total_cmp)
    };
    // The bounds follow from the fact that no packet arrives before it was sent.
    let (low, high) = (-least(|d| d.down)?, least(|d| d.up)?);
    let within = |error: f64, relation| {
        let (low, high) = (low.max(-error), high.min(error));
        (low <= high).then(|| ClockOffset {
            ms: 0.0_f64.clamp(low, high),
            low,
            high,
            relation,
        })
    };
    if log.far_end.same_kernel && low <= TOLERANCE_MS && high >= -TOLERANCE_MS {
        return Some(ClockOffset {
            ms: 0.0,
            low: 0.0,
            high: 0.0,
            relation: ClockRelation::Same,
        });
    }
    let far_error = log.far_end.error.filter(|error| error.synchronised);
    let stated = own_error_ms
        .zip(far_error)
        .and_then(|(own, far)| within(own + far.seconds() * 1e3, ClockRelation::Synchronised));
    stated.or(Some(ClockOffset {
        ms: f64::midpoint(low, high),
        low: low.min(high),
        high: high.max(low),
        relation: ClockRelation::Unrelated,
    }))
}

impl ProbeDelays {
    /// Returns the one-way delay as the difference of the two clocks.
    pub(crate) fn raw(&self, direction: Direction) -> Option<f64> {
        match direction {
            Direction::Up => self.up,
            Direction::Down => self.down,
        }
    }
}

/// Returns the delays with those from kernel stamps added, or `None` if the stamps are impossible.
fn with_stamps(
    of_program: ProbeDelays,
    log: &ProbeLog,
    answer: &ProbeAnswer,
) -> Option<ProbeDelays> {
    let departed = log.probes[of_program.probe].departed;
    let between = |later: Option<Nanos>, earlier: Option<Nanos>| Some(ms(later?, earlier?));
    let whole = between(answer.arrived, departed);
    if whole.is_some_and(|whole| whole < 0.0 || whole > of_program.rtt + SLEW_MS) {
        return None;
    }
    let far_left = log.far_departed(answer).or(answer.far_sent);
    let stay = between(far_left, answer.far_received);
    if stay.is_some_and(|stay| stay < 0.0 || whole.is_some_and(|whole| stay > whole + SLEW_MS)) {
        return None;
    }
    Some(ProbeDelays {
        network: whole.zip(stay).map(|(whole, stay)| whole - stay),
        up: between(answer.far_received, departed),
        down: between(answer.arrived, far_left),
        ..of_program
    })
}

fn ms(later: Nanos, earlier: Nanos) -> f64 {
    let ns = i128::from(later.0) - i128::from(earlier.0);
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::probe_log::AnswerTimes;
    use crate::stamp::tlv;
    use crate::stamp::tlv::{FollowUp, SOFTWARE, TlvKind};
    use crate::stamp::wire::{ErrorEstimate, ProbeReply, ntp};
    use netio::clock::WallClock;
    use std::time::Duration;

    const WALL: u64 = 1_700_000_000_000_000_000;
    const US: u64 = 1_000;

    /// Returns a log with one probe. The reflector's clock is `ahead`. The probe took 20 ms there and 30 ms back, 10 us
    /// and 40 us in this host before and after, 100 us in the far program and 5 us in its kernel.
    fn log(ahead: i64, error: ErrorEstimate, follow_up: bool) -> ProbeLog {
        let mut log = ProbeLog::new(1, 2, Duration::from_secs(1));
        for number in 0..2 {
            let (mono, wall) = (Nanos(0), Nanos(WALL));
            let request = log.send(mono, wall, error);
            let far = |us: u64| Nanos((WALL + us * US).checked_add_signed(ahead).unwrap());
            log.departed(number, Nanos(WALL + 10 * US));
            let sequence = u32::try_from(number).unwrap();
            let mut packet = ProbeReply {
                sequence,
                sent: ntp(far(20_110)),
                error,
                ssid: 1,
                received: ntp(far(20_010)),
                request,
                ttl: 64,
            }
            .emit()
            .to_vec();
            if follow_up && number == 1 {
                let value = tlv::append(&mut packet, TlvKind::FollowUpTelemetry, 16);
                let departed = ntp(far(20_115));
                FollowUp {
                    sequence: 0,
                    departed,
                    method: SOFTWARE,
                }
                .emit(value);
                packet[super::super::wire::BASE] = 0;
            }
            let arrived = AnswerTimes {
                read: Nanos(50_155 * US),
                kernel: Some(Nanos(WALL + 50_115 * US)),
            };
            log.receive(&mut packet, arrived);
        }
        log
    }

    fn synchronised(ns: u64) -> ErrorEstimate {
        ErrorEstimate::of(WallClock {
            synchronised: true,
            largest_error: Nanos(ns),
        })
    }

    fn near(value: Option<f64>, expected: f64) -> bool {
        value.is_some_and(|value| (value - expected).abs() < 1e-6)
    }

    #[test]
    fn the_network_s_part_is_between_the_kernels() {
        let unknown = ErrorEstimate::from_bits(1);
        let (delays, impossible) = delays(&log(0, unknown, true));
        assert_eq!(impossible, 0);
        assert!(near(Some(delays[0].rtt), 50.155));
        assert!(near(delays[0].network, 50.0), "{delays:?}");
        assert!(near(delays[0].up, 20.0) && near(delays[0].down, 30.0));
        // The departure of the last answer is unknown, so that 5 us of the far kernel are included.
        assert!(near(delays[1].network, 50.005));
    }

    #[test]
    fn unrelated_clocks_are_bounded_by_the_fastest_packets() {
        let unknown = ErrorEstimate::from_bits(1);
        let log = log(7_000_000_000, unknown, true);
        let (delays, _) = delays(&log);
        assert!(near(delays[0].network, 50.0));
        let offset = offset(&log, &delays, None).unwrap();
        assert_eq!(offset.relation, ClockRelation::Unrelated);
        assert!(offset.low <= 7000.0 && 7000.0 <= offset.high);
        assert!((offset.high - offset.low - 50.0).abs() < 1e-6);
    }

    #[test]
    fn the_offset_of_synchronised_clocks_is_within_both_stated_errors() {
        let good = synchronised(2_000_000);
        let log = log(1_500_000, good, true);
        let (delays, _) = delays(&log);
        let found = offset(&log, &delays, Some(2.0)).unwrap();
        assert_eq!(found.relation, ClockRelation::Synchronised);
        assert!(found.low <= 1.5 && 1.5 <= found.high && found.high - found.low < 8.1);
        // This machine's own clock is not synchronised.
        let found = offset(&log, &delays, None).unwrap();
        assert_eq!(found.relation, ClockRelation::Unrelated);
    }

    #[test]
    fn a_stated_error_that_packets_contradict_is_ignored() {
        let good = synchronised(1_000);
        let log = log(7_000_000_000, good, true);
        let (delays, _) = delays(&log);
        let found = offset(&log, &delays, Some(0.001)).unwrap();
        assert_eq!(found.relation, ClockRelation::Unrelated);
    }

    #[test]
    fn stamps_across_a_clock_step_are_left_out() {
        let mut log = log(0, ErrorEstimate::from_bits(1), false);
        log.answers[0].arrived = Some(Nanos(WALL + 3_600_000_000_000));
        let (delays, impossible) = delays(&log);
        assert_eq!((impossible, delays[0].network), (1, None));
        assert!(near(Some(delays[0].rtt), 50.155));
    }
}
