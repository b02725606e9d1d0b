//! Packets that cross a link in virtual time.

use anyhow::Result;
use conditions::LinkSpec;
use model::{Bytes, Link, Nanos, Outcome, Packet, PacketId, Side};

/// Packets that went up a link, by their numbers, and what became of them.
pub(crate) struct Crossing {
    /// When each of them came.
    pub(crate) came: Vec<Nanos>,
    /// In the order of decision.
    pub(crate) outcomes: Vec<Outcome>,
}

impl Crossing {
    /// `packets`, in the order in which they come, through a link as its file has it; their ids are their numbers.
    ///
    /// # Errors
    /// A file that is wrong.
    pub(crate) fn of(
        file: &str,
        packets: impl IntoIterator<Item = (Nanos, Packet)>,
    ) -> Result<Self> {
        let spec: LinkSpec = toml::from_str(file)?;
        let mut link = Link::new(&spec.to_link("box")?.config)?;
        let (mut came, mut outcomes) = (Vec::new(), Vec::new());
        for (number, (at, packet)) in (0..).zip(packets) {
            let id = PacketId(number);
            link.offer(at, Side::A, Packet { id, ..packet });
            came.push(at);
            outcomes.extend(std::iter::from_fn(|| link.poll(at)));
        }
        outcomes.extend(std::iter::from_fn(|| link.poll(Nanos::MAX)));
        Ok(Self { came, outcomes })
    }

    /// When each left, by number; nothing of those that were lost. Copies are left out.
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

    /// Whether each was lost, by number.
    pub(crate) fn lost(&self) -> Vec<bool> {
        self.left().iter().map(Option::is_none).collect()
    }

    /// How long each took in milliseconds, by number; nothing of those that were lost.
    pub(crate) fn delays(&self) -> Vec<Option<f64>> {
        let both = self.came.iter().zip(self.left());
        both.map(|(came, left)| left.map(|left| milliseconds(left - *came)))
            .collect()
    }

    /// How long those took that were not lost, in milliseconds.
    pub(crate) fn all_delays(&self) -> Vec<f64> {
        self.delays().into_iter().flatten().collect()
    }
}

/// So many packets of `length` L2 bytes, one every `gap`.
pub(crate) fn steady(count: u64, gap: Nanos, length: u64) -> impl Iterator<Item = (Nanos, Packet)> {
    (0..count).map(move |number| (gap.saturating_mul(number), of_length(length)))
}

/// A packet of so many L2 bytes.
pub(crate) fn of_length(length: u64) -> Packet {
    Packet::new(PacketId(0), Bytes(length))
}

/// A packet's number.
pub(crate) fn index(id: PacketId) -> usize {
    usize::try_from(id.0).expect("fewer packets than memory has bytes")
}

/// In milliseconds.
pub(crate) fn milliseconds(time: Nanos) -> f64 {
    time.0 as f64 / 1e6
}
