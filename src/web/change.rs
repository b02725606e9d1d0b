//! Reads requests that change a link.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;
use utoipa::IntoParams;

use super::access::{Peer, TokenRole};
use super::problem::Problem;
use crate::live::{ChangeOrder, LeaseId, Origin, RequestedConditions};

/// Who holds a lease sends its id by this.
const LEASE: &str = "farwire-lease";

/// How long a body may take to come.
const PATIENCE: Duration = Duration::from_secs(15);

/// A body, all of it: nothing is changed before it is there.
#[derive(Debug)]
pub(super) struct Whole(Bytes);

impl<S: Send + Sync> FromRequest<S> for Whole {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        Self::read(request, state, PATIENCE).await
    }
}

impl Whole {
    async fn read<S: Send + Sync>(
        request: Request,
        state: &S,
        longest: Duration,
    ) -> Result<Self, Problem> {
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

/// The sender of a request: its address or user, and its token.
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
    /// A lease: a time up to 24h (`60s`), or `connection`; then the link reverts to what stood before.
    #[serde(rename = "for")]
    #[param(rename = "for")]
    lease: Option<String>,
    /// `1`: says what would be, and changes nothing.
    #[param(value_type = Option<u8>, minimum = 0, maximum = 1)]
    dry_run: Option<String>,
}

/// What kinds of body a change has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Conditions, all of them.
    All,
    /// A JSON Merge Patch over those in force.
    Patch,
    /// What is to become of the time of schedules.
    Schedule,
}

impl Form {
    fn kinds(self) -> &'static [&'static str] {
        match self {
            Self::All | Self::Schedule => &["application/json"],
            Self::Patch => &["application/merge-patch+json", "application/json"],
        }
    }
}

/// The change that a request asks for.
pub(super) fn order(
    form: Form,
    query: ChangeQuery,
    headers: &HeaderMap,
    body: Result<Whole, Problem>,
    RequestOrigin(origin): RequestOrigin,
) -> Result<ChangeOrder, Problem> {
    check_kind(form, headers)?;
    let Whole(body) = body?;
    let value = parse(form, &body)?;
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
            Form::All => RequestedConditions::All(value),
            Form::Patch => RequestedConditions::Patch(value),
            Form::Schedule => RequestedConditions::Schedule(value),
        },
        if_revision: if_revision(headers)?,
        lease_for: lease_for
            .transpose()
            .map_err(|cause: String| Problem::wrong("for", cause))?,
        lease: lease(headers)?,
        is_dry_run,
        origin,
    })
}

/// The lease that the client says it holds.
pub(super) fn lease(headers: &HeaderMap) -> Result<Option<LeaseId>, Problem> {
    let said = headers.get(LEASE).map(|id| id.to_str());
    let said = said
        .transpose()
        .map_err(|_| Problem::bad_request("the header Farwire-Lease is not text"))?;
    Ok(said.map(|id| LeaseId(id.to_owned())))
}

fn parse(form: Form, body: &[u8]) -> Result<Value, Problem> {
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| Problem::bad_request(format!("the body is not JSON: {error}")))?;
    match value {
        Value::Object(_) => Ok(value),
        _ => Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            match form {
                Form::All | Form::Patch => {
                    "conditions must be an object, such as {\"delay\": \"20ms\"}"
                }
                Form::Schedule => {
                    "the state and time of a schedule must be an object, such as {\"to\": \"10s\"}"
                }
            },
        )),
    }
}

fn check_kind(form: Form, headers: &HeaderMap) -> Result<(), Problem> {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    match form
        .kinds()
        .iter()
        .any(|known| known.eq_ignore_ascii_case(kind))
    {
        true => Ok(()),
        false => Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!("Content-Type must be {}", form.kinds().join(" or ")),
        )),
    }
}

/// The revision of `If-Match`. What is none of a link's matches nothing (RFC 9110, section 13.1.1).
fn if_revision(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(said) = headers.get(header::IF_MATCH) else {
        return Ok(None);
    };
    let said = said.to_str().unwrap_or_default().trim();
    if said == "*" {
        return Ok(None);
    }
    let number = said
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let number = number.and_then(|number| number.parse().ok());
    number.map(Some).ok_or_else(|| {
        Problem::new(
            StatusCode::PRECONDITION_FAILED,
            format!("If-Match: {said}: write the ETag of a link, a revision in quotes: \"3\""),
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

    fn read(form: Form, headers: &[(&str, &str)], body: &'static str) -> Result<ChangeOrder, u16> {
        use axum::response::IntoResponse as _;
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect::<Vec<(header::HeaderName, header::HeaderValue)>>()
            .into_iter()
            .collect();
        let body = Ok(Whole(body.into()));
        let read = order(
            form,
            ChangeQuery::default(),
            &headers,
            body,
            RequestOrigin(Origin::default()),
        );
        read.map_err(|problem| problem.into_response().status().as_u16())
    }

    /// A body of which nothing ever comes.
    struct Nothing;

    impl HttpBody for Nothing {
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
    fn a_body_that_does_not_come_is_waited_for_so_long() {
        use axum::response::IntoResponse as _;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let read = |body: Body| {
            let request = Request::new(body);
            let read = runtime
                .block_on(async { Whole::read(request, &(), Duration::from_millis(1)).await });
            read.map_err(|problem| problem.into_response().status().as_u16())
        };
        assert_eq!(read(Body::new(Nothing)).unwrap_err(), 408);
        assert_eq!(read("{}".into()).unwrap().0, "{}");
    }

    #[test]
    fn a_body_is_an_object_of_its_kind() {
        let json = [("content-type", "application/json; charset=utf-8")];
        assert!(read(Form::All, &json, "{}").is_ok());
        assert!(
            read(
                Form::Patch,
                &[("content-type", "application/merge-patch+json")],
                "{}"
            )
            .is_ok()
        );
        assert_eq!(
            read(Form::All, &[("content-type", "text/plain")], "{}").unwrap_err(),
            415
        );
        assert_eq!(read(Form::All, &[], "{}").unwrap_err(), 415);
        assert_eq!(read(Form::All, &json, "{\"delay\"").unwrap_err(), 400);
        assert_eq!(read(Form::All, &json, "[1]").unwrap_err(), 422);
    }

    #[test]
    fn a_revision_stands_in_quotes() {
        let with = |etag| {
            read(
                Form::All,
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
