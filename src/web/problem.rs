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

/// Why something was not done.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Problem {
    /// `about:blank`: the status says what kind of problem it is.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The status in words.
    title: &'static str,
    /// The status.
    status: u16,
    /// What is wrong, and what would be right.
    detail: String,
    /// What is wrong: a condition as a path, `up.loss`, or the query's `for`.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    /// Between two runs of an experiment, what runs next.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<NumberedRun>,
    /// In how many seconds to ask again, as a header says it.
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

    /// It may be asked for again then.
    pub(super) fn again_in(self, wait: Duration) -> Self {
        let rounded_up = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Self {
            retry_after: Some(u16::try_from(rounded_up).unwrap_or(u16::MAX)),
            ..self
        }
    }

    /// There is none now, but there will be in this run.
    pub(super) fn until(self, next: NumberedRun) -> Self {
        Self {
            next: Some(next),
            ..self
        }
    }

    pub(super) fn bad_request(detail: impl Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// A part of a query that cannot be.
    pub(super) fn bad_query(field: &str, detail: impl Display) -> Self {
        Self {
            field: Some(field.to_owned()),
            ..Self::bad_request(detail)
        }
    }

    /// What is well-formed, and cannot be.
    pub(super) fn wrong(field: &str, detail: impl Display) -> Self {
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
            // Beyond all keys, as where one stands twice.
            Some(at) if at.path().iter().next().is_none() => Self::bad_request(at.inner()),
            Some(at) => Self::bad_query(&at.path().to_string(), at),
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
