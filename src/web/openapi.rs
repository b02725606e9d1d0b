//! The resources, and the OpenAPI document that describes them: of the types that are served, and of the schema of link files.

use std::sync::LazyLock;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use record::link_spec::LinkSpec;
use serde_json::Value;
use utoipa::openapi::OpenApi;
use utoipa::openapi::info::{InfoBuilder, LicenseBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{App, links, metrics, run};

/// All resources, and the document that describes them.
pub(super) fn router() -> (Router<App>, OpenApi) {
    OpenApiRouter::with_openapi(about())
        .routes(routes!(links::all))
        .routes(routes!(links::one, links::put, links::patch))
        .routes(routes!(links::end_lease))
        .routes(routes!(links::counters))
        .routes(routes!(links::history))
        .routes(routes!(links::history_file))
        .routes(routes!(links::follow))
        .routes(routes!(links::capture))
        .routes(routes!(links::profiles))
        .routes(routes!(links::conditions))
        .routes(routes!(run::run))
        .routes(routes!(metrics::scrape))
        .routes(routes!(serve))
        .split_for_parts()
}

/// What it begins with.
fn about() -> OpenApi {
    let license = LicenseBuilder::new()
        .name(env!("CARGO_PKG_LICENSE"))
        .build();
    let info = InfoBuilder::new()
        .title("farwire")
        .version("1")
        .description(Some(
            "Links that run: watched and changed. docs/live.md says how.",
        ))
        .license(Some(license))
        .build();
    OpenApi::new(info, utoipa::openapi::Paths::new())
}

/// The document as JSON.
pub(crate) fn document() -> String {
    let (_, document) = router();
    let mut document = serde_json::to_value(document).expect("a document is JSON");
    let schemas = document
        .pointer_mut("/components/schemas")
        .and_then(Value::as_object_mut)
        .expect("it has schemas");
    let mut spec = schemars::schema_for!(LinkSpec).to_value();
    // The types of link files stand beside the others.
    if let Some(Value::Object(parts)) = spec.as_object_mut().and_then(|spec| spec.remove("$defs")) {
        schemas.extend(parts);
    }
    schemas.insert("LinkSpec".to_owned(), spec);
    let text = serde_json::to_string_pretty(&document).expect("a document is JSON");
    text.replace("#/$defs/", "#/components/schemas/") + "\n"
}

/// This document.
#[utoipa::path(get, path = "/v1/openapi.json", responses((status = OK, content_type = "application/json")))]
async fn serve() -> impl IntoResponse {
    static DOCUMENT: LazyLock<String> = LazyLock::new(document);
    ([(CONTENT_TYPE, "application/json")], DOCUMENT.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_that_is_kept_is_the_one_that_is_served() {
        let kept = include_str!("../../schema/openapi.json");
        assert!(
            kept == document(),
            "cargo run -- schema --openapi > schema/openapi.json"
        );
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document: Value = serde_json::from_str(&document()).unwrap();
        let text = document.to_string();
        for reference in text.split("\"$ref\":\"#").skip(1) {
            let place = reference.split('"').next().unwrap();
            assert!(document.pointer(place).is_some(), "{place}");
        }
    }
}
