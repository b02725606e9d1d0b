//! A wire between two ends of a test: a link of farwire-model that keeps the bytes of the packets.

use std::collections::{BTreeMap, HashMap};

use farwire_model::{
    Bytes, Delay, Effect, Link, LinkConfig, Nanos, Outcome, Packet, PacketId, Side, StageSpec,
};

/// Packets on their way between two ends, in virtual time.
pub struct Wire {
    link: Link,
    next_id: u64,
    /// The packets whose outcome is open, by identifier and number of the copy.
    inside: HashMap<(PacketId, u32), (Side, Vec<u8>)>,
    /// The packets that will arrive, by their time, for the other side than the one that they came from.
    arriving: BTreeMap<(Nanos, PacketId, u32), (Side, Vec<u8>)>,
}

impl Wire {
    /// Creates a wire that delays packets in each direction by `delay`, such as `20ms`, and loses a share of them, such as `2%`.
    #[must_use]
    pub fn new(seed: u64, delay: &str, loss: &str) -> Self {
        let stages = |direction: &str| {
            let loss = Effect::Loss(loss.parse().expect("a probability"));
            let delay = Effect::Delay(Delay {
                time: delay.parse().expect("a time"),
                ..Delay::default()
            });
            vec![
                StageSpec::new(format!("wire.{direction}.loss"), loss),
                StageSpec::new(format!("wire.{direction}.delay"), delay),
            ]
        };
        let config = LinkConfig::new(seed, stages("up"), stages("down"));
        let link = Link::new(&config).expect("conditions within their ranges");
        Self {
            link,
            next_id: 0,
            inside: HashMap::new(),
            arriving: BTreeMap::new(),
        }
    }

    /// Takes a packet that the end on side `from` sends at `now`.
    pub fn send(&mut self, now: Nanos, from: Side, bytes: Vec<u8>) {
        let id = PacketId(self.next_id);
        self.next_id += 1;
        let len = Bytes(u64::try_from(bytes.len()).expect("a packet"));
        self.inside.insert((id, 0), (from, bytes));
        self.link.offer(now, from, Packet::new(id, len));
        self.poll(now);
    }

    /// Returns the next packet that has arrived by `now` at the end on side `to`.
    pub fn receive(&mut self, now: Nanos, to: Side) -> Option<Vec<u8>> {
        self.poll(now);
        let due = self.arriving.range(..=(now, PacketId(u64::MAX), u32::MAX));
        let (&key, _) = due.into_iter().find(|(_, (from, _))| *from == to.other())?;
        self.arriving.remove(&key).map(|(_, bytes)| bytes)
    }

    /// Returns when the next packet may arrive.
    #[must_use]
    pub fn next_at(&self) -> Option<Nanos> {
        let arrival = self.arriving.keys().next().map(|&(due, ..)| due);
        arrival.into_iter().chain(self.link.next_at()).min()
    }

    /// Returns the number of packets from side `from` that were lost.
    #[must_use]
    pub fn lost(&self, from: Side) -> u64 {
        self.link.counters(from).all_dropped()
    }

    fn poll(&mut self, now: Nanos) {
        while let Some(outcome) = self.link.poll(now) {
            match outcome {
                Outcome::Copied { id, copy } => {
                    let original = self.inside[&(id, 0)].clone();
                    self.inside.insert((id, copy), original);
                }
                Outcome::Deliver { id, copy, due, .. } => {
                    let packet = self
                        .inside
                        .remove(&(id, copy))
                        .expect("a packet that was sent");
                    self.arriving.insert((due, id, copy), packet);
                }
                Outcome::Drop { id, copy, .. } => {
                    self.inside.remove(&(id, copy));
                }
            }
        }
    }
}
