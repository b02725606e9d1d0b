//! The resources of the API: links with their changes, counters and events, profiles, and the known conditions.
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
use super::change::{ChangeQuery, Form, RequestOrigin, Whole, lease, order};
use super::client::ClientConnection;
use super::events::ConnectionLease;
use super::problem::Problem;
use super::{AppState, capture, events, history};
use crate::live::{
    CHANGE_LIMIT, ChangeRefusal, ChangeView, Changed, LinkCounters, LinkSample, LinkView, LiveLink,
    ScheduleChange, ScheduleView,
};

/// How long the answer to a change that was made waits for what it means.
const SOON: Duration = Duration::from_secs(2);

type Name = Result<Path<String>, PathRejection>;

/// The links that run.
#[derive(Serialize, ToSchema)]
pub(super) struct All {
    links: Vec<LinkView>,
}

/// What a change came to, and what it means.
#[derive(Serialize, ToSchema)]
#[schema(as = ChangedAndImplied)]
pub(super) struct ChangeResponse {
    #[serde(flatten)]
    changed: Changed,
    /// What the conditions mean, as `farwire link --json` has it; null of a change that was made while much else was computed.
    #[schema(value_type = Option<Object>)]
    implies: Option<InEffect>,
}

/// All links that run.
#[utoipa::path(get, path = "/v1/links", responses((status = OK, body = All)))]
pub(super) async fn all(State(app): State<AppState>) -> Json<All> {
    let links = app.links.all();
    Json(All {
        links: links.iter().map(|link| link.view()).collect(),
    })
}

/// A link: what is in force. Its revision is the ETag.
#[utoipa::path(
    get, path = "/v1/links/{name}", params(("name" = String, Path, description = "The link's name, as in /v1/links")),
    responses((status = OK, body = LinkView), (status = NOT_FOUND, body = Problem))
)]
pub(super) async fn one(State(app): State<AppState>, name: Name) -> Result<Response, Problem> {
    let view = find(&app, name)?.view();
    Ok(([(header::ETAG, etag(view.revision))], Json(view)).into_response())
}

/// Puts these conditions into force, and no others.
#[utoipa::path(
    put, path = "/v1/links/{name}", params(("name" = String, Path, description = "The link's name, as in /v1/links"), ChangeQuery,
        ("If-Match" = Option<String>, Header, description = "Change the link only if it has this revision: \"3\""),
        ("Farwire-Lease" = Option<String>, Header, description = "The ID of the client's lease")),
    request_body(content = ref("#/components/schemas/LinkSpec"), content_type = "application/json"),
    responses(
        (status = OK, body = ChangeResponse), (status = BAD_REQUEST, body = Problem), (status = NOT_FOUND, body = Problem),
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
    body: Result<Whole, Problem>,
) -> Result<Response, Problem> {
    let link = find(&app, name)?;
    let from = (client, origin);
    change(&app, link, Form::All, query, &headers, from, body).await
}

/// Changes conditions: a JSON Merge Patch (RFC 7396) over those in force; null takes one away.
#[utoipa::path(
    patch, path = "/v1/links/{name}", params(("name" = String, Path, description = "The link's name, as in /v1/links"), ChangeQuery,
        ("If-Match" = Option<String>, Header, description = "Change the link only if it has this revision: \"3\""),
        ("Farwire-Lease" = Option<String>, Header, description = "The ID of the client's lease")),
    request_body(content = Object, content_type = "application/merge-patch+json"),
    responses(
        (status = OK, body = ChangeResponse), (status = BAD_REQUEST, body = Problem), (status = NOT_FOUND, body = Problem),
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
    body: Result<Whole, Problem>,
) -> Result<Response, Problem> {
    let link = find(&app, name)?;
    let from = (client, origin);
    change(&app, link, Form::Patch, query, &headers, from, body).await
}

