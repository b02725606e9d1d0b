//! Compression of answers with gzip (RFC 1952), for clients that accept it.
//!
//! Only an answer that is complete is compressed. Events, captures, histories and answers that last as long as a lease are sent in parts, which
//! must leave when they are created. An answer with an ETag stays as it is, because the tag identifies a revision, and RFC 9110 (section 8.8.3)
//! would require another tag for the compressed form.

use std::io::Write as _;

use axum::body::{Body, HttpBody as _, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::problem::Problem;

/// The smallest size in bytes that is compressed. A smaller answer fits into one packet anyway.
const SMALLEST: u64 = 1 << 10;

/// Compresses the answer to a request if the client accepts that. No answer is cached, so none needs the header `Vary`.
pub(super) async fn compress(request: Request, next: Next) -> Response {
    let is_accepted = accepts_gzip(request.headers());
    let response = next.run(request).await;
    let size = response.body().size_hint().exact();
    let is_large = size.is_some_and(|size| size >= SMALLEST);
    if !is_accepted || !is_large || response.headers().contains_key(header::ETAG) {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let Some(compressed) = gzip(body).await else {
        return Problem::panicked().into_response();
    };
    let gzip = HeaderValue::from_static("gzip");
    head.headers.insert(header::CONTENT_ENCODING, gzip);
    Response::from_parts(head, compressed.into())
}

/// Returns true if a client accepts gzip (RFC 9110, section 12.5.3).
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter();
    let codings = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    codings
        .map(|coding| coding.split_once(';').unwrap_or((coding, "")))
        .any(|(name, weight)| {
            let weight = weight.trim().strip_prefix("q=");
            let is_refused = weight.and_then(|weight| weight.parse::<f64>().ok()) == Some(0.0);
            name.trim().eq_ignore_ascii_case("gzip") && !is_refused
        })
}

/// Compresses a body outside the serving thread. Returns `None` after a panic.
async fn gzip(body: Body) -> Option<Vec<u8>> {
    let bytes = to_bytes(body, usize::MAX).await.ok()?;
    let compressed = tokio::task::spawn_blocking(move || {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&bytes)?;
        encoder.finish()
    });
    compressed.await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::io::Read as _;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use axum::body::{Bytes, HttpBody};
    use axum::routing::get;
    use axum::{Router, middleware};
    use flate2::read::GzDecoder;
    use hyper::body::Frame;
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;

    use super::*;

    /// A body of one part that does not state its size, as a stream of events.
    struct Stream(Option<Bytes>);

    impl HttpBody for Stream {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.take().map(|part| Ok(Frame::data(part))))
        }
    }

    fn text() -> String {
        "farwire_packets_total 12345\n".repeat(1_000)
    }

    /// Returns the answer of a path to a request with this header Accept-Encoding: its coding and its body.
    fn answer(path: &str, accepted: Option<&str>) -> (Option<String>, Vec<u8>) {
        let router: Router = Router::new()
            .route("/text", get(|| async { text() }))
            .route("/short", get(|| async { "short" }))
            .route(
                "/revision",
                get(|| async { ([(header::ETAG, "\"3\"")], text()) }),
            )
            .route(
                "/events",
                get(|| async { Body::new(Stream(Some(text().into()))) }),
            )
            .layer(middleware::from_fn(compress));
        let mut request = Request::builder().uri(path);
        if let Some(accepted) = accepted {
            request = request.header(header::ACCEPT_ENCODING, accepted);
        }
        let request = request.body(Body::empty()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let Ok(response) = TowerToHyperService::new(router).call(request).await;
            let coding = response.headers().get(header::CONTENT_ENCODING);
            let coding = coding.map(|coding| coding.to_str().unwrap().to_owned());
            let length = response.headers().get(header::CONTENT_LENGTH).cloned();
            let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
            if let Some(length) = length {
                assert_eq!(length.to_str().unwrap(), body.len().to_string(), "{path}");
            }
            (coding, body.to_vec())
        })
    }

    #[test]
    fn a_long_answer_is_compressed_for_clients_that_accept_it() {
        for accepted in ["gzip", "br, gzip;q=0.5", "deflate,GZIP"] {
            let (coding, body) = answer("/text", Some(accepted));
            assert_eq!(coding.as_deref(), Some("gzip"), "{accepted}");
            assert!(body.len() < text().len() / 10, "{}", body.len());
            let mut read = String::new();
            GzDecoder::new(&body[..]).read_to_string(&mut read).unwrap();
            assert_eq!(read, text());
        }
        for accepted in [None, Some("identity"), Some("br"), Some("gzip;q=0")] {
            let (coding, body) = answer("/text", accepted);
            assert_eq!(coding, None, "{accepted:?}");
            assert_eq!(body, text().into_bytes());
        }
    }

    #[test]
    fn short_answers_streams_and_answers_with_a_revision_stay_as_they_are() {
        for (path, expected) in [
            ("/short", "short".to_owned()),
            ("/events", text()),
            ("/revision", text()),
        ] {
            let (coding, body) = answer(path, Some("gzip"));
            assert_eq!(coding, None, "{path}");
            assert_eq!(body, expected.into_bytes(), "{path}");
        }
    }
}
