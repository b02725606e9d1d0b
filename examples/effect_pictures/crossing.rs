//! Packets that cross a link in virtual time.

use anyhow::Result;
use conditions::LinkSpec;
use model::{Bytes, Link, Nanos, Outcome, Packet, PacketId, Side};

/// Packets that went through a link, by number, and their outcomes.
pub(crate) struct Crossing {
    /// The arrival of each packet.
    pub(crate) came: Vec<Nanos>,
    /// The outcomes, in the order of decision.
    pub(crate) outcomes: Vec<Outcome>,
}

impl Crossing {
    /// Passes `packets` up the link of `file`, see [`Crossing::through`].
    ///
    /// # Errors
    /// The file is wrong.
    pub(crate) fn of(
        file: &str,
        packets: impl IntoIterator<Item = (Nanos, Packet)>,
    ) -> Result<Self> {
        Self::through(file, Side::A, packets)
    }

    /// Passes `packets`, in the order of their arrival at a side, through the link of `file`; their ids are their numbers.
    ///
    /// # Errors
    /// The file is wrong.
    pub(crate) fn through(
        file: &str,
        side: Side,
        packets: impl IntoIterator<Item = (Nanos, Packet)>,
    ) -> Result<Self> {
        let spec: LinkSpec = toml::from_str(file)?;
        let mut link = Link::new(&spec.to_link("box")?.config)?;
        let (mut came, mut outcomes) = (Vec::new(), Vec::new());
        for (number, (at, packet)) in (0..).zip(packets) {
            let id = PacketId(number);
            link.offer(at, side, Packet { id, ..packet });
            came.push(at);
            outcomes.extend(std::iter::from_fn(|| link.poll(at)));
        }
        outcomes.extend(std::iter::from_fn(|| link.poll(Nanos::MAX)));
        Ok(Self { came, outcomes })
    }

    /// Returns the departure of each packet by number, or nothing if it was lost. Copies are left out.
    pub(crate) fn left(&self) -> Vec<Option<Nanos>> {
        let mut left = vec![None; self.came.len()];
        for outcome in &self.outcomes {
            if let &Outcome::Deliver {
                id, copy: 0, due, ..
            } = outcome
            {
                left[index(id)] = Some(due);
            }
        }
        left
    }

    /// Returns whether each packet was lost, by number.
    pub(crate) fn lost(&self) -> Vec<bool> {
        self.left().iter().map(Option::is_none).collect()
    }

    /// Returns the delay of each packet in milliseconds by number, or nothing if it was lost.
    pub(crate) fn delays(&self) -> Vec<Option<f64>> {
        let both = self.came.iter().zip(self.left());
        both.map(|(came, left)| left.map(|left| milliseconds(left - *came)))
            .collect()
    }

    /// Returns the delays of the packets that were not lost, in milliseconds.
    pub(crate) fn all_delays(&self) -> Vec<f64> {
        self.delays().into_iter().flatten().collect()
    }
}

/// Makes `count` packets of `length` L2 bytes, one every `gap`.
pub(crate) fn steady(count: u64, gap: Nanos, length: u64) -> impl Iterator<Item = (Nanos, Packet)> {
    (0..count).map(move |number| (gap.saturating_mul(number), of_length(length)))
}

/// Makes a packet of this many L2 bytes.
pub(crate) fn of_length(length: u64) -> Packet {
    Packet::new(PacketId(0), Bytes(length))
}

/// Returns the number of a packet.
pub(crate) fn index(id: PacketId) -> usize {
    usize::try_from(id.0).expect("fewer packets than memory has bytes")
}

/// Converts a time to milliseconds.
pub(crate) fn milliseconds(time: Nanos) -> f64 {
    time.0 as f64 / 1e6
}
