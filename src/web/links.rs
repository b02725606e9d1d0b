//! The resources of the API: links with their changes, counters and events, profiles, and the known
//! conditions.
#![expect(unused_qualifications, reason = "utoipa's macro writes them")]

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use conditions::in_effect::InEffect;
use conditions::{CONDITIONS, LinkSpec, PROFILES};
use netio::clock;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use utoipa::{IntoParams, ToSchema};

use super::capture::CaptureQuery;
use super::change::{BodyKind, ChangeQuery, CompleteBody, RequestOrigin, lease, read_order};
use super::client::ClientConnection;
use super::events::ConnectionLease;
use super::problem::Problem;
use super::{AppState, capture, events, history};
use crate::live::{
    CHANGE_LIMIT, ChangeRefusal, ChangeResult, ChangeView, LinkCounters, LinkView, LiveLink,
    NO_SCHEDULE, ScheduleChange, ScheduleView,
};

/// The time for which the response to a completed change waits for the effects of the conditions.
const EFFECTS_TIMEOUT: Duration = Duration::from_secs(2);

type Name = Result<Path<String>, PathRejection>;

/// The running links, or a part of them.
#[derive(Serialize, ToSchema)]
pub(super) struct LinkList {
    links: Vec<LinkView>,
    /// The number of all running links, or with `search` of those that match.
    total: usize,
    /// The offset of the next part; null if there is none.
    next: Option<usize>,
}

/// The query of a part of the list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// The number of links to leave out at the start of the list; 0 by default.
    offset: Option<usize>,
    /// The largest number of links in the answer, from 1 to 1,000; 1,000 by default.
    limit: Option<usize>,
    /// A part of the names of the wanted links, in upper or lower case; all links by default.
    search: Option<String>,
}

/// The largest number of links in one answer.
const MOST_LISTED: usize = 1_000;
/// The largest number of links that an error names.
const MOST_NAMED: usize = 20;

/// The result of a change, and the effects of the conditions.
#[derive(Serialize, ToSchema)]
pub(super) struct ChangeResponse {
    #[serde(flatten)]
    changed: ChangeResult,
    /// The effects of the conditions as in `farwire link --json`; null if they could not be computed in time.
    #[schema(value_type = Option<Object>)]
    implies: Option<InEffect>,
}

/// Returns the running links in parts: `next` is the offset of the next part.
#[utoipa::path(
    get, path = "/v1/links", params(ListQuery),
    responses((status = OK, body = LinkList, description = "The links, possibly none"), (status = BAD_REQUEST, body = Problem))
)]
pub(super) async fn all(
    State(app): State<AppState>,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<Json<LinkList>, Problem> {
    let Query(query) = query?;
    let limit = query.limit.unwrap_or(MOST_LISTED);
    if !(1..=MOST_LISTED).contains(&limit) {
        let why = format!("limit: {limit} is out of range: 1 to {MOST_LISTED}");
        return Err(Problem::bad_query("limit", why));
    }
    let offset = query.offset.unwrap_or(0);
    let mut links = app.links.all();
    if let Some(part) = &query.search {
        let part = part.to_lowercase();
        links.retain(|link| link.name().to_lowercase().contains(&part));
    }
    let end = offset.saturating_add(limit);
    let part = links.iter().skip(offset).take(limit);
    Ok(Json(LinkList {
        links: part.map(|link| link.view()).collect(),
        total: links.len(),
        next: (end < links.len()).then_some(end),
    }))
}

/// Returns a link with its conditions in force. Its revision is the ETag.
#[utoipa::path(
    get, path = "/v1/links/{name}", params(("name" = String, Path, description = "The link's name, as in /v1/links")),
    responses((status = OK, body = LinkView, description = "The link"), (status = NOT_FOUND, body = Problem))
)]
pub(super) async fn one(State(app): State<AppState>, name: Name) -> Result<Response, Problem> {
    let view = find(&app, name)?.view();
    Ok(([(header::ETAG, etag(view.revision))], Json(view)).into_response())
}

