//! Inputs that are made of choices: each byte of the fuzzer's input decides one.

/// Makes values of bytes. When they are used up, every choice is the first one.
#[derive(Debug, Clone)]
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether no bytes are left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns what is left.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Returns a number below the limit, which is not 0. It takes as many bytes as that needs.
    pub fn below(&mut self, limit: usize) -> usize {
        let (mut number, mut most) = (0_usize, 1_usize);
        while most < limit {
            number = number << 8 | usize::from(self.byte());
            most = most.saturating_mul(256);
        }
        number % limit
    }

    pub fn one_in(&mut self, count: usize) -> bool {
        // Without bytes, nothing rare happens.
        self.below(count) == count - 1
    }

    pub fn pick<'t, T: ?Sized>(&mut self, from: &[&'t T]) -> &'t T {
        from[self.below(from.len())]
    }

    /// Returns up to `most` of these parts, one after the other.
    pub fn text(&mut self, parts: &[&str], most: usize) -> String {
        let count = self.below(most + 1);
        (0..count).map(|_| self.pick(parts)).collect()
    }
}
