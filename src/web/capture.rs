//! Captures of a running link as a pcapng stream.
//!
//! A short queue connects the capture's thread with the connection. A client that does not read it
//! in time is disconnected. The packet path never waits.

use std::io::{self, Write};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::StatusCode;
use hyper::body::Frame;
use model::{Nanos, Side};
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use utoipa::IntoParams;

use super::AppState;
use super::problem::Problem;
use crate::forward::capture::{Capture, CaptureHandle, CaptureSpec};
use crate::live::LiveLink;
use conditions::filter::Filter;

/// The largest number of simultaneous captures. Each may hold more than 300 MiB of packets in
/// memory.
pub(super) const MOST_AT_A_TIME: u32 = 4;

/// The number of parts, of at most 256 KiB each, that may wait for the reader.
const WAITING: usize = 4;

/// The time that a part may wait.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// The time that the capture's thread sleeps between two attempts.
const PAUSE: Duration = Duration::from_millis(2);

const DEFAULT_TIME: Nanos = Nanos::from_millis(60_000);
const LONGEST: Nanos = Nanos::from_millis(3_600_000);
const DEFAULT_BYTES: u64 = 64 << 20;
const MOST_BYTES: u64 = 1 << 30;

/// The query of a capture.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct CaptureQuery {
    /// The end of the link: `a` for the client's side, `b` for the server's, or `both`, which is the default.
    side: Option<String>,
    /// The packets to capture, in a part of tcpdump's filter language: `tcp port 80 and host 10.77.0.2`.
    filter: Option<String>,
    /// The duration of the capture, such as `10s`, at most 3600s; 60s by default.
    #[serde(rename = "for")]
    #[param(rename = "for")]
    time: Option<String>,
    /// The size at which the capture ends, at most 1 GiB; 64 MiB by default.
    #[param(minimum = 1, maximum = 1_073_741_824)]
    max_bytes: Option<u64>,
    /// The number of bytes kept of each packet; all by default.
    #[param(minimum = 1)]
    snaplen: Option<u32>,
}

impl CaptureQuery {
    /// Converts the query to the packets to capture and the limits.
    fn spec(&self) -> Result<CaptureSpec, Problem> {
        let wrong = |key: &str, value: &dyn std::fmt::Display, right: &str| {
            Problem::bad_query(key, format!("{key}={value}: {right}"))
        };
        let side = match self.side.as_deref() {
            None | Some("both") => None,
            Some("a") => Some(Side::A),
            Some("b") => Some(Side::B),
            Some(other) => return Err(wrong("side", &other, "write a, b or both")),
        };
        let filter = self.filter.as_deref().unwrap_or_default();
        let filter = Filter::from_str(filter)
            .and_then(Filter::without_names)
            .map_err(|error| Problem::bad_query("filter", format!("filter: {error}")))?;
        let time = match &self.time {
            None => DEFAULT_TIME,
            Some(text) => text
                .parse()
                .ok()
                .filter(|time| *time > Nanos::ZERO && *time <= LONGEST)
                .ok_or_else(|| {
                    wrong(
                        "for",
                        text,
                        "write a time above 0 and at most 3600s, such as 10s",
                    )
                })?,
        };
        let bytes = self.max_bytes.unwrap_or(DEFAULT_BYTES);
        if !(1..=MOST_BYTES).contains(&bytes) {
            return Err(wrong(
                "max_bytes",
                &bytes,
                "write a number from 1 to 1073741824",
            ));
        }
        if self.snaplen == Some(0) {
            return Err(wrong(
                "snaplen",
                &0,
                "write a number from 1 on, or leave it out for whole packets",
            ));
        }
        Ok(CaptureSpec {
            side,
            filter,
            snaplen: self.snaplen.unwrap_or(0),
            most_bytes: Some(bytes),
            most_time: Some(time),
            ..CaptureSpec::default()
        })
    }
}

/// Starts a capture as the body of a response. It ends by its limits, with the link, or when the
/// client disconnects.
pub(super) fn stream(
    app: &AppState,
    link: Arc<LiveLink>,
    query: &CaptureQuery,
) -> Result<Body, Problem> {
    let spec = query.spec()?;
    let place = Arc::clone(&app.captures).try_acquire_owned().map_err(|_| {
        Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            format!(
                "{MOST_AT_A_TIME} captures are already running: wait for one to end, or end it"
            ),
        )
    })?;
    let (parts, coming) = mpsc::channel(WAITING);
    let is_too_slow = Arc::new(AtomicBool::new(false));
    let sink = CaptureSink {
        parts,
        is_too_slow: Arc::clone(&is_too_slow),
    };
    let capture = Capture {
        spec,
        sink: Box::new(sink),
    };
    let running = link.capture(capture).map_err(Problem::not_found)?;
    let ended = Box::pin(async move { link.ended().await });
    Ok(Body::new(CaptureBody {
        coming,
        running: Some(running),
        ended,
        is_too_slow,
        _place: place,
    }))
}

