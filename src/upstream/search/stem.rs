//! English word stems, after the algorithm that Martin Porter published as "Porter2".
//!
//! It works on lower-case ASCII words; any other word is its own stem.

/// Words whose stem the rules would get wrong.
const EXCEPTIONS: [(&str, &str); 18] = [
    ("skis", "ski"),
    ("skies", "sky"),
    ("dying", "die"),
    ("lying", "lie"),
    ("tying", "tie"),
    ("idly", "idl"),
    ("gently", "gentl"),
    ("ugly", "ugli"),
    ("early", "earli"),
    ("only", "onli"),
    ("singly", "singl"),
    ("sky", "sky"),
    ("news", "news"),
    ("howe", "howe"),
    ("atlas", "atlas"),
    ("cosmos", "cosmos"),
    ("bias", "bias"),
    ("andes", "andes"),
];

/// Forms that no rule leads back. Sorted.
const IRREGULAR: [(&str, &str); 62] = [
    ("aliases", "alias"),
    ("analyses", "analysis"),
    ("bought", "buy"),
    ("broke", "break"),
    ("broken", "break"),
    ("brought", "bring"),
    ("built", "build"),
    ("came", "come"),
    ("caught", "catch"),
    ("children", "child"),
    ("chose", "choose"),
    ("chosen", "choose"),
    ("creation", "create"),
    ("creations", "create"),
    ("drawn", "draw"),
    ("drew", "draw"),
    ("driven", "drive"),
    ("drove", "drive"),
    ("fell", "fall"),
    ("found", "find"),
    ("froze", "freeze"),
    ("frozen", "freeze"),
    ("gone", "go"),
    ("grew", "grow"),
    ("grown", "grow"),
    ("heard", "hear"),
    ("held", "hold"),
    ("hid", "hide"),
    ("hidden", "hide"),
    ("indices", "index"),
    ("kept", "keep"),
    ("knew", "know"),
    ("laid", "lay"),
    ("led", "lead"),
    ("lent", "lend"),
    ("lost", "lose"),
    ("made", "make"),
    ("matrices", "matrix"),
    ("meant", "mean"),
    ("men", "man"),
    ("met", "meet"),
    ("mice", "mouse"),
    ("paid", "pay"),
    ("ran", "run"),
    ("said", "say"),
    ("saw", "see"),
    ("seen", "see"),
    ("sent", "send"),
    ("shown", "show"),
    ("sold", "sell"),
    ("spent", "spend"),
    ("spoke", "speak"),
    ("spoken", "speak"),
    ("stood", "stand"),
    ("taken", "take"),
    ("taught", "teach"),
    ("thrown", "throw"),
    ("told", "tell"),
    ("took", "take"),
    ("vertices", "vertex"),
    ("written", "write"),
    ("wrote", "write"),
];

/// Words that are done once their plural is gone.
const INVARIANT: [&str; 8] =
    ["inning", "outing", "canning", "herring", "earring", "proceed", "exceed", "succeed"];

