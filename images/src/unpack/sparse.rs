//! Files with holes: which parts of them an archive holds.

use super::error::UnpackError;
use super::tar::{malformed, number};

/// More parts than any file of an image has; each costs memory before anything is written.
const SEGMENT_LIMIT: u64 = 1 << 16;

/// A part of a file that is no hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) start: u64,
    pub(super) length: u64,
}

/// Where the stored bytes of a file go.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SparseMap {
    /// How large the file looks.
    pub(super) size: u64,
    pub(super) segments: Vec<Segment>,
}

impl SparseMap {
    /// Parts in order, none over another, all within the file, and as many bytes as there are.
    pub(super) fn check(&self, stored: u64) -> Result<(), UnpackError> {
        let mut end = 0;
        let mut sum = 0_u64;
        for segment in &self.segments {
            let next = segment.start.checked_add(segment.length);
            let Some(next) = next.filter(|next| segment.start >= end && *next <= self.size) else {
                return Err(malformed("the map of a sparse file contradicts itself"));
            };
            end = next;
            sum += segment.length;
        }
        if sum == stored { Ok(()) } else { Err(malformed("a sparse file has not the bytes of its map")) }
    }
}

/// Adds a part, within bounds.
pub(super) fn add(segments: &mut Vec<Segment>, segment: Segment) -> Result<(), UnpackError> {
    if segments.len() as u64 >= SEGMENT_LIMIT {
        return Err(UnpackError::TooBig { what: "parts in a sparse file", limit: SEGMENT_LIMIT });
    }
    segments.push(segment);
    Ok(())
}

/// What pax records say of a sparse file, in any of the three versions.
#[derive(Debug, Default)]
pub(super) struct Sparse {
    /// The file's name: the entry's own is a made-up one.
    pub(super) name: Option<Vec<u8>>,
    size: Option<u64>,
    segments: Vec<Segment>,
    /// Of a part whose length comes next.
    start: Option<u64>,
    /// Version 1.0: the map precedes the content.
    in_content: bool,
    used: bool,
}

impl Sparse {
    pub(super) fn is_used(&self) -> bool {
        self.used
    }

    pub(super) fn needs_map(&self) -> bool {
        self.in_content
    }

    pub(super) fn real_size(&self) -> Result<u64, UnpackError> {
        self.size.ok_or_else(|| malformed("a sparse file has no size"))
    }

    pub(super) fn into_map(self) -> Result<SparseMap, UnpackError> {
        Ok(SparseMap { size: self.real_size()?, segments: self.segments })
    }

    /// One record, without its prefix `GNU.sparse.`.
    pub(super) fn record(&mut self, key: &[u8], value: &[u8]) -> Result<(), UnpackError> {
        let bad = || malformed("the map of a sparse file cannot be read");
        self.used = true;
        match key {
            b"name" => self.name = Some(value.to_vec()),
            b"size" | b"realsize" => self.size = Some(number(value).ok_or_else(bad)?),
            b"major" => self.in_content = value == b"1",
            b"offset" => self.start = Some(number(value).ok_or_else(bad)?),
            b"numbytes" => {
                let start = self.start.take().ok_or_else(bad)?;
                add(&mut self.segments, Segment { start, length: number(value).ok_or_else(bad)? })?;
            }
            b"map" => {
                let mut numbers = value.split(|byte| *byte == b',').map(number);
                while let Some(start) = numbers.next() {
                    let (Some(start), Some(Some(length))) = (start, numbers.next()) else {
                        return Err(bad());
                    };
                    add(&mut self.segments, Segment { start, length })?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
