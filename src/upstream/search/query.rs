//! What somebody typed, read as concepts: each with every way to say it that we know.

use std::collections::HashMap;

use super::index::Index;
use super::stem::stem;
use super::stop::is_stop_word;
use super::synonyms::{Nearness, SYNONYMS, Synonym};
use super::words::for_each_word;

/// Words of a query that count.
const MOST_WORDS: usize = 64;
/// Characters of a query that are looked at.
const MOST_TEXT: usize = 4096;
/// What the content words of an idiom count, against the idiom.
const IDIOM_WORDS: f32 = 0.6;
/// What two words count that one run-together word may be.
const CUT_WORD: f32 = 0.9;
/// The shortest words that are run together.
const SHORTEST_PART: usize = 3;

/// A query, in the terms of one index.
#[derive(Debug)]
pub(super) struct Query {
    pub(super) concepts: Vec<Concept>,
    /// How surely it names each server.
    pub(super) servers: Vec<f32>,
}

/// Something that a query speaks of.
#[derive(Debug, Default)]
pub(super) struct Concept {
    pub(super) weight: f32,
    /// The ways to say it; the best one counts.
    pub(super) readings: Vec<Reading>,
    /// The words of a phrase, each for itself.
    pub(super) parts: Vec<Concept>,
}

/// One way to say something: all of the terms.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reading {
    pub(super) weight: f32,
    /// Whether it stands in the query.
    pub(super) literal: bool,
    pub(super) terms: Vec<u32>,
}

/// A word of the query.
#[derive(Debug)]
struct Word {
    text: String,
    stem: String,
    /// Says nothing by itself.
    stop: bool,
}

impl Query {
    pub(super) fn new(text: &str, index: &Index) -> Self {
        let words = read_words(text);
        let (servers, server_words) = named_servers(&words, index);
        let reader = Reader { index, server_words };
        Self { concepts: reader.concepts(&words), servers }
    }
}

fn read_words(text: &str) -> Vec<Word> {
    let end = text.char_indices().nth(MOST_TEXT).map_or(text.len(), |(at, _)| at);
    let mut words = Vec::new();
    for_each_word(&text[..end], |word| {
        if words.len() < MOST_WORDS {
            words.push(Word { text: word.to_owned(), stem: stem(word), stop: is_stop_word(word) });
        }
    });
    if words.iter().all(|word| word.stop) {
        words.iter_mut().for_each(|word| word.stop = false);
    }
    words
}

/// How surely each server is named, and how surely each word stands for a server.
fn named_servers<'a>(words: &'a [Word], index: &Index) -> (Vec<f32>, HashMap<&'a str, f32>) {
    let mut of_words = HashMap::new();
    let mut of_servers = vec![0.0f32; index.servers.len()];
    for (server, certainty) in index.servers.iter().zip(&mut of_servers) {
        let whole = server.stems.len() > 1
            && words
                .windows(server.stems.len())
                .any(|words| words.iter().zip(&server.stems).all(|(word, stem)| word.stem == *stem));
        for word in words.iter().filter(|word| server.stems.contains(&word.stem)) {
            let sure = if whole { 1.0 } else { index.names_a_server(&word.stem) };
            *certainty = certainty.max(sure);
            let known = of_words.entry(word.stem.as_str()).or_insert(0.0f32);
            *known = known.max(sure);
        }
    }
    (of_servers, of_words)
}

impl Index {
    /// Of the tools that speak of a word, the part that does because the word is in their server's name.
    fn names_a_server(&self, stem: &str) -> f32 {
        let owners: Vec<_> =
            self.servers.iter().filter(|server| server.stems.iter().any(|own| own == stem)).collect();
        let own: usize = owners.iter().map(|server| server.tools).sum();
        let is_foreign = |tool: u32| !owners.iter().any(|server| server.range().contains(&(tool as usize)));
        let others = self
            .terms
            .get(stem)
            .map_or(0, |term| self.mentions(*term).iter().filter(|mention| is_foreign(mention.tool)).count());
        own as f32 / (own + others).max(1) as f32
    }
}

/// Turns words into concepts.
struct Reader<'a> {
    index: &'a Index,
    server_words: HashMap<&'a str, f32>,
}

