//! The running test on its socket: the loop between the session, which decides, and the channel, which sends and receives.

use std::io;
use std::os::fd::AsFd;

use model::Nanos;
use netio::stop::STOP_INTERVAL;
use netio::{CpuUse, Waiter};

use super::channel::{Channel, now};
use super::outcome::{Agreed, End, TestOutcome};
use super::session::{PAUSE, TestSession};
use crate::live::Live;

/// Received in one go before looking at the time again.
const AT_ONCE: usize = 64;
/// This long before something is due, waiting is spinning.
const GUARD: Nanos = Nanos(60_000);

/// One end of a running test.
pub(crate) struct Exchange<'a> {
    /// The socket, connected to the other end.
    pub(crate) channel: Channel,
    /// What is done with it.
    pub(crate) session: TestSession,
    /// Asked at least every 100 ms: why to stop at once.
    pub(crate) stop: &'a dyn Fn() -> Option<String>,
    /// Told of each whole sub-interval, and of silence.
    pub(crate) live: Live,
}

/// What the terminal was told so far.
#[derive(Default)]
struct Told {
    sub_intervals: usize,
    silences: u32,
}

impl Exchange<'_> {
    /// Sends or receives load until the end.
    pub(crate) fn run(mut self) -> TestOutcome {
        let ended = self.until_end();
        let stopping = self.session.is_stopping();
        let mut outcome = self.session.into_outcome();
        let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        outcome.end = match ended {
            Ok(end) => end,
            // The client had confirmed, and was gone before it was read.
            Err(error) if refused(&error) && stopping => End::Complete,
            Err(error) if refused(&error) => End::Closed,
            Err(error) => End::Failed(error),
        };
        outcome.kernel_stamps = self.channel.kernel_stamps;
        outcome.host_drops = self.channel.host_drops();
        outcome.unsent = self.channel.unsent;
        outcome
    }

    fn until_end(&mut self) -> io::Result<End> {
        // Measuring it readies the thread for short sleeps.
        let mut waiter = Waiter::measure(CpuUse::Gentle);
        let mut told = Told::default();
        let end = loop {
            let begun = now();
            while let Some(transmit) = self.session.transmit(begun) {
                self.channel.transmit(&transmit)?;
            }
            self.take_in()?;
            self.tell(&mut told);
            if let Some(cause) = (self.stop)() {
                break End::Stopped(cause);
            }
            if let Some(end) = self.session.over(now().mono) {
                break end;
            }
            self.wait(&mut waiter);
        };
        if let Some(transmit) = self.session.farewell(now(), &end) {
            self.channel.transmit(&transmit)?;
        }
        Ok(end)
    }

    fn take_in(&mut self) -> io::Result<()> {
        for _ in 0..AT_ONCE {
            let Some(arrived) = self.channel.receive()? else {
                break;
            };
            for datagram in arrived.datagrams() {
                self.session.take(arrived.at, datagram);
            }
        }
        Ok(())
    }

    fn wait(&self, waiter: &mut Waiter) {
        let now = now().mono;
        let latest = now + STOP_INTERVAL.into();
        let until = self.session.next_at().map_or(latest, |at| at.min(latest));
        if until > now + GUARD {
            let until = Nanos(until.0 - GUARD.0);
            waiter.sleep([self.channel.as_fd()].into_iter(), now, Some(until));
        }
    }

    fn tell(&self, told: &mut Told) {
        let (agreed, outcome): (&Agreed, &TestOutcome) =
            (self.session.agreed(), self.session.outcome());
        for whole in &outcome.sub_intervals[told.sub_intervals..] {
            let counted = whole.counted;
            self.live.line(format_args!(
                "{:6.2} s {:>10.2} Mbit/s at L3, {} lost, round trip up to {} ms above its least",
                f64::from(counted.elapsed_ms) / 1e3,
                counted.bit_per_s(agreed.l3_header()) / 1e6,
                counted.counts.lost,
                counted.rtt_max_ms
            ));
        }
        if outcome.silences > told.silences {
            let seconds = PAUSE.0 / 1_000_000_000;
            self.live.line(format_args!(
                "warning: nothing arrived from {} for {seconds} s",
                agreed.peer
            ));
        }
        *told = Told {
            sub_intervals: outcome.sub_intervals.len(),
            silences: outcome.silences,
        };
    }
}
