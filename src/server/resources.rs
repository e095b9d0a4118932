//! The resources: the helper reference, output that was cut in a result, displayed objects, files of sessions and artifacts.

use std::os::unix::fs::FileExt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use rmcp::model::{MetaObject, Resource, ResourceContents, ResourceTemplate};
use serde_json::json;

use super::outputs;
use crate::artifacts::{Artifact, Artifacts, is_text, mime_of};
use crate::session::{OutputStream, RunPython, SESSION_URIS, parse_file_uri, whole_characters};

const CAPABILITIES_URI: &str = "resource://mcp-server-code-execution-mode/capabilities";
const CAPABILITIES: &str = include_str!("capabilities.md");

const RUNS: &str = "codebridge://runs/";
/// Artifacts in the list: those that were saved last.
const MOST_LISTED: usize = 100;
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
    resources.extend(sessions.files().into_iter().filter_map(|file| {
        let path = file.shown_path();
        let resource = Resource::new(file.uri?, &*path).with_mime_type(mime_of(&path));
        Some(resource.with_size(file.bytes))
    }));
    let mut artifacts = sessions.artifacts().latest();
    artifacts.sort_by_key(|artifact| std::cmp::Reverse(artifact.created));
    resources.extend(artifacts.iter().take(MOST_LISTED).map(outputs::resource));
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
    let file = ResourceTemplate::new(
        format!("{SESSION_URIS}{{session}}/files/{{+path}}{{?start}}"),
        "file of a session",
    )
    .with_description("A file below /workspace of a live session; start is the number of the first byte");
    let artifact = ResourceTemplate::new(format!("{}{{name}}{{?version,start}}", Artifact::URIS), "artifact")
        .with_description("A file that code has saved, by default its latest version");
    vec![output, display, file, artifact]
}

/// Returns the contents of a resource, or why there are none.
pub(super) async fn read(sessions: &impl RunPython, uri: &str) -> Result<Vec<ResourceContents>, String> {
    let none = || "no such resource".to_owned();
    if uri == CAPABILITIES_URI {
        return Ok(vec![ResourceContents::text(CAPABILITIES, uri).with_mime_type("text/markdown")]);
    }
    if let Some((run, number)) = parse_display(uri) {
        let forms = sessions.display(run, number).ok_or_else(none)?;
        return Ok(forms.into_iter().map(|(mime, data)| form(uri, &mime, data)).collect());
    }
    if let Some(address) = FileAddress::parse(uri) {
        return read_file(sessions, uri, &address).await.map(|contents| vec![contents]);
    }
    if let Some(address) = ArtifactAddress::parse(uri) {
        return read_artifact(sessions.artifacts(), uri, &address).map(|contents| vec![contents]);
    }
    Ok(vec![read_output(sessions, uri).ok_or_else(none)?])
}

/// Returns a form of a displayed object: as text if it is text.
fn form(uri: &str, mime: &str, data: Vec<u8>) -> ResourceContents {
    match String::from_utf8(data) {
        Ok(text) => ResourceContents::text(text, uri).with_mime_type(mime),
        Err(bytes) => ResourceContents::blob(STANDARD.encode(bytes.into_bytes()), uri).with_mime_type(mime),
    }
}

/// Reads a file of a session, as far as it fits into one answer.
async fn read_file(
    sessions: &impl RunPython,
    uri: &str,
    address: &FileAddress,
) -> Result<ResourceContents, String> {
    let FileAddress { session, path, start } = address;
    let (mut bytes, mut size) = (Vec::new(), 0);
    while (bytes.len() as u64) < MOST_AT_ONCE {
        let part = sessions.file(session, path, start + bytes.len() as u64).await;
        let part = part.map_err(|error| error.to_string())?;
        size = part.size;
        if part.bytes.is_empty() {
            break;
        }
        bytes.extend(part.bytes);
    }
    bytes.truncate(MOST_AT_ONCE as usize);
    let mime = mime_of(&String::from_utf8_lossy(path));
    Ok(part_of(uri, mime, bytes, *start, size))
}

/// Reads an artifact, as far as it fits into one answer.
fn read_artifact(
    artifacts: &Artifacts,
    uri: &str,
    address: &ArtifactAddress,
) -> Result<ResourceContents, String> {
    let ArtifactAddress { name, version, start } = address;
    let artifact = artifacts.find(name, *version).map_err(|error| error.to_string())?;
    let file = artifacts.open(&artifact).map_err(|error| error.for_sandbox())?;
    let length = artifact.bytes.saturating_sub(*start).min(MOST_AT_ONCE);
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    file.read_exact_at(&mut bytes, *start)
        .map_err(|error| format!("the artifact cannot be read: {error}"))?;
    Ok(part_of(uri, &artifact.mime_type, bytes, *start, artifact.bytes))
}

