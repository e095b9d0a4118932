//! Bytes of others: pictures of a few types are shown, everything else is only downloaded, and nothing is a document of this
//! origin.

use std::fs::File;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use futures_util::stream::try_unfold;
use http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::io::AsyncReadExt;

/// Pictures that a page shows. SVG and HTML are programs.
pub(super) const IMAGES: [&str; 4] = ["image/gif", "image/jpeg", "image/png", "image/webp"];
/// What a document of these bytes could do, if a browser made one of them.
const POLICY: &str = "sandbox; default-src 'none'";
/// Bytes that are read at once.
const PIECE: usize = 128 << 10;
/// What stands for itself in the name of a file: RFC 8187.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns the headers of a content.
fn headers(name: &str, mime: &str) -> [(http::HeaderName, String); 3] {
    let known = IMAGES.into_iter().find(|known| *known == mime);
    let name = utf8_percent_encode(name, PLAIN);
    let (kind, place) = match known {
        Some(known) => (known, format!("inline; filename*=UTF-8''{name}")),
        None => ("application/octet-stream", format!("attachment; filename*=UTF-8''{name}")),
    };
    [
        (CONTENT_TYPE, kind.to_owned()),
        (CONTENT_DISPOSITION, place),
        (CONTENT_SECURITY_POLICY, POLICY.to_owned()),
    ]
}

/// Returns bytes of a type that somebody else names.
pub(super) fn bytes(name: &str, mime: &str, bytes: Vec<u8>) -> Response {
    (headers(name, mime), bytes).into_response()
}

/// Returns bytes that can only be saved, as they arrive.
pub(super) fn download(name: &str, length: u64, body: Body) -> Response {
    (headers(name, ""), [(CONTENT_LENGTH, length)], body).into_response()
}

/// Returns a file, as it is read.
pub(super) fn stream(name: &str, mime: &str, length: u64, file: File) -> Response {
    let pieces = try_unfold(tokio::fs::File::from_std(file), async |mut file| {
        let mut piece = vec![0; PIECE];
        let read = file.read(&mut piece).await?;
        piece.truncate(read);
        Ok::<_, std::io::Error>((read > 0).then(|| (Bytes::from(piece), file)))
    });
    (headers(name, mime), [(CONTENT_LENGTH, length)], Body::from_stream(pieces)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pictures_are_shown() {
        let of = |mime: &str| {
            let [kind, place, policy] = headers("a\"b;\r\n.png", mime).map(|(_, value)| value);
            assert!(policy.starts_with("sandbox"));
            (kind, place)
        };
        let name = "filename*=UTF-8''a%22b%3B%0D%0A.png";
        assert_eq!(of("image/png"), ("image/png".into(), format!("inline; {name}")));
        for other in
            ["image/svg+xml", "text/html", "application/pdf", "image/png; charset=x", "IMAGE/PNG", ""]
        {
            assert_eq!(
                of(other),
                ("application/octet-stream".into(), format!("attachment; {name}")),
                "{other}"
            );
        }
    }
}
