//! Corrects typos: finds words of the index that are similar to an unknown word of a query.

/// Shorter words have too many similar ones.
const SHORTEST: usize = 4;
/// From this length on a word may have two errors.
const LONG: usize = 8;
/// The corrections of one word.
const MOST_CORRECTIONS: usize = 4;
/// How much higher than the lowest the cost of a correction may be.
const SPREAD: f32 = 1.0;

/// All words of an index, before stemming.
#[derive(Debug, Default)]
pub(super) struct Lexicon {
    /// Sorted by word.
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    word: Box<str>,
    term: u32,
    letters: u32,
}

/// A word of the index that may have been meant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Correction {
    pub(super) term: u32,
    /// 1.0 for the most similar word.
    pub(super) similarity: f32,
}

impl Lexicon {
    /// Builds a lexicon from words with their terms.
    pub(super) fn new(words: impl IntoIterator<Item = (Box<str>, u32)>) -> Self {
        let entry = |(word, term): (Box<str>, _)| Entry { letters: letters(&word), word, term };
        let mut entries: Vec<_> = words.into_iter().map(entry).collect();
        entries.sort_unstable_by(|left, right| left.word.cmp(&right.word));
        Self { entries }
    }

    /// Returns the term of a known word.
    pub(super) fn term(&self, word: &str) -> Option<u32> {
        let at = self.entries.binary_search_by(|entry| (*entry.word).cmp(word)).ok()?;
        Some(self.entries[at].term)
    }

    /// Returns the most similar words, best first.
    pub(super) fn corrections(&self, word: &str) -> Vec<Correction> {
        if word.len() < SHORTEST || !word.bytes().all(|b| b.is_ascii_lowercase()) {
            return Vec::new();
        }
        let errors = if word.len() < LONG { 1 } else { 2 };
        let (letters, sound) = (letters(word), sound(word));
        let mut found: Vec<(f32, &Entry)> = self
            .entries
            .iter()
            // One more error is allowed when both words sound alike.
            .filter(|entry| entry.may_be_within(errors + 1, word.len(), letters))
            .filter_map(|entry| Some((cost(word, &sound, entry, errors)?, entry)))
            .collect();
        // Entries are sorted by word: equal costs stay in that order.
        found.sort_by(|(left, _), (right, _)| left.total_cmp(right));
        let Some(best) = found.first().map(|(cost, _)| *cost) else { return Vec::new() };
        let mut corrections: Vec<Correction> = Vec::new();
        for (cost, entry) in found.into_iter().take_while(|(cost, _)| *cost <= best + SPREAD) {
            if corrections.iter().all(|known| known.term != entry.term) {
                corrections.push(Correction { term: entry.term, similarity: 1.0 - 0.35 * (cost - best) });
            }
        }
        corrections.truncate(MOST_CORRECTIONS);
        corrections
    }
}

impl Entry {
    fn may_be_within(&self, errors: usize, length: usize, letters: u32) -> bool {
        self.word.len() >= SHORTEST - 1
            && self.word.len().abs_diff(length) <= errors
            && (self.letters ^ letters).count_ones() as usize <= 2 * errors
    }
}

/// Returns how far a known word is from a written one; `None` when it is too far.
fn cost(written: &str, sound_of_written: &str, entry: &Entry, errors: usize) -> Option<f32> {
    let distance = strsim::osa_distance(written, &entry.word);
    let sounds_alike = distance <= errors + 1 && sound(&entry.word) == sound_of_written;
    if distance > errors && !sounds_alike {
        return None;
    }
    let gain = if sounds_alike { 0.5 } else { 0.0 };
    // The first letter is rarely wrong.
    let loss = if entry.word.as_bytes()[0] != written.as_bytes()[0] { 0.7 } else { 0.0 };
    Some(distance as f32 - gain + loss)
}

/// Returns the set of letters of a word, one bit for each.
fn letters(word: &str) -> u32 {
    word.bytes().filter(u8::is_ascii_lowercase).fold(0, |set, b| set | 1 << (b - b'a'))
}

/// Returns the consonants of a word by their sound, doubled ones once.
fn sound(word: &str) -> String {
    let bytes = word.as_bytes();
    let mut sound = String::with_capacity(bytes.len());
    for (at, byte) in bytes.iter().enumerate() {
        let next = bytes.get(at + 1);
        let consonant = match byte {
            b'a' | b'e' | b'i' | b'o' | b'u' | b'y' | b'h' if at > 0 => continue,
            b'c' if matches!(next, Some(b'e' | b'i' | b'y')) => 's',
            b'c' | b'q' => 'k',
            b'z' => 's',
            b'p' if next == Some(&b'h') => 'f',
            other => char::from(*other),
        };
        if !sound.ends_with(consonant) {
            sound.push(consonant);
        }
    }
    sound
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lexicon() -> Lexicon {
        let words = [
            "attachment", "break", "calendar", "column", "container", "execute", "file", "find", "flaky",
            "message", "screenshot", "separate", "sets", "stopped", "stored", "tests", "workflow",
        ];
        Lexicon::new((0..).zip(words).map(|(term, word)| (word.into(), term)))
    }

    fn best(word: &str) -> Option<String> {
        let lexicon = lexicon();
        let term = lexicon.corrections(word).first()?.term;
        lexicon.entries.iter().find(|entry| entry.term == term).map(|entry| entry.word.to_string())
    }

    #[test]
    fn typos_are_corrected() {
        for (written, meant) in [
            ("atachment", "attachment"),
            ("calender", "calendar"),
            ("colum", "column"),
            ("contianer", "container"),
            ("exicute", "execute"),
            ("flakey", "flaky"),
            ("mesage", "message"),
            ("screnshott", "screenshot"),
            ("stoped", "stopped"),
            ("tets", "tests"),
            ("wrokflow", "workflow"),
        ] {
            assert_eq!(best(written).as_deref(), Some(meant), "{written}");
        }
    }

    #[test]
    fn words_that_sound_alike_may_differ_more() {
        assert_eq!(best("brake").as_deref(), Some("break"));
        assert_eq!(best("seperait").as_deref(), Some("separate"));
    }

    #[test]
    fn a_different_word_is_not_a_typo() {
        for word in ["invoice", "warehouse", "fin", "k8s", "größe", ""] {
            assert_eq!(best(word), None, "{word}");
        }
    }

    #[test]
    fn known_words_have_a_term() {
        assert_eq!(lexicon().term("column"), Some(3));
        assert_eq!(lexicon().term("colum"), None);
    }
}
