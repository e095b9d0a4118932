//! The stylesheet, the script and the icon.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use sha2::{Digest, Sha256};

const STYLE: &str = include_str!("pages/style.css");
const SCRIPT: &str = include_str!("pages/script.js");
const ICON: &str = include_str!("pages/icon.svg");

static VERSION: LazyLock<String> = LazyLock::new(|| {
    let digest = Sha256::new().chain_update(STYLE).chain_update(SCRIPT).chain_update(ICON).finalize();
    hex::encode(&digest[..6])
});

/// Returns what changes with their content, so that browsers can keep them.
pub(super) fn version() -> &'static str {
    &VERSION
}

fn asset(kind: &'static str, text: &'static str) -> Response {
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, "public, max-age=31536000, immutable")], text).into_response()
}

pub(super) async fn style() -> Response {
    asset("text/css; charset=utf-8", STYLE)
}

pub(super) async fn script() -> Response {
    asset("text/javascript; charset=utf-8", SCRIPT)
}

pub(super) async fn icon() -> Response {
    asset("image/svg+xml", ICON)
}
