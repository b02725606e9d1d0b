//! Decides when a forwarder cannot keep up and drops packets instead of sending them ever later.

use std::fmt;
use std::str::FromStr;

use model::Nanos;
use record::lateness::LateBudget;

/// The delay after its due time at which a packet is dropped if the forwarder cannot keep up. It is
/// at least 1 ms and at most 10 s, 10 ms by default, and written as a time with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LateLimit(Nanos);

/// The limit, and the clocks by which a forwarder notices that it cannot keep up.
pub(super) struct LatenessBound {
    limit: LateLimit,
    cpu_clock: CpuClock,
    /// The CPU time at the beginning of the present step or batch, if a link is in arrears.
    cpu: Option<Nanos>,
    /// The number of times the forwarder waited after arrears.
    waits: u64,
    /// Whether there were arrears since it last waited.
    has_arrears: bool,
    /// The time of all rests.
    rested: Nanos,
}

/// Returns the CPU time of the forwarder's thread.
pub(crate) type CpuClock = Box<dyn Fn() -> Nanos>;

/// The longest time that frames may wait in the rings, whatever the limit, before the links that fill
/// them lose their own frames. It does not grow with the limit, because the rings have no more room
/// then: at 300,000 packets per second they overflow after 50 ms.
const RINGS_LIMIT: Nanos = Nanos::from_millis(10);

/// Says since when a link or the rings have been in arrears: each turn began with packets that were
/// late by more than a quarter of a limit, and the forwarder has not waited between two turns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrears {
    since: Option<Since>,
    is_overload: bool,
}

/// The beginning of arrears.
#[derive(Clone, Copy, Debug)]
struct Since {
    time: Nanos,
    cpu: Nanos,
    /// The number of times the forwarder had waited by then.
    waits: u64,
}

impl LateLimit {
    /// The default limit.
    pub(crate) const DEFAULT: Self = Self(Nanos::from_millis(10));
    const LEAST: Nanos = Nanos::from_millis(1);
    const MOST: Nanos = Nanos::from_secs(10);

    /// Returns the limit beside this late budget unless a user has set one: the default, or the budget
    /// if that is longer, because a user who accepts late packets does not want to lose them.
    pub(crate) fn beside(budget: LateBudget) -> Self {
        Self(Self::DEFAULT.0.max(budget.time()))
    }
}

impl fmt::Display for LateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for LateLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let time: Nanos = text.parse().map_err(|cause| format!("{cause}"))?;
        if time < Self::LEAST || time > Self::MOST {
            return Err(format!(
                "`{time}` is out of range: write a time of at least 1ms and at most 10s, as in 10ms"
            ));
        }
        Ok(Self(time))
    }
}

impl LatenessBound {
    /// Creates the bound of a forwarder in virtual time, which is always on time.
    pub(super) fn in_virtual_time() -> Self {
        Self::new(LateLimit::DEFAULT, Box::new(|| Nanos::ZERO))
    }

    pub(super) fn new(limit: LateLimit, cpu_clock: CpuClock) -> Self {
        Self {
            limit,
            cpu_clock,
            cpu: None,
            waits: 0,
            has_arrears: false,
            rested: Nanos::ZERO,
        }
    }

    /// Notes that a step begins, or that a batch was sent in it.
    pub(super) fn time_has_passed(&mut self) {
        self.cpu = None;
    }

    /// Notes that the forwarder waits at `now()` if nothing is due before `until`. It has then sent everything in time
    /// or late, so it keeps up, and what makes packets late from now on is counted anew. Otherwise
    /// two stops of the processor within a few milliseconds could look like an overload, because the guest of a
    /// hypervisor can count that time as the thread's own.
    #[inline]
    pub(super) fn note_wait(&mut self, until: Option<Nanos>, now: impl FnOnce() -> Nanos) {
        if self.has_arrears && until.is_none_or(|until| until > now()) {
            self.has_arrears = false;
            self.waits += 1;
        }
    }

    /// Returns the limit of the packets that wait to leave.
    pub(super) fn limit(&self) -> Nanos {
        self.limit.0
    }

    /// Returns the limit of the frames that wait in the rings.
    pub(super) fn limit_of_rings(&self) -> Nanos {
        self.limit.0.min(RINGS_LIMIT)
    }

