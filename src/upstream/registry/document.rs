//! Reads a page of a registry. What is not as it should be is left out and counted; nothing of it is used.

use serde::Deserialize;
use serde_json::Value;

use super::entry::Entry;

/// Entries of a page that are looked at.
const MOST_ENTRIES: usize = 200;
/// Characters of a name, a version and a description.
const LONGEST_NAME: usize = 200;
const LONGEST_TEXT: usize = 500;
/// Bytes of the mark of the next page.
const LONGEST_CURSOR: usize = 1_024;
/// Where the official registry says more.
const OFFICIAL: &str = "io.modelcontextprotocol.registry/official";

/// A page of servers.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Page {
    pub(super) entries: Vec<Entry>,
    /// How many were not understood.
    pub(super) left_out: usize,
    pub(super) next: Option<String>,
}

#[derive(Deserialize)]
struct RawPage {
    servers: Option<Vec<Value>>,
    #[serde(default)]
    metadata: Option<RawMetadata>,
}

#[derive(Deserialize)]
struct RawMetadata {
    #[serde(rename = "nextCursor", alias = "next_cursor", default)]
    next: Option<String>,
}

/// Reads `{"servers": [{"server": …, "_meta": …}], "metadata": {"nextCursor": …}}`. Older registries have the members of `server`
/// one level higher.
pub(super) fn parse_page(json: &[u8]) -> Result<Page, String> {
    let RawPage { servers, metadata } = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    // An empty list is null in some registries.
    let servers = servers.unwrap_or_default();
    let mut page = Page { left_out: servers.len().saturating_sub(MOST_ENTRIES), ..Page::default() };
    for value in servers.into_iter().take(MOST_ENTRIES) {
        match parse_entry(value) {
            Some(Some(entry)) => page.entries.push(entry),
            Some(None) => {}
            None => page.left_out += 1,
        }
    }
    let next = metadata.and_then(|metadata| metadata.next);
    page.next = next.filter(|next| !next.is_empty() && next.len() <= LONGEST_CURSOR);
    Ok(page)
}

/// Returns None for an entry that is not understood, and Some(None) for one that is not to be shown.
fn parse_entry(mut value: Value) -> Option<Option<Entry>> {
    let official = value.get("_meta").and_then(|meta| meta.get(OFFICIAL)).cloned().unwrap_or_default();
    let server = match value.get_mut("server") {
        Some(server) => server.take(),
        None => value,
    };
    let mut entry: Entry = serde_json::from_value(server).ok()?;
    if let Some(status) = official.get("status").and_then(Value::as_str) {
        entry.status = Some(status.to_owned());
    }
    let is_old = official.get("isLatest").or_else(|| official.get("is_latest")) == Some(&Value::Bool(false));
    if is_old || entry.status.as_deref() == Some("deleted") {
        return Some(None);
    }
    if !is_name(&entry.name) || !is_version(&entry.version) {
        return None;
    }
    entry.description = plain(&entry.description);
    entry.title = entry.title.as_deref().map(plain);
    entry.status = entry.status.as_deref().map(plain);
    if entry.repository.as_ref().is_some_and(|repository| !is_address(&repository.url)) {
        entry.repository = None;
    }
    Some(Some(entry))
}

/// Whether a text is `NAMESPACE/NAME`.
pub(super) fn is_name(name: &str) -> bool {
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    name.len() <= LONGEST_NAME
        && name.split_once('/').is_some_and(|(namespace, name)| is_part(namespace) && is_part(name))
}

fn is_version(version: &str) -> bool {
    version.len() <= LONGEST_NAME && version.bytes().all(|byte| byte.is_ascii_graphic())
}

fn is_address(url: &str) -> bool {
    url.len() <= LONGEST_TEXT
        && (url.starts_with("https://") || url.starts_with("http://"))
        && url.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Returns a text for one line: no control characters, and not too long.
pub(super) fn plain(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let text = words.collect::<Vec<_>>().join(" ");
    let text = codebridge_runtimes::exec::visible_line(&text);
    match text.char_indices().nth(LONGEST_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn page(value: &Value) -> Page {
        parse_page(value.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn entries_of_both_forms_are_read() {
        let server = |name: &str| json!({ "name": name, "description": "a\u{1b}[2J\nb", "version": "1.0" });
        let meta =
            |is_latest: bool, status: &str| json!({ OFFICIAL: { "isLatest": is_latest, "status": status } });
        let page = page(&json!({
            "servers": [
                { "server": server("a/new"), "_meta": meta(true, "active") },
                server("b/older-form"),
                { "server": server("a/old-version"), "_meta": meta(false, "active") },
                { "server": server("a/gone"), "_meta": meta(true, "deleted") },
            ],
            "metadata": { "nextCursor": "x", "count": 4 },
        }));
        let names: Vec<_> = page.entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(
            (names, page.left_out, page.next.as_deref()),
            (vec!["a/new", "b/older-form"], 0, Some("x"))
        );
        assert_eq!(page.entries[0].publisher(), "a");
        assert!(!page.entries[0].description.contains(['\u{1b}', '\n']), "{:?}", page.entries[0].description);
    }

    #[test]
    fn what_is_nonsense_is_left_out_and_counted() {
        let page = page(&json!({ "servers": [
            1, null, [], {},
            { "name": "no-namespace" },
            { "name": "a/\u{1b}[2Jb" },
            { "name": "a/b\u{202e}" },
            { "name": "-a/b" },
            { "name": "a/b/c" },
            { "name": "a/b", "version": "1\n2" },
            { "name": "a/b", "packages": "x" },
            { "name": "a/b", "packages": [{ "identifier": 1 }] },
            { "server": { "name": "a/good" } },
        ] }));
        assert_eq!((page.entries.len(), page.left_out), (1, 12));
        for wrong in ["", "null", "[]", "1", "<html>", r#"{"servers": 1}"#, r#"{"servers": {}}"#] {
            assert!(parse_page(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert_eq!(parse_page(br#"{"servers": null, "metadata": null}"#), Ok(Page::default()));
    }
}
