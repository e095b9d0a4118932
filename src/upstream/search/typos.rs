//! Words that may have been meant by one that no tool speaks of.

/// Shorter words have too many neighbours.
const SHORTEST: usize = 4;
/// Longer ones may have two slips.
const LONG: usize = 8;
/// Guesses for one word.
const MOST_GUESSES: usize = 4;
/// How much dearer than the best a guess may be.
const SPREAD: f32 = 1.0;

/// All words of an index, as they are written.
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

/// A word that may have been meant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Guess {
    /// Its term.
    pub(super) term: u32,
    /// 1.0 for the best.
    pub(super) likeness: f32,
}

impl Lexicon {
    /// From words with their terms.
    pub(super) fn new(words: impl IntoIterator<Item = (Box<str>, u32)>) -> Self {
        let entry = |(word, term): (Box<str>, _)| Entry { letters: letters(&word), word, term };
        let mut entries: Vec<_> = words.into_iter().map(entry).collect();
        entries.sort_unstable_by(|left, right| left.word.cmp(&right.word));
        Self { entries }
    }

    /// The term of a word that stands somewhere.
    pub(super) fn term(&self, word: &str) -> Option<u32> {
        let at = self.entries.binary_search_by(|entry| (*entry.word).cmp(word)).ok()?;
        Some(self.entries[at].term)
    }

    /// What may have been meant, the likeliest first.
    pub(super) fn guesses(&self, word: &str) -> Vec<Guess> {
        if word.len() < SHORTEST || !word.bytes().all(|b| b.is_ascii_lowercase()) {
            return Vec::new();
        }
        let slips = if word.len() < LONG { 1 } else { 2 };
        let (letters, sound) = (letters(word), sound(word));
        let mut found: Vec<(f32, &Entry)> = self
            .entries
            .iter()
            // One more slip is allowed in what sounds alike.
            .filter(|entry| entry.may_be_within(slips + 1, word.len(), letters))
            .filter_map(|entry| Some((cost(word, &sound, entry, slips)?, entry)))
            .collect();
        // Entries are sorted by word: equal costs stay in that order.
        found.sort_by(|(left, _), (right, _)| left.total_cmp(right));
        let Some(best) = found.first().map(|(cost, _)| *cost) else { return Vec::new() };
        let mut guesses: Vec<Guess> = Vec::new();
        for (cost, entry) in found.into_iter().take_while(|(cost, _)| *cost <= best + SPREAD) {
            if guesses.iter().all(|guess| guess.term != entry.term) {
                guesses.push(Guess { term: entry.term, likeness: 1.0 - 0.35 * (cost - best) });
            }
        }
        guesses.truncate(MOST_GUESSES);
        guesses
    }
}

impl Entry {
    fn may_be_within(&self, slips: usize, length: usize, letters: u32) -> bool {
        self.word.len() >= SHORTEST - 1
            && self.word.len().abs_diff(length) <= slips
            && (self.letters ^ letters).count_ones() as usize <= 2 * slips
    }
}

/// How far a word is from the one that was written; none when it is too far.
fn cost(written: &str, sound_of_written: &str, entry: &Entry, slips: usize) -> Option<f32> {
    let distance = strsim::osa_distance(written, &entry.word);
    if distance > slips + 1 {
        return None;
    }
    let sounds_alike = sound(&entry.word) == sound_of_written;
    if distance > slips && !sounds_alike {
        return None;
    }
    let mut cost = distance as f32;
    if sounds_alike {
        cost -= 0.5;
    }
    // The first letter is rarely wrong.
    if entry.word.as_bytes()[0] != written.as_bytes()[0] {
        cost += 0.7;
    }
    Some(cost)
}

/// Which letters a word has.
fn letters(word: &str) -> u32 {
    word.bytes().filter(u8::is_ascii_lowercase).fold(0, |set, b| set | 1 << (b - b'a'))
}

/// The consonants of a word as they sound, doubled ones once.
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
        let term = lexicon.guesses(word).first()?.term;
        lexicon.entries.iter().find(|entry| entry.term == term).map(|entry| entry.word.to_string())
    }

    #[test]
    fn slips_are_seen_through() {
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
    fn what_sounds_alike_may_look_different() {
        assert_eq!(best("brake").as_deref(), Some("break"));
        assert_eq!(best("seperait").as_deref(), Some("separate"));
    }

    #[test]
    fn another_word_is_no_slip() {
        for word in ["invoice", "warehouse", "fin", "k8s", "größe", ""] {
            assert_eq!(best(word), None, "{word}");
        }
    }

    #[test]
    fn words_have_terms() {
        assert_eq!(lexicon().term("column"), Some(3));
        assert_eq!(lexicon().term("colum"), None);
    }
}
