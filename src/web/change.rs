//! Reads requests that change a link.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;
use utoipa::IntoParams;

use super::access::{Peer, TokenRole};
use super::guard::LARGEST_BODY;
use super::problem::Problem;
use crate::live::{ChangeOrder, LeaseId, Origin, RequestedConditions};

/// The header with the identifier of the client's lease.
const LEASE_HEADER: &str = "farwire-lease";

/// The largest body of a change. Besides [`LARGEST_BODY`], it has room for the contents of traces, whose line ends JSON
/// writes as two bytes.
const LARGEST_CHANGE: usize = 8 * LARGEST_BODY;

/// The keys of a trace that contain a file.
const CONTENTS: [&str; 4] = ["content", "beside", "light_content", "offsets_content"];

/// The time within which a body must arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(15);

/// A complete body. SilentBody is changed before it has arrived.
#[derive(Debug)]
pub(super) struct CompleteBody(Bytes);

impl<S: Send + Sync> FromRequest<S> for CompleteBody {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        Self::read(request, state, BODY_TIMEOUT).await
    }
}

impl CompleteBody {
    async fn read<S: Send + Sync>(
        mut request: Request,
        state: &S,
        longest: Duration,
    ) -> Result<Self, Problem> {
        DefaultBodyLimit::max(LARGEST_CHANGE).apply(&mut request);
        match timeout(longest, Bytes::from_request(request, state)).await {
            Ok(Ok(body)) => Ok(Self(body)),
            Ok(Err(refused)) => Err(Problem::new(refused.status(), refused.body_text())),
            Err(_) => Err(Problem::new(
                StatusCode::REQUEST_TIMEOUT,
                format!("the body did not arrive within {} s", longest.as_secs()),
            )),
        }
    }
}

/// The sender of a request: its address or user, and the role of its token.
pub(super) struct RequestOrigin(pub(super) Origin);

impl<S: Sync> FromRequestParts<S> for RequestOrigin {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let peer = parts.extensions.get().copied().unwrap_or(Peer::Unix(None));
        let role = parts.extensions.get().copied().unwrap_or(TokenRole::None);
        Ok(Self(Origin(format!("{peer}, {role}"))))
    }
}

/// The query of a change.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ChangeQuery {
    /// The duration of a lease, at most 24h (`60s`), or `connection`. The link reverts at the end of the lease.
    #[serde(rename = "for")]
    #[param(rename = "for")]
    lease: Option<String>,
    /// With `1`, returns the result without changing anything.
    #[param(value_type = Option<u8>, minimum = 0, maximum = 1)]
    dry_run: Option<String>,
}

/// The kind of a change's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyKind {
    /// A complete set of conditions.
    All,
    /// A JSON Merge Patch of the conditions in force.
    Patch,
    /// A change of the schedules' time.
    Schedule,
}

impl BodyKind {
    fn content_types(self) -> &'static [&'static str] {
        match self {
            Self::All | Self::Schedule => &["application/json"],
            Self::Patch => &["application/merge-patch+json", "application/json"],
        }
    }
}

/// Reads the change that a request asks for.
pub(super) fn read_order(
    form: BodyKind,
    query: ChangeQuery,
    headers: &HeaderMap,
    body: Result<CompleteBody, Problem>,
    RequestOrigin(origin): RequestOrigin,
) -> Result<ChangeOrder, Problem> {
    check_content_type(form, headers)?;
    let CompleteBody(body) = body?;
    let value = parse(form, &body)?;
    check_size(&body, &value)?;
    let is_dry_run = match query.dry_run.as_deref() {
        None | Some("0") => false,
        Some("1") => true,
        Some(other) => {
            let why = format!("dry_run={other}: write 0 or 1");
            return Err(Problem::bad_query("dry_run", why));
        }
    };
    let lease_for = query.lease.map(|text| text.parse());
    Ok(ChangeOrder {
        conditions: match form {
            BodyKind::All => RequestedConditions::All(value),
            BodyKind::Patch => RequestedConditions::Patch(value),
            BodyKind::Schedule => RequestedConditions::Schedule(value),
        },
        if_revision: if_revision(headers)?,
        lease_for: lease_for
            .transpose()
            .map_err(|cause: String| Problem::unprocessable("for", cause))?,
        lease: lease(headers)?,
        is_dry_run,
        origin,
    })
}

/// Returns the lease that the client claims to hold.
pub(super) fn lease(headers: &HeaderMap) -> Result<Option<LeaseId>, Problem> {
    let id = headers
        .get(LEASE_HEADER)
        .map(|id| id.to_str())
        .transpose()
        .map_err(|_| Problem::bad_request("the header Farwire-Lease is not text"))?;
    Ok(id.map(|id| LeaseId(id.to_owned())))
}

fn parse(form: BodyKind, body: &[u8]) -> Result<Value, Problem> {
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| Problem::bad_request(format!("the body is not JSON: {error}")))?;
    match value {
        Value::Object(_) => Ok(value),
        _ => Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            match form {
                BodyKind::All | BodyKind::Patch => {
                    "conditions must be an object, such as {\"delay\": \"20ms\"}"
                }
                BodyKind::Schedule => {
                    "the state and time of a schedule must be an object, such as {\"to\": \"10s\"}"
                }
            },
        )),
    }
}

/// Refuses a body that is too large without the contents of traces.
fn check_size(body: &[u8], value: &Value) -> Result<(), Problem> {
    if body.len() <= LARGEST_BODY {
        return Ok(());
    }
    let size = size_without_contents(value);
    if size <= LARGEST_BODY {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!(
            "without the contents of traces, the body has {size} bytes: at most {LARGEST_BODY} are allowed"
        ),
    ))
}

