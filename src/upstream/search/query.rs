//! A query as a list of concepts, each with all its known readings: the word itself, synonyms, corrected typos.

use std::collections::HashMap;

use super::index::Index;
use super::stem::stem;
use super::stop::is_stop_word;
use super::synonyms::{SYNONYMS, Similarity, Synonym};
use super::weights;
use super::words::for_each_word;

/// The first words of a query are used, the rest is ignored.
const MOST_WORDS: usize = 64;
/// The first characters of a query are read, the rest is ignored.
const MOST_TEXT: usize = 4096;
/// The weight of the content words of an idiom ("get rid of"), relative to the idiom.
const IDIOM_WORDS: f32 = 0.6;
/// The weight of two words that were written as one.
const SPLIT_WORD: f32 = 0.9;
/// The shortest word that is recognized inside another.
const SHORTEST_PART: usize = 3;

/// A query, with the term numbers of one index.
#[derive(Debug)]
pub(super) struct Query {
    pub(super) concepts: Vec<Concept>,
    /// For each server, how certain it is that the query names it, from 0 to 1.
    pub(super) servers: Vec<f32>,
}

/// A word or phrase of a query.
#[derive(Debug, Default)]
pub(super) struct Concept {
    pub(super) weight: f32,
    /// Its possible meanings; the best match counts.
    pub(super) readings: Vec<Reading>,
    /// The single words of a phrase.
    pub(super) parts: Vec<Concept>,
}

/// One meaning of a concept: a tool must mention all of its terms.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reading {
    pub(super) weight: f32,
    /// Whether the query has these words, or a typo of them, rather than synonyms.
    pub(super) literal: bool,
    pub(super) terms: Vec<u32>,
}

/// A word of the query.
#[derive(Debug)]
struct Word {
    text: String,
    stem: String,
    /// Whether it is too common to be searched for.
    stop: bool,
}

impl Query {
    pub(super) fn new(text: &str, index: &Index) -> Self {
        let words = read_words(text);
        let (servers, server_words) = named_servers(&words, index);
        let reader = ConceptReader { index, server_words };
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

/// Returns how certain it is that each server is named, and that each word names a server.
fn named_servers<'a>(words: &'a [Word], index: &Index) -> (Vec<f32>, HashMap<&'a str, f32>) {
    let mut of_words = HashMap::new();
    let mut of_servers = vec![0.0f32; index.servers.len()];
    for (server, certainty) in index.servers.iter().zip(&mut of_servers) {
        let whole = server.stems.len() > 1
            && words
                .windows(server.stems.len())
                .any(|words| words.iter().zip(&server.stems).all(|(word, stem)| word.stem == *stem));
        for word in words.iter().filter(|word| server.stems.contains(&word.stem)) {
            let certain = if whole { 1.0 } else { index.server_name_certainty(&word.stem) };
            *certainty = certainty.max(certain);
            let known = of_words.entry(word.stem.as_str()).or_insert(0.0f32);
            *known = known.max(certain);
        }
    }
    (of_servers, of_words)
}

impl Index {
    /// Returns the share of tools whose server has the word in its name, among all tools that match the word.
    fn server_name_certainty(&self, stem: &str) -> f32 {
        let owners: Vec<_> =
            self.servers.iter().filter(|server| server.stems.iter().any(|own| own == stem)).collect();
        let own: usize = owners.iter().map(|server| server.tools.len()).sum();
        let is_foreign = |tool: u32| !owners.iter().any(|server| server.tools.contains(&(tool as usize)));
        let others = self
            .terms
            .get(stem)
            .map_or(0, |term| self.mentions(*term).iter().filter(|mention| is_foreign(mention.tool)).count());
        own as f32 / (own + others).max(1) as f32
    }
}

/// Turns words into concepts.
struct ConceptReader<'a> {
    index: &'a Index,
    server_words: HashMap<&'a str, f32>,
}