/// The schedules of a link: whether their time runs, where it stands, and what is in force at it.
#[utoipa::path(
    get, path = "/v1/links/{name}/schedule", params(("name" = String, Path, description = "The link's name, as in /v1/links")),
    responses((status = OK, body = ScheduleView), (status = NOT_FOUND, body = Problem, description = "There is no such link, or it has no schedule"))
)]
pub(super) async fn schedule(State(app): State<AppState>, name: Name) -> Result<Response, Problem> {
    let view = find(&app, name)?.schedule();
    let view = view.ok_or_else(|| Problem::not_found("the link's conditions have no schedule"))?;
    Ok(([(header::ETAG, etag(view.revision))], Json(view)).into_response())
}

/// Stops the time of a link's schedules, has it run, or moves it: at one instant in both directions, as any change.
#[utoipa::path(
    put, path = "/v1/links/{name}/schedule", params(("name" = String, Path, description = "The link's name, as in /v1/links"), ChangeQuery,
        ("If-Match" = Option<String>, Header, description = "Change the link only if it has this revision: \"3\""),
        ("Farwire-Lease" = Option<String>, Header, description = "The ID of the client's lease")),
    request_body(content = ScheduleChange, content_type = "application/json"),
    responses(
        (status = OK, body = ChangeResponse), (status = BAD_REQUEST, body = Problem), (status = NOT_FOUND, body = Problem),
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
    body: Result<Whole, Problem>,
) -> Result<Response, Problem> {
    let link = find(&app, name)?;
    let from = (client, origin);
    change(&app, link, Form::Schedule, query, &headers, from, body).await
}

/// Ends the lease of a link now: it reverts to what stood before.
#[utoipa::path(
    delete, path = "/v1/links/{name}/lease", params(("name" = String, Path, description = "The link's name, as in /v1/links"),
        ("Farwire-Lease" = Option<String>, Header, description = "End only this lease; any lease if absent")),
    responses(
        (status = OK, body = ChangeResponse), (status = BAD_REQUEST, body = Problem),
        (status = NOT_FOUND, body = Problem, description = "There is no such link or lease"),
        (status = UNPROCESSABLE_ENTITY, body = Problem, description = "The change would let packets overtake others; the lease ends after they have passed")
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
    let told = tell(&app, changed).await;
    Ok(answer(told.changed.revision, json(&told)?.into()))
}

/// From which revision on.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SinceQuery {
    /// The revision from whose instant on; from the link's start when absent.
    since: Option<u64>,
}

fn unknown_revision() -> Problem {
    Problem::not_found("since: there is no such revision, or it is no longer kept")
}

/// What was counted since a revision came into force: whether a fault was met.
#[utoipa::path(
    get, path = "/v1/links/{name}/counters",
    params(("name" = String, Path, description = "The link's name, as in /v1/links"), SinceQuery),
    responses((status = OK, body = LinkCounters), (status = BAD_REQUEST, body = Problem), (status = NOT_FOUND, body = Problem))
)]
pub(super) async fn counters(
    State(app): State<AppState>,
    name: Name,
    query: Result<Query<SinceQuery>, QueryRejection>,
) -> Result<Json<LinkCounters>, Problem> {
    let link = find(&app, name)?;
    let Query(query) = query?;
    let counted = link.counters(query.since);
    let counted = counted.map_err(Problem::not_found)?;
    counted.map(Json).ok_or_else(unknown_revision)
}

/// What was in force.
#[derive(ToSchema)]
#[expect(dead_code, reason = "the schema of what `history::stream` writes")]
pub(super) struct ChangeHistory {
    /// From the first revision that is kept (the last 1,000 are, or those of the last 32 MiB) to what is in force. What is forgotten
    /// while it is read is left out.
    changes: Vec<ChangeView>,
}