/// Replaces all conditions with these.
#[utoipa::path(
    put, path = "/v1/links/{name}", params(("name" = String, Path, description = "The link's name, as in /v1/links"), ChangeQuery,
        ("If-Match" = Option<String>, Header, description = "Change the link only if it has this revision: \"3\""),
        ("Farwire-Lease" = Option<String>, Header, description = "The ID of the client's lease")),
    request_body(content = ref("#/components/schemas/LinkSpec"), content_type = "application/json"),
    responses(
        (status = OK, body = ChangeResponse, description = "The change was made, or with `dry_run` would be"),
        (status = BAD_REQUEST, body = Problem), (status = NOT_FOUND, body = Problem),
        (status = CONFLICT, body = Problem, description = "Another client has a lease"),
        (status = REQUEST_TIMEOUT, body = Problem, description = "The body did not arrive in time; nothing was changed"),
        (status = PRECONDITION_FAILED, body = Problem, description = "The link has another revision"),
        (status = PAYLOAD_TOO_LARGE, body = Problem), (status = UNSUPPORTED_MEDIA_TYPE, body = Problem),
        (status = SERVICE_UNAVAILABLE, body = Problem, description = "The change was not made within 5 s; nothing was changed"),
        (status = UNPROCESSABLE_ENTITY, body = Problem, description = "Invalid conditions; `field` names them")
    )
)]
pub(super) async fn put(
    State(app): State<AppState>,
    name: Name,
    query: Result<Query<ChangeQuery>, QueryRejection>,
    headers: HeaderMap,
    Extension(client): Extension<ClientConnection>,
    origin: RequestOrigin,
    body: Result<CompleteBody, Problem>,
) -> Result<Response, Problem> {
    let link = find(&app, name)?;
    let from = (client, origin);
    change(&app, link, BodyKind::All, query, &headers, from, body).await
}

/// Changes conditions by a JSON Merge Patch (RFC 7396) of those in force; null removes one.
#[utoipa::path(
    patch, path = "/v1/links/{name}", params(("name" = String, Path, description = "The link's name, as in /v1/links"), ChangeQuery,
        ("If-Match" = Option<String>, Header, description = "Change the link only if it has this revision: \"3\""),
        ("Farwire-Lease" = Option<String>, Header, description = "The ID of the client's lease")),
    request_body(content = Object, content_type = "application/merge-patch+json"),
    responses(
        (status = OK, body = ChangeResponse, description = "The change was made, or with `dry_run` would be"),
        (status = BAD_REQUEST, body = Problem), (status = NOT_FOUND, body = Problem),
        (status = CONFLICT, body = Problem, description = "Another client has a lease"),
        (status = REQUEST_TIMEOUT, body = Problem, description = "The body did not arrive in time; nothing was changed"),
        (status = PRECONDITION_FAILED, body = Problem, description = "The link has another revision"),
        (status = PAYLOAD_TOO_LARGE, body = Problem), (status = UNSUPPORTED_MEDIA_TYPE, body = Problem),
        (status = SERVICE_UNAVAILABLE, body = Problem, description = "The change was not made within 5 s; nothing was changed"),
        (status = UNPROCESSABLE_ENTITY, body = Problem, description = "Invalid conditions; `field` names them")
    )
)]
pub(super) async fn patch(
    State(app): State<AppState>,
    name: Name,
    query: Result<Query<ChangeQuery>, QueryRejection>,
    headers: HeaderMap,
    Extension(client): Extension<ClientConnection>,
    origin: RequestOrigin,
    body: Result<CompleteBody, Problem>,
) -> Result<Response, Problem> {
    let link = find(&app, name)?;
    let from = (client, origin);
    change(&app, link, BodyKind::Patch, query, &headers, from, body).await
}

