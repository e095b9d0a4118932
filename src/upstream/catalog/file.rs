//! The file that keeps one server's documentation.
//!
//! A mark with the version of the format; then, compressed and with a checksum, what lists and searches need; then the
//! whole documentation in blocks. The same documentation always makes the same bytes.

use serde_bytes::Bytes;

use super::limits::MOST_TOOLS;
use super::packed::{Packed, compress, decompress};
use super::server_docs::ServerDocs;

/// Changes with the format, and with what is computed for search and lists.
const MARK: &[u8; 8] = b"cbdocs\x00\x03";
/// It is read at every start.
const LEVEL: i32 = 6;
/// Bytes of what lists and searches need.
const LARGEST_HEAD: usize = 64 << 20;
/// Bytes of a file.
pub(super) const LARGEST: u64 = 128 << 20;

/// Returns the bytes of a file; `None` when it would be too large to be read again.
pub(super) fn encode(key: &str, docs: &ServerDocs) -> Option<Vec<u8>> {
    let head = postcard::to_allocvec(&(key, docs)).ok()?;
    let compressed = compress(&head, LEVEL);
    let file = (head.len(), Bytes::new(&compressed), &docs.docs);
    let bytes = postcard::to_extend(&file, MARK.to_vec()).ok()?;
    (head.len() <= LARGEST_HEAD && bytes.len() as u64 <= LARGEST).then_some(bytes)
}

/// Reads a file; `None` when it is not such a file, not of this key, or damaged where that can be seen at once.
pub(super) fn decode(key: &str, bytes: &[u8]) -> Option<ServerDocs> {
    let (size, head, packed): (usize, &Bytes, Packed) =
        postcard::from_bytes(bytes.strip_prefix(MARK)?).ok()?;
    let head = decompress(head, size, LARGEST_HEAD)?;
    let (own_key, mut docs): (&str, ServerDocs) = postcard::from_bytes(&head).ok()?;
    docs.docs = packed;
    let tools = docs.tools.len();
    let is_whole =
        own_key == key && tools <= MOST_TOOLS && docs.terms.len() == tools && docs.docs.len() == tools;
    is_whole.then_some(docs)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::upstream::tool_doc::{About, ToolDoc};

    fn docs() -> ServerDocs {
        let doc = |i| ToolDoc {
            name: format!("tool {i}"),
            description: format!("Does the thing number {i} well."),
            input_schema: json!({ "properties": { "thing": { "type": "integer" } } }),
            ..ToolDoc::default()
        };
        let about = About { title: Some("Things".into()), ..About::default() };
        ServerDocs::new(about, (0..20).map(doc).chain([ToolDoc::default()]).collect())
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let docs = docs();
        let bytes = encode("k", &docs).unwrap();
        let read = decode("k", &bytes).unwrap();
        assert_eq!((read.about(), read.cut, read.tools()), (docs.about(), docs.cut, docs.tools()));
        assert_eq!(read.cut.tools, 1);
        assert_eq!(read.terms, docs.terms);
        assert_eq!(read.docs(), docs.docs());
        assert_eq!(encode("k", &read).unwrap(), bytes);
    }

    #[test]
    fn a_file_of_another_key_is_none() {
        assert!(decode("other", &encode("k", &docs()).unwrap()).is_none());
    }

    #[test]
    fn damage_anywhere_is_seen_or_harmless() {
        let docs = docs();
        let bytes = encode("k", &docs).unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x41;
            if let Some(read) = decode("k", &damaged) {
                assert_eq!(read.tools(), docs.tools(), "byte {at}");
                assert!(read.docs().is_none_or(|read| Some(read) == docs.docs()), "byte {at}");
            }
        }
        for length in 0..bytes.len() {
            assert!(decode("k", &bytes[..length]).is_none(), "{length} bytes");
        }
    }
}