/// The changes made while the link ran.
#[utoipa::path(
    get, path = "/v1/links/{name}/history", params(("name" = String, Path, description = "The link's name, as in /v1/links")),
    responses((status = OK, body = ChangeHistory), (status = NOT_FOUND, body = Problem))
)]
pub(super) async fn history(State(app): State<AppState>, name: Name) -> Result<Response, Problem> {
    let body = history::stream(find(&app, name)?);
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// As which file changes are taken away.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum FileForm {
    /// A link file with a schedule.
    Link,
    /// An experiment that `farwire run` makes.
    Scenario,
}

/// The changes made while the link ran as a file that makes them again: a link file with a schedule, or a scenario.
#[utoipa::path(
    get, path = "/v1/links/{name}/history/{form}",
    params(("name" = String, Path, description = "The link's name, as in /v1/links"), ("form" = inline(FileForm), Path, description = "link or scenario"),
        SinceQuery),
    responses(
        (status = OK, content_type = "application/toml", body = String), (status = BAD_REQUEST, body = Problem),
        (status = NOT_FOUND, body = Problem),
        (status = UNPROCESSABLE_ENTITY, body = Problem, description = "The history contains a change that no schedule can express")
    )
)]
pub(super) async fn history_file(
    State(app): State<AppState>,
    asked: Result<Path<(String, FileForm)>, PathRejection>,
    query: Result<Query<SinceQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let Path((name, form)) =
        asked.map_err(|_| Problem::not_found("the form of a history file is link or scenario"))?;
    let link = find(&app, Ok(Path(name)))?;
    let Query(query) = query?;
    let told = Arc::clone(&link);
    let file = compute(&app, move || {
        let told = told.told(query.since).ok_or_else(unknown_revision)?;
        let text = match form {
            FileForm::Link => told.link_file(),
            FileForm::Scenario => told.scenario(),
        };
        text.map_err(|error| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, format!("{error:#}")))
    });
    let text = file.await.unwrap_or_else(|| Err(died()))?;
    let ending = match form {
        FileForm::Link => ".toml",
        FileForm::Scenario => "-scenario.toml",
    };
    Ok(attachment(&link, "application/toml", ending, text))
}

/// A file of this kind, which is called as the link and ends so; what is not plain in the link's name is no part of it.
fn attachment(
    link: &LiveLink,
    kind: &'static str,
    ending: &str,
    body: impl IntoResponse,
) -> Response {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let name = link.name().chars();
    let name: String = name.map(|c| if is_plain(c) { c } else { '-' }).collect();
    let headers = [
        (header::CONTENT_TYPE, kind.to_owned()),
        (
            header::CONTENT_DISPOSITION,
            format!("attachment; filename=\"{name}{ending}\""),
        ),
    ];
    (headers, body).into_response()
}

/// What happens on a link, as server-sent events: `sample` ten times a second, `change`, and `end`. A reader that lags is cut
/// off; `Last-Event-ID` has the last minute's repeated after that one.
#[utoipa::path(
    get, path = "/v1/links/{name}/events", params(("name" = String, Path, description = "The link's name, as in /v1/links"),
        ("Last-Event-ID" = Option<u64>, Header, description = "The last event that the client has received")),
    responses(
        (status = OK, content_type = "text/event-stream", content((LinkSample = "text/event-stream"), (ChangeView = "text/event-stream"))),
        (status = NOT_FOUND, body = Problem)
    )
)]
pub(super) async fn follow(
    State(app): State<AppState>,
    name: Name,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let link = find(&app, name)?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let last = last.and_then(|id| id.trim().parse().ok());
    let body = events::follow(&link, last);
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], body).into_response())
}

