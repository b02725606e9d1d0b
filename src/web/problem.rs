//! Errors as clients receive them: problem+json (RFC 9457).

use std::error::Error as _;
use std::fmt::Display;
use std::iter::successors;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::live::{ChangeRefusal, NumberedRun};
use conditions::plain;

/// The reason why a request failed.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Problem {
    /// Always `about:blank`: the status gives the kind of problem.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The status in words.
    title: &'static str,
    /// The status code.
    status: u16,
    /// The cause of the problem and its correction.
    detail: String,
    /// The field at fault: the path of a condition, such as `up.loss`, or a key of the query, such as `for`.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    /// The next run, if the request came between two runs of an experiment.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<NumberedRun>,
    /// The number of seconds after which to try again, sent as a header.
    #[serde(skip)]
    retry_after: Option<u16>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Display) -> Self {
        Self {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or("error"),
            status: status.as_u16(),
            detail: detail.to_string(),
            field: None,
            next: None,
            retry_after: None,
        }
    }

    /// The response after a panic of a thread, whose message is on standard error.
    pub(super) fn panicked() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the request failed: the cause is on farwire's standard error",
        )
    }

    /// Says when the request may be repeated.
    pub(super) fn with_retry_after(self, wait: Duration) -> Self {
        let rounded_up = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Self {
            retry_after: Some(u16::try_from(rounded_up).unwrap_or(u16::MAX)),
            ..self
        }
    }

    /// Says that a link will exist in this run.
    pub(super) fn with_next_run(self, next: NumberedRun) -> Self {
        Self {
            next: Some(next),
            ..self
        }
    }

    pub(super) fn bad_request(detail: impl Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// Refuses a wrong value in the query.
    pub(super) fn bad_query(field: &str, detail: impl Display) -> Self {
        Self {
            field: Some(field.to_owned()),
            ..Self::bad_request(detail)
        }
    }

    /// Refuses a well-formed but impossible value.
    pub(super) fn unprocessable(field: &str, detail: impl Display) -> Self {
        Self {
            field: Some(field.to_owned()),
            ..Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                format!("{field}: {detail}"),
            )
        }
    }

    pub(super) fn not_found(detail: impl Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    pub(super) fn unauthorized(detail: impl Display) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, detail)
    }

    pub(super) fn forbidden(detail: impl Display) -> Self {
        Self::new(StatusCode::FORBIDDEN, detail)
    }
}

impl From<QueryRejection> for Problem {
    fn from(refused: QueryRejection) -> Self {
        let mut causes = successors(refused.source(), |&cause| cause.source());
        let at = causes.find_map(|cause| {
            cause.downcast_ref::<serde_path_to_error::Error<serde::de::value::Error>>()
        });
        match at {
            // The error is not about one key, as with a repeated key.
            Some(at) if at.path().iter().next().is_none() => Self::bad_request(at.inner()),
            Some(at) => {
                let (field, cause) = (at.path().to_string(), at.inner().to_string());
                let cause = plain::in_words(&cause);
                Self::bad_query(&field, format_args!("{field}: {cause}"))
            }
            None => Self::bad_request(refused.body_text()),
        }
    }
}

impl From<ChangeRefusal> for Problem {
    fn from(refusal: ChangeRefusal) -> Self {
        let status = match &refusal {
            ChangeRefusal::Conditions(_) => StatusCode::UNPROCESSABLE_ENTITY,
            ChangeRefusal::Revision { .. } => StatusCode::PRECONDITION_FAILED,
            ChangeRefusal::Leased { .. }
            | ChangeRefusal::Fixed { .. }
            | ChangeRefusal::NoSchedule => StatusCode::CONFLICT,
            ChangeRefusal::TooLong => StatusCode::SERVICE_UNAVAILABLE,
            ChangeRefusal::NoLease | ChangeRefusal::Ended => StatusCode::NOT_FOUND,
        };
        let problem = Self::new(status, &refusal);
        match refusal {
            ChangeRefusal::Conditions(error) => Self {
                field: error.field(),
                ..problem
            },
            _ => problem,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let retry_after = self.retry_after;
        let mut response = (status, Json(self)).into_response();
        let kind = HeaderValue::from_static("application/problem+json");
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, kind);
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            headers.insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
