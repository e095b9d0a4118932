//! The resources: the helper reference, and output that was cut in a result.

use rmcp::model::{MetaObject, Resource, ResourceContents, ResourceTemplate};
use serde_json::json;

use crate::session::{OutputStream, RunPython};

/// The helper reference.
const CAPABILITIES_URI: &str = "resource://mcp-server-code-execution-mode/capabilities";
const CAPABILITIES: &str = include_str!("capabilities.md");

const RUNS: &str = "codebridge://runs/";
/// Bytes of output in one answer; the next part is another request.
const MOST_AT_ONCE: u64 = 1 << 20;

/// Returns all resources that can be read now.
pub(super) fn list(sessions: &impl RunPython) -> Vec<Resource> {
    let capabilities = Resource::new(CAPABILITIES_URI, "capabilities")
        .with_title("Helper reference")
        .with_description("What code in run_python can use")
        .with_mime_type("text/markdown")
        .with_size(CAPABILITIES.len() as u64);
    let mut resources = vec![capabilities];
    for run in sessions.kept_runs() {
        for (stream, name) in STREAMS {
            if sessions.output(run, stream, 0, 1).is_some_and(|first| !first.is_empty()) {
                resources.push(
                    Resource::new(format!("{RUNS}{run}/{name}"), format!("{name} of run {run}"))
                        .with_mime_type("text/plain"),
                );
            }
        }
    }
    resources
}

/// Returns the form of the URIs of kept output.
pub(super) fn templates() -> Vec<ResourceTemplate> {
    let output = ResourceTemplate::new(format!("{RUNS}{{run}}/{{stream}}{{?start}}"), "output of a run")
        .with_description(
            "Output that was cut: stream is stdout or stderr, start is the number of the first byte",
        )
        .with_mime_type("text/plain");
    vec![output]
}

/// Returns the contents of a resource; None when there is none.
pub(super) fn read(sessions: &impl RunPython, uri: &str) -> Option<ResourceContents> {
    if uri == CAPABILITIES_URI {
        return Some(ResourceContents::text(CAPABILITIES, uri).with_mime_type("text/markdown"));
    }
    let OutputUri { run, stream, start } = parse(uri)?;
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

const STREAMS: [(OutputStream, &str); 3] = [
    (OutputStream::Stdout, "stdout"),
    (OutputStream::Stderr, "stderr"),
    (OutputStream::Traceback, "traceback"),
];

#[derive(Debug, PartialEq)]
struct OutputUri {
    run: u32,
    stream: OutputStream,
    start: u64,
}

fn parse(uri: &str) -> Option<OutputUri> {
    let (path, query) = match uri.strip_prefix(RUNS)?.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (uri.strip_prefix(RUNS)?, None),
    };
    let (run, name) = path.split_once('/')?;
    let (stream, _) = STREAMS.into_iter().find(|(_, known)| *known == name)?;
    let start = match query {
        Some(query) => query.strip_prefix("start=")?.parse().ok()?,
        None => 0,
    };
    Some(OutputUri { run: run.parse().ok()?, stream, start })
}

/// Returns the length of the bytes without an incomplete character at their end.
fn whole_characters(bytes: &[u8]) -> usize {
    match bytes.utf8_chunks().last() {
        Some(chunk) if is_cut_off(chunk.invalid()) => bytes.len() - chunk.invalid().len(),
        _ => bytes.len(),
    }
}

/// Whether the bytes are the beginning of a character.
fn is_cut_off(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_of_outputs_are_read() {
        let output = |run, stream, start| Some(OutputUri { run, stream, start });
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

    #[test]
    fn a_character_is_not_cut_in_two() {
        assert_eq!(whole_characters("aä".as_bytes()), 3);
        assert_eq!(whole_characters(&"aä".as_bytes()[..2]), 1);
        assert_eq!(whole_characters(&"a🦀".as_bytes()[..4]), 1);
        assert_eq!(whole_characters(b"a\xff"), 2);
        assert_eq!(whole_characters(b""), 0);
    }
}
