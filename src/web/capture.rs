//! Captures of a running link, as a stream of pcapng.
//!
//! Between the capture's thread and the connection is a short queue. A client that does not read it in time is disconnected. The
//! packet path never waits.

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
use crate::forward::capture::{Capture, CaptureHandle, CaptureSpec, Filter};
use crate::live::LiveLink;

/// Captures at a time: each may have more than 300 MiB of packets in memory.
pub(super) const MOST_AT_A_TIME: u32 = 4;

/// Parts that may wait for their reader: each has at most 256 KiB.
const WAITING: usize = 4;

/// How long a part may wait.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long the capture's thread, which may sleep, does so until it looks again.
const PAUSE: Duration = Duration::from_millis(2);

const USUAL_TIME: Nanos = Nanos::from_millis(60_000);
const LONGEST: Nanos = Nanos::from_millis(3_600_000);
const USUAL_BYTES: u64 = 64 << 20;
const MOST_BYTES: u64 = 1 << 30;

/// The query of a capture.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct CaptureQuery {
    /// At which end: `a` is the client's side, `b` the server's; `both` when absent.
    side: Option<String>,
    /// Which packets, in a few of tcpdump's words: `tcp port 80 and host 10.77.0.2`.
    filter: Option<String>,
    /// It ends after so long: `10s`, at most 3600s; 60s when absent.
    #[serde(rename = "for")]
    #[param(rename = "for")]
    time: Option<String>,
    /// It ends when so many bytes are written, at most 1 GiB; 64 MiB when absent.
    #[param(minimum = 1, maximum = 1_073_741_824)]
    max_bytes: Option<u64>,
    /// So many bytes of each packet; all of them when absent.
    #[param(minimum = 1)]
    snaplen: Option<u32>,
}

impl CaptureQuery {
    /// What is to be kept.
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
            .map_err(|error| Problem::bad_query("filter", format!("filter: {error}")))?;
        let time = match &self.time {
            None => USUAL_TIME,
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
        let bytes = self.max_bytes.unwrap_or(USUAL_BYTES);
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

/// A capture from now on, as the body of an answer. It ends by its limits, with the link, or when its reader has gone.
pub(super) fn stream(
    app: &AppState,
    link: Arc<LiveLink>,
    query: &CaptureQuery,
) -> Result<Body, Problem> {
    let spec = query.spec()?;
    let place = Arc::clone(&app.captures).try_acquire_owned();
    let place = place.map_err(|_| {
        Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            format!(
                "{MOST_AT_A_TIME} captures are already running: wait for one to end, or end it"
            ),
        )
    })?;
    let (parts, coming) = mpsc::channel(WAITING);
    let is_cut = Arc::new(AtomicBool::new(false));
    let sink = Outlet {
        parts,
        is_cut: Arc::clone(&is_cut),
    };
    let capture = Capture {
        spec,
        sink: Box::new(sink),
    };
    let running = link.capture(capture).map_err(Problem::not_found)?;
    let ended = Box::pin(async move { link.ended().await });
    Ok(Body::new(Captured {
        coming,
        running: Some(running),
        ended,
        is_cut,
        _place: place,
    }))
}

/// Where the capture's thread writes.
struct Outlet {
    parts: mpsc::Sender<Bytes>,
    /// The reader was too slow: nothing more is sent.
    is_cut: Arc<AtomicBool>,
}

impl Write for Outlet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        use mpsc::error::TrySendError;
        if self.is_cut.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let until = Instant::now() + PATIENCE;
        let mut part = Bytes::copy_from_slice(bytes);
        loop {
            part = match self.parts.try_send(part) {
                Ok(()) => return Ok(bytes.len()),
                Err(TrySendError::Closed(_)) => return Err(io::ErrorKind::BrokenPipe.into()),
                Err(TrySendError::Full(part)) => part,
            };
            if Instant::now() >= until {
                self.is_cut.store(true, Ordering::Relaxed);
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The body: what the capture's thread wrote. With it the capture ends.
struct Captured<F> {
    coming: mpsc::Receiver<Bytes>,
    running: Option<CaptureHandle>,
    /// The link has ended.
    ended: Pin<Box<F>>,
    is_cut: Arc<AtomicBool>,
    _place: OwnedSemaphorePermit,
}

impl<F: Future<Output = ()>> HttpBody for Captured<F> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.running.is_some() && self.ended.as_mut().poll(context).is_ready() {
            // Its thread writes what it has, and then nothing more.
            self.running = None;
        }
        let next = self.coming.poll_recv(context);
        next.map(|part| match part {
            Some(part) => Some(Ok(Frame::data(part))),
            // So that nobody takes a part for the whole.
            None if self.is_cut.load(Ordering::Relaxed) => {
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
    fn a_capture_has_limits_also_where_none_are_said() {
        let usual = spec(CaptureQuery::default()).unwrap();
        assert_eq!(usual.most_time, Some(USUAL_TIME));
        assert_eq!(usual.most_bytes, Some(USUAL_BYTES));
        let own = spec(CaptureQuery {
            side: Some("b".to_owned()),
            time: Some("3600s".to_owned()),
            snaplen: Some(96),
            ..CaptureQuery::default()
        });
        let own = own.unwrap();
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
    fn a_reader_that_takes_nothing_is_cut_off_and_one_that_has_gone_ends_it() {
        let (parts, coming) = mpsc::channel(1);
        let is_cut = Arc::new(AtomicBool::new(false));
        let mut outlet = Outlet {
            parts,
            is_cut: Arc::clone(&is_cut),
        };
        outlet.write_all(b"first").unwrap();
        assert_eq!(
            outlet.write(b"second").unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        assert!(is_cut.load(Ordering::Relaxed));
        // At once, from then on.
        assert_eq!(
            outlet.write(b"third").unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        is_cut.store(false, Ordering::Relaxed);
        drop(coming);
        assert_eq!(
            outlet.write(b"fourth").unwrap_err().kind(),
            io::ErrorKind::BrokenPipe
        );
    }
}
