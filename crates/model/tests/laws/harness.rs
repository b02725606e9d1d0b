//! The definition of a law, and its test.

use farwire_model::{
    Bytes, Effect, Link, LinkConfig, Nanos, Outcome, Packet, PacketId, Side, StageSpec,
};

/// The p-value below which a law fails: forty laws with new seeds raise one false alarm in 250.
const LEAST: f64 = 1e-4;

/// A property that an effect has by definition.
pub(crate) struct Law {
    /// The full number of packets; `make test` takes a tenth.
    pub(crate) packets: u64,
    /// Returns the packet with a number, from 0, that enters at side A, and its arrival time. Its id is that number.
    pub(crate) traffic: fn(u64) -> (Nanos, Packet),
    /// Creates the link, with the tested property multiplied by a factor; with 1 it is as specified.
    pub(crate) link: fn(f64) -> LinkConfig,
    /// Returns a p-value: the probability of these or more extreme outcomes if the link is as specified.
    pub(crate) judge: fn(&Crossing) -> f64,
}

/// Packets that crossed a link, and their outcomes.
pub(crate) struct Crossing {
    pub(crate) packets: u64,
    pub(crate) traffic: fn(u64) -> (Nanos, Packet),
    /// The outcomes in the order of decision.
    pub(crate) outcomes: Vec<Outcome>,
}

impl Law {
    /// Tests the law.
    ///
    /// # Panics
    /// Panics if the law does not hold, and at full volume also if it still holds with the property off by ten per
    /// cent.
    pub(crate) fn holds(&self) {
        let is_soak = std::env::var_os("FARWIRE_SOAK").is_some_and(|value| value == "1");
        let packets = self.packets / if is_soak { 1 } else { 10 };
        let p = self.p_value(1.0, packets);
        println!("{packets} packets: p = {p:.3e}");
        assert!(p > LEAST, "p = {p:e}: not what was asked for");
        for factor in [0.9, 1.1].into_iter().filter(|_| is_soak) {
            let p = self.p_value(factor, packets);
            println!("the same times {factor}: p = {p:.3e}");
            assert!(
                p < LEAST,
                "p = {p:e}: {factor} times what was asked for is not seen"
            );
        }
    }

    fn p_value(&self, factor: f64, packets: u64) -> f64 {
        let mut link = Link::new(&(self.link)(factor)).unwrap();
        let mut outcomes = Vec::with_capacity(usize::try_from(packets).unwrap());
        for number in 0..packets {
            let (at, packet) = (self.traffic)(number);
            link.offer(at, Side::A, packet);
            outcomes.extend(std::iter::from_fn(|| link.poll(at)));
        }
        outcomes.extend(std::iter::from_fn(|| link.poll(Nanos::MAX)));
        let p = (self.judge)(&Crossing {
            packets,
            traffic: self.traffic,
            outcomes,
        });
        assert!((0.0..=1.0).contains(&p), "{p} is no p-value");
        p
    }
}

impl Crossing {
    /// Returns which packets were lost, by number, regardless of copies.
    pub(crate) fn lost(&self) -> Vec<bool> {
        let mut lost = vec![true; usize::try_from(self.packets).unwrap()];
        for outcome in &self.outcomes {
            if let Outcome::Deliver { id, copy: 0, .. } = outcome {
                lost[usize::try_from(id.0).unwrap()] = false;
            }
        }
        lost
    }

    /// Returns the delays of packets in milliseconds, by number, without lost ones and copies.
    pub(crate) fn delays(&self) -> Vec<f64> {
        let mut delays = vec![f64::NAN; usize::try_from(self.packets).unwrap()];
        for outcome in &self.outcomes {
            if let &Outcome::Deliver {
                id, copy: 0, due, ..
            } = outcome
            {
                let (at, _) = (self.traffic)(id.0);
                delays[usize::try_from(id.0).unwrap()] = (due - at).0 as f64 / 1e6;
            }
        }
        delays.retain(|delay| !delay.is_nan());
        delays
    }
}

/// Packets of 1,000 bytes, one every millisecond.
pub(crate) fn steady(number: u64) -> (Nanos, Packet) {
    let packet = Packet::new(PacketId(number), Bytes(1_000));
    (Nanos::from_millis(number), packet)
}

/// Creates a link with this effect on packets from side A.
pub(crate) fn up(effect: Effect) -> LinkConfig {
    LinkConfig::new(5, vec![StageSpec::new("box.up.law", effect)], vec![])
}
