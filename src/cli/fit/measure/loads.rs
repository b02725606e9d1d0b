//! The loads that exceed the rate of a path: the search for the rate, small datagrams that show the losses, and the loads with
//! probes beside them.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use conditions::Direction;
use fit::plan::{self, NextLoad, SEARCH_RATES};
use fit::{LoadTraffic, LoadedSession, LossFit, PathObservations, ProbeSession};
use instruments::failure::Failure;
use netio::stop::STOP_INTERVAL;
use record::{Measurement, Phase};

use super::{Datagram, Path, Reflector, SEARCH_PART, probes_in};
use crate::cli::fit::costs::{Limits, longest_ms, served_rate};
use crate::notes::note;

/// The L2 bytes that a datagram of a load usually has, until the far end has counted one.
const USUAL_DATAGRAM: u32 = 1490;
/// The time for which a probe beside a strong load is awaited, which is longer than most queues.
const STRONG_TIMEOUT: Duration = Duration::from_secs(5);
/// The least time for which a probe beside a gentle load is awaited, in milliseconds, and the factor of the longest round
/// trip beside the strong one.
const GENTLE_TIMEOUT: (f64, f64) = (1000.0, 1.5);
/// The loads of one rate that have to fill the path, if the budget allows them. Packets are also lost if a host stalls.
const AGREEING: usize = 2;

/// A load, and the probes beside it.
#[derive(Clone, Copy)]
struct LoadPlan {
    direction: Direction,
    /// The rate in bit/s of L2 bytes.
    rate: f64,
    /// The L2 bytes of a datagram.
    datagram: u32,
    probed_s: f64,
    /// The time in seconds by which the load lasts longer than the probes.
    around_s: f64,
    /// The time for which a probe is awaited.
    timeout: Duration,
}

impl LoadPlan {
    /// Returns the bytes that the load sends.
    fn bytes(&self) -> f64 {
        plan::load_bytes(self.rate, self.probed_s, self.around_s)
    }
}

