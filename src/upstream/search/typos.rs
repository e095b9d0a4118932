//! Words that may have been meant by one that nobody knows.

/// The words of an index, ready for comparison.
#[derive(Debug, Default)]
pub(super) struct Lexicon {
    words: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    letters: u32,
    word: Box<str>,
    /// Whatever the owner knows it by.
    id: u32,
    /// How many tools speak of it.
    tools: u32,
}

/// A word that may have been meant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Guess {
    pub(super) id: u32,
    /// 1.0 = certainly.
    pub(super) likeness: f32,
}

/// Shorter words have too many neighbours.
const SHORTEST: usize = 4;
/// Guesses for one word.
const MOST_GUESSES: usize = 4;

impl Lexicon {
    pub(super) fn push(&mut self, word: &str, id: u32, tools: u32) {
        self.words.push(Entry { letters: letters(word), word: word.into(), id, tools });
    }

    /// The likeliest first.
    pub(super) fn guesses(&self, word: &str) -> Vec<Guess> {
        let length = word.chars().count();
        if length < SHORTEST || word.bytes().any(|b| b.is_ascii_digit()) {
            return Vec::new();
        }
        let most = if length < 8 { 1 } else { 2 };
        // Sounds alike: one more slip is allowed.
        let sound = skeleton(word);
        let mine = letters(word);
        let mut found: Vec<(f32, &Entry)> = Vec::new();
        for entry in &self.words {
            let slack = most + 1;
            if entry.word.len().abs_diff(word.len()) > slack
                || (entry.letters ^ mine).count_ones() as usize > 2 * slack
            {
                continue;
            }
            let distance = strsim::osa_distance(word, &entry.word);
            if distance > slack || entry.word.len() < SHORTEST - 1 {
                continue;
            }
            let sounds_alike = skeleton(&entry.word) == sound;
            if distance > most && !sounds_alike {
                continue;
            }
            let mut cost = distance as f32;
            if sounds_alike {
                cost -= 0.5;
            }
            if entry.word.as_bytes().first() != word.as_bytes().first() {
                cost += 0.7;
            }
            // Words that many tools speak of are likelier.
            cost -= 0.06 * (1.0 + entry.tools as f32).ln().min(5.0);
            found.push((cost, entry));
        }
        found.sort_by(|(a, left), (b, right)| a.total_cmp(b).then_with(|| left.word.cmp(&right.word)));
        let Some(best) = found.first().map(|(cost, _)| *cost) else { return Vec::new() };
        let mut guesses: Vec<Guess> = Vec::new();
        for (cost, entry) in found {
            if guesses.len() == MOST_GUESSES || cost > best + 1.0 {
                break;
            }
            if guesses.iter().all(|guess| guess.id != entry.id) {
                guesses.push(Guess { id: entry.id, likeness: 1.0 - 0.35 * (cost - best) });
            }
        }
        guesses
    }
}

/// Which letters a word has.
fn letters(word: &str) -> u32 {
    word.bytes().filter(u8::is_ascii_lowercase).fold(0, |set, b| set | 1 << (b - b'a'))
}

/// The consonants of a word as they sound, doubled ones once.
fn skeleton(word: &str) -> String {
    let mut sounds = String::new();
    let bytes = word.as_bytes();
    for (i, b) in bytes.iter().enumerate() {
        let sound = match b {
            b'a' | b'e' | b'i' | b'o' | b'u' | b'y' | b'h' if i > 0 => continue,
            b'c' if matches!(bytes.get(i + 1), Some(b'e' | b'i' | b'y')) => 's',
            b'c' | b'q' => 'k',
            b'z' => 's',
            b'p' if bytes.get(i + 1) == Some(&b'h') => 'f',
            _ => char::from(*b),
        };
        if !sounds.ends_with(sound) {
            sounds.push(sound);
        }
    }
    sounds
}
