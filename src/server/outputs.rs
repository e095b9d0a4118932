//! What a result says of files and artifacts.

use codebridge_runtimes::exec::visible_line;
use rmcp::model::{ContentBlock, Resource};
use serde::Serializer;
use serde_json::json;

use crate::artifacts::Artifact;
use crate::session::{ChangedFile, ChangedFiles};
use crate::sizes::bytes_text;

/// Files and artifacts that the text of a result names.
const MOST_NAMED: usize = 10;
/// Files in the structured result.
const MOST_LISTED: usize = 20;
/// Characters of a path in a text.
const LONGEST_SHOWN: usize = 100;

/// Returns the lines of a text.
pub(super) fn lines(files: Option<&ChangedFiles>, artifacts: &[Artifact]) -> Vec<String> {
    let mut lines: Vec<String> = files.and_then(files_line).into_iter().collect();
    lines.extend(artifacts.iter().take(MOST_NAMED).map(saved_line));
    if artifacts.len() > MOST_NAMED {
        lines.push(format!("saved {} more artifacts", artifacts.len() - MOST_NAMED));
    }
    lines
}

/// Returns `files: out.csv (1.2 KiB), plot.png (23 KiB) and 3 more`.
pub fn files_line(changed: &ChangedFiles) -> Option<String> {
    let named: Vec<String> = changed.files.iter().take(MOST_NAMED).map(named).collect();
    let more = changed.files.len().saturating_sub(named.len());
    let rest = match (more, changed.is_cut) {
        (0, false) => String::new(),
        (0, true) => " and perhaps more".to_owned(),
        (more, false) => format!(" and {more} more"),
        (more, true) => format!(" and at least {more} more"),
    };
    (!named.is_empty()).then(|| format!("files: {}{rest}", named.join(", ")))
}

fn named(file: &ChangedFile) -> String {
    let path = file.shown_path();
    let shown = match path.char_indices().nth(LONGEST_SHOWN) {
        Some((end, _)) => format!("{}…", &path[..end]),
        None => path,
    };
    format!("{shown} ({})", bytes_text(file.bytes))
}

/// Returns `saved artifact report.csv (1.2 KiB)`.
pub fn saved_line(artifact: &Artifact) -> String {
    let Artifact { name, version, bytes, .. } = artifact;
    let version = if *version > 1 { format!(", version {version}") } else { String::new() };
    format!("saved artifact {}{version} ({})", visible_line(name), bytes_text(*bytes))
}

/// Returns links to the artifacts.
pub(super) fn links(artifacts: &[Artifact]) -> impl Iterator<Item = ContentBlock> {
    artifacts.iter().take(MOST_NAMED).map(|artifact| ContentBlock::resource_link(resource(artifact)))
}

/// Returns an artifact as a resource: its latest version.
pub(super) fn resource(artifact: &Artifact) -> Resource {
    let resource = Resource::new(artifact.uri(), &*artifact.name)
        .with_mime_type(&*artifact.mime_type)
        .with_size(artifact.bytes);
    match &artifact.description {
        Some(description) => resource.with_description(visible_line(description)),
        None => resource,
    }
}

/// Writes what a client needs to read the files.
pub(super) fn file_fields<S: Serializer>(
    changed: &Option<ChangedFiles>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let files = changed.iter().flat_map(|changed| &changed.files).take(MOST_LISTED);
    serializer.collect_seq(files.map(|file| {
        let mut fields = json!({ "path": file.shown_path(), "bytes": file.bytes });
        if let Some(uri) = &file.uri {
            fields["uri"] = uri.as_str().into();
        }
        fields
    }))
}

/// Writes what a client needs to read the artifacts.
pub(super) fn artifact_fields<S: Serializer>(
    artifacts: &[Artifact],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(artifacts.iter().map(|artifact| {
        let Artifact { name, version, bytes, .. } = artifact;
        json!({ "name": name, "version": version, "bytes": bytes, "uri": artifact.uri() })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &[u8], bytes: u64) -> ChangedFile {
        ChangedFile { path: path.to_vec(), bytes, uri: None }
    }

    #[test]
    fn ten_files_are_named_and_the_others_counted() {
        let line = |files: Vec<ChangedFile>, is_cut| {
            files_line(&ChangedFiles { files, is_cut, ..Default::default() })
        };
        assert_eq!(line(Vec::new(), false), None);
        let two = vec![file(b"out.csv", 1229), file(b"a/plot.png", 23 << 10)];
        assert_eq!(line(two.clone(), false).unwrap(), "files: out.csv (1.2 KiB), a/plot.png (23.0 KiB)");
        assert_eq!(
            line(two, true).unwrap(),
            "files: out.csv (1.2 KiB), a/plot.png (23.0 KiB) and perhaps more"
        );
        let many = line((0..25).map(|_| file(b"x", 0)).collect(), false).unwrap();
        assert!(many.matches("x (0 B)").count() == 10 && many.ends_with(" and 15 more"), "{many}");
    }

    #[test]
    fn a_hostile_name_stays_in_its_line() {
        let name = [b"a\nerror: \x1b[2J\xff".to_vec(), vec![b'x'; 4000]].concat();
        let line =
            files_line(&ChangedFiles { files: vec![file(&name, 1)], is_cut: false, ..Default::default() })
                .unwrap();
        assert!(!line.contains(['\n', '\x1b']) && line.len() < 200, "{line}");
    }
}
