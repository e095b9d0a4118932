//! MIME types by the ends of file names.

/// Those of the files that code writes; everything else is bytes to whoever reads it.
const TYPES: [(&str, &str); 44] = [
    ("avif", "image/avif"),
    ("bz2", "application/x-bzip2"),
    ("css", "text/css"),
    ("csv", "text/csv"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("geojson", "application/geo+json"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("ics", "text/calendar"),
    ("ini", "text/plain"),
    ("ipynb", "application/x-ipynb+json"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("jsonl", "application/jsonl"),
    ("log", "text/plain"),
    ("md", "text/markdown"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("ndjson", "application/x-ndjson"),
    ("parquet", "application/vnd.apache.parquet"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("py", "text/x-python"),
    ("sql", "application/sql"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tex", "text/x-tex"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("toml", "application/toml"),
    ("tsv", "text/tab-separated-values"),
    ("txt", "text/plain"),
    ("wav", "audio/wav"),
    ("webm", "video/webm"),
    ("webp", "image/webp"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("xml", "application/xml"),
    ("yaml", "application/yaml"),
    ("zip", "application/zip"),
];

/// Returns the MIME type of a file by its name.
pub fn mime_of(name: &str) -> &'static str {
    let end = name.rsplit_once('.').map_or("", |(_, end)| end).to_ascii_lowercase();
    let found = TYPES.binary_search_by_key(&end.as_str(), |(known, _)| known);
    found.map_or("application/octet-stream", |index| TYPES[index].1)
}

/// Returns whether content of this type is read as text, if it is valid UTF-8.
pub fn is_text(mime: &str) -> bool {
    let texts = ["application/json", "application/jsonl", "application/x-ndjson", "application/sql"];
    let more = ["application/toml", "application/xml", "application/yaml"];
    mime.starts_with("text/")
        || mime.ends_with("+json")
        || mime.ends_with("+xml")
        || texts.contains(&mime)
        || more.contains(&mime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_follow_the_end_of_a_name() {
        assert!(TYPES.is_sorted_by_key(|(end, _)| end));
        assert_eq!(mime_of("a/report.final.CSV"), "text/csv");
        assert_eq!(mime_of("plot.png"), "image/png");
        for name in ["", "csv", "a.", "a.unknown", "a.csv\n"] {
            assert_eq!(mime_of(name), "application/octet-stream", "{name:?}");
        }
        assert!(is_text("text/csv") && is_text("image/svg+xml") && is_text("application/json"));
        assert!(!is_text("image/png") && !is_text("application/octet-stream"));
    }
}