/// The packets of a link from now on, as a stream of pcapng with their verdicts in comments. It ends by its limits, with the link,
/// or with the connection; a reader that lags is cut off.
#[utoipa::path(
    get, path = "/v1/links/{name}/capture", params(("name" = String, Path, description = "The link's name, as in /v1/links"), CaptureQuery),
    responses(
        (status = OK, content_type = "application/x-pcapng", body = Vec<u8>), (status = BAD_REQUEST, body = Problem),
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

/// A link that ships.
#[derive(Serialize, ToSchema)]
#[schema(as = Profile)]
pub(super) struct ProfileView {
    /// As `--profile` takes it.
    name: &'static str,
    /// What it is, in a line.
    about: &'static str,
    /// In the form of a link file.
    #[schema(value_type = Object)]
    conditions: LinkSpec,
}

/// The links that ship, as others measured them.
#[utoipa::path(get, path = "/v1/profiles", responses((status = OK, body = [ProfileView])))]
pub(super) async fn profiles() -> Json<Vec<ProfileView>> {
    let all = PROFILES.iter().map(|profile| ProfileView {
        name: profile.name,
        about: profile.about(),
        conditions: profile.conditions(),
    });
    Json(all.collect())
}

/// A condition.
#[derive(Serialize, ToSchema)]
pub(super) struct KnownCondition {
    /// Its key.
    key: &'static str,
    /// What stands for its value.
    value_name: &'static str,
    /// What it is, with examples of its value.
    help: &'static str,
}

/// Every condition of a direction.
#[utoipa::path(get, path = "/v1/conditions", responses((status = OK, body = [KnownCondition])))]
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
    app.links.get(&name).ok_or_else(|| {
        let names: Vec<String> = app
            .links
            .all()
            .iter()
            .map(|link| link.name().to_owned())
            .collect();
        match (names.as_slice(), app.links.experiment().next()) {
            ([], None) => Problem::not_found("no link is running"),
            ([], Some(next)) => Problem::not_found(
                "no link is running between two runs: `next` names the next run with links",
            )
            .until(next),
            (names, _) => {
                let names = names.join(", ");
                Problem::not_found(format!("there is no such link; the links are: {names}"))
            }
        }
    })
}

async fn change(
    app: &AppState,
    link: Arc<LiveLink>,
    form: Form,
    query: Result<Query<ChangeQuery>, QueryRejection>,
    headers: &HeaderMap,
    (client, origin): (ClientConnection, RequestOrigin),
    body: Result<Whole, Problem>,
) -> Result<Response, Problem> {
    let Query(query) = query?;
    let order = order(form, query, headers, body, origin)?;
    let deadline = clock::now() + CHANGE_LIMIT.into();
    let permit = timeout(CHANGE_LIMIT, Arc::clone(&app.changing).acquire_owned()).await;
    let permit = permit.map_err(|_| ChangeRefusal::TooLong)?;
    let making = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let changed = link.change(&order, deadline)?;
        // A client that has gone away meanwhile has this dropped, and the lease with it.
        let grant = changed.grant.clone();
        let lease = grant.map(|grant| ConnectionLease::of(link, grant));
        Ok::<_, ChangeRefusal>((changed, lease))
    });
    let (changed, lease) = making.await.map_err(|_| died())??;
    let revision = changed.revision;
    let told = json(&tell(app, changed).await)?;
    Ok(match lease {
        Some(lease) => answer(revision, lease.hold(format!("{told}\n").into(), client)),
        None => answer(revision, told.into()),
    })
}

/// With what it means. A change that was made is told of soon, without that if others are computed first.
async fn tell(app: &AppState, changed: Changed) -> ChangeResponse {
    let spec = Arc::clone(&changed.link.conditions);
    let implies = compute(app, move || InEffect::of(&spec).ok());
    let implies = match changed.dry_run {
        true => implies.await,
        false => timeout(SOON, implies).await.ok().flatten(),
    };
    ChangeResponse {
        changed,
        implies: implies.flatten(),
    }
}

/// Computes something beside the thread that serves; one at a time, also where nobody waits for it any more. `None` if it panicked.
async fn compute<T: Send + 'static>(
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

/// The answer where a thread panicked, which says itself of what.
fn died() -> Problem {
    Problem::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "the request failed: the cause is on farwire's standard error",
    )
}

fn json(told: &ChangeResponse) -> Result<String, Problem> {
    let text = serde_json::to_string(told);
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
