//! The end that takes load: counts it, and feeds back each trial interval.

use std::io;
use std::os::fd::AsFd;

use model::Nanos;
use netio::{CpuUse, Waiter};

use super::channel::now;
use super::exchange::{AT_ONCE, End, Run};
use super::receiver::Receiver;
use super::wire::{Action, Activation, LoadHeader};
use netio::stop::STOP_INTERVAL;

/// The end that takes load.
pub(super) struct Taking<'r, 'a> {
    run: &'r mut Run<'a>,
    receiver: Receiver,
    waiter: Waiter,
    tick: Nanos,
    peer_stopped: bool,
}

impl<'r, 'a> Taking<'r, 'a> {
    /// Waits for load from now on.
    pub(super) fn new(run: &'r mut Run<'a>) -> Self {
        let waiter = Waiter::measure(CpuUse::Gentle);
        let parameters = run.exchange.parameters;
        let now = now().mono;
        Self {
            receiver: Receiver::new(now, parameters.feedback_ms, parameters.sub_interval_ms),
            run,
            waiter,
            tick: now,
            peer_stopped: false,
        }
    }

    /// Takes load until the end.
    ///
    /// # Errors
    /// The socket's.
    pub(super) fn run(&mut self) -> Result<End, io::Error> {
        let each = Nanos(u64::from(self.run.exchange.parameters.feedback_ms) * 1_000_000);
        self.tick += each;
        let end = loop {
            self.take()?;
            let now = now().mono;
            let server = self.run.is_server();
            if self.peer_stopped {
                self.run.stopping = true;
                break End::Complete;
            }
            if let Some(end) = self.run.over(now) {
                break end;
            }
            if now >= self.tick {
                self.feed_back(server)?;
                // Ticks that were missed are not made up for.
                let missed = (now - self.tick).0 / each.0.max(1);
                self.tick = Nanos(self.tick.0 + each.0 * (missed + 1));
            }
            let latest = now + STOP_INTERVAL.into();
            let socket = self.run.exchange.channel.as_fd();
            self.waiter
                .sleep(&[socket], now, Some(self.tick.min(latest)));
        };
        let totals = self.receiver.totals();
        self.run.outcome.totals = Some(totals);
        self.run.outcome.feedback_missed = totals.feedback_missed;
        if !self.run.is_server() || matches!(end, End::Stopped(_)) {
            self.run.stopping = true;
            self.feed_back(false)?;
        }
        Ok(end)
    }

    fn take(&mut self) -> io::Result<()> {
        for _ in 0..AT_ONCE {
            let Some(arrived) = self.run.exchange.channel.receive()? else {
                return Ok(());
            };
            let (mut heard, mut asked_again) = (false, false);
            for datagram in arrived.datagrams() {
                match LoadHeader::decode(datagram) {
                    Ok(header) => {
                        heard = true;
                        self.peer_stopped |= header.action == Action::Stop;
                        // The end's own PDUs are not part of the load.
                        if header.action == Action::Testing {
                            self.receiver.load(arrived.at, &header, datagram.len());
                        }
                    }
                    Err(_) => {
                        let version = self.run.exchange.version;
                        asked_again |= Activation::decode(datagram, version).is_ok();
                        self.run.outcome.unreadable += 1;
                    }
                }
            }
            let at = arrived.at.mono;
            if heard {
                self.run.hear(at);
            }
            if asked_again {
                self.run.answer_again()?;
            }
        }
        Ok(())
    }

    fn feed_back(&mut self, server: bool) -> io::Result<()> {
        let now = now();
        let action = self.run.action();
        let trial = self.receiver.peek(now);
        let Some(mut status) = self.receiver.feedback(now, action) else {
            return Ok(());
        };
        let decider = &mut self.run.exchange.decider;
        if action == Action::Testing {
            decider.decide(&trial);
        }
        let (row, rate) = (decider.row(), decider.rate());
        if server {
            status.rate = rate;
        }
        let bytes = status.encode(self.run.exchange.version);
        self.run.exchange.channel.send(&bytes)?;
        let (number, sub_interval, ended) = self.receiver.last_sub_interval();
        (status.sub_interval_number, status.sub_interval) = (number, sub_interval);
        self.run.keep(now.mono, status, Some(row), &rate, ended);
        Ok(())
    }
}