/// Returns a part of a file of so many bytes, as text if its type says so and it is; with the address of the next part.
fn part_of(uri: &str, mime: &str, mut bytes: Vec<u8>, start: u64, size: u64) -> ResourceContents {
    let is_last = start + bytes.len() as u64 >= size;
    if is_text(mime) && !is_last {
        bytes.truncate(whole_characters(&bytes));
    }
    let end = start + bytes.len() as u64;
    let is_whole = is_last && start == 0;
    let contents = match String::from_utf8(bytes) {
        Ok(text) if is_text(mime) => ResourceContents::text(text, uri),
        Ok(text) => ResourceContents::blob(STANDARD.encode(text), uri),
        Err(error) => ResourceContents::blob(STANDARD.encode(error.into_bytes()), uri),
    };
    let contents = contents.with_mime_type(mime);
    if is_whole {
        return contents;
    }
    let mut meta = MetaObject::new();
    meta.insert("start".into(), json!(start));
    meta.insert("end".into(), json!(end));
    meta.insert("size".into(), json!(size));
    if !is_last {
        let (base, query) = uri.split_once('?').unwrap_or((uri, ""));
        let others = query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("start="));
        let pairs: Vec<String> = others.map(str::to_owned).chain([format!("start={end}")]).collect();
        meta.insert("next".into(), json!(format!("{base}?{}", pairs.join("&"))));
    }
    contents.with_meta(meta)
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

/// A part of a file of a session.
#[derive(Debug, PartialEq, Eq)]
struct FileAddress {
    session: String,
    path: Vec<u8>,
    start: u64,
}

impl FileAddress {
    fn parse(uri: &str) -> Option<Self> {
        let (address, query) = uri.split_once('?').unwrap_or((uri, ""));
        let (session, path) = parse_file_uri(address)?;
        let [start, _] = numbers(query)?;
        Some(Self { session, path, start: start.unwrap_or(0) })
    }
}

/// A part of an artifact.
#[derive(Debug, PartialEq, Eq)]
struct ArtifactAddress {
    name: String,
    version: Option<u32>,
    start: u64,
}

impl ArtifactAddress {
    fn parse(uri: &str) -> Option<Self> {
        let (address, query) = uri.split_once('?').unwrap_or((uri, ""));
        let name = percent_decode_str(address.strip_prefix(Artifact::URIS)?).decode_utf8().ok()?.into_owned();
        let [start, version] = numbers(query)?;
        let version = version.map(u32::try_from).transpose().ok()?;
        Some(Self { name, version, start: start.unwrap_or(0) })
    }
}

/// Returns the numbers `start` and `version` of a query that has nothing else.
fn numbers(query: &str) -> Option<[Option<u64>; 2]> {
    let mut found = [None; 2];
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=')?;
        let index = ["start", "version"].iter().position(|known| *known == name)?;
        found[index] = Some(value.parse().ok()?);
    }
    Some(found)
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
    fn uris_of_files_and_artifacts_are_read() {
        let file = FileAddress::parse("codebridge://sessions/a%2Fb/files/x/y%20%ff?start=7");
        let expected = FileAddress { session: "a/b".into(), path: b"x/y \xff".to_vec(), start: 7 };
        assert_eq!(file, Some(expected));
        let artifact = ArtifactAddress::parse("codebridge://artifacts/a%2e%2e%2Fb?version=2&start=3");
        assert_eq!(artifact, Some(ArtifactAddress { name: "a../b".into(), version: Some(2), start: 3 }));
        for uri in [
            "codebridge://artifacts/x?version=-1",
            "codebridge://artifacts/x?version=99999999999",
            "codebridge://artifacts/x?length=1",
            "codebridge://artifacts/%ff",
            "codebridge://sessions/main",
        ] {
            assert_eq!(ArtifactAddress::parse(uri), None, "{uri}");
            assert_eq!(FileAddress::parse(uri), None, "{uri}");
        }
    }

    #[test]
    fn a_part_says_where_the_next_one_is() {
        let part = |mime, bytes: &[u8], start, size| {
            serde_json::to_value(part_of("a:b?version=2", mime, bytes.to_vec(), start, size)).unwrap()
        };
        let whole = json!({ "uri": "a:b?version=2", "mimeType": "text/csv", "text": "x" });
        assert_eq!(part("text/csv", b"x", 0, 1), whole);
        let first = part("text/csv", "aä".as_bytes().split_last().unwrap().1, 0, 3);
        assert_eq!(first["text"], "a");
        let meta = json!({ "start": 0, "end": 1, "size": 3, "next": "a:b?version=2&start=1" });
        assert_eq!(first["_meta"], meta);
        assert_eq!(part("image/png", b"x", 0, 1)["blob"], "eA==");
        assert_eq!(part("text/csv", b"\xff", 0, 1)["blob"], "/w==");
        assert_eq!(part("text/csv", b"x", 2, 3)["_meta"], json!({ "start": 2, "end": 3, "size": 3 }));
        assert_eq!(part("text/csv", b"", 9, 3)["text"], "");
    }

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
