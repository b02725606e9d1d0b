//! The running experiment.

use axum::Json;
use axum::extract::State;

use super::AppState;
use crate::live::ExperimentView;

/// How far the experiment is, and its figures so far; null where this farwire runs none.
#[utoipa::path(get, path = "/v1/run", responses((status = OK, body = Option<ExperimentView>)))]
pub(super) async fn run(State(app): State<AppState>) -> Json<Option<ExperimentView>> {
    Json(app.links.experiment().view())
}
