//! Variations of inputs.

use std::collections::BTreeSet;

use crate::random::Random;

/// Words that many parsers trip over.
const COMMON: &[&str] = &[
    "", " ", "\n", "\r\n", "\0", "\t", "\"", "'", "\\", "/", "..", "../", "./", "//", ":", ",", ";", "=",
    "%00", "%2f", "{", "}", "[", "]", "{}", "[]", "null", "true", "false", "-1", "0", "1", "65536",
    "2147483648", "4294967295", "4294967296", "9223372036854775807", "18446744073709551616", "1e999", "-0",
    "NaN", "\\ud800", "\\u0000", "\u{feff}", "\u{202e}", "\u{e4}", "\u{130}", "\u{1f600}",
];
const NUMBERS: &[u32] =
    &[0, 1, 2, 7, 8, 127, 128, 255, 256, 4095, 4096, 65535, 65536, 1 << 20, 1 << 31, u32::MAX];
/// Words of a corpus longer than this are rarely of use elsewhere.
const LONGEST_WORD: usize = 40;

pub(crate) struct Mutator {
    words: Vec<Vec<u8>>,
}

impl Mutator {
    /// Varies with these words, and with those of the inputs.
    pub(crate) fn new(words: &[&str], inputs: &[Vec<u8>]) -> Self {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.$".contains(byte);
        let found = inputs.iter().flat_map(|input| input.split(move |byte| !is_word(byte)));
        let found: BTreeSet<&[u8]> = found.filter(|word| (2..LONGEST_WORD).contains(&word.len())).collect();
        let given = words.iter().chain(COMMON).map(|word| word.as_bytes());
        Self { words: given.chain(found).map(<[u8]>::to_vec).collect() }
    }

    /// Changes an input in a few ways.
    pub(crate) fn change(&self, input: &mut Vec<u8>, others: &[Vec<u8>], random: &mut Random) {
        for _ in 0..=random.small(6) {
            self.change_once(input, others, random);
        }
    }

    fn change_once(&self, input: &mut Vec<u8>, others: &[Vec<u8>], random: &mut Random) {
        let at = random.below(input.len() + 1);
        let end = at + random.small(input.len() - at + 1);
        let there = at..end;
        match random.below(12) {
            0 => change_byte(input, at, |byte, random| byte ^ 1 << random.below(8), random),
            1 => change_byte(input, at, |_, random| random.next() as u8, random),
            2 => change_byte(
                input,
                at,
                |byte, random| byte.wrapping_add(random.below(35) as u8).wrapping_sub(17),
                random,
            ),
            3 => drop(input.drain(there)),
            4 | 5 => drop(input.splice(at..at, random.pick(&self.words).iter().copied())),
            6 => {
                let end = input.len().min(at + random.below(12));
                drop(input.splice(at..end, random.pick(&self.words).iter().copied()));
            }
            7 => {
                let part = input[there].to_vec();
                let times = if random.one_in(8) { 1 + random.below(200) } else { 1 };
                drop(input.splice(at..at, part.repeat(times)));
            }
            8 => {
                // A part of another input.
                let other = random.pick(others);
                let from = random.below(other.len() + 1);
                let to = from + random.small(other.len() - from + 1);
                drop(input.splice(there, other[from..to].iter().copied()));
            }
            9 => change_number(input, at, random),
            10 => {
                let number = random.pick(NUMBERS).wrapping_add(random.below(3) as u32).wrapping_sub(1);
                let bytes = if random.one_in(2) { number.to_be_bytes() } else { number.to_le_bytes() };
                let end = input.len().min(at + 4);
                drop(input.splice(at..end, bytes));
            }
            _ => {
                let bytes = random.bytes(1 + at % 8);
                drop(input.splice(at..at, bytes));
            }
        }
    }
}

fn change_byte(input: &mut [u8], at: usize, change: impl Fn(u8, &mut Random) -> u8, random: &mut Random) {
    if let Some(byte) = input.get_mut(at) {
        *byte = change(*byte, random);
    }
}

/// Writes another number in place of the next one in digits.
fn change_number(input: &mut Vec<u8>, at: usize, random: &mut Random) {
    let Some(start) = input[at..].iter().position(u8::is_ascii_digit).map(|start| at + start) else { return };
    let digits = input[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let old =
        std::str::from_utf8(&input[start..start + digits]).ok().and_then(|text| text.parse::<u64>().ok());
    let new = match (random.below(3), old) {
        (0, Some(old)) => old.wrapping_add(1),
        (1, Some(old)) => old.wrapping_sub(1),
        _ => u64::from(*random.pick(NUMBERS)),
    };
    drop(input.splice(start..start + digits, new.to_string().into_bytes()));
}
