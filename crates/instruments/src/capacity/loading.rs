//! The end that sends load: on schedule, at the rate that the last feedback led to.

use std::io;
use std::os::fd::AsFd;

use model::Nanos;
use netio::{CpuUse, Waiter};

use super::channel::now;
use super::exchange::{AT_ONCE, End, Run};
use super::pacer::{Pacer, Train};
use super::wire::{Action, Activation, LoadHeader, SendingRate, Status};
use netio::stop::STOP_INTERVAL;

/// After so long without feedback, load PDUs say so.
const FEEDBACK_SILENCE: Nanos = Nanos(1_000_000_000);
/// This long before a train is due, waiting is spinning.
const GUARD: Nanos = Nanos(60_000);

/// The end that sends load.
pub(super) struct Loading<'r, 'a> {
    run: &'r mut Run<'a>,
    pacer: Pacer,
    waiter: Waiter,
    header: LoadHeader,
    feedback_sequence: u32,
    feedback_at: Nanos,
    confirmed: bool,
}

impl<'r, 'a> Loading<'r, 'a> {
    /// Begins at `rate`.
    pub(super) fn new(run: &'r mut Run<'a>, rate: SendingRate) -> Self {
        let mut pacer = Pacer::new();
        // Measuring it readies the thread for short sleeps.
        let waiter = Waiter::measure(CpuUse::Gentle);
        let now = now().mono;
        pacer.set(&rate, now);
        Self {
            run,
            pacer,
            waiter,
            header: LoadHeader::default(),
            feedback_sequence: 0,
            feedback_at: now,
            confirmed: false,
        }
    }

    /// Sends until the end.
    ///
    /// # Errors
    /// The socket's.
    pub(super) fn run(&mut self) -> Result<End, io::Error> {
        let end = loop {
            let now = now().mono;
            self.send_due(now)?;
            self.take_feedback()?;
            if self.confirmed {
                break End::Complete;
            }
            if let Some(end) = self.run.over(now) {
                break end;
            }
            self.wait();
        };
        self.run.outcome.skipped = self.pacer.skipped().into();
        let leaves = self.confirmed || matches!(end, End::Stopped(_));
        if leaves {
            self.header.action = Action::Stop;
            let one = Train {
                payload: 0,
                count: 1,
                addon: 0,
            };
            self.run.exchange.channel.send_load(one, &self.header)?;
        }
        Ok(end)
    }

    fn send_due(&mut self, now: Nanos) -> io::Result<()> {
        while let Some(mut train) = self.pacer.due(now) {
            if self.run.stopping {
                train.count = train.count.min(1);
            }
            // Rounded as the reference does, so that the far end's difference of two is not biased.
            let response_ms = ((now - self.feedback_at).0 + 500_000) / 1_000_000;
            self.header.action = self.run.action();
            self.header.response_delay_ms = u16::try_from(response_ms).unwrap_or(u16::MAX);
            self.header.feedback_stopped = now > self.feedback_at + FEEDBACK_SILENCE;
            self.run.exchange.channel.send_load(train, &self.header)?;
        }
        Ok(())
    }

    fn take_feedback(&mut self) -> io::Result<()> {
        for _ in 0..AT_ONCE {
            let version = self.run.exchange.version;
            let Some(arrived) = self.run.exchange.channel.receive()? else {
                return Ok(());
            };
            let at = arrived.at.mono;
            let mut asked_again = false;
            let read = |datagram: &[u8]| {
                asked_again |= Activation::decode(datagram, version).is_ok();
                Status::decode(datagram, version).ok()
            };
            let statuses: Vec<_> = arrived.datagrams().map(read).collect();
            if asked_again {
                self.run.answer_again()?;
            }
            for status in statuses {
                match status {
                    Some(status) => self.follow(at, &status),
                    None => self.run.outcome.unreadable += 1,
                }
            }
        }
        Ok(())
    }

    fn follow(&mut self, at: Nanos, status: &Status) {
        self.run.hear(at);
        if status.action == Action::Stop {
            self.confirmed = true;
            self.run.stopping = true;
        }
        let expected = self.feedback_sequence.wrapping_add(1);
        self.header.feedback_missed = match status.sequence.checked_sub(expected) {
            Some(missed) => u16::try_from(missed).unwrap_or(u16::MAX - 1),
            None => u16::MAX,
        };
        if status.sequence > self.feedback_sequence {
            self.run.outcome.feedback_missed += u64::from(self.header.feedback_missed);
            self.feedback_sequence = status.sequence;
        }
        self.header.feedback_stamp = status.sent;
        self.feedback_at = at;
        let server = self.run.is_server();
        let decider = &mut self.run.exchange.decider;
        let (row, rate) = if server {
            decider.decide(status);
            (Some(decider.row()), decider.rate())
        } else {
            (decider.row_of(&status.rate), status.rate)
        };
        // A client's last feedback carries a rate too, but the test is over.
        if status.action == Action::Testing {
            self.pacer.set(&rate, at);
        }
        self.run.keep(at, *status, row, &rate, None);
    }

    fn wait(&mut self) {
        let now = now().mono;
        let latest = now + STOP_INTERVAL.into();
        let until = self.pacer.next_at().map_or(latest, |at| at.min(latest));
        if until > now + GUARD {
            let until = Nanos(until.0 - GUARD.0);
            let socket = self.run.exchange.channel.as_fd();
            self.waiter.sleep(&[socket], now, Some(until));
        }
    }
}
