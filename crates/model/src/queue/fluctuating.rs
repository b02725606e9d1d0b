//! A rate that varies, like the rate of a radio channel.

use crate::draw::Draws;
use crate::spec::Fluctuation;
use crate::time::Nanos;
use crate::units::BitsPerSec;

/// A rate that is drawn anew for every period; draw number N is for the Nth period after the first packet.
#[derive(Debug)]
pub(crate) struct Fluctuating {
    rate: BitsPerSec,
    config: Fluctuation,
    draws: Draws,
    /// The number of the draw for the first period.
    first: u64,
    /// The time at which the first packet was served.
    origin: Option<Nanos>,
    /// The last period in which a packet was served.
    last: u64,
    /// Work done in advance because the last packet's end was rounded up to a whole nanosecond.
    credit: u128,
}

impl Fluctuating {
    /// Creates a rate whose draws have the numbers from `first` on.
    pub(crate) fn new(rate: BitsPerSec, config: Fluctuation, draws: Draws, first: u64) -> Self {
        Self {
            rate,
            config,
            draws,
            first,
            origin: None,
            last: 0,
            credit: 0,
        }
    }

    /// Returns the rate at `now`.
    pub(crate) fn at(&self, now: Nanos) -> BitsPerSec {
        let from_origin = now - self.origin.unwrap_or(now);
        u64::try_from(self.in_period(from_origin.0 / self.config.hold.0))
            .ok()
            .and_then(|bits| BitsPerSec::new(bits).ok())
            .unwrap_or(self.rate)
    }

    /// Begins a busy period: work done in advance in the last one does not count.
    pub(crate) fn begin_busy_period(&mut self) {
        self.credit = 0;
    }

    /// Returns the number of the first draw that no period has used.
    pub(crate) fn drawn(&self) -> u64 {
        self.first + self.last + 1
    }

    /// Returns the work that is left at `at` of a service that ends at `ends`.
    pub(crate) fn left(&self, at: Nanos, ends: Nanos) -> u128 {
        let origin = self.origin.unwrap_or(at);
        let (mut from, until) = (
            at.0.saturating_sub(origin.0),
            ends.0.saturating_sub(origin.0),
        );
        let mut work = 0;
        while from < until {
            let period = from / self.config.hold.0;
            let end = self
                .config
                .hold
                .0
                .saturating_mul(period.saturating_add(1))
                .min(until);
            work += u128::from(end - from) * self.in_period(period);
            from = end;
        }
        work.saturating_sub(self.credit)
    }

    /// Returns when `work` whose service begins at `at` is done. When the rate changes, the rest is done at the new
    /// rate.
    pub(crate) fn serve(&mut self, at: Nanos, work: u128) -> Nanos {
        let origin = *self.origin.get_or_insert(at);
        let mut left = work.saturating_sub(self.credit);
        let mut from = at.0.saturating_sub(origin.0);
        loop {
            let period = from / self.config.hold.0;
            let rate = self.in_period(period);
            let end = self.config.hold.0.saturating_mul(period.saturating_add(1));
            let until_end = u128::from(end - from) * rate;
            if left <= until_end || end == u64::MAX {
                let time = left.div_ceil(rate);
                self.credit = time * rate - left;
                self.last = period;
                let nanos = u64::try_from(time).unwrap_or(u64::MAX);
                return Nanos(origin.0.saturating_add(from).saturating_add(nanos));
            }
            left -= until_end;
            from = end;
        }
    }

    /// Returns the rate of a period in bits per second, uniform within the spread about the mean; at least 1.
    fn in_period(&self, period: u64) -> u128 {
        let mean = u128::from(self.rate.get());
        let spread = (mean * self.config.spread.threshold()) >> 64;
        let drawn = (2 * spread * u128::from(self.draws.at(self.first + period))) >> 64;
        (mean - spread + drawn).max(1)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::queue::constant::WORK_PER_BYTE;

    const SECOND: u64 = 1_000_000_000;

    fn fluctuating(rate: &str, spread: &str, hold: u64) -> Fluctuating {
        let config = Fluctuation {
            spread: spread.parse().unwrap(),
            hold: Nanos(hold),
        };
        let draws = Draws::new(1, 0, "box.up.rate");
        Fluctuating::new(rate.parse().unwrap(), config, draws, 0)
    }

    /// Returns the rate at which 1500-byte packets are served in each second, in bit/s.
    fn rates(server: &mut Fluctuating, seconds: u64) -> Vec<f64> {
        let mut served = vec![0.0; usize::try_from(seconds).unwrap() + 1];
        let mut now = Nanos::ZERO;
        while now.0 < seconds * SECOND {
            now = server.serve(now, 1_500 * WORK_PER_BYTE);
            served[usize::try_from(now.0 / SECOND).unwrap()] += 12_000.0;
        }
        served.pop();
        served
    }

    #[test]
    fn without_spread_it_is_the_rate_to_the_nanosecond() {
        let mut server = fluctuating("100gbit", "0%", 1000);
        let mut now = Nanos::ZERO;
        for _ in 0..1_000 {
            now = server.serve(now, 1_514 * WORK_PER_BYTE);
        }
        assert_eq!(now, Nanos(121_120));
    }

    #[test]
    #[cfg_attr(miri, ignore = "it takes too many draws")]
    fn every_period_has_another_rate_within_the_spread() {
        let rates = rates(&mut fluctuating("20mbit", "25%", SECOND), 400);
        let packet = 12_000.0;
        assert!(
            rates
                .iter()
                .all(|r| (15e6 - packet..=25e6 + packet).contains(r))
        );
        let mean = rates.iter().sum::<f64>() / 400.0;
        // This is the mean of 400 draws with a standard deviation of 5 / sqrt(3) Mbit/s.
        assert!((mean - 20e6).abs() < 4.0 * 0.145e6, "{mean}");
        let apart = rates
            .windows(2)
            .filter(|pair| (pair[0] - pair[1]).abs() > 2.0 * packet);
        assert!(apart.count() > 380);
    }

    #[test]
    fn a_packet_that_outlasts_a_period_is_served_at_each_ones_rate() {
        let mut server = fluctuating("1mbit", "50%", SECOND);
        let rates: Vec<u128> = (0..3).map(|period| server.in_period(period)).collect();
        let bits = rates[0] + rates[1] + rates[2] / 2;
        let end = server.serve(Nanos(7), bits / 8 * WORK_PER_BYTE);
        let late = end.0.abs_diff(7 + 5 * SECOND / 2);
        assert!(late < 20_000, "{end:?}");
    }

    #[test]
    fn one_seed_gives_the_same_ends() {
        let ends = || rates(&mut fluctuating("5mbit", "40%", SECOND / 3), 20);
        assert_eq!(ends(), ends());
    }

    #[test]
    fn a_service_that_never_ends_terminates() {
        let mut server = fluctuating("1bit", "0%", u64::MAX);
        assert_eq!(
            server.serve(Nanos(5), u128::from(u64::MAX) * WORK_PER_BYTE),
            Nanos::MAX
        );
    }
}
