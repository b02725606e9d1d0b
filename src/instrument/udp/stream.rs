//! One UDP stream of one end: what it is made of, and how far it has come.

use std::sync::Arc;
use std::time::Instant;

use netio::udp::{TrainReceiver, TrainSender};

use super::account::Tally;
use super::detail::{Detail, ReceiverDetail, SenderDetail};
use super::{receiver, sender};
use crate::analysis::correlated::mean_with_interval;
use crate::instrument::iperf3::results::StreamResults;

/// Tenths of a second from which the goodput's interval is made: an hour.
const MOST_RATES: usize = 36_000;

/// One stream.
#[derive(Debug)]
pub(super) struct Stream {
    /// By which both ends know it.
    pub(super) id: u32,
    pub(super) half: Half,
}

/// This end's half of it.
#[derive(Debug)]
pub(super) enum Half {
    Sends {
        sent: Arc<sender::Shared>,
        /// Until the thread takes it.
        socket: Option<TrainSender>,
    },
    Receives {
        account: Arc<receiver::Shared>,
        socket: Arc<TrainReceiver>,
        goodput: Goodput,
    },
}

/// The goodput of a stream by tenths of a second.
#[derive(Debug)]
pub(super) struct Goodput {
    /// When it was looked at last, and how many payload bytes had come by then.
    last: (Instant, u64),
    /// Bits a second.
    rates: Vec<f64>,
}

/// How far all streams were at the end of an interval.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// Seconds after the start of the test, with what is omitted.
    pub(crate) at: Instant,
    /// What ends here.
    pub(crate) ending: Ending,
    /// One a stream.
    pub(crate) streams: Vec<StreamReading>,
}

/// What ends at a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// An interval that counts.
    Counted,
    /// An interval of the omitted start.
    Omitted,
    /// No interval: what follows is counted anew from here.
    Nothing,
}

/// How far one stream was.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StreamReading {
    /// What this end sent.
    Sent(SentReading),
    /// The account of what came.
    Came(Tally),
}

/// How much was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SentReading {
    pub(crate) datagrams: u64,
    /// Payload bytes.
    pub(crate) bytes: u64,
}

impl Stream {
    pub(super) fn reading(&self) -> StreamReading {
        match &self.half {
            Half::Sends { sent, .. } => {
                let sent = sent.lock();
                StreamReading::Sent(SentReading {
                    datagrams: sent.number - sent.omitted,
                    bytes: sent.bytes,
                })
            }
            Half::Receives { account, .. } => StreamReading::Came(*account.lock().tally()),
        }
    }

    /// In iperf3's terms, where errors and packets have what is omitted in them.
    pub(super) fn results(&self, seconds: f64) -> StreamResults {
        let results = StreamResults {
            id: self.id,
            seconds: Some(seconds),
            ..StreamResults::default()
        };
        match &self.half {
            Half::Sends { sent, .. } => {
                let sent = sent.lock();
                StreamResults {
                    bytes: sent.bytes,
                    errors: Some(0),
                    packets: sent.number,
                    omitted: Some([0, sent.omitted]),
                    detail: Some(Detail::Sender(SenderDetail::of(&sent))),
                    ..results
                }
            }
            Half::Receives {
                account, goodput, ..
            } => {
                let account = account.lock();
                let (tally, omitted) = (account.tally(), account.omitted());
                let detail = ReceiverDetail::of(tally, goodput.half());
                StreamResults {
                    bytes: tally.bytes,
                    jitter_s: tally.jitter_ns / 1e9,
                    errors: Some(omitted.missing + tally.missing()),
                    packets: tally.highest,
                    omitted: Some([omitted.missing, omitted.datagrams]),
                    detail: Some(Detail::Receiver(detail)),
                    ..results
                }
            }
        }
    }
}

impl Goodput {
    pub(super) fn since(now: Instant, bytes: u64) -> Self {
        Self {
            last: (now, bytes),
            rates: Vec::new(),
        }
    }

    pub(super) fn look(&mut self, now: Instant, bytes: u64) {
        let (then, before) = std::mem::replace(&mut self.last, (now, bytes));
        let seconds = now.saturating_duration_since(then).as_secs_f64();
        // What precedes the first arrival is the way, not the rate.
        if seconds > 0.0 && before > 0 && self.rates.len() < MOST_RATES {
            self.rates.push((bytes - before) as f64 * 8.0 / seconds);
        }
    }

    /// Half of the 95 % interval of the mean, in bits a second, if there is enough to tell.
    fn half(&self) -> Option<u64> {
        let (_, low, high) = mean_with_interval(&self.rates)?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and a float that is too large becomes the largest integer"
        )]
        let half = ((high - low) / 2.0).ceil() as u64;
        Some(half)
    }
}
