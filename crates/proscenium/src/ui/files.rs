//! The files of the page, which are part of the program.

use axum::{
    Router,
    http::header,
    response::{IntoResponse, Response},
    routing::get,
};

/// A file: its path, its content type, its content.
type File = (&'static str, &'static str, &'static str);

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

const FILES: &[File] = &[
    ("/", HTML, include_str!("page/index.html")),
    ("/page.css", CSS, include_str!("page/page.css")),
    ("/page.js", SCRIPT, include_str!("page/page.js")),
    ("/api.js", SCRIPT, include_str!("page/api.js")),
    ("/dom.js", SCRIPT, include_str!("page/dom.js")),
    ("/format.js", SCRIPT, include_str!("page/format.js")),
    ("/band.js", SCRIPT, include_str!("page/band.js")),
    ("/problems.js", SCRIPT, include_str!("page/problems.js")),
    ("/drawing.js", SCRIPT, include_str!("page/drawing.js")),
    ("/pools.js", SCRIPT, include_str!("page/pools.js")),
    ("/traffic.js", SCRIPT, include_str!("page/traffic.js")),
    ("/recent.js", SCRIPT, include_str!("page/recent.js")),
    ("/trust.js", SCRIPT, include_str!("page/trust.js")),
    ("/fleet.js", SCRIPT, include_str!("page/fleet.js")),
    ("/agents.js", SCRIPT, include_str!("page/agents.js")),
    ("/actions.js", SCRIPT, include_str!("page/actions.js")),
    ("/uPlot.js", SCRIPT, include_str!("page/uPlot.iife.min.js")),
    ("/uPlot.css", CSS, include_str!("page/uPlot.min.css")),
    ("/uPlot.LICENSE", TEXT, include_str!("page/uPlot.LICENSE")),
    ("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
];

/// The files. They contain nothing about the proxy, so they need no secret.
pub(super) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES
        .iter()
        .fold(Router::new(), |router, (path, content_type, content)| {
            router.route(
                path,
                get(move || async move { file(content_type, content) }),
            )
        })
}

fn file(content_type: &'static str, content: &'static str) -> Response {
    ([(header::CONTENT_TYPE, content_type)], content).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_no_inline_script_or_style_and_no_address_elsewhere() {
        for (path, content_type, content) in FILES {
            let ours = !path.starts_with("/uPlot");
            assert!(!content.is_empty(), "{path}");
            if ours {
                for refused in [
                    "innerHTML",
                    "insertAdjacentHTML",
                    "eval(",
                    "https://",
                    "style=",
                ] {
                    assert!(!content.contains(refused), "{path} has {refused}");
                }
            }
            if *content_type == HTML {
                assert!(!content.contains("<style"), "{path}");
                let scripts = content.matches("<script").count();
                assert_eq!(
                    content.matches("<script src=").count()
                        + content.matches("<script type=\"module\" src=").count(),
                    scripts
                );
            }
        }
    }
}