impl ConceptReader<'_> {
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
                self.add_synonyms(&mut concept, weights::QUESTION, synonyms);
                concepts.push(concept);
            }
            rest = behind;
        }
        concepts
    }

    fn word(&self, word: &Word) -> Concept {
        let named = self.server_words.get(word.stem.as_str()).copied().unwrap_or(0.0);
        let mut concept = Concept { weight: 1.0 - weights::SERVER_WORD * named, ..Concept::default() };
        self.add(&mut concept, 1.0, true, std::slice::from_ref(&word.stem));
        let synonyms = SYNONYMS.of(&word.stem);
        self.add_synonyms(&mut concept, 1.0, synonyms.unwrap_or_default());
        if concept.readings.is_empty() && synonyms.is_none() {
            self.add_splits(&mut concept, &word.text);
            self.add_corrections(&mut concept, &word.text);
        }
        concept
    }

    /// Reads the longest known phrase at the start of the words.
    fn phrase(&self, words: &[Word]) -> Option<(usize, Concept)> {
        let mut key = String::new();
        let mut longest = None;
        for (length, word) in (1..=SYNONYMS.longest).zip(words) {
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
        self.add_words(&mut concept, words);
        self.add_synonyms(&mut concept, 1.0, synonyms);
        Some((length, concept))
    }

    /// Reads two words that tools write as one: "screen shot".
    fn joined(&self, words: &[Word]) -> Option<(usize, Concept)> {
        let [left, right, ..] = words else { return None };
        if left.text.len() < 2 || right.text.len() < 2 {
            return None;
        }
        let term = self.index.lexicon.term(&[&*left.text, &*right.text].concat())?;
        let mut concept = Concept { weight: 1.0, ..Concept::default() };
        concept.readings.push(Reading { weight: 1.0, literal: true, terms: vec![term] });
        self.add_words(&mut concept, &words[..2]);
        Some((2, concept))
    }

    /// Adds the words of a phrase as they are, without those that are too common to be searched for.
    fn add_words(&self, concept: &mut Concept, words: &[Word]) {
        let content: Vec<_> = words.iter().filter(|word| !word.stop).collect();
        let stems: Vec<_> = content.iter().map(|word| word.stem.clone()).collect();
        let whole = content.len() == words.len();
        self.add(concept, if whole { 1.0 } else { IDIOM_WORDS }, true, &stems);
        if whole {
            concept.parts = content.into_iter().map(|word| self.word(word)).collect();
        }
    }

    /// Adds two words that the query writes as one: "timesheet".
    fn add_splits(&self, concept: &mut Concept, word: &str) {
        for at in SHORTEST_PART..(word.len() + 1).saturating_sub(SHORTEST_PART) {
            let Some((left, right)) = word.split_at_checked(at) else { continue };
            let lexicon = &self.index.lexicon;
            if let (Some(left), Some(right)) = (lexicon.term(left), lexicon.term(right)) {
                concept.readings.push(Reading {
                    weight: SPLIT_WORD,
                    literal: true,
                    terms: vec![left, right],
                });
            }
        }
    }

    fn add_corrections(&self, concept: &mut Concept, word: &str) {
        for correction in self.index.lexicon.corrections(word) {
            let weight = weights::TYPO * correction.similarity;
            concept.readings.push(Reading { weight, literal: true, terms: vec![correction.term] });
            let synonyms = SYNONYMS.of(&self.index.stems[correction.term as usize]);
            self.add_synonyms(concept, weight, synonyms.unwrap_or_default());
        }
    }

    fn add_synonyms(&self, concept: &mut Concept, weight: f32, synonyms: &[Synonym]) {
        for synonym in synonyms {
            let similarity = match synonym.similarity {
                Similarity::Same => weights::SAME,
                Similarity::Related => weights::RELATED,
            };
            self.add(concept, weight * similarity, false, &synonym.stems);
        }
    }

    /// Adds a reading when the index has all its words.
    fn add(&self, concept: &mut Concept, weight: f32, literal: bool, stems: &[String]) {
        let terms: Option<Vec<u32>> =
            stems.iter().map(|stem| self.index.terms.get(stem.as_str()).copied()).collect();
        if let Some(terms) = terms.filter(|terms| !terms.is_empty()) {
            concept.readings.push(Reading { weight, literal, terms });
        }
    }
}
