//! A record of the sequence numbers of a flow that have arrived.

const WORD: u64 = u64::BITS as u64;

/// A bitmap of the `WINDOW` sequence numbers up to the highest one. `WINDOW` is a multiple of 64, so that each has its
/// own bit.
#[derive(Debug, Default)]
pub(crate) struct SeenNumbers<const WINDOW: u64> {
    words: Box<[u64]>,
    /// The highest number that arrived.
    pub(crate) highest: u64,
    /// The count of numbers that arrived, each counted once.
    pub(crate) arrivals: u64,
}

/// The classification of an arriving sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SequenceVerdict {
    /// The number arrives for the first time.
    New,
    /// The number arrived before.
    Again,
    /// The number is behind the window.
    TooLate,
}

impl<const WINDOW: u64> SeenNumbers<WINDOW> {
    /// Returns a record without arrivals. Numbers start at 1.
    pub(crate) fn new() -> Self {
        let words = usize::try_from(WINDOW / WORD).expect("a window fits memory");
        Self {
            words: vec![0; words].into(),
            highest: 0,
            arrivals: 0,
        }
    }

    /// Records the arrival of `number`.
    pub(crate) fn insert(&mut self, number: u64) -> SequenceVerdict {
        if number > self.highest {
            self.advance(number);
        } else if self.highest - number >= WINDOW {
            return SequenceVerdict::TooLate;
        }
        let word = self.word(number);
        let bit = 1 << (number % WORD);
        if *word & bit != 0 {
            return SequenceVerdict::Again;
        }
        *word |= bit;
        self.arrivals += 1;
        SequenceVerdict::New
    }

    /// Returns whether `number` arrived. A number behind the window, and 0, count as arrived.
    pub(crate) fn has_arrived(&mut self, number: u64) -> bool {
        if number > self.highest {
            return false;
        }
        let is_known = number > 0 && self.highest - number < WINDOW;
        !is_known || *self.word(number) & 1 << (number % WORD) != 0
    }

    /// Moves the window up to `number` and clears the bits that the new numbers take over.
    fn advance(&mut self, number: u64) {
        if number - self.highest >= WINDOW {
            self.words.fill(0);
        } else {
            let mut next = self.highest + 1;
            while next <= number {
                let last = (next | (WORD - 1)).min(number);
                let kept = !(u64::MAX >> (WORD - 1 - (last - next)) << (next % WORD));
                *self.word(next) &= kept;
                let Some(following) = last.checked_add(1) else {
                    break;
                };
                next = following;
            }
        }
        self.highest = number;
    }

    fn word(&mut self, number: u64) -> &mut u64 {
        let at = usize::try_from(number % WINDOW / WORD).expect("within the window");
        &mut self.words[at]
    }
}
