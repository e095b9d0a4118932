//! Media types.

/// Whether a media type is JSON.
pub(super) fn is_json(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || kind == "text/json" || kind.ends_with("+json")
}
