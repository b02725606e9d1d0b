//! Which of the latest numbers have come.

/// How far behind the highest number a copy is still told from a late first one: at 800,000 datagrams a second, over 1 s.
pub(super) const WINDOW: u64 = 1 << 20;

const BITS: u64 = u64::BITS as u64;

/// A bit for each of the [`WINDOW`] numbers up to the highest.
#[derive(Debug)]
pub(super) struct Window {
    words: Box<[u64]>,
    highest: u64,
    arrivals: u64,
}

/// What is known of a number when it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// It comes for the first time.
    New,
    /// It came before.
    Again,
    /// It is behind the window.
    TooLate,
}

impl Window {
    /// No number has come; numbers are from 1.
    pub(super) fn new() -> Self {
        let words = usize::try_from(WINDOW / BITS).expect("2^14");
        Self {
            words: vec![0; words].into(),
            highest: 0,
            arrivals: 0,
        }
    }

    /// The highest number that came.
    pub(super) fn highest(&self) -> u64 {
        self.highest
    }

    /// How many numbers came, each counted once.
    pub(super) fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// Notes that `number` came.
    pub(super) fn insert(&mut self, number: u64) -> Seen {
        if number > self.highest {
            self.advance(number);
        } else if self.highest - number >= WINDOW {
            return Seen::TooLate;
        }
        let word = self.word(number);
        let bit = 1 << (number % BITS);
        if *word & bit != 0 {
            return Seen::Again;
        }
        *word |= bit;
        self.arrivals += 1;
        Seen::New
    }

    /// Forgets the numbers that leave the window when it reaches up to `number`.
    fn advance(&mut self, number: u64) {
        if number - self.highest >= WINDOW {
            self.words.fill(0);
        } else {
            let mut next = self.highest + 1;
            while next <= number {
                let last = (next | (BITS - 1)).min(number);
                let kept = !(u64::MAX >> (BITS - 1 - (last - next)) << (next % BITS));
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
        let at = usize::try_from(number % WINDOW / BITS).expect("below 2^14");
        &mut self.words[at]
    }
}
