//! The routes, and the OpenAPI document that describes them. The document is generated from the
//! served types and the schema of link files.

use std::sync::LazyLock;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use conditions::LinkSpec;
use serde_json::{Map, Value, json};
use utoipa::openapi::OpenApi;
use utoipa::openapi::info::{InfoBuilder, LicenseBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{AppState, links, metrics, run};

/// The content type of every error.
const PROBLEM: &str = "application/problem+json";

/// Returns all resources, and the document that describes them.
pub(super) fn router() -> (Router<AppState>, OpenApi) {
    OpenApiRouter::with_openapi(about())
        .routes(routes!(links::all))
        .routes(routes!(links::one, links::put, links::patch))
        .routes(routes!(links::schedule, links::put_schedule))
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

/// Returns the start of the document.
fn about() -> OpenApi {
    let license = LicenseBuilder::new()
        .name(env!("CARGO_PKG_LICENSE"))
        .build();
    let info = InfoBuilder::new()
        .title("farwire")
        .version("1")
        .description(Some(
            "Shows running links and changes their conditions. docs/live.md describes the API.",
        ))
        .license(Some(license))
        .build();
    OpenApi::new(info, utoipa::openapi::Paths::new())
}

/// Returns the document as JSON.
pub(crate) fn document() -> String {
    let (_, document) = router();
    let mut document = serde_json::to_value(document).expect("a document is JSON");
    let schemas = document
        .pointer_mut("/components/schemas")
        .and_then(Value::as_object_mut)
        .expect("it has schemas");
    let mut spec = schemars::schema_for!(LinkSpec).to_value();
    // The types of link files are added to the other schemas.
    if let Some(Value::Object(parts)) = spec.as_object_mut().and_then(|spec| spec.remove("$defs")) {
        schemas.extend(parts);
    }
    schemas.insert("LinkSpec".to_owned(), spec);
    operations(&mut document).for_each(fix_parameters);
    describe_access(&mut document);
    let text = serde_json::to_string_pretty(&document).expect("a document is JSON");
    text.replace("#/$defs/", "#/components/schemas/") + "\n"
}

fn operations(document: &mut Value) -> impl Iterator<Item = &mut Value> {
    let paths = document["paths"]
        .as_object_mut()
        .into_iter()
        .flatten()
        .filter_map(|(_, path)| path.as_object_mut());
    paths.flat_map(Map::values_mut)
}

/// Removes null from the types of optional parameters, because HTTP has no null, and marks bodies
/// as required.
fn fix_parameters(operation: &mut Value) {
    let parameters = operation
        .pointer_mut("/parameters")
        .and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        let Some(kind) = parameter.pointer_mut("/schema/type") else {
            continue;
        };
        let mut kinds = kind.as_array().into_iter().flatten();
        if let Some(only) = kinds.find(|kind| *kind != "null").cloned() {
            *kind = only;
        }
    }
    if let Some(body) = operation.get_mut("requestBody") {
        body["required"] = true.into();
    }
}

/// Adds what applies to every request: the token, the responses to requests of foreign pages and to
/// too many requests, and the content type of errors.
fn describe_access(document: &mut Value) {
    let problem = Map::from_iter([(
        PROBLEM.to_owned(),
        json!({"schema": {"$ref": "#/components/schemas/Problem"}}),
    )]);
    let refusals = [
        (
            "401",
            "Unauthorized",
            "A token is required, and this one is wrong",
        ),
        (
            "403",
            "Forbidden",
            "The token is read-only, or the headers Host, Origin or Sec-Fetch-Site belong to another site",
        ),
        (
            "429",
            "TooManyRequests",
            "Too many requests, or too many wrong tokens from this address; the header Retry-After says in how many seconds to try again",
        ),
    ];
    let mut responses = Map::new();
    for (_, name, what) in refusals {
        let response = json!({"description": what, "content": problem});
        responses.insert(name.to_owned(), response);
    }
    responses["TooManyRequests"]["headers"] = json!({"Retry-After": {
        "description": "Seconds until the next try",
        "schema": {"type": "integer", "minimum": 1},
    }});
    document["components"]["responses"] = responses.into();
    document["components"]["securitySchemes"] = json!({"token": {
        "type": "http",
        "scheme": "bearer",
        "description": "The token of --token-file, or the read-only token of --read-token-file; no token if neither was given",
    }});
    document["security"] = json!([{"token": []}, {}]);
    for operation in operations(document) {
        let responses = operation["responses"].as_object_mut();
        for content in responses.into_iter().flat_map(Map::values_mut) {
            let Some(kinds) = content["content"].as_object_mut() else {
                continue;
            };
            if kinds.get("application/json") == Some(&problem[PROBLEM]) {
                *kinds = problem.clone();
            }
        }
        for (status, name, _) in refusals {
            let response = &mut operation["responses"][status];
            if response.is_null() {
                *response = json!({"$ref": format!("#/components/responses/{name}")});
            }
        }
    }
}

/// Returns this document.
#[utoipa::path(get, path = "/v1/openapi.json", responses((status = OK, content_type = "application/json")))]
async fn serve() -> impl IntoResponse {
    static DOCUMENT: LazyLock<String> = LazyLock::new(document);
    ([(CONTENT_TYPE, "application/json")], DOCUMENT.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_document_equals_the_served_one() {
        let kept = include_str!("../../schema/openapi.json");
        assert!(
            kept == document(),
            "cargo run -- schema --openapi > schema/openapi.json"
        );
    }

    #[test]
    fn every_operation_describes_the_token_and_its_refusals() {
        let document: Value = serde_json::from_str(&document()).unwrap();
        let scheme = &document["components"]["securitySchemes"]["token"];
        assert_eq!(scheme["scheme"], "bearer");
        // A token is required, or none if the server has none.
        assert_eq!(document["security"], json!([{"token": []}, {}]));
        let paths = document["paths"].as_object().unwrap();
        for operation in paths
            .values()
            .flat_map(|path| path.as_object().unwrap().values())
        {
            for status in ["401", "403", "429"] {
                assert!(
                    operation["responses"][status].is_object(),
                    "{status}: {operation}"
                );
            }
            for (status, response) in operation["responses"].as_object().unwrap() {
                let is_error = status.starts_with(['4', '5']);
                let json = &response["content"]["application/json"];
                assert!(!is_error || json.is_null(), "{status}: {operation}");
            }
        }
    }

    #[test]
    fn every_reference_has_a_target() {
        let document: Value = serde_json::from_str(&document()).unwrap();
        let text = document.to_string();
        for reference in text.split("\"$ref\":\"#").skip(1) {
            let place = reference.split('"').next().unwrap();
            assert!(document.pointer(place).is_some(), "{place}");
        }
    }
}
