//! Whole documentation of many tools, compressed in blocks: most of it is never looked at.

use serde::{Deserialize, Serialize};

use crate::upstream::tool_doc::ToolDoc;

/// Bytes of tools that are compressed together.
const BLOCK: usize = 64 << 10;
/// Compression happens once, when the documentation arrives.
const LEVEL: i32 = 9;
/// Bytes that a block can have: its last tool may be large.
const LARGEST_BLOCK: usize = 4 << 20;

/// Documentation of tools, in order.
#[derive(Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Packed {
    blocks: Vec<Block>,
}

/// A compressed list of tools, each as JSON.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct Block {
    tools: usize,
    /// Bytes before compression.
    size: usize,
    #[serde(with = "serde_bytes")]
    compressed: Vec<u8>,
}

impl Packed {
    pub(super) fn new(docs: &[ToolDoc]) -> Self {
        let mut blocks = Vec::new();
        let mut tools = Vec::new();
        let mut size = 0;
        for doc in docs {
            let json = serde_json::to_string(doc).unwrap_or_default();
            size += json.len();
            tools.push(json);
            if size >= BLOCK {
                blocks.push(Block::new(&tools));
                tools.clear();
                size = 0;
            }
        }
        if !tools.is_empty() {
            blocks.push(Block::new(&tools));
        }
        Self { blocks }
    }

    /// Returns how many tools there are.
    pub(super) fn len(&self) -> usize {
        self.blocks.iter().fold(0, |sum, block| sum.saturating_add(block.tools))
    }

    /// Returns one tool; `None` when there is no such tool or its block is damaged.
    pub(super) fn doc(&self, mut tool: usize) -> Option<ToolDoc> {
        for block in &self.blocks {
            if tool < block.tools {
                let tools = block.unpack()?;
                return serde_json::from_str(tools.get(tool)?).ok();
            }
            tool -= block.tools;
        }
        None
    }

    /// Returns all tools; `None` when a block is damaged.
    #[cfg(test)]
    pub(super) fn all(&self) -> Option<Vec<ToolDoc>> {
        let mut docs = Vec::new();
        for block in &self.blocks {
            for json in block.unpack()? {
                docs.push(serde_json::from_str(&json).ok()?);
            }
        }
        Some(docs)
    }
}

impl Block {
    fn new(tools: &[String]) -> Self {
        let bytes = postcard::to_allocvec(tools).unwrap_or_default();
        Self { tools: tools.len(), size: bytes.len(), compressed: compress(&bytes, LEVEL) }
    }

    fn unpack(&self) -> Option<Vec<String>> {
        let bytes = decompress(&self.compressed, self.size, LARGEST_BLOCK)?;
        let tools: Vec<String> = postcard::from_bytes(&bytes).ok()?;
        (tools.len() == self.tools).then_some(tools)
    }
}

/// Compresses bytes and adds a checksum.
pub(super) fn compress(bytes: &[u8], level: i32) -> Vec<u8> {
    let compressed = zstd::bulk::Compressor::new(level).and_then(|mut compressor| {
        compressor.include_checksum(true)?;
        compressor.compress(bytes)
    });
    // It fails only where memory is short.
    compressed.unwrap_or_default()
}

/// Decompresses bytes; `None` unless they have exactly this size, at most `largest`, and the checksum matches.
pub(super) fn decompress(bytes: &[u8], size: usize, largest: usize) -> Option<Vec<u8>> {
    let raw = zstd::bulk::decompress(bytes, Some(size).filter(|size| *size <= largest)?).ok()?;
    (raw.len() == size).then_some(raw)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn docs(count: usize) -> Vec<ToolDoc> {
        let doc = |i: usize| ToolDoc {
            name: format!("tool_{i}"),
            description: format!("Number {i}. ").repeat(i % 7 * 100),
            input_schema: json!({ "properties": { "z": i, "a": 12345678901234567890u64 } }),
            ..ToolDoc::default()
        };
        (0..count).map(doc).collect()
    }

    #[test]
    fn each_tool_is_read_as_it_was_written() {
        for count in [0, 1, 2, 500] {
            let docs = docs(count);
            let bytes = postcard::to_allocvec(&Packed::new(&docs)).unwrap();
            let packed: Packed = postcard::from_bytes(&bytes).unwrap();
            assert_eq!(packed.len(), count);
            assert_eq!(packed.all().as_ref(), Some(&docs));
            for (number, doc) in docs.iter().enumerate().step_by(37) {
                assert_eq!(packed.doc(number).as_ref(), Some(doc));
            }
            assert_eq!(packed.doc(count), None);
        }
    }

    #[test]
    fn many_tools_take_several_blocks() {
        assert!(Packed::new(&docs(500)).blocks.len() > 3);
    }

    #[test]
    fn a_damaged_block_is_no_documentation() {
        let docs = docs(20);
        let bytes = postcard::to_allocvec(&Packed::new(&docs)).unwrap();
        for at in (0..bytes.len()).step_by(3) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            let all = postcard::from_bytes::<Packed>(&damaged).ok().and_then(|packed| packed.all());
            assert!(all.is_none() || all.as_ref() == Some(&docs), "byte {at}");
        }
    }
}
