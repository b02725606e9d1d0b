//! Which of a flow's numbers have come.

const WORD: u64 = u64::BITS as u64;

/// A bit for each of the `WINDOW` numbers up to the highest; a multiple of 64, so that each has a bit of its own.
#[derive(Debug, Default)]
pub(crate) struct SeenNumbers<const WINDOW: u64> {
    words: Box<[u64]>,
    /// The highest number that came.
    pub(crate) highest: u64,
    /// How many numbers came, each counted once.
    pub(crate) arrivals: u64,
}

/// What is known of a number when it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SequenceVerdict {
    /// It comes for the first time.
    New,
    /// It came before.
    Again,
    /// It is behind the window.
    TooLate,
}

impl<const WINDOW: u64> SeenNumbers<WINDOW> {
    /// No number has come; numbers are from 1.
    pub(crate) fn new() -> Self {
        let words = usize::try_from(WINDOW / WORD).expect("a window fits memory");
        Self {
            words: vec![0; words].into(),
            highest: 0,
            arrivals: 0,
        }
    }

    /// Notes that `number` came.
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

    /// Whether `number` came, as far as the window still tells: what is behind it is taken for come, and 0 precedes every flow.
    pub(crate) fn came(&mut self, number: u64) -> bool {
        if number > self.highest {
            return false;
        }
        let is_known = number > 0 && self.highest - number < WINDOW;
        !is_known || *self.word(number) & 1 << (number % WORD) != 0
    }

    /// Forgets the numbers that leave the window when it reaches up to `number`.
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
