//! The resources: the helper reference, and output that was cut in a result.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{MetaObject, Resource, ResourceContents, ResourceTemplate};
use serde_json::json;

use crate::session::{OutputStream, RunPython, whole_characters};

const CAPABILITIES_URI: &str = "resource://mcp-server-code-execution-mode/capabilities";
const CAPABILITIES: &str = include_str!("capabilities.md");

const RUNS: &str = "codebridge://runs/";
/// Bytes of output in one answer; the next part is another request.
const MOST_AT_ONCE: u64 = 1 << 20;

pub(super) fn list(sessions: &impl RunPython) -> Vec<Resource> {
    let capabilities = Resource::new(CAPABILITIES_URI, "capabilities")
        .with_title("Helper reference")
        .with_description("What code in run_python can use")
        .with_mime_type("text/markdown")
        .with_size(CAPABILITIES.len() as u64);
    let mut resources = vec![capabilities];
    for run in sessions.kept_runs() {
        for (stream, name) in OutputStream::NAMES {
            if sessions.output(run, stream, 0, 1).is_some_and(|first| !first.is_empty()) {
                resources.push(
                    Resource::new(format!("{RUNS}{run}/{name}"), format!("{name} of run {run}"))
                        .with_mime_type("text/plain"),
                );
            }
        }
        for (index, types) in sessions.display_types(run).into_iter().enumerate() {
            let number = index + 1;
            let display = Resource::new(
                format!("{RUNS}{run}/display/{number}"),
                format!("display {number} of run {run}"),
            );
            resources.extend(types.first().map(|mime| display.with_mime_type(mime)));
        }
    }
    resources
}

/// Returns the form of the URIs of kept output.
pub(super) fn templates() -> Vec<ResourceTemplate> {
    let output = ResourceTemplate::new(format!("{RUNS}{{run}}/{{stream}}{{?start}}"), "output of a run")
        .with_description(
            "Output that was cut: stream is stdout, stderr or traceback, start is the number of the first byte",
        )
        .with_mime_type("text/plain");
    let display = ResourceTemplate::new(format!("{RUNS}{{run}}/display/{{number}}"), "displayed object")
        .with_description(
            "What a run displayed: a picture, a table or another form, by its number from 1 on",
        );
    vec![output, display]
}

/// Returns the contents of a resource; None when there is none.
pub(super) fn read(sessions: &impl RunPython, uri: &str) -> Option<Vec<ResourceContents>> {
    if uri == CAPABILITIES_URI {
        return Some(vec![ResourceContents::text(CAPABILITIES, uri).with_mime_type("text/markdown")]);
    }
    if let Some((run, number)) = parse_display(uri) {
        let forms = sessions.display(run, number)?;
        return Some(forms.into_iter().map(|(mime, data)| form(uri, &mime, data)).collect());
    }
    Some(vec![read_output(sessions, uri)?])
}

/// Returns a form of a displayed object: as text if it is text.
fn form(uri: &str, mime: &str, data: Vec<u8>) -> ResourceContents {
    match String::from_utf8(data) {
        Ok(text) => ResourceContents::text(text, uri).with_mime_type(mime),
        Err(bytes) => ResourceContents::blob(STANDARD.encode(bytes.into_bytes()), uri).with_mime_type(mime),
    }
}

fn read_output(sessions: &impl RunPython, uri: &str) -> Option<ResourceContents> {
    let (run, stream, start) = parse(uri)?;
    // One byte more says whether anything follows.
    let mut bytes = sessions.output(run, stream, start, MOST_AT_ONCE + 1)?;
    let more = bytes.len() as u64 > MOST_AT_ONCE;
    if more {
        bytes.truncate(whole_characters(&bytes[..MOST_AT_ONCE as usize]));
    }
    let contents = ResourceContents::text(String::from_utf8_lossy(&bytes), uri);
    if !more && start == 0 {
        return Some(contents);
    }
    let mut meta = MetaObject::new();
    meta.insert("start".into(), json!(start));
    meta.insert("end".into(), json!(start + bytes.len() as u64));
    if more {
        let (base, _) = uri.split_once('?').unwrap_or((uri, ""));
        meta.insert("next".into(), json!(format!("{base}?start={}", start + bytes.len() as u64)));
    }
    Some(contents.with_meta(meta))
}

/// Returns the run and the number that a URI of a displayed object names.
fn parse_display(uri: &str) -> Option<(u32, usize)> {
    let (run, number) = uri.strip_prefix(RUNS)?.split_once("/display/")?;
    Some((run.parse().ok()?, number.parse().ok()?))
}

/// Returns the run, the stream and the first byte that a URI of kept output names.
fn parse(uri: &str) -> Option<(u32, OutputStream, u64)> {
    let uri = uri.strip_prefix(RUNS)?;
    let (path, start) = uri.split_once("?start=").unwrap_or((uri, "0"));
    let (run, name) = path.split_once('/')?;
    Some((run.parse().ok()?, OutputStream::named(name)?, start.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_of_outputs_are_read() {
        let output = |run, stream, start| Some((run, stream, start));
        assert_eq!(parse("codebridge://runs/3/stdout"), output(3, OutputStream::Stdout, 0));
        assert_eq!(parse("codebridge://runs/3/stderr?start=17"), output(3, OutputStream::Stderr, 17));
        for uri in [
            "",
            "codebridge://runs/",
            "codebridge://runs/3",
            "codebridge://runs/3/",
            "codebridge://runs/3/stdin",
            "codebridge://runs/-3/stdout",
            "codebridge://runs/x/stdout",
            "codebridge://runs/3/stdout?start=",
            "codebridge://runs/3/stdout?start=-1",
            "codebridge://runs/3/stdout?length=1",
            "codebridge://runs/99999999999/stdout",
            "file:///etc/passwd",
        ] {
            assert_eq!(parse(uri), None, "{uri}");
        }
    }
}
