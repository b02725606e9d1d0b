//! Several sessions on one path, combined into one link.

use conditions::Direction;
use stats::losses::Losses;
use stats::order_statistics::{quantile, sorted};

use crate::bottleneck::Bottleneck;
use crate::delay::{DelayFit, JitterFit};
use crate::estimate::Estimate;
use crate::loss::LossFit;
use crate::parameters::Parameter;
use crate::queue::QueueKind;
use crate::{DirectionFit, LinkFit};

impl LinkFit {
    /// Combines the fits of several sessions; `None` for no sessions. Each value is the median of the sessions' values,
    /// and its interval contains the intervals of all sessions. Effects that at most half of the sessions show are absent.
    pub fn combined(sessions: &[Self]) -> Option<Self> {
        if let [] | [_] = sessions {
            return sessions.first().cloned();
        }
        // The delay of a direction and half of a round trip are different quantities.
        let one_way = sessions.iter().any(|one| one.one_way);
        let direction = |way: Direction| {
            let all: Vec<&DirectionFit> = sessions.iter().map(|one| one.toward(way)).collect();
            let with_delays = sessions
                .iter()
                .filter(|one| one.toward(way).delay.is_some());
            let (same, others): (Vec<&Self>, Vec<&Self>) =
                with_delays.partition(|one| one.one_way == one_way);
            let same: Vec<&DirectionFit> = same.into_iter().map(|one| one.toward(way)).collect();
            let found = delay(&shown(&same, |one| one.delay.clone()));
            DirectionFit {
                delay: found.map(|found| DelayFit {
                    round_trips_only: others.len(),
                    ..found
                }),
                loss: loss(&shown(&all, |one| one.loss)),
                bottleneck: bottleneck(&shown(&all, |one| one.bottleneck.clone())),
                // The times of several sessions are no light load together.
                light: None,
                mtu: of_most(&all, |one| one.mtu),
            }
        };
        Some(Self {
            up: direction(Direction::Up),
            down: direction(Direction::Down),
            one_way,
            duplicated_percent: of_most(sessions, |one| one.duplicated_percent),
            sessions: sessions.len(),
        })
    }

    /// Returns the parameters of several sessions, combined. Each number also has the least and the greatest value of a
    /// session.
    pub fn combined_parameters(sessions: &[Self]) -> Vec<Parameter> {
        let Some(combined) = Self::combined(sessions) else {
            return Vec::new();
        };
        let rows = combined.parameters();
        if sessions.len() < 2 {
            return rows;
        }
        let of_sessions: Vec<Parameter> = sessions.iter().flat_map(Self::parameters).collect();
        let with_spread = |row: Parameter| {
            let same = of_sessions.iter().filter(|one| {
                (one.direction, one.name, one.unit) == (row.direction, row.name, row.unit)
            });
            let values = same.filter_map(|one| Some(one.estimate?.value));
            let [low, high] = values
                .fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], one| {
                    [low.min(one), high.max(one)]
                });
            Parameter {
                sessions: (low <= high).then_some([low, high]),
                ..row
            }
        };
        rows.into_iter().map(with_spread).collect()
    }
}

/// Returns the parts of all sessions that have one.
fn shown<T>(all: &[&DirectionFit], part: impl Fn(&DirectionFit) -> Option<T>) -> Vec<T> {
    all.iter().filter_map(|one| part(one)).collect()
}

/// Returns the combined estimate of an effect, if more than half of all have it.
fn of_most<T>(all: &[T], effect: impl Fn(&T) -> Option<Estimate>) -> Option<Estimate> {
    let found: Vec<Estimate> = all.iter().filter_map(effect).collect();
    if 2 * found.len() <= all.len() {
        return None;
    }
    let values: Vec<f64> = found.iter().map(|one| one.value).collect();
    let value = quantile(&sorted(&values), 0.5)?;
    let ends = found.iter().map(|one| one.interval);
    let interval = ends
        .reduce(|[low, high], [other_low, other_high]| [low.min(other_low), high.max(other_high)]);
    Some(Estimate::new(value, interval?))
}

fn delay(all: &[DelayFit]) -> Option<DelayFit> {
    let jitters: Vec<JitterFit> = all.iter().filter_map(|one| one.jitter).collect();
    let jitter = |spread_ms| {
        let first = jitters.first()?;
        let law = match jitters.iter().filter(|one| one.law == first.law).count() {
            most if 2 * most > jitters.len() => first.law,
            _ => jitters.iter().find(|one| one.law != first.law)?.law,
        };
        Some(JitterFit {
            spread_ms,
            law,
            misfit: jitters.iter().map(|one| one.misfit).fold(0.0, f64::max),
            is_clear: jitters.iter().all(|one| one.is_clear && one.law == law),
            is_rejected: jitters.iter().any(|one| one.is_rejected),
            half_life_ms: of_most(&jitters, |one| one.half_life_ms),
        })
    };
    let overtaken = all.iter().filter(|one| one.reorders).count();
    Some(DelayFit {
        ms: of_most(all, |one| Some(one.ms))?,
        without_transmission: all.iter().all(|one| one.without_transmission),
        over_time: match all {
            [one] => one.over_time.clone(),
            _ => None,
        },
        jitter: of_most(all, |one| Some(one.jitter?.spread_ms)).and_then(jitter),
        skipped_percent: of_most(all, |one| one.skipped_percent),
        reorders: 2 * overtaken > all.len(),
        probes: all.iter().map(|one| one.probes).sum(),
        unclear: all.iter().map(|one| one.unclear).sum(),
        round_trips_only: 0,
    })
}

