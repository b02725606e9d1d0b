//! What packets meet between client and server, read from the stages that they pass.

use model::{BitsPerSec, Bytes, Delay, Effect, Nanos, Netem, NetemShare, Rate, StageSpec, Toffee};
use stats::theory;

use crate::Direction;

/// The frame by whose bytes a line's rate is named where nothing else is: a full one of an MTU of 1500, without FCS.
pub const FULL_FRAME: Bytes = Bytes(1_514);

/// All that is emulated between client and server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Route {
    /// From client to server.
    pub up: Way,
    /// From server to client.
    pub down: Way,
    /// Whether all packets meet the same at all times: nothing is scheduled, and there are no classes.
    pub is_steady: bool,
}

/// The stages that packets of class 0 meet one way, in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Way(pub Vec<StageSpec>);

impl Route {
    /// One of its two ways.
    pub fn way(&self, direction: Direction) -> &Way {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }
}

/// What serves at a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bottleneck<'a> {
    /// A rate with a queue of its own.
    Rate(&'a Rate),
    /// netem's, behind which its limit is all that may wait.
    Netem(&'a Netem),
}

impl<'a> Bottleneck<'a> {
    fn of(effect: &'a Effect) -> Option<Self> {
        match effect {
            Effect::Rate(rate) => Some(Self::Rate(rate)),
            Effect::Netem(netem) => Some(Self::Netem(netem)),
            _ => None,
        }
    }

    /// What it serves of frames of so many L2 bytes, in such bytes; none where it stalls, or no rate is said.
    fn at_l2(&self, frame: Bytes) -> Option<BitsPerSec> {
        let (bits, counted) = match self {
            Self::Rate(Rate { rate, framing, .. }) => {
                ((*rate)?.get(), framing.bytes_counted(frame))
            }
            Self::Netem(netem) => {
                let rate = netem.rate?;
                (
                    rate.bytes_per_s.saturating_mul(8),
                    rate.bytes_counted(frame),
                )
            }
        };
        let bits = u128::from(bits) * u128::from(frame.0) / u128::from(counted.0.max(1));
        BitsPerSec::new(u64::try_from(bits).ok()?).ok()
    }
}

impl Way {
    /// What each stage does at first.
    pub fn effects(&self) -> impl Iterator<Item = &Effect> {
        self.0.iter().map(|stage| &stage.effect)
    }

    /// The rate that serves frames of so many L2 bytes, without FCS, most slowly, in such bytes; and its bottleneck.
    pub fn slowest(&self, frame: Bytes) -> Option<(BitsPerSec, Bottleneck<'_>)> {
        self.rates(frame).min_by_key(|(rate, _)| *rate)
    }

    /// Every rate on this way with its bottleneck, of frames of so many L2 bytes, without FCS, in such bytes.
    pub fn rates(&self, frame: Bytes) -> impl Iterator<Item = (BitsPerSec, Bottleneck<'_>)> {
        let all = self.effects().filter_map(Bottleneck::of);
        all.filter_map(move |bottleneck| Some((bottleneck.at_l2(frame)?, bottleneck)))
    }

    /// Propagation.
    pub fn delays(&self) -> impl Iterator<Item = &Delay> {
        self.effects().filter_map(|effect| match effect {
            Effect::Delay(delay) => Some(delay),
            _ => None,
        })
    }

    /// Of a packet without a length, over all hops.
    pub fn propagation(&self) -> Nanos {
        let of_netem = self.effects().map(|effect| match effect {
            Effect::Netem(netem) => netem.delay,
            _ => Nanos::ZERO,
        });
        let delays = self.delays().map(|delay| delay.time);
        delays
            .chain(of_netem)
            .fold(Nanos::ZERO, |sum, time| sum + time)
    }

    /// Servers that this way shares with the other one.
    pub fn toffees(&self) -> impl Iterator<Item = &Toffee> {
        self.effects().filter_map(|effect| match effect {
            Effect::Toffee(toffee) => Some(toffee),
            _ => None,
        })
    }

    /// How much is lost at random in the long run, bits that are flipped included where a checksum tells: no receiver takes such a packet.
    pub fn loss_percent(&self) -> f64 {
        let losses = self.effects().map(|effect| match effect {
            // What may be marked instead is lost to those who do not understand marks.
            Effect::Loss(loss) => loss.share.percent(),
            Effect::Corrupt(flips) if !flips.repair => flips.share.percent(),
            Effect::GilbertElliott(law) => law.stationary_loss() * 100.0,
            Effect::FourState(law) => law.stationary_loss() * 100.0,
            // Of full packets, on which most depends.
            Effect::BitErrors(rate) => rate.loss(FULL_FRAME).percent(),
            Effect::Netem(netem) => {
                let share =
                    |of: Option<NetemShare>| of.map_or(0.0, |of| theory::netem::random(of).share);
                // What is both copied and lost passes once.
                let loss = theory::netem::loss(&netem.loss).share * (1.0 - share(netem.duplicate));
                let corrupt = share(netem.corrupt);
                (loss + corrupt - loss * corrupt) * 100.0
            }
            _ => 0.0,
        });
        // Of two independent losses one is enough.
        losses.fold(0.0, |sum, loss| sum + loss - sum * loss / 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up(text: &str) -> Way {
        let link: crate::LinkSpec = toml::from_str(text).unwrap();
        Way(link.hop("box").unwrap().rest.up)
    }

    #[test]
    fn netem_loses_what_it_neither_copies_nor_lets_through_whole() {
        let lost = up("netem = 'loss 10% duplicate 50% corrupt 1%'").loss_percent();
        assert!((lost - (5.0 + 1.0 - 0.05)).abs() < 1e-9, "{lost}");
        let both = up("loss = '10%'\nnetem = 'loss 10%'").loss_percent();
        assert!((both - 19.0).abs() < 1e-9, "{both}");
        let way = up("delay = '20ms'\nnetem = 'delay 10ms'");
        assert_eq!(way.propagation(), Nanos::from_millis(30));
    }

    #[test]
    fn what_a_line_serves_of_a_frame_counts_the_frame_alone() {
        let served = |text: &str, frame| up(text).slowest(Bytes(frame)).unwrap().0.get();
        assert_eq!(served("rate = '10mbit'", 1_514), 10_000_000);
        // 1,538 bytes of wire for 1,514 of frame; 33 cells of 53 bytes.
        let wire = "rate = '10mbit'\nrate_at = 'l1'";
        assert_eq!(served(wire, 1_514), 10_000_000 * 1_514 / 1_538);
        let adsl = "rate = '10mbit'\nrate_at = 'pppoe-llcsnap'";
        assert_eq!(served(adsl, 1_514), 10_000_000 * 1_514 / 1_749);
        // 32 cells of 53 bytes for 1,514 and 20 of overhead; slower than the rate before it.
        let netem = "rate = '10mbit'\nnetem = 'rate 8mbit 20 48 5'";
        assert_eq!(served(netem, 1_514), 8_000_000 * 1_514 / 1_696);
        assert_eq!(
            served("rate = '5mbit'\nnetem = 'rate 8mbit'", 1_514),
            5_000_000
        );
    }
}