/// Returns the schedules of a link: the state and value of their time, and the conditions in force at it.
#[utoipa::path(
    get, path = "/v1/links/{name}/schedule", params(("name" = String, Path, description = "The link's name, as in /v1/links")),
    responses((status = OK, body = ScheduleView, description = "The schedules"), (status = NOT_FOUND, body = Problem, description = "There is no such link, or it has no schedule"))
)]
pub(super) async fn schedule(State(app): State<AppState>, name: Name) -> Result<Response, Problem> {
    let view = find(&app, name)?.schedule();
    let view = view.ok_or_else(|| Problem::not_found(NO_SCHEDULE))?;
    Ok(([(header::ETAG, etag(view.revision))], Json(view)).into_response())
}

/// Stops, starts or moves the time of a link's schedules, at one instant in both directions.
#[utoipa::path(
    put, path = "/v1/links/{name}/schedule", params(("name" = String, Path, description = "The link's name, as in /v1/links"), ChangeQuery,
        ("If-Match" = Option<String>, Header, description = "Change the link only if it has this revision: \"3\""),
        ("Farwire-Lease" = Option<String>, Header, description = "The ID of the client's lease")),
    request_body(content = ScheduleChange, content_type = "application/json"),
    responses(
        (status = OK, body = ChangeResponse, description = "The change was made, or with `dry_run` would be"),
        (status = BAD_REQUEST, body = Problem), (status = NOT_FOUND, body = Problem),
        (status = CONFLICT, body = Problem, description = "There is no schedule, or another client has a lease"),
        (status = REQUEST_TIMEOUT, body = Problem, description = "The body did not arrive in time; nothing was changed"),
        (status = PRECONDITION_FAILED, body = Problem, description = "The link has another revision"),
        (status = PAYLOAD_TOO_LARGE, body = Problem), (status = UNSUPPORTED_MEDIA_TYPE, body = Problem),
        (status = SERVICE_UNAVAILABLE, body = Problem, description = "The change was not made within 5 s; nothing was changed"),
        (status = UNPROCESSABLE_ENTITY, body = Problem, description = "Invalid state or time; `field` names it")
    )
)]
pub(super) async fn put_schedule(
    State(app): State<AppState>,
    name: Name,
    query: Result<Query<ChangeQuery>, QueryRejection>,
    headers: HeaderMap,
    Extension(client): Extension<ClientConnection>,
    origin: RequestOrigin,
    body: Result<CompleteBody, Problem>,
) -> Result<Response, Problem> {
    let link = find(&app, name)?;
    let from = (client, origin);
    change(&app, link, BodyKind::Schedule, query, &headers, from, body).await
}

/// Ends the lease of a link now. The link reverts to the conditions before the lease.
#[utoipa::path(
    delete, path = "/v1/links/{name}/lease", params(("name" = String, Path, description = "The link's name, as in /v1/links"),
        ("Farwire-Lease" = Option<String>, Header, description = "End only this lease; any lease if absent")),
    responses(
        (status = OK, body = ChangeResponse, description = "The lease has ended"), (status = BAD_REQUEST, body = Problem),
        (status = NOT_FOUND, body = Problem, description = "There is no such link or lease"),
        (status = UNPROCESSABLE_ENTITY, body = Problem, description = "Packets in flight would be overtaken. The lease stays, and farwire ends it as soon as they have passed: do not repeat the request")
    )
)]
pub(super) async fn end_lease(
    State(app): State<AppState>,
    name: Name,
    headers: HeaderMap,
    RequestOrigin(origin): RequestOrigin,
) -> Result<Response, Problem> {
    let link = find(&app, name)?;
    let changed = link.end_lease(lease(&headers)?.as_ref(), &origin)?;
    let response = with_effects(&app, changed).await;
    Ok(answer(response.changed.revision, json(&response)?.into()))
}

/// The query of a starting revision.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SinceQuery {
    /// The revision from which to start; the link's start by default. The end is always the time of the request.
    since: Option<u64>,
}

fn unknown_revision() -> Problem {
    Problem::not_found("since: there is no such revision, or it is no longer kept")
}