    /// Returns the due time before which packets are too late at `now`.
    pub(super) fn too_late_before(&self, now: Nanos) -> Nanos {
        now - self.limit.0
    }

    /// Notes that the forwarder rests for this time, although it is behind.
    pub(super) fn note_rest(&mut self, time: Nanos) {
        self.rested += time;
    }

    /// Returns the CPU time with the time of rests, in which the host would run the thread. It is read at most once in
    /// a step, and once for each further batch of a link that is alone.
    fn cpu(&mut self) -> Nanos {
        *self.cpu.get_or_insert_with(&self.cpu_clock) + self.rested
    }
}

impl Arrears {
    /// Notes at `now`, when a turn begins, the time at which the first packet was due. `limit` is one of
    /// the limits of `bound`.
    ///
    /// The forwarder is overloaded if the arrears have lasted while its thread ran for three quarters of
    /// the limit. Packets that it cannot send in time become later by at most the time that passes, so
    /// none of them reaches the limit sooner. A host that does not run the thread makes packets late,
    /// too. That is no overload as long as the thread has run for less than half of the time.
    #[inline]
    pub(super) fn note(
        &mut self,
        first_due: Option<Nanos>,
        now: Nanos,
        limit: Nanos,
        bound: &mut LatenessBound,
    ) {
        let quarter = Nanos(limit.0 / 4);
        match first_due.filter(|due| *due + quarter < now) {
            None => *self = Self::default(),
            Some(due) => self.last_until(now, due + quarter, Nanos(3 * quarter.0), bound),
        }
    }

    /// Notes that arrears which begin at `begun` at the latest last until `now`. They are an overload
    /// if the thread has run for `most` meanwhile.
    #[cold]
    fn last_until(&mut self, now: Nanos, begun: Nanos, most: Nanos, bound: &mut LatenessBound) {
        let cpu = bound.cpu();
        bound.has_arrears = true;
        let from_now = Since {
            time: begun,
            cpu,
            waits: bound.waits,
        };
        let unbroken = self.since.filter(|since| since.waits == bound.waits);
        let since = *self.since.insert(unbroken.unwrap_or(from_now));
        let ran = cpu - since.cpu;
        let is_starved = ran + ran < now - since.time;
        self.is_overload = !is_starved && ran >= most;
    }

