//! The routes, and the OpenAPI document that describes them. The document is generated from the
//! served types and the schema of link files.

use std::mem;
use std::sync::LazyLock;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use conditions::LinkSpec;
use serde_json::{Map, Value, json};
use utoipa::openapi::info::{InfoBuilder, LicenseBuilder};
use utoipa::openapi::server::ServerBuilder;
use utoipa::openapi::{Components, ComponentsBuilder, OpenApi, OpenApiBuilder};
use utoipa::{PartialSchema as _, ToSchema as _};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{AppState, links, metrics, run};
use crate::live::LinkSample;

/// The content type of every error.
const PROBLEM: &str = "application/problem+json";

/// The errors that mean the same for every operation that does not describe them itself.
const ERRORS: [(&str, &str); 4] = [
    ("400", "The query, a header or the body is malformed"),
    ("404", "There is no such link"),
    ("413", "The body is too large"),
    ("415", "The body has another content type"),
];

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
        .identifier(Some(env!("CARGO_PKG_LICENSE")))
        .build();
    let info = InfoBuilder::new()
        .title("farwire")
        .version("1")
        .description(Some(
            "Shows running links and changes their conditions. docs/live.md describes the API.",
        ))
        .license(Some(license))
        .build();
    let server = ServerBuilder::new()
        .url("/")
        .description(Some("The address that serves this document"))
        .build();
    OpenApiBuilder::new()
        .info(info)
        .servers(Some([server]))
        .components(Some(event_schemas()))
        .build()
}

/// Returns the schemas of server-sent events. No response refers to them, because a stream of events is text.
fn event_schemas() -> Components {
    let mut schemas = vec![(LinkSample::name().into_owned(), LinkSample::schema())];
    LinkSample::schemas(&mut schemas);
    ComponentsBuilder::new().schemas_from_iter(schemas).build()
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
    name_stages(schemas);
    operations(&mut document).for_each(fix_parameters);
    operations(&mut document).for_each(describe_errors);
    describe_access(&mut document);
    let text = serde_json::to_string_pretty(&document).expect("a document is JSON");
    text.replace("#/$defs/", "#/components/schemas/") + "\n"
}

/// Gives the kinds of stages and their steps in a schedule their own schemas: "FourStateStage", "FourStateStageStep".
/// Programs that generate clients need a name for each nested object.
fn name_stages(schemas: &mut Map<String, Value>) {
    let stages = schemas.get_mut("Stage");
    let kinds = stages.and_then(|stage| stage["oneOf"].as_array_mut());
    let mut named = Map::new();
    for kind in kinds.into_iter().flatten() {
        let word = kind["properties"]["kind"]["const"].as_str();
        let name = format!("{}Stage", capitalised(word.unwrap_or_default()));
        if let Some(step) = kind.pointer_mut("/properties/schedule/items") {
            let name = format!("{name}Step");
            let schema = mem::replace(step, reference(&name));
            named.insert(name, schema);
        }
        let schema = mem::replace(kind, reference(&name));
        named.insert(name, schema);
    }
    schemas.extend(named);
}

/// Returns the words of a name as a name of a type: "four-state" becomes "FourState".
fn capitalised(name: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_uppercase() + rest
    };
    name.split('-').map(word).collect()
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
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

/// Describes the errors of [`ERRORS`].
fn describe_errors(operation: &mut Value) {
    for (status, what) in ERRORS {
        let response = operation.pointer_mut(&format!("/responses/{status}"));
        if let Some(response) = response.and_then(Value::as_object_mut) {
            response.entry("description").or_insert(what.into());
        }
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
        ("401", "Unauthorized", "The token is missing or wrong"),
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
#[utoipa::path(get, path = "/v1/openapi.json", responses((status = OK, content_type = "application/json", body = Object, description = "The document")))]
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
    fn every_response_is_described() {
        let mut document: Value = serde_json::from_str(&document()).unwrap();
        let shared = document["components"]["responses"].clone();
        let mut all: Vec<Value> = shared.as_object().unwrap().values().cloned().collect();
        for operation in operations(&mut document) {
            all.extend(
                operation["responses"]
                    .as_object()
                    .unwrap()
                    .values()
                    .cloned(),
            );
        }
        for response in all.iter().filter(|response| response["$ref"].is_null()) {
            let description = response["description"].as_str().unwrap_or_default();
            assert!(!description.is_empty(), "{response}");
        }
    }

    #[test]
    fn a_capture_is_a_file_and_a_stream_of_events_is_text() {
        let document: Value = serde_json::from_str(&document()).unwrap();
        let schema = |path: &str, kind: &str| {
            let answer = &document["paths"][format!("/v1/links/{{name}}/{path}")]["get"];
            answer["responses"]["200"]["content"][kind]["schema"].clone()
        };
        let capture = schema("capture", "application/x-pcapng");
        assert_eq!(
            (&capture["type"], &capture["format"]),
            (&json!("string"), &json!("binary"))
        );
        assert_eq!(
            schema("events", "text/event-stream"),
            json!({"type": "string"})
        );
        assert!(document["components"]["schemas"]["LinkSample"].is_object());
    }

    #[test]
    fn every_kind_of_stage_has_a_schema_with_its_name() {
        let document: Value = serde_json::from_str(&document()).unwrap();
        let schemas = &document["components"]["schemas"];
        let kinds = schemas["Stage"]["oneOf"].as_array().unwrap();
        assert!(kinds.contains(&reference("FourStateStage")), "{kinds:?}");
        let stage = &schemas["FourStateStage"]["properties"];
        assert_eq!(stage["kind"]["const"], "four-state");
        assert_eq!(stage["schedule"]["items"], reference("FourStateStageStep"));
        let names = schemas.as_object().unwrap().keys();
        let steps = names.filter(|name| name.ends_with("StageStep"));
        assert_eq!(steps.count(), kinds.len());
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
