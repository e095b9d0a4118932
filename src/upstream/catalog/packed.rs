//! Whole documentation of many tools, compressed in blocks: most of it is never looked at.

use crate::upstream::search::{Reader, Writer};
use crate::upstream::tool_doc::ToolDoc;

/// Bytes of tools that are compressed together.
const BLOCK: usize = 64 << 10;
/// How hard to try: it happens once, when the documentation arrives.
const LEVEL: i32 = 9;
/// Bytes that a block can have: its last tool may be large.
const LARGEST_BLOCK: usize = 4 << 20;

/// Documentation of tools, in order.
#[derive(Default, PartialEq, Eq)]
pub(super) struct Packed {
    blocks: Vec<Block>,
}

#[derive(PartialEq, Eq)]
struct Block {
    /// The number of its first tool.
    first: usize,
    tools: usize,
    size: usize,
    bytes: Box<[u8]>,
}

impl Packed {
    pub(super) fn new(docs: &[ToolDoc]) -> Self {
        let mut packed = Self::default();
        let mut first = 0;
        let mut writer = Writer::default();
        let mut size = 0;
        for (number, doc) in docs.iter().enumerate() {
            let json = serde_json::to_vec(doc).unwrap_or_default();
            size += json.len();
            writer.block(&json);
            if size >= BLOCK || number + 1 == docs.len() {
                let raw = std::mem::take(&mut writer).finish();
                packed.blocks.push(Block {
                    first,
                    tools: number + 1 - first,
                    size: raw.len(),
                    bytes: compress(&raw, LEVEL).into(),
                });
                (first, size) = (number + 1, 0);
            }
        }
        packed
    }

    pub(super) fn doc(&self, tool: usize) -> Option<ToolDoc> {
        let at = self.blocks.partition_point(|block| block.first <= tool).checked_sub(1)?;
        let block = &self.blocks[at];
        let raw = block.unpack()?;
        let mut reader = Reader::new(&raw);
        for _ in block.first..tool {
            reader.block()?;
        }
        serde_json::from_slice(reader.block()?).ok()
    }

    pub(super) fn all(&self) -> Option<Vec<ToolDoc>> {
        let mut docs = Vec::new();
        for block in &self.blocks {
            let raw = block.unpack()?;
            let mut reader = Reader::new(&raw);
            for _ in 0..block.tools {
                docs.push(serde_json::from_slice(reader.block()?).ok()?);
            }
        }
        Some(docs)
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.number(self.blocks.len() as u64);
        for block in &self.blocks {
            writer.number(block.tools as u64);
            writer.number(block.size as u64);
            writer.block(&block.bytes);
        }
    }

    /// As many tools as there should be, or none.
    pub(super) fn read(reader: &mut Reader<'_>, tools: usize) -> Option<Self> {
        let mut packed = Self::default();
        let mut first = 0;
        for _ in 0..reader.count(tools)? {
            let block = Block {
                first,
                tools: reader.count(tools - first)?,
                size: reader.count(LARGEST_BLOCK)?,
                bytes: reader.block()?.into(),
            };
            first += block.tools;
            packed.blocks.push(block);
        }
        (first == tools).then_some(packed)
    }
}

impl Block {
    fn unpack(&self) -> Option<Vec<u8>> {
        decompress(&self.bytes, self.size)
    }
}

/// Compressed bytes with a checksum.
pub(super) fn compress(bytes: &[u8], level: i32) -> Vec<u8> {
    let compressed = zstd::bulk::Compressor::new(level).and_then(|mut compressor| {
        compressor.include_checksum(true)?;
        compressor.compress(bytes)
    });
    // It fails only where memory is short.
    compressed.unwrap_or_default()
}

/// The bytes, when they are of that size and the checksum holds.
pub(super) fn decompress(bytes: &[u8], size: usize) -> Option<Vec<u8>> {
    zstd::bulk::decompress(bytes, size).ok().filter(|raw| raw.len() == size)
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

    fn read(bytes: &[u8], tools: usize) -> Option<Packed> {
        Packed::read(&mut Reader::new(bytes), tools)
    }

    #[test]
    fn each_tool_comes_back_as_it_was() {
        for count in [0, 1, 2, 500] {
            let docs = docs(count);
            let mut writer = Writer::default();
            Packed::new(&docs).write(&mut writer);
            let bytes = writer.finish();
            let packed = read(&bytes, count).unwrap();
            assert_eq!(packed.all().as_ref(), Some(&docs));
            for (number, doc) in docs.iter().enumerate().step_by(37) {
                assert_eq!(packed.doc(number).as_ref(), Some(doc));
            }
            assert_eq!(packed.doc(count), None);
            assert!(read(&bytes, count + 1).is_none());
        }
    }

    #[test]
    fn many_tools_take_several_blocks() {
        assert!(Packed::new(&docs(500)).blocks.len() > 3);
    }

    #[test]
    fn a_damaged_block_is_no_documentation() {
        let docs = docs(20);
        let mut writer = Writer::default();
        Packed::new(&docs).write(&mut writer);
        let bytes = writer.finish();
        for at in (0..bytes.len()).step_by(3) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            let all = read(&damaged, 20).and_then(|packed| packed.all());
            assert!(all.is_none() || all.as_ref() == Some(&docs), "byte {at}");
        }
    }
}