/// The destination of the capture's thread.
struct CaptureSink {
    parts: mpsc::Sender<Bytes>,
    /// True once the reader was too slow, so that nothing more is sent.
    is_too_slow: Arc<AtomicBool>,
}

impl Write for CaptureSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        use mpsc::error::TrySendError;
        if self.is_too_slow.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let until = Instant::now() + READ_TIMEOUT;
        let mut part = Bytes::copy_from_slice(bytes);
        loop {
            part = match self.parts.try_send(part) {
                Ok(()) => return Ok(bytes.len()),
                Err(TrySendError::Closed(_)) => return Err(io::ErrorKind::BrokenPipe.into()),
                Err(TrySendError::Full(part)) => part,
            };
            if Instant::now() >= until {
                self.is_too_slow.store(true, Ordering::Relaxed);
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The body of the response, with the data from the capture's thread. The capture ends when this is
/// dropped.
struct CaptureBody<F> {
    coming: mpsc::Receiver<Bytes>,
    running: Option<CaptureHandle>,
    /// A future that is ready when the link has ended.
    ended: Pin<Box<F>>,
    is_too_slow: Arc<AtomicBool>,
    _place: OwnedSemaphorePermit,
}

impl<F: Future<Output = ()>> HttpBody for CaptureBody<F> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.running.is_some() && self.ended.as_mut().poll(context).is_ready() {
            // The capture's thread writes the packets that it has and then ends.
            self.running = None;
        }
        let next = self.coming.poll_recv(context);
        next.map(|part| match part {
            Some(part) => Some(Ok(Frame::data(part))),
            // An error shows the client that the stream is incomplete.
            None if self.is_too_slow.load(Ordering::Relaxed) => {
                Some(Err(io::ErrorKind::TimedOut.into()))
            }
            None => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(query: CaptureQuery) -> Result<CaptureSpec, u16> {
        use axum::response::IntoResponse as _;
        let refused = |problem: Problem| problem.into_response().status().as_u16();
        query.spec().map_err(refused)
    }

    #[test]
    fn a_capture_has_default_limits() {
        let usual = spec(CaptureQuery::default()).unwrap();
        assert_eq!(usual.most_time, Some(DEFAULT_TIME));
        assert_eq!(usual.most_bytes, Some(DEFAULT_BYTES));
        let own = spec(CaptureQuery {
            side: Some("b".to_owned()),
            time: Some("3600s".to_owned()),
            snaplen: Some(96),
            ..CaptureQuery::default()
        })
        .unwrap();
        assert_eq!(own.side, Some(Side::B));
        assert_eq!(own.most_time, Some(LONGEST));
        assert_eq!(own.snaplen, 96);
        for (key, value) in [
            ("side", "c"),
            ("filter", "tpc"),
            ("for", "3601s"),
            ("for", "0s"),
            ("for", "10"),
        ] {
            let value = Some(value.to_owned());
            let mut query = CaptureQuery::default();
            match key {
                "side" => query.side = value,
                "filter" => query.filter = value,
                _ => query.time = value,
            }
            assert_eq!(spec(query).unwrap_err(), 400, "{key}");
        }
        for bytes in [0, MOST_BYTES + 1] {
            let query = CaptureQuery {
                max_bytes: Some(bytes),
                ..CaptureQuery::default()
            };
            assert_eq!(spec(query).unwrap_err(), 400, "{bytes}");
        }
    }

    #[test]
    fn a_slow_reader_is_disconnected_and_a_gone_one_ends_the_capture() {
        let (parts, coming) = mpsc::channel(1);
        let is_too_slow = Arc::new(AtomicBool::new(false));
        let mut sink = CaptureSink {
            parts,
            is_too_slow: Arc::clone(&is_too_slow),
        };
        sink.write_all(b"first").unwrap();
        assert_eq!(
            sink.write(b"second").unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        assert!(is_too_slow.load(Ordering::Relaxed));
        // Later writes fail immediately.
        assert_eq!(
            sink.write(b"third").unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        is_too_slow.store(false, Ordering::Relaxed);
        drop(coming);
        assert_eq!(
            sink.write(b"fourth").unwrap_err().kind(),
            io::ErrorKind::BrokenPipe
        );
    }
}
