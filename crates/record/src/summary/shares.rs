//! Shares of packets that stages lost or copied at random, compared with the requested shares.

use std::fmt;

use model::{Effect, LongRunLoss, LossLaw, QueueLimit, StageReport};
use serde::{Deserialize, Serialize};
use stats::losses::{Losses, inflation};
use stats::proportion::{percent, wilson};

use crate::quantity::{ThreeDigits, counted};

/// Mean length of a burst in a stage that loses every packet.
const ENDLESS_RUN: f64 = 1e9;
/// Fewest bursts for which the mean length has an interval.
const FEWEST_RUNS: u64 = 10;

/// The packets that a stage lost or copied at random, as the model counted them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareSummary {
    /// Name of the stage: "box.up.loss".
    pub stage: String,
    /// The effect on the packets: "lost" or "copied".
    pub what: String,
    /// Packets and copies that reached the stage.
    pub packets: u64,
    /// Those of them that were lost or copied.
    pub count: u64,
    /// Number of bursts of losses; absent for copies.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub runs: u64,
    /// Expected share in percent, in the long run.
    pub asked_percent: f64,
    /// Expected mean number of consecutive losses.
    pub asked_run: f64,
    /// Whether both expected values are those that netem's correlation makes of the requested ones.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_correlation: bool,
}

/// A mean and its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AchievedMean {
    /// The mean.
    pub mean: f64,
    /// The 95 % confidence interval of the long-run mean.
    pub interval: [f64; 2],
}

impl ShareSummary {
    /// Returns the shares of all stages that lose or copy packets at random, that received packets, and whose
    /// conditions never changed.
    pub fn of<'s>(stages: impl Iterator<Item = StageReport<'s>>) -> Vec<Self> {
        let of = |stage: StageReport<'s>| {
            let expected = ExpectedShare::of(stage.effect?, stage.longest_queue)?;
            let count = if expected.is_copy {
                stage.copied
            } else {
                stage.dropped
            };
            Some(Self {
                stage: stage.name.to_owned(),
                what: if expected.is_copy { "copied" } else { "lost" }.to_owned(),
                packets: stage.packets,
                count,
                runs: if expected.is_copy { 0 } else { stage.runs },
                asked_percent: 100.0 * expected.share,
                asked_run: expected.run,
                by_correlation: expected.by_correlation,
            })
        };
        let is_met = |share: &Self| share.packets > 0;
        stages.filter_map(of).filter(is_met).collect()
    }

    /// Returns the share of packets that the stage lost or copied, in percent; `None` if it received none.
    ///
    /// The interval assumes that losses are as bursty as observed or as requested, whichever is more.
    pub fn share(&self) -> Option<AchievedMean> {
        let counts = Losses {
            of: self.packets,
            lost: self.count,
            bursts: if self.runs > 0 { self.runs } else { self.count },
        };
        let asked = inflation(self.asked_percent / 100.0, self.asked_run);
        let interval = counts.interval_at_least(asked)?;
        Some(AchievedMean {
            mean: percent(self.count, self.packets)?,
            interval: interval.map(|end| 100.0 * end),
        })
    }

    /// Returns the mean number of consecutive losses; `None` if there are too few bursts, or if no bursts of more than
    /// one packet were requested.
    pub fn run(&self) -> Option<AchievedMean> {
        let is_said = self.runs >= FEWEST_RUNS && self.asked_run > 1.05;
        // The length of a burst has a geometric distribution: each loss is followed by another one with the same probability.
        let followed = wilson(self.count - self.runs.min(self.count), self.count)?;
        is_said.then(|| AchievedMean {
            mean: self.count as f64 / self.runs as f64,
            interval: followed.map(|share| 1.0 / (1.0 - share)),
        })
    }
}

/// The expected behaviour of a stage in the long run.
struct ExpectedShare {
    is_copy: bool,
    share: f64,
    run: f64,
    by_correlation: bool,
}