fn loss(all: &[LossFit]) -> Option<LossFit> {
    Some(LossFit {
        percent: of_most(all, |one| Some(one.percent))?,
        burst: of_most(all, |one| one.burst),
        counts: all
            .iter()
            .map(|one| one.counts)
            .fold(Losses::default(), Losses::with),
        is_half: all.iter().any(|one| one.is_half),
    })
}

fn bottleneck(all: &[Bottleneck]) -> Option<Bottleneck> {
    let kinds: Vec<QueueKind> = all.iter().filter_map(|one| one.queue).collect();
    let (queue, evidence) = queue(&kinds);
    Some(Bottleneck {
        rate: of_most(all, |one| Some(one.rate))?,
        over_time: match all {
            [one] => one.over_time.clone(),
            _ => None,
        },
        burst_bytes: of_most(all, |one| one.burst_bytes),
        queue,
        queue_bytes: of_most(all, |one| one.queue_bytes),
        rate_evidence: rate_evidence(all)?,
        evidence: evidence.or_else(|| Some(all.first()?.evidence.clone()))?,
    })
}

/// Returns the observations behind the rate of all sessions.
fn rate_evidence(all: &[Bottleneck]) -> Option<String> {
    if let [one] = all {
        return Some(one.rate_evidence.clone());
    }
    let varying = all.iter().filter(|one| one.over_time.is_some()).count();
    let varies = match varying {
        0 => String::new(),
        count => format!(", within {count} of which it varies"),
    };
    (!all.is_empty()).then(|| format!("the median of {} sessions{varies}", all.len()))
}

