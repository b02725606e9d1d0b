//! What the figures of a session are, in words.

use std::collections::BTreeMap;

use super::delay::Relation;
use super::outcome::Outcome;
use super::sender::ProbePlan;

impl Outcome {
    /// What each kind of figure is, how its interval was found, and what could not be had.
    pub(super) fn facts(&self, plan: &ProbePlan) -> BTreeMap<String, String> {
        let probe = format!(
            "STAMP (RFC 8762), {} payload bytes of UDP, one in {:?}; an answer after {:?} is late and its probe lost",
            plan.size, plan.interval, plan.timeout
        );
        let rtt = "user space to user space, with what both hosts add; intervals: of the median by order statistics as if probes were independent, of the mean by batch means";
        let variation = "ipdv: RFC 3393, of neighbouring probes, without its sign; pdv: RFC 5481, delay less the least of its direction";
        let mut facts = BTreeMap::from(
            [
                ("far_end", self.far_end()),
                ("loss", self.loss(plan)),
                ("network_rtt", self.network_rtt()),
                ("one_way_delay", self.one_way_delay()),
                ("probe", probe),
                ("rtt", rtt.to_owned()),
                ("variation", variation.to_owned()),
            ]
            .map(|(name, text)| (name.to_owned(), text)),
        );
        facts.extend(self.oddities());
        facts
    }

    fn network_rtt(&self) -> String {
        let far_end = &self.journal.far_end;
        let complete = self.delays.iter().any(|delays| delays.network.is_some());
        let what = match (complete, far_end.is_farwire, far_end.follows_up) {
            (false, ..) => return "not known: kernel stamps are missing".to_owned(),
            (_, true, true) => {
                "rtt less host: kernel stamps at all four points, the far end's time of sending by Follow-Up Telemetry (RFC 8972)"
            }
            (_, _, true) => {
                "rtt less host: kernel stamps here, the far end's own stamps there, its time of sending by Follow-Up Telemetry (RFC 8972)"
            }
            (_, _, false) => {
                "rtt less host: kernel stamps here; the far end does not say when answers really left, so that their way out of it is in the figure"
            }
        };
        format!(
            "{what}; interval: {} ms a direction for the stamps",
            self.stamp_error_ms
        )
    }

    fn one_way_delay(&self) -> String {
        let Some(offset) = self.offset else {
            return "not known: kernel stamps are missing".to_owned();
        };
        match offset.relation {
            Relation::Same => format!(
                "both ends read the same clock: the far end proved that it runs on this kernel; interval: {} ms for the stamps",
                self.stamp_error_ms
            ),
            Relation::Synchronised => {
                let far_error = self.journal.far_end.error;
                format!(
                    "both clocks are synchronised, so they say: this one to {:.3} ms, the far end's to {:.3} ms; the interval has both, and {} ms for the stamps",
                    self.own_error_ms.unwrap_or_default(),
                    far_error.map_or(0.0, |error| error.seconds() * 1e3),
                    self.stamp_error_ms
                )
            }
            Relation::Unrelated => format!(
                "variation only: nothing relates the two clocks; the fastest packets allow an offset of {:.3} to {:.3} ms; drift between the clocks is in pdv",
                offset.low, offset.high
            ),
        }
    }

    fn loss(&self, plan: &ProbePlan) -> String {
        let stated = format!("no answer within {:?}", plan.timeout);
        match self.losses.split {
            Some(split) => format!(
                "{stated}; by direction from the far end's count, exact up to the last answer that came back, that to probe {}, with {} after it unknown; interval: Wilson's",
                self.journal.probes.len() as u64 - split.unresolved,
                split.unresolved
            ),
            None => format!(
                "{stated}; not by direction: the far end gives no count of its own that fits; interval: Wilson's"
            ),
        }
    }

    fn far_end(&self) -> String {
        let far_end = &self.journal.far_end;
        let Some(error) = far_end.error else {
            return "no answer".to_owned();
        };
        let what = if far_end.is_farwire {
            "farwire"
        } else {
            "not farwire"
        };
        let form = if error.ptp { "PTP" } else { "NTP" };
        let ttl = self.journal.answers.last().map_or(0, |answer| answer.ttl);
        format!("{what}, stamps in {form}'s form, probes arrive there with TTL {ttl}")
    }

    /// What should not be, if it is.
    fn oddities(&self) -> Vec<(String, String)> {
        let far_overflow = self.journal.far_end.overflowed;
        let far_overflow = far_overflow.map_or(0, |(first, last)| last.saturating_sub(first));
        let counts = [
            (
                "garbage",
                self.journal.garbage,
                "packets from the far end answer no probe of this session",
            ),
            (
                "clock_steps",
                self.impossible,
                "answers have stamps that cannot be, as if a clock was set: they are in rtt only",
            ),
            (
                "host_overflow",
                self.journal.overflowed.into(),
                "answers found this host's socket full: they are in the loss, and are not the network's",
            ),
            (
                "far_overflow",
                far_overflow.into(),
                "requests of all its clients found the far end's socket full: they may be in the loss, and are not the network's",
            ),
        ];
        let counts = counts.into_iter().filter(|(_, count, _)| *count > 0);
        let counted =
            counts.map(|(name, count, what)| (name.to_owned(), format!("{count} {what}")));
        let icmp = self.journal.unreachable.clone();
        counted
            .chain(icmp.map(|why| ("icmp".to_owned(), why)))
            .collect()
    }
}
