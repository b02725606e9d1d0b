//! The history of a link, sent while it is created.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::Frame;

use crate::live::LiveLink;

/// A part of the response ends after the change that reaches this number of bytes.
const PART: usize = 16 << 10;

/// Streams the kept changes of a link, up to the one in force now, as a JSON object with the list
/// `changes`. Each part is created when its reader takes it, so even a slow reader needs memory
/// only for one part.
pub(super) fn stream(link: Arc<LiveLink>) -> Body {
    Body::new(History {
        until: link.revision(),
        link,
        last: 0,
        next: Some("{\"changes\":["),
    })
}

struct History {
    link: Arc<LiveLink>,
    /// The last revision to send.
    until: u64,
    /// The last revision that was sent.
    last: u64,
    /// The text before the next change; `None` once everything is sent.
    next: Option<&'static str>,
}

impl History {
    /// Returns the next part, or `None` after the last one.
    fn part(&mut self) -> Option<String> {
        let mut text = String::new();
        while text.len() < PART {
            text += self.next?;
            let change = self.link.change_after(self.last);
            let Some(change) = change.filter(|change| change.revision <= self.until) else {
                text.truncate(text.trim_end_matches(',').len());
                self.next = None;
                text += "]}";
                break;
            };
            self.last = change.revision;
            self.next = Some(",");
            // A change can always be serialized.
            text += &serde_json::to_string(&change).unwrap_or_default();
        }
        Some(text)
    }
}

impl HttpBody for History {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.part().map(|text| Ok(Frame::data(text.into()))))
    }
}
