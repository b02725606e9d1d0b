//! The web page: the files of the directory `page`, which are part of the binary.

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;

use super::AppState;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The path, the content type and the text of a file, which is served below `/page` under its own
/// name.
macro_rules! file {
    ($name:literal, $kind:expr) => {
        (
            concat!("/page/", $name),
            $kind,
            include_str!(concat!("page/", $name)),
        )
    };
}

/// All files of the page.
const FILES: [(&str, &str, &str); 17] = [
    ("/", HTML, include_str!("page/index.html")),
    file!("style.css", CSS),
    file!("api.js", SCRIPT),
    file!("app.js", SCRIPT),
    file!("charts.js", SCRIPT),
    file!("conditions.js", SCRIPT),
    file!("dom.js", SCRIPT),
    file!("fields.js", SCRIPT),
    file!("hops.js", SCRIPT),
    file!("implies.js", SCRIPT),
    file!("rules.js", SCRIPT),
    file!("run.js", SCRIPT),
    file!("series.js", SCRIPT),
    file!("spec.js", SCRIPT),
    file!("trace.js", SCRIPT),
    file!("units.js", SCRIPT),
    file!("watch.js", SCRIPT),
];

/// Returns the files at their paths.
pub(super) fn router() -> Router<AppState> {
    FILES
        .into_iter()
        .fold(Router::new(), |router, (path, kind, text)| {
            router.route(
                path,
                get(move || async move { ([(CONTENT_TYPE, kind)], text) }),
            )
        })
}
