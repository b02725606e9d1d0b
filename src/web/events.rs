//! Bodies without a fixed end: the events of a link, and the response that lasts as long as a
//! lease.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::Frame;
use serde::Serialize;
use tokio::sync::mpsc;

use super::client::ClientConnection;
use crate::live::{Event, EventKind, LeaseGrant, LiveLink};

/// The number of parts of a body that may wait for the reader.
const WAITING: usize = 4;

/// A body whose parts arrive over time.
struct StreamBody(mpsc::Receiver<Bytes>);

impl HttpBody for StreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.0.poll_recv(context);
        next.map(|part| part.map(|part| Ok(Frame::data(part))))
    }
}

/// Streams the events of a link after number `last` as server-sent events (HTML Standard, section
/// 9.2). A reader that lags is disconnected and may reconnect with the number of its last event.
pub(super) fn follow(link: &LiveLink, last: Option<u64>) -> Body {
    let (missed, mut coming) = link.follow(last);
    let (parts, body) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        for event in missed {
            if !send(&parts, &event).await {
                return;
            }
        }
        loop {
            let event = tokio::select! {
                event = coming.recv() => event,
                () = parts.closed() => return,
            };
            let Ok(event) = event else {
                return;
            };
            if !send(&parts, &event).await || matches!(event.what, EventKind::End) {
                return;
            }
        }
    });
    Body::new(StreamBody(body))
}

/// Sends an event. Returns true if the reader is still connected.
async fn send(parts: &mpsc::Sender<Bytes>, event: &Arc<Event>) -> bool {
    let (name, data) = match &event.what {
        EventKind::Sample(sample) => ("sample", json(sample)),
        EventKind::Change(change) => ("change", json(change)),
        EventKind::End => ("end", "{}".to_owned()),
    };
    let text = format!("id: {}\nevent: {name}\ndata: {data}\n\n", event.id);
    parts.send(text.into()).await.is_ok()
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// The lease of a connection, which ends when this is dropped: with the request while it is
/// processed, then with the body of the response.
pub(super) struct ConnectionLease {
    link: Arc<LiveLink>,
    grant: LeaseGrant,
}

impl ConnectionLease {
    /// Holds the lease that `link` has just granted to the connection.
    pub(super) fn of(link: Arc<LiveLink>, grant: LeaseGrant) -> Self {
        Self { link, grant }
    }

    /// Returns a body with `answer` that stays open until the client disconnects or the link ends.
    /// The lease ends then.
    pub(super) fn hold(self, answer: Bytes, client: ClientConnection) -> Body {
        let (parts, body) = mpsc::channel(WAITING);
        tokio::spawn(async move {
            let lease = self;
            // If the client has already disconnected, the next line notices it.
            let _ = parts.send(answer).await;
            tokio::select! {
                () = parts.closed() => {}
                () = lease.link.ended() => {}
                () = client.disconnected() => {}
            }
        });
        Body::new(StreamBody(body))
    }
}

impl Drop for ConnectionLease {
    fn drop(&mut self) {
        self.link.end_connection(&self.grant);
    }
}
