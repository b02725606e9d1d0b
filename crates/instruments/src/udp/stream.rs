//! One UDP stream of one end: what it is made of, and how far it has come.

use std::sync::Arc;
use std::time::Instant;

use netio::udp::{TrainReceiver, TrainSender};

use super::account::Tally;
use super::detail::{Detail, ReceiverDetail, SenderDetail};
use super::{receiver, sender};
use crate::iperf3::results::StreamResults;

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
    },
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
            Half::Receives { account, .. } => {
                let account = account.lock();
                let (tally, omitted) = (account.tally(), account.omitted());
                let detail = ReceiverDetail::of(tally);
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