const STEP_2: [(&str, &str); 22] = [
    ("ization", "ize"),
    ("ational", "ate"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("iveness", "ive"),
    ("tional", "tion"),
    ("biliti", "ble"),
    ("lessli", "less"),
    ("entli", "ent"),
    ("ation", "ate"),
    ("alism", "al"),
    ("aliti", "al"),
    ("ousli", "ous"),
    ("iviti", "ive"),
    ("fulli", "ful"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("abli", "able"),
    ("izer", "ize"),
    ("ator", "ate"),
    ("alli", "al"),
    ("bli", "ble"),
];

const STEP_3: [(&str, &str); 8] = [
    ("ational", "ate"),
    ("tional", "tion"),
    ("alize", "al"),
    ("icate", "ic"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ness", ""),
    ("ful", ""),
];

const STEP_4: [&str; 17] = [
    "ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ism", "ate", "iti", "ous", "ive", "ize",
    "al", "er", "ic",
];

/// The stem of a word.
pub(super) fn stem(word: &str) -> String {
    if word.len() <= 2 || !word.bytes().all(|b| b.is_ascii_lowercase()) {
        return word.to_owned();
    }
    if let Some((_, stem)) = EXCEPTIONS.iter().find(|(exception, _)| *exception == word) {
        return (*stem).to_owned();
    }
    let word = IRREGULAR.binary_search_by_key(&word, |(form, _)| form).map_or(word, |at| IRREGULAR[at].1);
    let mut word = Word::new(word);
    word.plural();
    if !INVARIANT.iter().any(|invariant| word.is(invariant)) {
        word.past_and_gerund();
        word.final_y();
        word.step_2();
        word.step_3();
        word.step_4();
        word.step_5();
    }
    word.finish()
}

struct Word {
    /// A `Y` is one that counts as a consonant.
    letters: Vec<u8>,
    /// Where the regions begin that suffixes must lie in.
    r1: usize,
    r2: usize,
}

impl Word {
    fn new(word: &str) -> Self {
        let mut letters = word.as_bytes().to_vec();
        for i in 0..letters.len() {
            if letters[i] == b'y' && (i == 0 || is_vowel(letters[i - 1])) {
                letters[i] = b'Y';
            }
        }
        let r1 = ["gener", "commun", "arsen"]
            .iter()
            .find(|prefix| word.starts_with(**prefix))
            .map_or_else(|| after_first_syllable(&letters, 0), |prefix| prefix.len());
        let r2 = after_first_syllable(&letters, r1);
        Self { letters, r1, r2 }
    }

    fn finish(mut self) -> String {
        self.letters.make_ascii_lowercase();
        String::from_utf8(self.letters).unwrap_or_default()
    }

    fn is(&self, word: &str) -> bool {
        self.letters == word.as_bytes()
    }

    fn ends(&self, suffix: &str) -> bool {
        self.letters.ends_with(suffix.as_bytes())
    }

    fn ends_within(&self, suffix: &str, region: usize) -> bool {
        self.ends(suffix) && self.letters.len() - suffix.len() >= region
    }

    fn before(&self, suffix: &str) -> &[u8] {
        &self.letters[..self.letters.len() - suffix.len()]
    }

    fn replace(&mut self, suffix: &str, with: &str) {
        self.letters.truncate(self.letters.len() - suffix.len());
        self.letters.extend_from_slice(with.as_bytes());
    }

    fn plural(&mut self) {
        if self.ends("sses") {
            self.replace("sses", "ss");
        } else if self.ends("ies") || self.ends("ied") {
            let with = if self.letters.len() > 4 { "i" } else { "ie" };
            self.replace("ies", with);
        } else if self.ends("s") && !self.ends("us") && !self.ends("ss") {
            let stem = self.before("s");
            if stem[..stem.len() - 1].iter().any(|b| is_vowel(*b)) {
                self.replace("s", "");
            }
        }
    }

    fn past_and_gerund(&mut self) {
        for suffix in ["eedly", "eed"] {
            if self.ends(suffix) {
                if self.ends_within(suffix, self.r1) {
                    self.replace(suffix, "ee");
                }
                return;
            }
        }
        for suffix in ["ingly", "edly", "ing", "ed"] {
            if !self.ends(suffix) {
                continue;
            }
            if self.before(suffix).iter().any(|b| is_vowel(*b)) {
                self.replace(suffix, "");
                if ["at", "bl", "iz"].iter().any(|end| self.ends(end)) {
                    self.letters.push(b'e');
                } else if self.ends_in_double() {
                    self.letters.pop();
                } else if self.is_short() {
                    self.letters.push(b'e');
                }
            }
            return;
        }
    }

    fn final_y(&mut self) {
        let n = self.letters.len();
        if n > 2 && matches!(self.letters[n - 1], b'y' | b'Y') && !is_vowel(self.letters[n - 2]) {
            self.letters[n - 1] = b'i';
        }
    }

    fn step_2(&mut self) {
        if let Some((suffix, with)) = longest(&STEP_2, self) {
            if self.ends_within(suffix, self.r1) {
                self.replace(suffix, with);
            }
        } else if self.ends("ogi") {
            if self.ends_within("ogi", self.r1) && self.before("ogi").ends_with(b"l") {
                self.replace("ogi", "og");
            }
        } else if self.ends_within("li", self.r1)
            && self.before("li").last().is_some_and(|b| b"cdeghkmnrt".contains(b))
        {
            self.replace("li", "");
        }
    }

    fn step_3(&mut self) {
        if let Some((suffix, with)) = longest(&STEP_3, self) {
            if self.ends_within(suffix, self.r1) {
                self.replace(suffix, with);
            }
        } else if self.ends_within("ative", self.r2) {
            self.replace("ative", "");
        }
    }

    fn step_4(&mut self) {
        if let Some(suffix) = STEP_4.iter().find(|suffix| self.ends(suffix)) {
            if self.ends_within(suffix, self.r2) {
                self.replace(suffix, "");
            }
        } else if self.ends_within("ion", self.r2)
            && self.before("ion").last().is_some_and(|b| matches!(b, b's' | b't'))
        {
            self.replace("ion", "");
        }
    }

    fn step_5(&mut self) {
        if self.ends("e") {
            let stem = self.before("e").len();
            if stem >= self.r2 || (stem >= self.r1 && !ends_in_short_syllable(&self.letters[..stem])) {
                self.letters.pop();
            }
        } else if self.ends_within("l", self.r2) && self.ends("ll") {
            self.letters.pop();
        }
    }

    fn ends_in_double(&self) -> bool {
        ["bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt"].iter().any(|double| self.ends(double))
    }

    fn is_short(&self) -> bool {
        self.letters.len() <= self.r1 && ends_in_short_syllable(&self.letters)
    }
}

fn is_vowel(letter: u8) -> bool {
    matches!(letter, b'a' | b'e' | b'i' | b'o' | b'u' | b'y')
}

/// The place behind the first consonant that follows a vowel.
fn after_first_syllable(letters: &[u8], from: usize) -> usize {
    (from + 1..letters.len())
        .find(|i| is_vowel(letters[i - 1]) && !is_vowel(letters[*i]))
        .map_or(letters.len(), |i| i + 1)
}

fn ends_in_short_syllable(letters: &[u8]) -> bool {
    match *letters {
        [vowel, last] => is_vowel(vowel) && !is_vowel(last),
        [.., first, vowel, last] => {
            !is_vowel(first) && is_vowel(vowel) && !is_vowel(last) && !matches!(last, b'w' | b'x' | b'Y')
        }
        _ => false,
    }
}

/// The first that fits: the tables have longer suffixes first.
fn longest(
    table: &'static [(&'static str, &'static str)],
    word: &Word,
) -> Option<(&'static str, &'static str)> {
    table.iter().find(|(suffix, _)| word.ends(suffix)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_a_word_share_a_stem() {
        for family in [
            &["create", "creates", "created", "creating", "creation"][..],
            &["delete", "deleted", "deletes", "deleting", "deletion"],
            &["query", "queries", "queried", "querying"],
            &["stop", "stopped", "stopping", "stops"],
            &["schedule", "scheduled", "scheduler", "schedules"],
            &["restrict", "restriction", "restricted"],
            &["aggregate", "aggregation", "aggregated"],
            &["execute", "execution", "executing"],
            &["merge", "merged", "merging"],
        ] {
            let stems: Vec<_> = family.iter().map(|word| stem(word)).collect();
            assert!(stems.iter().all(|s| *s == stems[0]), "{family:?} {stems:?}");
        }
    }

    #[test]
    fn the_published_examples_hold() {
        for (word, expected) in [
            ("consign", "consign"),
            ("consignment", "consign"),
            ("consistency", "consist"),
            ("consolation", "consol"),
            ("knackeries", "knackeri"),
            ("knightly", "knight"),
            ("kneeled", "kneel"),
            ("generously", "generous"),
            ("communication", "communic"),
            ("skies", "sky"),
            ("happy", "happi"),
            ("cry", "cri"),
            ("by", "by"),
            ("say", "say"),
            ("gas", "gas"),
            ("this", "this"),
            ("gaps", "gap"),
            ("kiwis", "kiwi"),
            ("ties", "tie"),
            ("cries", "cri"),
            ("luxuriating", "luxuri"),
            ("hopping", "hop"),
            ("hoping", "hope"),
            ("sing", "sing"),
            ("proceed", "proceed"),
            ("exceeding", "exceed"),
        ] {
            assert_eq!(stem(word), expected, "{word}");
        }
    }

    #[test]
    fn irregular_forms_are_led_back() {
        assert!(IRREGULAR.is_sorted());
        for (form, word) in IRREGULAR {
            assert_eq!(stem(form), stem(word), "{form}");
        }
    }

    #[test]
    fn what_is_no_english_word_stays_as_it_is() {
        for word in ["k8s", "größe", "", "a", "名前", "ss", "s"] {
            assert_eq!(stem(word), word);
        }
        assert_eq!(stem("yyyyyy"), "yyyyyi");
    }
}