/// Returns the counters since a revision came into force, which show whether traffic met a fault.
#[utoipa::path(
    get, path = "/v1/links/{name}/counters",
    params(("name" = String, Path, description = "The link's name, as in /v1/links"), SinceQuery),
    responses(
        (status = OK, body = LinkCounters, description = "The counters"), (status = BAD_REQUEST, body = Problem),
        (status = NOT_FOUND, body = Problem, description = "There is no such link or revision")
    )
)]
pub(super) async fn counters(
    State(app): State<AppState>,
    name: Name,
    query: Result<Query<SinceQuery>, QueryRejection>,
) -> Result<Json<LinkCounters>, Problem> {
    let link = find(&app, name)?;
    let Query(query) = query?;
    let counted = link.counters(query.since).map_err(Problem::not_found)?;
    counted.map(Json).ok_or_else(unknown_revision)
}

/// The history of a link's conditions.
#[derive(ToSchema)]
#[expect(dead_code, reason = "the schema of what `history::stream` writes")]
pub(super) struct ChangeHistory {
    /// The changes from the first kept revision to the one in force. The last 1,000 are kept, within a limit of 32 MiB.
    ///
    /// Changes that are dropped while the history is read are left out.
    changes: Vec<ChangeView>,
}

/// Returns the changes made while the link ran.
#[utoipa::path(
    get, path = "/v1/links/{name}/history", params(("name" = String, Path, description = "The link's name, as in /v1/links")),
    responses((status = OK, body = ChangeHistory, description = "The changes"), (status = NOT_FOUND, body = Problem))
)]
pub(super) async fn history(State(app): State<AppState>, name: Name) -> Result<Response, Problem> {
    let body = history::stream(find(&app, name)?);
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// The kind of file to which changes are exported.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum FileForm {
    /// A link file with a schedule.
    Link,
    /// A scenario for `farwire run`.
    Scenario,
}

/// Exports the changes made while the link ran as a link file with a schedule, or as a scenario.
#[utoipa::path(
    get, path = "/v1/links/{name}/history/{form}",
    params(("name" = String, Path, description = "The link's name, as in /v1/links"), ("form" = inline(FileForm), Path, description = "link or scenario"),
        SinceQuery),
    responses(
        (status = OK, content_type = "application/toml", body = String, description = "The file"), (status = BAD_REQUEST, body = Problem),
        (status = NOT_FOUND, body = Problem, description = "There is no such link, form or revision"),
        (status = UNPROCESSABLE_ENTITY, body = Problem, description = "The history contains a change that no schedule can express")
    )
)]
pub(super) async fn history_file(
    State(app): State<AppState>,
    path: Result<Path<(String, FileForm)>, PathRejection>,
    query: Result<Query<SinceQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let Path((name, form)) =
        path.map_err(|_| Problem::not_found("the form of a history file is link or scenario"))?;
    let link = find(&app, Ok(Path(name)))?;
    let Query(query) = query?;
    let exported = Arc::clone(&link);
    let file = compute(&app, move || {
        let log = exported
            .change_log(query.since)
            .ok_or_else(unknown_revision)?;
        let text = match form {
            FileForm::Link => log.link_file(),
            FileForm::Scenario => log.scenario(),
        };
        text.map_err(|error| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, format!("{error:#}")))
    });
    let text = file.await.unwrap_or_else(|| Err(Problem::panicked()))?;
    let ending = match form {
        FileForm::Link => ".toml",
        FileForm::Scenario => "-scenario.toml",
    };
    Ok(attachment(&link, "application/toml", ending, text))
}

/// Returns a file with this content type, named after the link and with this ending. Special
/// characters of the link's name are replaced.
fn attachment(
    link: &LiveLink,
    kind: &'static str,
    ending: &str,
    body: impl IntoResponse,
) -> Response {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let name: String = link
        .name()
        .chars()
        .map(|c| if is_plain(c) { c } else { '-' })
        .collect();
    let headers = [
        (header::CONTENT_TYPE, kind.to_owned()),
        (
            header::CONTENT_DISPOSITION,
            format!("attachment; filename=\"{name}{ending}\""),
        ),
    ];
    (headers, body).into_response()
}

