//! The running experiment.

use axum::Json;
use axum::extract::State;

use super::AppState;
use crate::live::ExperimentView;

/// Returns the progress of the experiment and its figures so far; null if no experiment runs.
#[utoipa::path(get, path = "/v1/run", responses((status = OK, body = Option<ExperimentView>, description = "The progress, or null")))]
pub(super) async fn run(State(app): State<AppState>) -> Json<Option<ExperimentView>> {
    Json(app.links.experiment().view())
}
