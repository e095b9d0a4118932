//! Numbers and texts as bytes. Reading never trusts what it reads: it ends with `None`.

/// Writes values one after the other.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Everything written so far.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    /// One byte.
    pub fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    /// A number in as many bytes as it needs, seven bits in each.
    pub fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    /// Bytes, after their count.
    pub fn block(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    /// A text, after its length.
    pub fn text(&mut self, text: &str) {
        self.block(text.as_bytes());
    }
}

/// Reads what a [`Writer`] wrote, in the same order.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// One byte.
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// A number.
    pub fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// A number that counts something, at most `limit`.
    pub fn count(&mut self, limit: usize) -> Option<usize> {
        usize::try_from(self.number()?).ok().filter(|count| *count <= limit)
    }

    /// Bytes.
    pub fn block(&mut self) -> Option<&'a [u8]> {
        let length = self.count(self.rest.len())?;
        let (block, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(block)
    }

    /// A text.
    pub fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.block()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let mut writer = Writer::default();
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            writer.number(number);
        }
        writer.text("größe");
        writer.byte(7);
        let bytes = writer.finish();
        let mut reader = Reader::new(&bytes);
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            assert_eq!(reader.number(), Some(number));
        }
        assert_eq!(reader.text(), Some("größe"));
        assert_eq!(reader.byte(), Some(7));
        assert!(reader.is_empty());
    }

    #[test]
    fn damage_is_no_value() {
        assert_eq!(Reader::new(&[]).number(), None);
        assert_eq!(Reader::new(&[0xff; 20]).number(), None);
        assert_eq!(Reader::new(&[5, b'a', b'b']).block(), None);
        assert_eq!(Reader::new(&[1, 0xff]).text(), None);
        assert_eq!(Reader::new(&[200, 1]).count(100), None);
    }
}