/// Streams the events of a link as server-sent events: `sample` ten times per second, `change` and `end`.
///
/// A reader that lags is disconnected. With `Last-Event-ID`, the kept events of the last minute after that one are repeated.
#[utoipa::path(
    get, path = "/v1/links/{name}/events", params(("name" = String, Path, description = "The link's name, as in /v1/links"),
        ("Last-Event-ID" = Option<u64>, Header, description = "The last event that the client has received")),
    responses(
        (status = OK, content_type = "text/event-stream", body = String,
            description = "The events. The data of `sample` is a LinkSample, that of `change` a Change"),
        (status = NOT_FOUND, body = Problem)
    )
)]
pub(super) async fn follow(
    State(app): State<AppState>,
    name: Name,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let link = find(&app, name)?;
    let last = headers
        .get("last-event-id")
        .and_then(|id| id.to_str().ok())
        .and_then(|id| id.trim().parse().ok());
    let body = events::follow(&link, last);
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], body).into_response())
}

/// A file of packets.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "the schema of what `capture::stream` writes")]
pub(super) struct PacketFile(Vec<u8>);

/// Streams the packets of a link from now on as pcapng, with their outcomes in comments.
///
/// The stream ends by its limits, with the link, or with the connection. A reader that lags is disconnected.
#[utoipa::path(
    get, path = "/v1/links/{name}/capture", params(("name" = String, Path, description = "The link's name, as in /v1/links"), CaptureQuery),
    responses(
        (status = OK, content_type = "application/x-pcapng", body = inline(PacketFile), description = "The packets"),
        (status = BAD_REQUEST, body = Problem),
        (status = NOT_FOUND, body = Problem), (status = TOO_MANY_REQUESTS, body = Problem, description = "Too many captures are running")
    )
)]
pub(super) async fn capture(
    State(app): State<AppState>,
    name: Name,
    query: Result<Query<CaptureQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let link = find(&app, name)?;
    let Query(query) = query?;
    let body = capture::stream(&app, Arc::clone(&link), &query)?;
    Ok(attachment(&link, "application/x-pcapng", ".pcapng", body))
}

/// A link with a name.
#[derive(Serialize, ToSchema)]
#[schema(as = Profile)]
pub(super) struct ProfileView {
    /// The name, as `--profile` accepts it.
    name: String,
    /// A description in one line.
    about: String,
    /// The origin of the profile.
    source: ProfileSource,
    /// The conditions in the form of a link file.
    #[schema(value_type = Object)]
    conditions: LinkSpec,
}

/// The origin of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ProfileSource {
    /// It ships with farwire.
    Shipped,
    /// A file of the user.
    Own,
    /// A file that `farwire fit` wrote.
    Fitted,
}

/// Returns the profiles: the user's own ones, which were read when the API started, and the links that ship with farwire, based on published
/// measurements. One of the user's hides the one that ships with its name.
#[utoipa::path(get, path = "/v1/profiles", responses((status = OK, body = [ProfileView], description = "The profiles")))]
pub(super) async fn profiles(State(app): State<AppState>) -> Json<Vec<ProfileView>> {
    let is_hidden = |name: &str| app.own_profiles.iter().any(|own| own.name == name);
    let shipped = PROFILES.iter().filter(|shipped| !is_hidden(shipped.name));
    let shipped = shipped.map(|profile| ProfileView {
        name: profile.name.to_owned(),
        about: profile.about().to_owned(),
        source: ProfileSource::Shipped,
        conditions: profile.conditions(),
    });
    let own = app.own_profiles.iter().map(|own| ProfileView {
        name: own.name.clone(),
        about: own.about.clone(),
        source: if own.is_fitted {
            ProfileSource::Fitted
        } else {
            ProfileSource::Own
        },
        conditions: own.conditions.clone(),
    });
    let all: Vec<ProfileView> = own.chain(shipped).collect();
    Json(all)
}

/// A known condition.
#[derive(Serialize, ToSchema)]
pub(super) struct KnownCondition {
    /// The key of the condition.
    key: &'static str,
    /// The placeholder of its value.
    value_name: &'static str,
    /// A description with examples of its value.
    help: &'static str,
}