    /// Returns true if the forwarder could not keep up when the latest turn began.
    pub(super) fn is_overload(self) -> bool {
        self.is_overload
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn a_limit_is_written_as_a_time_in_its_range() {
        let limit = |text: &str| text.parse::<LateLimit>();
        assert_eq!(limit("10ms"), Ok(LateLimit::DEFAULT));
        assert_eq!(LateLimit::DEFAULT.to_string(), "10ms");
        assert_eq!(LateLimit::beside(LateBudget::DEFAULT), LateLimit::DEFAULT);
        assert_eq!(LateLimit::beside("1s".parse().unwrap()).to_string(), "1s");
        for wrong in ["999us", "11s"] {
            assert!(
                limit(wrong)
                    .unwrap_err()
                    .contains("at least 1ms and at most 10s")
            );
        }
        assert!(limit("10").is_err());
    }

    /// Passes the times of steps in milliseconds, each with the CPU time, to arrears whose first packet
    /// was due at 1 s. Returns true for each step that finds an overload.
    fn overloads(steps: &[(u64, u64)]) -> Vec<bool> {
        let cpu = Rc::new(Cell::new(Nanos::ZERO));
        let clock = Rc::clone(&cpu);
        let mut bound = LatenessBound::new(LateLimit::DEFAULT, Box::new(move || clock.get()));
        let mut arrears = Arrears::default();
        let due = Some(Nanos::from_millis(1_000));
        let step = |&(now, ran): &(u64, u64)| {
            cpu.set(Nanos::from_millis(ran));
            bound.time_has_passed();
            let (now, limit) = (Nanos::from_millis(1_000 + now), bound.limit());
            arrears.note(due, now, limit, &mut bound);
            arrears.is_overload()
        };
        steps.iter().map(step).collect()
    }

    #[test]
    fn arrears_are_an_overload_when_the_thread_has_run_for_most_of_the_limit() {
        let steps = [(2, 100), (3, 101), (10, 108), (11, 109), (20, 118)];
        assert_eq!(overloads(&steps), [false, false, false, true, true]);
    }

    #[test]
    fn time_in_which_the_host_does_not_run_the_thread_is_no_overload() {
        // The host stops the thread for 50 ms, and then the thread catches up.
        let stop = [(50, 1), (55, 6), (70, 21), (90, 41)];
        assert_eq!(overloads(&stop), [false; 4]);
        // The host gives the thread a quarter of a processor, then two thirds.
        let quarter = [(4, 1), (24, 6), (44, 11), (400, 100)];
        assert_eq!(overloads(&quarter), [false; 4]);
        let most = [(4, 2), (13, 8), (19, 12)];
        assert_eq!(overloads(&most), [false, false, true]);
    }

    #[test]
    fn rests_of_a_forwarder_that_is_behind_count_as_time_in_which_it_could_run() {
        let cpu = Rc::new(Cell::new(Nanos::ZERO));
        let clock = Rc::clone(&cpu);
        let mut bound = LatenessBound::new(LateLimit::DEFAULT, Box::new(move || clock.get()));
        let mut arrears = Arrears::default();
        let due = Some(Nanos::from_millis(1_000));
        // It works for a quarter of the time and rests for the others.
        let mut overloads = (3..=12).map(|now| {
            cpu.set(cpu.get() + Nanos(250_000));
            bound.note_rest(Nanos(750_000));
            bound.time_has_passed();
            let limit = bound.limit();
            arrears.note(due, Nanos::from_millis(1_000 + now), limit, &mut bound);
            arrears.is_overload()
        });
        assert_eq!(overloads.position(|is_overload| is_overload), Some(8));
    }

    #[test]
    fn arrears_do_not_last_beyond_a_time_in_which_the_forwarder_waited() {
        let cpu = Rc::new(Cell::new(Nanos::ZERO));
        let clock = Rc::clone(&cpu);
        let mut bound = LatenessBound::new(LateLimit::DEFAULT, Box::new(move || clock.get()));
        let mut arrears = Arrears::default();
        let mut turn = |bound: &mut LatenessBound, due: u64, now: u64, ran: u64| {
            cpu.set(Nanos::from_millis(ran));
            bound.time_has_passed();
            let [due, now] = [due, now].map(Nanos::from_millis);
            arrears.note(Some(due), now, bound.limit(), bound);
            arrears.is_overload()
        };
        // The processor stops for 6 ms and then for 10 ms, which counts as the thread's time.
        assert!(!turn(&mut bound, 1_000, 1_006, 6));
        bound.note_wait(Some(Nanos::from_millis(1_007)), || {
            Nanos::from_millis(1_006)
        });
        assert!(!turn(&mut bound, 1_007, 1_018, 17));
        // The forwarder does not wait for what is due already.
        bound.note_wait(Some(Nanos::from_millis(1_018)), || {
            Nanos::from_millis(1_018)
        });
        assert!(turn(&mut bound, 1_018, 1_028, 27));
        bound.note_wait(None, || Nanos::from_millis(1_028));
        assert!(!turn(&mut bound, 1_029, 1_040, 37));
    }

    #[test]
    fn arrears_end_when_the_packets_are_on_time_again() {
        let mut bound = LatenessBound::in_virtual_time();
        let mut arrears = Arrears {
            since: None,
            is_overload: true,
        };
        let late = Some(Nanos::from_millis(8));
        let (now, limit) = (Nanos::from_millis(10), bound.limit());
        arrears.note(late, now, limit, &mut bound);
        assert!(!arrears.is_overload());
        arrears.is_overload = true;
        arrears.note(None, now, limit, &mut bound);
        assert!(!arrears.is_overload());
    }

    #[test]
    fn frames_in_the_rings_have_the_limit_of_packets_if_that_is_short() {
        let limits = |text: &str| {
            let bound = LatenessBound::new(text.parse().unwrap(), Box::new(|| Nanos::ZERO));
            [bound.limit(), bound.limit_of_rings()].map(|limit| limit.0 / 1_000_000)
        };
        assert_eq!(
            ["1ms", "10ms", "10s"].map(limits),
            [[1, 1], [10, 10], [10_000, 10]]
        );
    }
}
