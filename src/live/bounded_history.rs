//! A history that keeps only its newest entries.

use std::collections::VecDeque;

/// The newest entries within a limit of their number and of their memory, but at least one.
#[derive(Debug)]
pub(super) struct BoundedHistory<T> {
    /// The entries, each with its size in bytes.
    all: VecDeque<(usize, T)>,
    bytes: usize,
    most: usize,
}

impl<T> BoundedHistory<T> {
    /// The largest total size of all entries in bytes.
    const MOST_BYTES: usize = 32 << 20;

    /// Creates an empty history of at most `most` entries.
    pub(super) fn at_most(most: usize) -> Self {
        Self {
            all: VecDeque::new(),
            bytes: 0,
            most,
        }
    }

    /// Adds an entry that takes about `bytes` bytes.
    pub(super) fn push(&mut self, one: T, bytes: usize) {
        self.all.push_back((bytes, one));
        self.bytes += bytes;
        while self.all.len() > 1 && (self.all.len() > self.most || self.bytes > Self::MOST_BYTES) {
            let oldest = self.all.pop_front();
            self.bytes -= oldest.map_or(0, |(bytes, _)| bytes);
        }
    }

    /// Returns the entries from the oldest to the newest.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.all.iter().map(|(_, one)| one)
    }

    /// Returns the entry at `place`, counted from the oldest.
    pub(super) fn get(&self, place: usize) -> Option<&T> {
        self.all.get(place).map(|(_, one)| one)
    }

    pub(super) fn last(&self) -> Option<&T> {
        self.iter().next_back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(bytes: &[usize]) -> Vec<usize> {
        let mut kept = BoundedHistory::at_most(3);
        for (number, bytes) in bytes.iter().enumerate() {
            kept.push(number, *bytes);
        }
        assert_eq!(kept.last().copied(), bytes.len().checked_sub(1));
        kept.iter().copied().collect()
    }

    #[test]
    fn the_last_ones_are_kept_as_far_as_number_and_memory_go() {
        let half = BoundedHistory::<()>::MOST_BYTES / 2;
        assert!(kept(&[]).is_empty());
        assert_eq!(kept(&[1, 1, 1, 1]), [1, 2, 3]);
        assert_eq!(kept(&[half, half, 1]), [1, 2]);
        assert_eq!(kept(&[1, half, 3 * half]), [2]);
        assert_eq!(kept(&[3 * half, 1, 1]), [1, 2]);
    }
}