impl Reader<'_> {
    fn concepts(&self, words: &[Word]) -> Vec<Concept> {
        let mut concepts = Vec::new();
        let mut rest = words;
        while let Some((word, behind)) = rest.split_first() {
            if let Some((length, concept)) = self.phrase(rest).or_else(|| self.joined(rest)) {
                concepts.push(concept);
                rest = &rest[length..];
                continue;
            }
            if !word.stop {
                concepts.push(self.word(word));
            } else if let Some(synonyms) = SYNONYMS.of(&word.text) {
                let mut concept = Concept { weight: 1.0, ..Concept::default() };
                self.add_synonyms(&mut concept, self.index.weights.question, synonyms);
                concepts.push(concept);
            }
            rest = behind;
        }
        concepts
    }

    fn word(&self, word: &Word) -> Concept {
        let weights = &self.index.weights;
        let named = self.server_words.get(word.stem.as_str()).copied().unwrap_or(0.0);
        let mut concept = Concept { weight: 1.0 - weights.server_word * named, ..Concept::default() };
        self.add(&mut concept, 1.0, true, std::slice::from_ref(&word.stem));
        let synonyms = SYNONYMS.of(&word.stem);
        self.add_synonyms(&mut concept, 1.0, synonyms.unwrap_or_default());
        if concept.readings.is_empty() && synonyms.is_none() {
            self.add_cuts(&mut concept, &word.text);
            self.add_guesses(&mut concept, &word.text);
        }
        concept
    }

    /// The longest known phrase that the words begin with.
    fn phrase(&self, words: &[Word]) -> Option<(usize, Concept)> {
        let mut key = String::new();
        let mut longest = None;
        for (length, word) in (1..=SYNONYMS.longest()).zip(words) {
            if length > 1 {
                key.push(' ');
            }
            key.push_str(&word.stem);
            if length > 1
                && let Some(synonyms) = SYNONYMS.of(&key)
            {
                longest = Some((length, synonyms));
            }
        }
        let (length, synonyms) = longest?;
        let words = &words[..length];
        let mut concept = Concept { weight: 1.0, ..Concept::default() };
        let content: Vec<_> = words.iter().filter(|word| !word.stop).collect();
        let stems: Vec<_> = content.iter().map(|word| word.stem.clone()).collect();
        let whole = content.len() == length;
        self.add(&mut concept, if whole { 1.0 } else { IDIOM_WORDS }, true, &stems);
        self.add_synonyms(&mut concept, 1.0, synonyms);
        if whole {
            concept.parts = content.into_iter().map(|word| self.word(word)).collect();
        }
        Some((length, concept))
    }

    /// Two words that tools write as one: screen shot.
    fn joined(&self, words: &[Word]) -> Option<(usize, Concept)> {
        let [left, right, ..] = words else { return None };
        if left.text.len() < 2 || right.text.len() < 2 {
            return None;
        }
        let term = self.index.lexicon.term(&[&*left.text, &*right.text].concat())?;
        let mut concept = Concept { weight: 1.0, ..Concept::default() };
        concept.readings.push(Reading { weight: 1.0, literal: true, terms: vec![term] });
        if !left.stop && !right.stop {
            self.add(&mut concept, 1.0, true, &[left.stem.clone(), right.stem.clone()]);
            concept.parts = vec![self.word(left), self.word(right)];
        }
        Some((2, concept))
    }

    /// Two words that the query writes as one: timesheet.
    fn add_cuts(&self, concept: &mut Concept, word: &str) {
        for cut in SHORTEST_PART..(word.len() + 1).saturating_sub(SHORTEST_PART) {
            let Some((left, right)) = word.split_at_checked(cut) else { continue };
            let lexicon = &self.index.lexicon;
            if let (Some(left), Some(right)) = (lexicon.term(left), lexicon.term(right)) {
                concept.readings.push(Reading { weight: CUT_WORD, literal: true, terms: vec![left, right] });
            }
        }
    }

    fn add_guesses(&self, concept: &mut Concept, word: &str) {
        for guess in self.index.lexicon.guesses(word) {
            let weight = self.index.weights.typo * guess.likeness;
            concept.readings.push(Reading { weight, literal: true, terms: vec![guess.term] });
            let synonyms = SYNONYMS.of(&self.index.stems[guess.term as usize]);
            self.add_synonyms(concept, weight, synonyms.unwrap_or_default());
        }
    }

    fn add_synonyms(&self, concept: &mut Concept, weight: f32, synonyms: &[Synonym]) {
        for synonym in synonyms {
            let nearness = match synonym.nearness {
                Nearness::Same => self.index.weights.same,
                Nearness::Related => self.index.weights.related,
            };
            self.add(concept, weight * nearness, false, &synonym.stems);
        }
    }

    /// Adds a reading, when there are tools that speak of all its words.
    fn add(&self, concept: &mut Concept, weight: f32, literal: bool, stems: &[String]) {
        let terms: Option<Vec<u32>> =
            stems.iter().map(|stem| self.index.terms.get(stem.as_str()).copied()).collect();
        if let Some(terms) = terms.filter(|terms| !terms.is_empty()) {
            concept.readings.push(Reading { weight, literal, terms });
        }
    }
}