impl ExpectedShare {
    /// Returns the expected share of an effect that loses or copies packets at random, independently of their length and
    /// rate, and never marks them. `None` for other effects, and if the effect also dropped packets for lack of room,
    /// which `longest_queue` shows.
    fn of(effect: &Effect, longest_queue: u64) -> Option<Self> {
        let stage = effect.behaviour();
        let is_full = match stage.room {
            Some(QueueLimit::Packets(limit)) => longest_queue >= u64::from(limit),
            Some(QueueLimit::Bytes(_) | QueueLimit::Time(_) | QueueLimit::TimeOrPackets(..))
            | None => false,
        };
        let long_run = match (stage.loss, stage.copies) {
            _ if stage.marks || is_full => return None,
            (LossLaw::Random(share), None) => share.long_run(),
            (LossLaw::Bursts(loss), None) => loss,
            // Copies that enter netem again count among the packets that reached it.
            (LossLaw::Never, Some(copies)) if stage.netem.is_none() => LongRunLoss {
                burst: Some(1.0),
                ..copies.long_run()
            },
            _ => return None,
        };
        let expected = Self {
            is_copy: stage.copies.is_some(),
            share: long_run.share,
            run: long_run.burst.unwrap_or(ENDLESS_RUN),
            by_correlation: matches!(stage.loss, LossLaw::Random(share) if share.is_correlated()),
        };
        (expected.share > 0.0).then_some(expected)
    }
}

impl fmt::Display for ShareSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            stage, what, count, ..
        } = self;
        let of = counted(self.packets, "packet");
        write!(f, "{stage}: {count} of {of} {what}")?;
        if let Some(share) = self.share() {
            write!(f, ", {share} %")?;
            self.asked(f, share, self.asked_percent, " %")?;
        }
        if let Some(run) = self.run() {
            write!(f, "; average burst {run}")?;
            self.asked(f, run, self.asked_run, "")?;
        }
        Ok(())
    }
}

impl ShareSummary {
    /// Writes the requested value, and whether the interval contains it.
    fn asked(
        &self,
        f: &mut fmt::Formatter<'_>,
        achieved: AchievedMean,
        asked: f64,
        unit: &str,
    ) -> fmt::Result {
        let [low, high] = achieved.interval;
        let how = if self.by_correlation {
            "expected with this correlation"
        } else {
            "requested"
        };
        write!(f, " ({}{unit} {how}", ThreeDigits(asked))?;
        if (low..=high).contains(&asked) {
            f.write_str(")")
        } else {
            f.write_str(", outside the interval, which happens by chance in 1 of 20 measurements)")
        }
    }
}

impl fmt::Display for AchievedMean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [low, high] = self.interval.map(ThreeDigits);
        write!(f, "{} [{low}, {high}]", ThreeDigits(self.mean))
    }
}

#[cfg(test)]
mod tests {
    use model::{Bytes, Link, LinkConfig, Nanos, Packet, PacketId, Side};

    use super::*;
    use conditions::LinkSpec;

    /// Returns the shares of a link's stages after this many packets from side A.
    fn after(packets: u64, text: &str) -> Vec<ShareSummary> {
        let spec: LinkSpec = toml::from_str(text).unwrap();
        let config: LinkConfig = spec.to_link("box").unwrap().config;
        let mut link = Link::new(&config).unwrap();
        for number in 0..packets {
            let at = Nanos::from_millis(number);
            link.offer(at, Side::A, Packet::new(PacketId(number), Bytes(1_000)));
            while link.poll(at).is_some() {}
        }
        // An emulator stops its link when it ends.
        link.stop();
        ShareSummary::of(link.stages())
    }

