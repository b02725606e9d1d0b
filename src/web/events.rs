//! Bodies without a fixed end: the events of a link, and the response that lasts as long as a lease.

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

/// Parts of a body that may wait for their reader.
const WAITING: usize = 4;

/// A body whose parts come by and by.
struct Parts(mpsc::Receiver<Bytes>);

impl HttpBody for Parts {
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

/// The events of a link after number `last`, as server-sent events (HTML Standard, section 9.2). A reader that lags is cut off, and
/// may come back with the number of the last one that it has.
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
    Body::new(Parts(body))
}

/// Sends an event; whether its reader is still there.
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

/// A lease of a connection, which ends when this is dropped: with the request while it is answered, then with the answer's body.
pub(super) struct ConnectionLease {
    link: Arc<LiveLink>,
    grant: LeaseGrant,
}

impl ConnectionLease {
    /// What `link` has just granted for the connection that asks.
    pub(super) fn of(link: Arc<LiveLink>, grant: LeaseGrant) -> Self {
        Self { link, grant }
    }

    /// `answer`, whose body goes on until its reader has gone: then the lease ends, or when the link does.
    pub(super) fn hold(self, answer: Bytes, client: ClientConnection) -> Body {
        let (parts, body) = mpsc::channel(WAITING);
        tokio::spawn(async move {
            let lease = self;
            // One that has gone already is told by the next.
            let _ = parts.send(answer).await;
            tokio::select! {
                () = parts.closed() => {}
                () = lease.link.ended() => {}
                () = client.gone() => {}
            }
        });
        Body::new(Parts(body))
    }
}

impl Drop for ConnectionLease {
    fn drop(&mut self) {
        self.link.end_connection(&self.grant);
    }
}