/// Returns the bytes of a value in JSON without spaces, without the contents of traces.
fn size_without_contents(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string().len(),
        Value::String(text) => text.len() + 2,
        Value::Array(all) => {
            2 + all
                .iter()
                .map(|one| size_without_contents(one) + 1)
                .sum::<usize>()
        }
        Value::Object(all) => {
            let is_content =
                |key: &str, value: &Value| value.is_string() && CONTENTS.contains(&key);
            let counted = all.iter().filter(|(key, value)| !is_content(key, value));
            let sizes = counted.map(|(key, value)| key.len() + 4 + size_without_contents(value));
            2 + sizes.sum::<usize>()
        }
    }
}

fn check_content_type(form: BodyKind, headers: &HeaderMap) -> Result<(), Problem> {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    if form
        .content_types()
        .iter()
        .any(|known| known.eq_ignore_ascii_case(kind))
    {
        Ok(())
    } else {
        Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!("Content-Type must be {}", form.content_types().join(" or ")),
        ))
    }
}

/// Returns the revision in `If-Match`. A value that is not a link's ETag matches nothing (RFC 9110,
/// section 13.1.1).
fn if_revision(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(etag) = headers.get(header::IF_MATCH) else {
        return Ok(None);
    };
    let etag = etag.to_str().unwrap_or_default().trim();
    if etag == "*" {
        return Ok(None);
    }
    let number = etag
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .and_then(|number| number.parse().ok());
    number.map(Some).ok_or_else(|| {
        Problem::new(
            StatusCode::PRECONDITION_FAILED,
            format!("If-Match: {etag}: write the ETag of a link, a revision in quotes: \"3\""),
        )
    })
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use axum::body::{Body, HttpBody};
    use hyper::body::Frame;

    use super::*;

    fn read(
        form: BodyKind,
        headers: &[(&str, &str)],
        body: &'static str,
    ) -> Result<ChangeOrder, u16> {
        use axum::response::IntoResponse as _;
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect::<Vec<(header::HeaderName, header::HeaderValue)>>()
            .into_iter()
            .collect();
        let body = Ok(CompleteBody(body.into()));
        let read = read_order(
            form,
            ChangeQuery::default(),
            &headers,
            body,
            RequestOrigin(Origin::default()),
        );
        read.map_err(|problem| problem.into_response().status().as_u16())
    }

    /// A body that never arrives.
    struct SilentBody;

    impl HttpBody for SilentBody {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }

    #[test]
    fn a_missing_body_is_refused_after_the_timeout() {
        use axum::response::IntoResponse as _;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let read = |body: Body| {
            let request = Request::new(body);
            let read = runtime.block_on(async {
                CompleteBody::read(request, &(), Duration::from_millis(1)).await
            });
            read.map_err(|problem| problem.into_response().status().as_u16())
        };
        assert_eq!(read(Body::new(SilentBody)).unwrap_err(), 408);
        assert_eq!(read("{}".into()).unwrap().0, "{}");
        let long = " ".repeat(LARGEST_CHANGE);
        assert!(read(long.clone().into()).is_ok());
        assert_eq!(read((long + " ").into()).unwrap_err(), 413);
    }

    #[test]
    fn the_contents_of_traces_do_not_count_as_the_size_of_a_change() {
        let json = [("content-type", "application/json")];
        let trace = |bytes: usize| {
            let content = "1\n".repeat(bytes / 2);
            serde_json::json!({ "file": "x", "content": content })
        };
        let longest = trace(conditions::LONGEST_CONTENT);
        let both = serde_json::json!({ "up": { "trace": longest }, "down": { "trace": longest } });
        let text = both.to_string();
        assert!(text.len() > 2 * LARGEST_BODY);
        assert!(read(BodyKind::All, &json, text.leak()).is_ok());
        for refused in [
            serde_json::json!({ "trace": longest, "stages": vec!["x"; LARGEST_BODY / 4] }),
            serde_json::json!({ "trace": longest, "x": " ".repeat(LARGEST_BODY) }),
        ] {
            let text = refused.to_string().leak();
            assert_eq!(read(BodyKind::All, &json, text).unwrap_err(), 413);
        }
    }

    #[test]
    fn a_body_must_be_an_object_with_the_right_content_type() {
        let json = [("content-type", "application/json; charset=utf-8")];
        assert!(read(BodyKind::All, &json, "{}").is_ok());
        assert!(
            read(
                BodyKind::Patch,
                &[("content-type", "application/merge-patch+json")],
                "{}"
            )
            .is_ok()
        );
        assert_eq!(
            read(BodyKind::All, &[("content-type", "text/plain")], "{}").unwrap_err(),
            415
        );
        assert_eq!(read(BodyKind::All, &[], "{}").unwrap_err(), 415);
        assert_eq!(read(BodyKind::All, &json, "{\"delay\"").unwrap_err(), 400);
        assert_eq!(read(BodyKind::All, &json, "[1]").unwrap_err(), 422);
    }

    #[test]
    fn a_revision_must_be_in_quotes() {
        let with = |etag| {
            read(
                BodyKind::All,
                &[("content-type", "application/json"), ("if-match", etag)],
                "{}",
            )
        };
        assert_eq!(with("\"3\"").unwrap().if_revision, Some(3));
        assert_eq!(with("*").unwrap().if_revision, None);
        for wrong in ["3", "\"x\"", "W/\"3\"", ""] {
            assert_eq!(with(wrong).unwrap_err(), 412, "{wrong}");
        }
    }
}
