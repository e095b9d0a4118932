//! The file that keeps one server's documentation.
//!
//! A mark with the version of the form; then, compressed and with a checksum, what lists and searches need; then the
//! whole documentation in blocks. The same documentation always makes the same bytes.

use super::limits::{Cut, MOST_TOOLS};
use super::packed::{Packed, compress, decompress};
use super::server_docs::{ServerDocs, ToolSummary};
use crate::upstream::search::{Reader, Terms, Writer};
use crate::upstream::tool_doc::About;

/// Changes with the form, and with what is computed for search and lists.
const MARK: &[u8; 8] = b"cbdocs\x00\x01";
/// It is read at every start.
const LEVEL: i32 = 6;
/// Bytes of what lists and searches need.
const LARGEST_HEAD: usize = 64 << 20;
/// Bytes of a file.
pub(super) const LARGEST: u64 = 128 << 20;

/// None when it would be too large to be read again.
pub(super) fn encode(key: &str, docs: &ServerDocs) -> Option<Vec<u8>> {
    let mut head = Writer::default();
    head.text(key);
    for text in [&docs.about.title, &docs.about.instructions] {
        head.text(text.as_deref().unwrap_or_default());
    }
    for count in [docs.cut.tools, docs.cut.texts, docs.cut.schemas] {
        head.number(count as u64);
    }
    docs.terms.write(&mut head);
    for tool in &docs.tools {
        for text in [&tool.name, &tool.alias, &tool.signature, &tool.description] {
            head.text(text);
        }
    }
    let head = head.finish();
    let mut file = Writer::default();
    MARK.iter().for_each(|byte| file.byte(*byte));
    file.number(head.len() as u64);
    file.block(&compress(&head, LEVEL));
    docs.docs.write(&mut file);
    let bytes = file.finish();
    (head.len() <= LARGEST_HEAD && bytes.len() as u64 <= LARGEST).then_some(bytes)
}

/// None when it is not such a file, not of this key, or damaged where that can be seen at once.
pub(super) fn decode(key: &str, bytes: &[u8]) -> Option<ServerDocs> {
    let mut file = Reader::new(bytes.strip_prefix(MARK)?);
    let size = file.count(LARGEST_HEAD)?;
    let head = decompress(file.block()?, size)?;
    let mut head = Reader::new(&head);
    if head.text()? != key {
        return None;
    }
    let mut about = || Some(Some(head.text()?.to_owned()).filter(|text| !text.is_empty()));
    let about = About { title: about()?, instructions: about()? };
    let mut count = || head.count(usize::MAX);
    let cut = Cut { tools: count()?, texts: count()?, schemas: count()? };
    let terms = Terms::read(&mut head, MOST_TOOLS)?;
    let tools: Vec<ToolSummary> = (0..terms.len())
        .map(|_| {
            let mut text = || head.text().map(Box::from);
            Some(ToolSummary { name: text()?, alias: text()?, signature: text()?, description: text()? })
        })
        .collect::<Option<_>>()?;
    let docs = Packed::read(&mut file, tools.len())?;
    (head.is_empty() && file.is_empty()).then(|| ServerDocs { about, cut, terms: terms.into(), tools, docs })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::upstream::tool_doc::ToolDoc;

    fn docs() -> ServerDocs {
        let doc = |i| ToolDoc {
            name: format!("tool {i}"),
            description: format!("Does the thing number {i} well."),
            input_schema: json!({ "properties": { "thing": { "type": "integer" } } }),
            ..ToolDoc::default()
        };
        let about = About { title: Some("Things".into()), instructions: None };
        ServerDocs::new(about, (0..20).map(doc).chain([ToolDoc::default()]).collect())
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let docs = docs();
        let bytes = encode("k", &docs).unwrap();
        let read = decode("k", &bytes).unwrap();
        assert_eq!((read.about(), read.cut(), read.tools()), (docs.about(), docs.cut(), docs.tools()));
        assert_eq!(read.cut().tools, 1);
        assert_eq!(read.terms(), docs.terms());
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
