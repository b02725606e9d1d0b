//! The route between client and server, with figures that follow from the stages of its paths.

use model::{
    Behaviour, BitsPerSec, Bottleneck, Bytes, Factor, LossLaw, Nanos, NetemShare, StageSpec,
};

use crate::Direction;

/// The frame whose bytes define the rate of a line by default: a full frame at an MTU of 1500, without FCS.
pub const FULL_FRAME: Bytes = Bytes(1_514);

/// Everything that is emulated between client and server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Route {
    /// The stages from client to server.
    pub up: PathStages,
    /// The stages from server to client.
    pub down: PathStages,
    /// Whether all packets always meet the same stages and effects: there are no schedules and no classes.
    pub is_steady: bool,
}

/// The stages that packets of class 0 meet in one direction, in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PathStages(pub Vec<StageSpec>);

impl Route {
    /// Returns the stages of one direction.
    pub fn stages(&self, direction: Direction) -> &PathStages {
        direction.choose(&self.up, &self.down)
    }
}

impl PathStages {
    /// Returns the behaviour of each stage at first.
    pub fn behaviours(&self) -> impl Iterator<Item = Behaviour<'_>> {
        self.0.iter().map(|stage| stage.effect.behaviour())
    }

    /// Returns the servers on the path.
    pub fn bottlenecks(&self) -> impl Iterator<Item = Bottleneck<'_>> {
        self.behaviours().filter_map(|stage| stage.bottleneck)
    }

    /// Returns the stage that serves frames of this many L2 bytes (without FCS) most slowly, and its rate in such
    /// bytes.
    pub fn slowest(&self, frame: Bytes) -> Option<(BitsPerSec, Behaviour<'_>)> {
        let rates = self
            .behaviours()
            .filter_map(|stage| Some((stage.bottleneck?.rate(frame)?, stage)));
        rates.min_by_key(|(rate, _)| *rate)
    }

    /// Returns every rate for frames of this many L2 bytes (without FCS), in such bytes.
    pub fn rates(&self, frame: Bytes) -> impl Iterator<Item = BitsPerSec> {
        self.bottlenecks()
            .filter_map(move |bottleneck| bottleneck.rate(frame))
    }

    /// Returns the delay of a packet of length 0, summed over all stages.
    pub fn propagation(&self) -> Nanos {
        let delays = self.behaviours().map(|stage| stage.propagation);
        delays.fold(Nanos::ZERO, |sum, time| sum + time)
    }

    /// Returns the delays that grow with the packet's length.
    pub fn by_size(&self) -> impl Iterator<Item = Factor> {
        self.behaviours().filter_map(|stage| stage.by_size)
    }

    /// Returns the servers that both directions share.
    pub fn shared_servers(&self) -> impl Iterator<Item = Bottleneck<'_>> {
        self.bottlenecks().filter(Bottleneck::is_shared)
    }

    /// Returns the slowest policer's rate, in L2 bytes; packets beyond it are dropped.
    pub fn slowest_policer(&self) -> Option<BitsPerSec> {
        let rates = self.behaviours().filter_map(|stage| match stage.loss {
            LossLaw::FasterThan(rate) => Some(rate),
            _ => None,
        });
        rates.min()
    }

    /// Returns the share of packets that are lost in the long run, in percent. Packets with flipped bits count, because
    /// no receiver accepts them, unless their checksum is corrected. Packets that may be marked instead of dropped
    /// count as lost, because senders without ECN lose them. Bit errors are those of full frames. Losses that depend on
    /// the packets themselves do not count.
    pub fn loss_percent(&self) -> f64 {
        let losses = self.behaviours().flat_map(|stage| {
            let share = |of: Option<NetemShare>| of.map_or(0.0, |of| of.long_run().share);
            // A packet that is both copied and lost passes once.
            let loss = stage
                .loss
                .long_run(FULL_FRAME)
                .map_or(0.0, |loss| loss.share)
                * (1.0 - share(stage.copies));
            let damage = stage.damage.filter(|damage| !damage.repaired);
            [loss, share(damage.map(|damage| damage.share))]
        });
        // One of two independent losses is enough to lose a packet.
        100.0 * losses.fold(0.0, |sum, loss| sum + loss - sum * loss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up(text: &str) -> PathStages {
        let link: crate::LinkSpec = toml::from_str(text).unwrap();
        PathStages(link.hop("box").unwrap().rest.up)
    }

    #[test]
    fn netem_loss_counts_copies_and_corruption() {
        let lost = up("netem = 'loss 10% duplicate 50% corrupt 1%'").loss_percent();
        assert!((lost - (5.0 + 1.0 - 0.05)).abs() < 1e-9, "{lost}");
        let both = up("loss = '10%'\nnetem = 'loss 10%'").loss_percent();
        assert!((both - 19.0).abs() < 1e-9, "{both}");
        let both = up("delay = '20ms'\nnetem = 'delay 10ms'");
        assert_eq!(both.propagation(), Nanos::from_millis(30));
    }

    #[test]
    fn the_rate_for_a_frame_excludes_overhead() {
        let served = |text: &str, frame| up(text).slowest(Bytes(frame)).unwrap().0.get();
        assert_eq!(served("rate = '10mbit'", 1_514), 10_000_000);
        assert_eq!(served("pps = 1000", 1_514), 1_000 * 1_514 * 8);
        assert_eq!(served("pps = 1000\nrate = '10mbit'", 1_514), 10_000_000);
        assert_eq!(served("pps = 1000\nrate = '10mbit'", 100), 800_000);
        // These are 1,538 bytes of wire for 1,514 bytes of frame, and 33 cells of 53 bytes.
        let wire = "rate = '10mbit'\nrate_at = 'l1'";
        assert_eq!(served(wire, 1_514), 10_000_000 * 1_514 / 1_538);
        let adsl = "rate = '10mbit'\nrate_at = 'pppoe-llcsnap'";
        assert_eq!(served(adsl, 1_514), 10_000_000 * 1_514 / 1_749);
        // These are 32 cells of 53 bytes for 1,514 bytes and 20 of overhead; netem is slower than the rate before it.
        let netem = "rate = '10mbit'\nnetem = 'rate 8mbit 20 48 5'";
        assert_eq!(served(netem, 1_514), 8_000_000 * 1_514 / 1_696);
        assert_eq!(
            served("rate = '5mbit'\nnetem = 'rate 8mbit'", 1_514),
            5_000_000
        );
    }

    #[test]
    fn periodic_loss_has_a_share_and_packet_dependent_loss_has_none() {
        let nth = up("[[stages]]\nkind = 'every-nth'\nn = 50").loss_percent();
        assert!((nth - 2.0).abs() < 1e-9, "{nth}");
        for text in [
            "police = '1mbit,burst=64KiB'",
            "path_mtu = 1400",
            "[[stages]]\nkind = 'mtu'\nmtu = 1400",
            "[[stages]]\nkind = 'indexes'\nindexes = [0, 3]",
        ] {
            assert_eq!(up(text).loss_percent(), 0.0, "{text}");
        }
    }
}