    #[test]
    fn requested_shares_are_printed_beside_achieved_ones() {
        let all = after(100_000, "up.loss = '1%'\nup.duplicate = '2%'");
        let [loss, copies] = all.as_slice() else {
            panic!("{all:?}");
        };
        assert_eq!(loss.stage.as_str(), "box.up.loss");
        assert_eq!(loss.what.as_str(), "lost");
        assert_eq!(loss.packets, 100_000);
        let share = loss.share().unwrap();
        assert!(share.interval[0] < 1.0, "{share:?}");
        assert!(1.0 < share.interval[1], "{share:?}");
        assert!(share.interval[1] - share.interval[0] < 0.13, "{share:?}");
        assert_eq!(loss.run(), None);
        assert_eq!(copies.what, "copied");
        let text = loss.to_string();
        assert!(text.ends_with("] % (1 % requested)"), "{text}");
    }

    #[test]
    fn bursts_widen_the_interval_and_are_compared_with_requested_ones() {
        let all = after(400_000, "up.loss = '1%,burst=8'");
        let bursts = &all[0];
        let (share, run) = (bursts.share().unwrap(), bursts.run().unwrap());
        assert!(share.interval[0] < 1.0, "{share:?}");
        assert!(1.0 < share.interval[1], "{share:?}");
        assert!(run.interval[0] < 8.0 && 8.0 < run.interval[1], "{run:?}");
        // The interval would be 0.06 wide for as many independent losses.
        assert!(share.interval[1] - share.interval[0] > 0.2, "{share:?}");
    }

    #[test]
    fn the_interval_of_the_mean_burst_contains_the_requested_one_also_if_all_bursts_are_alike() {
        for (packets, loss) in [(300, "5%"), (2_000, "5%,burst=4"), (20_000, "2%,burst=20")] {
            let (mut contained, mut stated) = (0, 0);
            for seed in 1..=1_000 {
                let all = after(packets, &format!("seed = {seed}\nup.loss = '{loss}'"));
                if let Some(run) = all[0].run() {
                    let [low, high] = run.interval;
                    stated += 1;
                    contained += u32::from((low..=high).contains(&all[0].asked_run));
                }
            }
            assert!(
                stated > 500 && 100 * contained >= 93 * stated,
                "{loss}: {contained} of {stated}"
            );
        }
    }

    #[test]
    fn for_netem_the_expected_share_follows_from_the_correlation() {
        let all = after(400_000, "up.netem = 'delay 1ms loss 10% 25%'");
        let text = all[0].to_string();
        assert!(text.starts_with("box.up.netem: "), "{text}");
        assert!(
            text.contains("] % (1.75 % expected with this correlation); "),
            "{text}"
        );
        let bursts = after(400_000, "up.netem = 'loss gemodel 1% 10%'");
        let text = bursts[0].to_string();
        assert!(text.contains("] % (9.09 % requested); "), "{text}");
        assert!(text.ends_with("(10 requested)"), "{text}");
        // Packets that were dropped for lack of room are not part of the requested loss.
        assert_eq!(after(1_000, "up.netem = 'limit 5 delay 10ms loss 1%'"), []);
    }

    #[test]
    fn a_requested_share_outside_the_interval_is_marked() {
        let share = ShareSummary {
            stage: "box.up.loss".to_owned(),
            what: "lost".to_owned(),
            packets: 10_000,
            count: 200,
            runs: 196,
            asked_percent: 1.0,
            asked_run: 1.01,
            by_correlation: false,
        };
        assert_eq!(
            share.to_string(),
            "box.up.loss: 200 of 10000 packets lost, 2 [1.74, 2.3] % (1 % requested, outside the interval, which happens by chance in 1 of 20 measurements)"
        );
    }

    #[test]
    fn changed_or_inactive_stages_have_no_share() {
        assert_eq!(after(100, "up.loss = '0%'\ndown.loss = '1%'"), []);
        let changes = "up.loss = '1%'\nup.schedule = [{ at = '5ms', loss = '2%' }]";
        assert_eq!(after(100, changes), []);
        assert_eq!(after(100, "up.loss = '1%,ecn'"), []);
    }
}