impl Path<'_> {
    /// Sends datagrams at rising rates until the path twice carries less than was sent, and at most `left` bytes. Adds the load
    /// that filled the path, or returns the reason why there is none.
    pub(super) fn search(
        &self,
        way: Direction,
        observed: &mut PathObservations,
        left: &mut f64,
    ) -> Result<Option<String>, Failure> {
        note(format_args!(
            "farwire: fit: the search for the rate {}",
            way.name()
        ));
        let idle = &mut observed.idle;
        let random = LossFit::of(idle, way);
        let lasts_s = plan::search_s(longest_ms(idle).min(1e3));
        let mut below = Vec::new();
        let mut carried = 0.0;
        for rate in SEARCH_RATES {
            let bytes = rate * lasts_s / 8.0;
            let mut full: Vec<LoadTraffic> = Vec::new();
            while full.len() < AGREEING && bytes <= *left {
                *left -= bytes;
                let datagram = Datagram::Full(USUAL_DATAGRAM);
                let load = || self.load(way, rate, datagram, lasts_s);
                let measurement = self.in_two_attempts(bytes, left, load)?;
                let Some(load) = LoadTraffic::of(&measurement, None, way, self.headers()) else {
                    let cause = measurement.failure.as_deref().unwrap_or("nothing arrived");
                    return Ok(Some(format!("the rate {}: {cause}", way.name())));
                };
                if !plan::is_full(&load, random.as_ref()) {
                    carried = load.received();
                    let losses = LoadTraffic::losses(&measurement, way);
                    below.extend(losses.map(|losses| (load.sent, losses)));
                    full.clear();
                    break;
                }
                full.push(load);
            }
            // A queue for each flow may still have held a part of the first load while the second one was sent.
            let of_rate = |one: &LoadTraffic, other: &LoadTraffic| {
                one.received().total_cmp(&other.received())
            };
            if let Some(load) = full.into_iter().max_by(of_rate) {
                let rate = plan::served(&load, random.as_ref());
                below.retain(|(sent, _)| plan::is_far_below(*sent, rate));
                below
                    .into_iter()
                    .for_each(|(_, losses)| idle.add_losses(way, losses));
                observed.searches.push((way, load));
                return Ok(None);
            }
        }
        Ok(Some(format!(
            "the rate {}: it is above {:.0} Mbit/s, and the budget allows no faster load",
            way.name(),
            carried / 1e6
        )))
    }

    /// Sends small datagrams far below the rate of each direction, whose losses are random ones, if they are at most a part of
    /// `left` bytes. Returns the bytes that they took.
    pub(super) fn losses(
        &self,
        limits: &Limits,
        left: f64,
        observed: &mut PathObservations,
    ) -> Result<f64, Failure> {
        let lasts_s = plan::losses_s(limits.time_s);
        let datagram = plan::LOSSES_PAYLOAD + self.headers();
        if !matches!(self.reflector, Reflector::Stamp(_)) {
            return Ok(0.0);
        }
        let most = SEARCH_PART * left;
        let mut spare = most;
        for (way, search) in observed.searches.clone() {
            let rate = served_rate(way, &search, &observed.idle);
            let rate = plan::losses_rate(rate, datagram);
            let bytes = rate * lasts_s / 8.0;
            if bytes > spare {
                continue;
            }
            spare -= bytes;
            note(format_args!(
                "farwire: fit: small datagrams at {:.2} Mbit/s {}, for the losses",
                rate / 1e6,
                way.name()
            ));
            let load = || self.load(way, rate, Datagram::Small, lasts_s);
            match self.in_two_attempts(bytes, &mut spare, load) {
                Ok(measurement) => {
                    if let Some(losses) = LoadTraffic::losses(&measurement, way) {
                        observed.idle.add_losses(way, losses);
                    }
                }
                // The losses of the probes are known.
                Err(_) => self.check_stop()?,
            }
        }
        Ok(most - spare)
    }

    /// Loads a direction strongly and, if it can be probed meanwhile, gently. If the strong load does not always exceed the
    /// rate, faster loads take its place, as far as they send at most `spare` bytes; a rate that varies has no gentle load. The
    /// times in seconds are those of the probes beside a load, and by which the load lasts longer. Returns what they do not
    /// show, with the reasons.
    pub(super) fn loads(
        &self,
        way: Direction,
        search: &LoadTraffic,
        [probed_s, around_s]: [f64; 2],
        observed: &mut PathObservations,
        spare: &mut f64,
    ) -> Result<Vec<String>, Failure> {
        let mut lacks = Vec::new();
        let searched = served_rate(way, search, &observed.idle);
        let planned_gentle = plan::gentle(searched, search.wire_bytes);
        let mut strong = LoadPlan {
            direction: way,
            rate: plan::strong(searched),
            datagram: search.wire_bytes,
            probed_s,
            around_s,
            timeout: STRONG_TIMEOUT,
        };
        let mut tried = strong.rate;
        let mut cause = "is not allowed";
        for left in (0..=plan::MOST_FASTER).rev() {
            let load = match self.loaded(&strong, observed, spare) {
                Ok(load) => load,
                Err(failure) => {
                    self.check_stop()?;
                    if left == plan::MOST_FASTER {
                        lacks.push(format!("the rate {} and its queue: {failure}", way.name()));
                        return Ok(lacks);
                    }
                    cause = "failed";
                    break;
                }
            };
            tried = strong.rate;
            let (Reflector::Stamp(_), Some(session)) = (self.reflector, observed.loaded.last())
            else {
                return Ok(lacks);
            };
            let is_first = left == plan::MOST_FASTER;
            if is_first && way == Direction::Up && session.arrivals.is_empty() {
                let lack = "the rate up over time: the far end does not report what arrived in each interval";
                lacks.push(lack.to_owned());
            }
            let rate = served_rate(way, &load, &observed.idle);
            let next = plan::next(observed, session, rate);
            if next != NextLoad::Nothing {
                self.pause(plan::pause_s(observed, session, rate, probed_s))?;
            }
            match next {
                NextLoad::Gentle(rate) => {
                    let gentle = LoadPlan {
                        rate,
                        timeout: gentle_timeout(session),
                        ..strong
                    };
                    // The strong load may have found a higher rate than the search.
                    let more = plan::load_bytes(rate - planned_gentle, probed_s, around_s);
                    let lack = if more > *spare {
                        Some("the budget allows no gentle load".to_owned())
                    } else {
                        *spare -= more;
                        let loaded = self.loaded(&gentle, observed, spare);
                        loaded.err().map(|failure| failure.to_string())
                    };
                    if let Some(cause) = lack {
                        self.check_stop()?;
                        lacks.push(format!(
                            "whether the queue {} is managed: {cause}",
                            way.name()
                        ));
                    }
                    return Ok(lacks);
                }
                NextLoad::Nothing => return Ok(lacks),
                NextLoad::Faster(rate) => {
                    let faster = LoadPlan { rate, ..strong };
                    if left == 0 || faster.bytes() > *spare {
                        break;
                    }
                    *spare -= faster.bytes();
                    strong = faster;
                }
            }
        }
        lacks.push(format!(
            "the highest rate {}: a load of {:.0} Mbit/s did not always exceed it, and a faster one {cause}",
            way.name(),
            tried / 1e6
        ));
        Ok(lacks)
    }

    /// Measures with a load of this number of bytes, and once more if that fails and the second load sends at most `spare` bytes.
    /// The connection that controls a load shares the losses of the path: all its packets may be in one burst of them.
    fn in_two_attempts(
        &self,
        bytes: f64,
        spare: &mut f64,
        measure: impl Fn() -> Result<Measurement, Failure>,
    ) -> Result<Measurement, Failure> {
        let found = measure()?;
        if found.failure.is_none() || bytes > *spare {
            return Ok(found);
        }
        *spare -= bytes;
        measure()
    }

    /// Loads a direction, and probes the path before and meanwhile. A load that fails is sent once more, as far as it sends at
    /// most `spare` bytes.
    fn loaded(
        &self,
        plan: &LoadPlan,
        observed: &mut PathObservations,
        spare: &mut f64,
    ) -> Result<LoadTraffic, Failure> {
        let LoadPlan {
            direction: way,
            rate,
            datagram,
            probed_s,
            timeout,
            ..
        } = *plan;
        note(format_args!(
            "farwire: fit: a load of {:.2} Mbit/s {}",
            rate / 1e6,
            way.name()
        ));
        let headers = self.headers();
        let (session, failure) = match self.reflector {
            Reflector::Stamp(_) => {
                let under = format!("udp:{:.0}bit,{}", self.payload(rate, datagram), way.name());
                let probe = || self.probe(probes_in(probed_s), Some((under.clone(), timeout)));
                let found = self.in_two_attempts(plan.bytes(), spare, probe)?;
                let idle = ProbeSession::of(&found, Some(Phase::Idle), headers);
                observed.idle.join(idle);
                (LoadedSession::of(&found, headers), found.failure)
            }
            Reflector::Ping | Reflector::Absent => {
                let load = || self.load(way, rate, Datagram::Full(datagram), probed_s);
                let found = self.in_two_attempts(plan.bytes(), spare, load)?;
                let load = LoadTraffic::of(&found, None, way, headers);
                let session = load.map(|load| LoadedSession::unprobed(way, load));
                (session, found.failure)
            }
        };
        let session = session.with_context(|| {
            let cause = failure.unwrap_or_else(|| "nothing arrived".to_owned());
            format!("the load {}: {cause}", way.name())
        })?;
        let load = session.load;
        observed.loaded.push(session);
        Ok(load)
    }

    /// Waits for this number of seconds, in which a queue becomes empty that a load has filled.
    pub(super) fn pause(&self, seconds: f64) -> Result<()> {
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            self.check_stop()?;
            thread::sleep(left.min(STOP_INTERVAL));
        }
        Ok(())
    }
}

/// Returns the time for which probes beside a gentle load are awaited after this strong one.
fn gentle_timeout(strong: &LoadedSession) -> Duration {
    let (least_ms, factor) = GENTLE_TIMEOUT;
    Duration::from_secs_f64((factor * longest_ms(&strong.probes) + least_ms) / 1e3)
}
