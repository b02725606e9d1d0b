//! Responsiveness in round trips per minute (draft-ietf-ippm-responsiveness): requests of one byte beside the load, each
//! on its own connection, and the round trips of the load itself.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::endpoint::Local;
use crate::http::{HttpTarget, OneRequest, request_once};
use crate::{Session, lock};
use netio::stop::STOP_INTERVAL;
use stats::{order_statistics, t_interval};

/// The number of requests that may wait for their answers simultaneously.
const WORKERS: u32 = 8;
/// The time from one request of a worker to its next one: all workers together make ten requests a second.
const PERIOD: Duration = Duration::from_millis(800);
/// The share of the values that a trimmed mean keeps, from the least on: the draft's Trimmed Mean Percentage.
const KEPT: f64 = 0.95;
/// Milliseconds in a minute.
const MINUTE_MS: f64 = 60_000.0;

/// The categories of responsiveness in the draft, section "Round-Trips per Minute (RPM)": each begins at this number.
const CATEGORIES: [(f64, &str); 3] = [(6000.0, "excellent"), (1000.0, "good"), (300.0, "fair")];

/// The requests that were made beside a load.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    /// Those that were answered, in the order of their ends. Times count from the start of the first.
    pub(super) answered: Vec<TimedRequest>,
    /// The reason of the first one that failed.
    pub(super) failure: Option<String>,
}

/// One answered request.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimedRequest {
    /// Seconds from the start of all requests to that of this one.
    pub(super) at_s: f64,
    /// Its times.
    pub(super) times: OneRequest,
}

/// Makes requests for `lasting`, ten a second unless the answers take too long, and waits for the last answer.
pub(super) fn request(
    target: &HttpTarget,
    local: Option<&Local>,
    lasting: Duration,
    session: &Session,
) -> Requests {
    let begun = Instant::now();
    let all = Mutex::new(Requests::default());
    let work = |number: u32| {
        let mut due = PERIOD * number / WORKERS;
        while due < lasting && session.stop.cause().is_none() {
            let left = due.saturating_sub(begun.elapsed());
            if !left.is_zero() {
                thread::sleep(left.min(STOP_INTERVAL));
                continue;
            }
            let at_s = begun.elapsed().as_secs_f64();
            match request_once(target, local, &session.stop) {
                Ok(times) => lock(&all).answered.push(TimedRequest { at_s, times }),
                Err(error) => {
                    let mut all = lock(&all);
                    all.failure.get_or_insert_with(|| format!("{error:#}"));
                    return;
                }
            }
            due = (due + PERIOD).max(begun.elapsed());
        }
    };
    let work = &work;
    thread::scope(|scope| {
        for number in 0..WORKERS {
            scope.spawn(move || work(number));
        }
    });
    all.into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Returns the responsiveness that follows from the requests and from the round trips of the load in milliseconds, which
/// its kernels measured: the average of both responsivenesses, or that of the requests alone. `None` without requests.
pub(super) fn round_trips_per_minute(requests: &[TimedRequest], of_load: &[f64]) -> Option<f64> {
    let trimmed = |pick: fn(&OneRequest) -> Duration| {
        let all = requests.iter().map(|one| pick(&one.times));
        let all: Vec<f64> = all.map(|time| time.as_secs_f64() * 1e3).collect();
        trimmed_mean(&all)
    };
    let connect = trimmed(|times| times.connect)?;
    let exchange = trimmed(|times| times.exchange)?;
    let foreign = MINUTE_MS / f64::midpoint(connect, exchange);
    let own = trimmed_mean(of_load).map(|rtt| MINUTE_MS / rtt);
    let both = own.map_or(foreign, |own| f64::midpoint(foreign, own));
    both.is_finite().then_some(both)
}

/// Returns the draft's name for this number of round trips per minute.
pub(super) fn category(per_minute: f64) -> &'static str {
    let reached = CATEGORIES.iter().find(|(from, _)| per_minute >= *from);
    reached.map_or("poor", |(_, name)| name)
}

/// Returns the mean of the least 95 % of `values`, at least of one. `None` for no values.
fn trimmed_mean(values: &[f64]) -> Option<f64> {
    let sorted = order_statistics::sorted(values);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a length"
    )]
    let kept = (KEPT * sorted.len() as f64).ceil() as usize;
    t_interval::mean(&sorted[..kept.min(sorted.len())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::{self, ServeConfig};

    fn requests(connect_ms: u64, exchange_ms: u64) -> Vec<TimedRequest> {
        let times = OneRequest {
            connect: Duration::from_millis(connect_ms),
            exchange: Duration::from_millis(exchange_ms),
        };
        vec![TimedRequest { at_s: 0.0, times }; 20]
    }

    #[test]
    fn responsiveness_is_the_average_of_requests_and_load() {
        // The requests take 60 ms and 140 ms, 100 ms on average: 600 round trips a minute. The load takes 200 ms: 300.
        let both = round_trips_per_minute(&requests(60, 140), &[200.0; 9]).unwrap();
        assert!((both - 450.0).abs() < 1e-9, "{both}");
        let alone = round_trips_per_minute(&requests(60, 140), &[]).unwrap();
        assert!((alone - 600.0).abs() < 1e-9, "{alone}");
        assert_eq!(round_trips_per_minute(&[], &[200.0]), None);
        assert_eq!(round_trips_per_minute(&requests(0, 0), &[]), None);
    }

    #[test]
    fn a_trimmed_mean_leaves_out_the_greatest_twentieth() {
        let mut values = vec![10.0; 19];
        values.push(1e6);
        assert_eq!(trimmed_mean(&values), Some(10.0));
        assert_eq!(trimmed_mean(&[7.0]), Some(7.0));
        assert_eq!(trimmed_mean(&[]), None);
    }

    #[test]
    fn categories_are_those_of_the_draft() {
        let of = [299.0, 300.0, 999.0, 1000.0, 5999.0, 6000.0].map(category);
        assert_eq!(of, ["poor", "fair", "fair", "good", "good", "excellent"]);
    }

    #[test]
    fn requests_are_answered_and_a_failure_is_kept() {
        let server = serve::start(ServeConfig::on_loopback()).unwrap();
        let address = server.address("http").unwrap();
        let of = |path| {
            let target = HttpTarget::of(address, path);
            request(
                &target,
                None,
                Duration::from_millis(50),
                &Session::default(),
            )
        };
        let made = of("/bytes/1");
        assert_eq!(made.failure, None);
        assert!(!made.answered.is_empty());
        let made = of("/nothing");
        assert!(made.failure.unwrap().contains("404"));
        assert!(made.answered.is_empty());
    }
}