/// Returns every condition of a direction.
#[utoipa::path(get, path = "/v1/conditions", responses((status = OK, body = [KnownCondition], description = "The conditions")))]
pub(super) async fn conditions() -> Json<Vec<KnownCondition>> {
    let all = CONDITIONS.iter().map(|one| KnownCondition {
        key: one.key,
        value_name: one.value_name,
        help: one.help,
    });
    Json(all.collect())
}

fn find(app: &AppState, name: Name) -> Result<Arc<LiveLink>, Problem> {
    let Path(name) = name.map_err(|refused| Problem::not_found(refused.body_text()))?;
    app.links.get(&name).ok_or_else(|| unknown_link(app))
}

/// Says that there is no such link, and which links there are.
pub(super) fn unknown_link(app: &AppState) -> Problem {
    let links = app.links.all();
    match (links.as_slice(), app.links.experiment().next()) {
        ([], None) => Problem::not_found("no link is running"),
        ([], Some(next)) => Problem::not_found(
            "no link is running between two runs: `next` names the next run with links",
        )
        .with_next_run(next),
        (links, _) => {
            let names = links.iter().take(MOST_NAMED).map(|link| link.name());
            let names = names.collect::<Vec<_>>().join(", ");
            let more = match links.len().saturating_sub(MOST_NAMED) {
                0 => String::new(),
                more => format!(", and {more} more"),
            };
            Problem::not_found(format!(
                "there is no such link; the links are: {names}{more}"
            ))
        }
    }
}

async fn change(
    app: &AppState,
    link: Arc<LiveLink>,
    form: BodyKind,
    query: Result<Query<ChangeQuery>, QueryRejection>,
    headers: &HeaderMap,
    (client, origin): (ClientConnection, RequestOrigin),
    body: Result<CompleteBody, Problem>,
) -> Result<Response, Problem> {
    let Query(query) = query?;
    let order = read_order(form, query, headers, body, origin)?;
    let deadline = clock::now() + CHANGE_LIMIT.into();
    let permit = timeout(CHANGE_LIMIT, Arc::clone(&app.changing).acquire_owned())
        .await
        .map_err(|_| ChangeRefusal::TooLong)?;
    let making = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let changed = link.change(&order, deadline)?;
        // If the client has gone meanwhile, this is dropped and ends the lease.
        let grant = changed.grant.clone();
        let lease = grant.map(|grant| ConnectionLease::of(link, grant));
        Ok::<_, ChangeRefusal>((changed, lease))
    });
    let (changed, lease) = making.await.map_err(|_| Problem::panicked())??;
    let revision = changed.revision;
    let text = json(&with_effects(app, changed).await)?;
    Ok(match lease {
        Some(lease) => answer(revision, lease.hold(format!("{text}\n").into(), client)),
        None => answer(revision, text.into()),
    })
}

/// Adds the effects of the conditions. The response to a completed change does not wait long for
/// them.
async fn with_effects(app: &AppState, changed: ChangeResult) -> ChangeResponse {
    let spec = Arc::clone(&changed.link.conditions);
    let implies = compute(app, move || InEffect::of(&spec).ok());
    let implies = if changed.dry_run {
        implies.await
    } else {
        timeout(EFFECTS_TIMEOUT, implies).await.ok().flatten()
    };
    ChangeResponse {
        changed,
        implies: implies.flatten(),
    }
}

/// Computes something outside the serving thread. One computation runs at a time, even if its
/// client has gone. Returns `None` after a panic.
pub(super) async fn compute<T: Send + 'static>(
    app: &AppState,
    what: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let permit = Arc::clone(&app.computing).acquire_owned().await;
    let computed = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        what()
    });
    computed.await.ok()
}

fn json(response: &ChangeResponse) -> Result<String, Problem> {
    let text = serde_json::to_string(response);
    text.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error))
}

fn answer(revision: u64, body: Body) -> Response {
    let headers = [
        (header::ETAG, etag(revision)),
        (header::CONTENT_TYPE, "application/json".to_owned()),
    ];
    (headers, body).into_response()
}

fn etag(revision: u64) -> String {
    format!("\"{revision}\"")
}
