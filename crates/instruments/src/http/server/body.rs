//! Bodies that cost no allocation a chunk: slices of one block of incompressible bytes.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

const BLOCK: usize = 256 * 1024;
/// The bytes are the same in every run, so that two runs carry the same load.
const SEED: u64 = 1;

/// The block of which every body is made.
#[derive(Clone, Debug)]
pub(crate) struct Filler(Bytes);

/// A response's body.
#[derive(Debug)]
pub(crate) struct Payload {
    block: Bytes,
    end: End,
    /// What the connection has sent is counted there.
    sent: Arc<AtomicU64>,
}

#[derive(Debug)]
enum End {
    After(u64),
    At(Instant),
}

impl Filler {
    pub(crate) fn new() -> Self {
        let mut block = vec![0; BLOCK];
        fastrand::Rng::with_seed(SEED).fill(&mut block);
        Self(block.into())
    }
}

impl Payload {
    /// `count` bytes.
    pub(crate) fn bytes(filler: &Filler, count: u64, sent: &Arc<AtomicU64>) -> Self {
        Self {
            block: filler.0.clone(),
            end: End::After(count),
            sent: Arc::clone(sent),
        }
    }

    /// As many bytes as are taken in `time` from now.
    pub(crate) fn seconds(filler: &Filler, time: Duration, sent: &Arc<AtomicU64>) -> Self {
        Self {
            block: filler.0.clone(),
            end: End::At(Instant::now() + time),
            sent: Arc::clone(sent),
        }
    }

    /// This text.
    pub(crate) fn text(text: String) -> Self {
        Self {
            end: End::After(text.len() as u64),
            block: text.into(),
            sent: Arc::default(),
        }
    }

    /// Its length, where it is known.
    pub(crate) fn length(&self) -> Option<u64> {
        match self.end {
            End::After(left) => Some(left),
            End::At(_) => None,
        }
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let block = self.block.len();
        let length = match &mut self.end {
            End::After(left) => {
                let length = usize::try_from(*left).map_or(block, |left| left.min(block));
                *left -= length as u64;
                length
            }
            End::At(deadline) if Instant::now() < *deadline => block,
            End::At(_) => 0,
        };
        self.sent.fetch_add(length as u64, Ordering::Relaxed);
        let frame = (length > 0).then(|| Ok(Frame::data(self.block.slice(..length))));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.end, End::After(0))
    }

    fn size_hint(&self) -> SizeHint {
        self.length()
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
