//! Splits prose into sentences, and finds the boilerplate sentences that many tools of a server repeat.

use std::collections::HashMap;

use crate::upstream::ToolDoc;

/// A sentence is boilerplate when one tool in this many has it, and at least so many tools.
const BOILERPLATE_SHARE: usize = 12;
const BOILERPLATE_TOOLS: usize = 4;

/// Words before a full stop that do not end a sentence.
const ABBREVIATIONS: [&str; 14] =
    ["approx", "cf", "dr", "e.g", "eg", "etc", "i.e", "ie", "mr", "mrs", "ms", "no", "resp", "vs"];

/// The sentences that many tools of one server repeat.
#[derive(Debug, Default)]
pub struct Boilerplate {
    tools_with: HashMap<String, usize>,
    many: usize,
}

impl Boilerplate {
    /// Counts the sentences of all tools of a server.
    pub fn of(docs: &[ToolDoc]) -> Self {
        let mut tools_with = HashMap::new();
        for doc in docs {
            let mut seen: Vec<String> = sentences(&doc.description).map(normalized).collect();
            seen.sort_unstable();
            seen.dedup();
            for sentence in seen {
                *tools_with.entry(sentence).or_insert(0) += 1;
            }
        }
        tools_with.retain(|_, count| *count >= BOILERPLATE_TOOLS);
        Self { tools_with, many: (docs.len() / BOILERPLATE_SHARE).max(BOILERPLATE_TOOLS) }
    }

    pub(super) fn contains(&self, sentence: &str) -> bool {
        !self.tools_with.is_empty()
            && self.tools_with.get(&normalized(sentence)).is_some_and(|count| *count >= self.many)
    }
}

/// Returns the first sentence of a description that says what the tool does.
pub fn first_sentence<'a>(description: &'a str, boilerplate: &Boilerplate) -> Option<&'a str> {
    sentences(description).find(|sentence| is_prose(sentence) && !boilerplate.contains(sentence))
}

/// Returns whether this is a sentence, and not a heading or the number of a list item.
pub(super) fn is_prose(sentence: &str) -> bool {
    !sentence.ends_with(':') && sentence.split_whitespace().filter(|word| has_letters(word)).nth(1).is_some()
}

fn has_letters(word: &str) -> bool {
    word.chars().any(char::is_alphabetic)
}

fn normalized(sentence: &str) -> String {
    let mut normalized = String::with_capacity(sentence.len());
    for word in sentence.split_whitespace() {
        normalized.extend(word.chars().flat_map(char::to_lowercase));
        normalized.push(' ');
    }
    normalized
}

/// Splits prose at the ends of sentences and lines.
pub(super) fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let (sentence, tail) = rest.split_at(sentence_end(rest));
            rest = tail;
            let sentence = sentence.trim();
            if sentence.chars().any(char::is_alphanumeric) {
                return Some(sentence);
            }
        }
        None
    })
}

fn sentence_end(text: &str) -> usize {
    for (at, c) in text.char_indices() {
        let rest = &text[at + c.len_utf8()..];
        let ends = match c {
            // In Chinese and Japanese no space follows.
            '\n' | '。' | '！' | '？' => true,
            '.' => is_followed_by_space(rest) && !is_inside(&text[..at], rest),
            '!' | '?' | ';' => is_followed_by_space(rest),
            _ => false,
        };
        if ends {
            return at + c.len_utf8();
        }
    }
    text.len()
}

fn is_followed_by_space(rest: &str) -> bool {
    rest.chars().next().is_none_or(|c| c.is_ascii_whitespace())
}

/// Returns whether a full stop between these belongs to a number or an abbreviation.
fn is_inside(before: &str, rest: &str) -> bool {
    let word = before.rsplit(|c: char| c.is_whitespace() || c == '(').next().unwrap_or_default();
    let is_initials = word.contains('.') && word.split('.').all(|part| part.len() == 1);
    let continues = rest.trim_start().starts_with(|c: char| c.is_lowercase());
    word.bytes().all(|b| b.is_ascii_digit())
        || ABBREVIATIONS.contains(&word.to_ascii_lowercase().as_str())
        || (is_initials && continues)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<&str> {
        sentences(text).collect()
    }

    fn docs(descriptions: &[&str]) -> Vec<ToolDoc> {
        let doc = |text: &&str| ToolDoc { description: (*text).into(), ..ToolDoc::default() };
        descriptions.iter().map(doc).collect()
    }

    #[test]
    fn sentences_end_at_stops_and_lines() {
        assert_eq!(
            split("Adds a note. Fails if it exists!\n\nUse `x.y` for 1.5; then stop"),
            ["Adds a note.", "Fails if it exists!", "Use `x.y` for 1.5;", "then stop"]
        );
        assert_eq!(split(""), [""; 0]);
        assert_eq!(split("...\n - \n"), [""; 0]);
    }

    #[test]
    fn abbreviations_and_list_numbers_do_not_end_a_sentence() {
        assert_eq!(
            split("Takes a unit (e.g. metres, etc. or feet). Then: 1. Measures."),
            ["Takes a unit (e.g. metres, etc. or feet).", "Then: 1. Measures."]
        );
    }

    #[test]
    fn the_first_sentence_is_neither_heading_nor_boilerplate() {
        let many: Vec<_> =
            (0..6).map(|i| format!("🛡 Care:\nAsk before use.\nPurpose:\n1. Paints wall {i}.")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        let docs = docs(&many);
        let boilerplate = Boilerplate::of(&docs);
        assert_eq!(first_sentence(&docs[2].description, &boilerplate), Some("1. Paints wall 2."));
        assert_eq!(first_sentence("Care:\n", &boilerplate), None);
    }

    #[test]
    fn a_sentence_of_three_tools_is_not_boilerplate() {
        let docs = docs(&["Ask first. Cuts.", "Ask first. Glues.", "Ask first. Bends."]);
        assert_eq!(first_sentence(&docs[0].description, &Boilerplate::of(&docs)), Some("Ask first."));
    }
}