/// Returns the queue of all sessions, and the reason if they differ.
fn queue(all: &[QueueKind]) -> (Option<QueueKind>, Option<String>) {
    let Some(first) = all.first() else {
        return (None, None);
    };
    let length = of_most(all, |one| one.length());
    if all.iter().all(|one| one.name() == first.name()) {
        let queue = match (*first, length) {
            (QueueKind::Fifo { .. }, Some(ms)) => QueueKind::Fifo {
                ms,
                is_least: all
                    .iter()
                    .any(|one| matches!(one, QueueKind::Fifo { is_least: true, .. })),
            },
            (QueueKind::Managed { .. }, most_ms) => QueueKind::Managed { most_ms },
            (QueueKind::Unclear { .. }, ms) => QueueKind::Unclear { ms },
            (same, _) => same,
        };
        return (Some(queue), Some("the same in all sessions".to_owned()));
    }
    let names: Vec<&str> = all.iter().map(|one| one.name()).collect();
    let evidence = format!("the sessions differ: {}", names.join(", "));
    let waits = all.iter().any(|one| one.length().is_some());
    let is_known = length.is_some() || !waits;
    let queue = is_known.then_some(QueueKind::Unclear { ms: length });
    (queue, Some(evidence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::over_time::OverTime;
    use crate::{IntervalKind, Origin};

    fn session(delay_ms: f64, rate: f64, queue: QueueKind) -> LinkFit {
        let direction = DirectionFit {
            delay: Some(DelayFit {
                ms: Estimate::within(delay_ms, 0.1),
                without_transmission: true,
                over_time: None,
                jitter: None,
                skipped_percent: None,
                reorders: false,
                probes: 100,
                unclear: 0,
                round_trips_only: 0,
            }),
            loss: None,
            bottleneck: Some(Bottleneck {
                rate: Estimate::within(rate, 1e5),
                over_time: None,
                burst_bytes: None,
                queue: Some(queue),
                queue_bytes: None,
                rate_evidence: String::new(),
                evidence: String::new(),
            }),
            light: None,
            mtu: None,
        };
        LinkFit {
            up: direction.clone(),
            down: direction,
            one_way: true,
            duplicated_percent: None,
            sessions: 1,
        }
    }

    fn fifo(ms: f64) -> QueueKind {
        QueueKind::Fifo {
            ms: Estimate::within(ms, 1.0),
            is_least: false,
        }
    }

    #[test]
    fn several_sessions_have_a_median_and_state_the_spread_between_them() {
        let sessions = [
            session(20.0, 8e6, fifo(90.0)),
            session(22.0, 10e6, fifo(100.0)),
            session(30.0, 11e6, fifo(110.0)),
        ];
        let found = LinkFit::combined(&sessions).unwrap();
        let delay = found.up.delay.unwrap();
        assert_eq!((delay.ms.value, delay.probes), (22.0, 300));
        assert_eq!(delay.ms.interval, [19.9, 30.1]);
        assert_eq!(found.up.bottleneck.unwrap().queue.unwrap().name(), "fifo");
        let rows = LinkFit::combined_parameters(&sessions);
        let rate = rows.iter().find(|row| row.name == "rate").unwrap();
        assert_eq!(rate.sessions, Some([8.0, 11.0]));
        assert_eq!(rate.estimate.unwrap().value, 10.0);
        assert_eq!(rate.interval_kind, IntervalKind::OfSessions);
        let text = LinkFit::combined(&sessions)
            .unwrap()
            .to_toml(&Origin::of_path("203.0.113.7", "2026-11-27"));
        assert!(
            text.contains("the range of the 95 % intervals of 3 sessions"),
            "{text}"
        );
    }

    #[test]
    fn sessions_with_different_queues_leave_the_kind_open() {
        let sessions = [
            session(20.0, 8e6, fifo(90.0)),
            session(
                20.0,
                8e6,
                QueueKind::Managed {
                    most_ms: Some(Estimate::within(50.0, 1.0)),
                },
            ),
        ];
        let found = LinkFit::combined(&sessions)
            .unwrap()
            .down
            .bottleneck
            .unwrap();
        assert_eq!(found.queue.unwrap().name(), "cannot be distinguished");
        assert_eq!(found.evidence, "the sessions differ: fifo, codel");
        let sessions = [QueueKind::PerFlow, QueueKind::Policed].map(|one| session(20.0, 8e6, one));
        let found = LinkFit::combined(&sessions).unwrap().down.bottleneck;
        assert_eq!(found.unwrap().queue, Some(QueueKind::Unclear { ms: None }));
    }

    #[test]
    fn sessions_whose_rate_varies_have_one_rate_together_and_only_one_of_them_follows_it() {
        let varying = || {
            let mut one = session(20.0, 8e6, QueueKind::PerFlow);
            let rate = one.up.bottleneck.as_mut().unwrap();
            rate.over_time = Some(OverTime {
                every_s: 0.1,
                values: vec![6e6, 10e6],
            });
            one
        };
        let evidence = |sessions: &[LinkFit]| {
            let mut rows = LinkFit::combined_parameters(sessions).into_iter();
            rows.find(|row| row.name == "rate").unwrap().evidence
        };
        let alone = evidence(&[varying()]);
        assert!(alone.contains("follows the rate over time"), "{alone}");
        let together = evidence(&[varying(), varying()]);
        assert_eq!(
            together,
            "the median of 2 sessions, within 2 of which it varies"
        );
        let constant = session(20.0, 8e6, QueueKind::PerFlow);
        let mixed = evidence(&[varying(), constant]);
        assert_eq!(
            mixed,
            "the median of 2 sessions, within 1 of which it varies"
        );
    }

    #[test]
    fn halves_of_round_trips_do_not_count_beside_delays_of_each_direction() {
        let half = LinkFit {
            one_way: false,
            ..session(25.0, 8e6, QueueKind::PerFlow)
        };
        let both = [session(10.0, 8e6, QueueKind::PerFlow), half.clone()];
        let found = LinkFit::combined(&both).unwrap();
        assert!(found.one_way);
        assert_eq!(found.up.delay.as_ref().unwrap().ms.value, 10.0);
        let evidence = &found.parameters()[0].evidence;
        assert!(!evidence.starts_with("half"), "{evidence}");
        assert!(
            evidence.ends_with("; sessions with only round trips, which do not count: 1"),
            "{evidence}"
        );
        let halves = LinkFit::combined(&[half.clone(), half]).unwrap();
        assert!(!halves.one_way && halves.up.delay.unwrap().ms.value == 25.0);
        // A session without delays changes nothing.
        let mut without = session(0.0, 8e6, QueueKind::PerFlow);
        without.one_way = false;
        without.up.delay = None;
        without.down.delay = None;
        let found = LinkFit::combined(&[session(10.0, 8e6, QueueKind::PerFlow), without]);
        let delay = found.unwrap().up.delay.unwrap();
        assert_eq!((delay.ms.value, delay.round_trips_only), (10.0, 0));
    }

    #[test]
    fn one_session_stays_as_it_is() {
        let alone = [session(20.0, 8e6, QueueKind::PerFlow)];
        assert_eq!(LinkFit::combined(&alone).unwrap(), alone[0]);
        assert!(
            LinkFit::combined_parameters(&alone)
                .iter()
                .all(|row| row.sessions.is_none())
        );
        assert_eq!(LinkFit::combined(&[]), None);
    }
}
