//! The running test on its socket: a loop between the session, which decides, and the channel, which sends and
//! receives.

use std::io;
use std::os::fd::AsFd;

use model::Nanos;
use netio::stop::STOP_INTERVAL;
use netio::{CpuUse, Waiter};

use super::channel::{Channel, now};
use super::outcome::{TestAgreement, TestEnd, TestOutcome};
use super::session::{PAUSE, TestSession};
use crate::live::Live;
use crate::service::TrafficPublisher;

/// The most receptions in a row before the loop looks at the clock again.
const MOST_RECEPTIONS: usize = 64;
/// The wait spins for this long before something is due.
const GUARD: Nanos = Nanos(60_000);

/// One end of a running test.
pub(crate) struct Exchange<'a> {
    /// The socket, connected to the other end.
    pub(crate) channel: Channel,
    /// The state of the test.
    pub(crate) session: TestSession,
    /// Returns a cause to stop immediately, if there is one. It is called at least every 100 ms.
    pub(crate) stop: &'a dyn Fn() -> Option<String>,
    /// The printer of a line for each complete sub-interval, and for each silence.
    pub(crate) live: Live,
    /// The publisher of the traffic, only at a server.
    pub(crate) publisher: Option<TrafficPublisher>,
}

/// The progress that was printed.
#[derive(Default)]
struct PrintedProgress {
    sub_intervals: usize,
    silences: u32,
}

impl Exchange<'_> {
    /// Runs the test to its end.
    pub(crate) fn run(mut self) -> TestOutcome {
        let ended = self.until_end();
        if let Some(publisher) = &self.publisher {
            publisher.finish(&self.session.traffic(self.channel.sent));
        }
        let stopping = self.session.is_stopping();
        let mut outcome = self.session.into_outcome();
        let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        outcome.end = match ended {
            Ok(end) => end,
            // The client had confirmed the end, and closed its socket before this end read the confirmation.
            Err(error) if refused(&error) && stopping => TestEnd::Complete,
            Err(error) if refused(&error) => TestEnd::Closed,
            Err(error) => TestEnd::Failed(error),
        };
        outcome.kernel_stamps = self.channel.kernel_stamps;
        outcome.host_drops = self.channel.host_drops();
        outcome.unsent = self.channel.unsent;
        outcome
    }

    fn until_end(&mut self) -> io::Result<TestEnd> {
        // The measurement also prepares the thread for short sleeps.
        let mut waiter = Waiter::measure(CpuUse::Gentle, 1);
        let mut printed = PrintedProgress::default();
        let end = loop {
            let begun = now();
            while let Some(transmit) = self.session.transmit(begun) {
                self.channel.transmit(&transmit)?;
            }
            self.receive_pending()?;
            self.print_progress(&mut printed);
            if let Some(publisher) = &mut self.publisher {
                let (session, sent) = (&self.session, self.channel.sent);
                publisher.publish(|| session.traffic(sent));
            }
            if let Some(cause) = (self.stop)() {
                break TestEnd::Stopped(cause);
            }
            if let Some(end) = self.session.check_end(now().mono) {
                break end;
            }
            self.wait(&mut waiter);
        };
        if let Some(transmit) = self.session.closing_message(now(), &end) {
            self.channel.transmit(&transmit)?;
        }
        Ok(end)
    }

    fn receive_pending(&mut self) -> io::Result<()> {
        for _ in 0..MOST_RECEPTIONS {
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

    fn print_progress(&self, printed: &mut PrintedProgress) {
        let (agreed, outcome): (&TestAgreement, &TestOutcome) =
            (self.session.agreed(), self.session.outcome());
        for whole in &outcome.sub_intervals[printed.sub_intervals..] {
            let counted = whole.counted;
            self.live.line(format_args!(
                "{:6.2} s {:>10.2} Mbit/s at L3, {} lost, round trip up to {} ms above its least",
                f64::from(counted.elapsed_ms) / 1e3,
                counted.bit_per_s(agreed.l3_header()) / 1e6,
                counted.counts.lost,
                counted.rtt_max_ms
            ));
        }
        if outcome.silences > printed.silences {
            let seconds = PAUSE.0 / 1_000_000_000;
            self.live.line(format_args!(
                "warning: nothing arrived from {} for {seconds} s",
                agreed.peer
            ));
        }
        *printed = PrintedProgress {
            sub_intervals: outcome.sub_intervals.len(),
            silences: outcome.silences,
        };
    }
}
