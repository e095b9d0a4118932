//! The tools of all servers as one index: for every stem, which tools it speaks for and how much.

use std::collections::HashMap;
use std::sync::Arc;

use super::analysis::{FIELDS, Terms};
use super::intent::Acts;
use super::stem::stem;
use super::typos::Lexicon;
use super::weights::Weights;
use super::words::words;

/// A server whose tools are searched.
#[derive(Debug, Clone)]
pub struct IndexedServer {
    /// Its name in the configuration.
    pub name: String,
    /// The words of its tools.
    pub terms: Arc<Terms>,
}

/// A tool that was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    /// Which server of the list.
    pub server: usize,
    /// Which of its tools.
    pub tool: usize,
    /// Only for comparison within one search.
    pub score: f32,
}

/// An index over the tools of many servers.
#[derive(Debug)]
pub struct Index {
    pub(super) weights: Weights,
    pub(super) servers: Vec<NamedServer>,
    /// Server and tool of each document.
    pub(super) documents: Vec<(u32, u32)>,
    pub(super) terms: HashMap<Box<str>, u32>,
    pub(super) rarity: Vec<f32>,
    offsets: Vec<u32>,
    postings: Vec<Posting>,
    /// Words as they are written, each with its stem.
    pub(super) lexicon: Lexicon,
    pub(super) surface: HashMap<Box<str>, u32>,
    pub(super) stems: Vec<Box<str>>,
    /// What each tool does, by its name.
    pub(super) acts: Vec<Acts>,
    /// Whether a tool has the term in its name.
    pub(super) named: Vec<bool>,
    names: Vec<u32>,
    name_offsets: Vec<u32>,
}

#[derive(Debug)]
pub(super) struct NamedServer {
    pub(super) stems: Vec<String>,
    pub(super) first: u32,
    pub(super) tools: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Posting {
    pub(super) document: u32,
    pub(super) impact: f32,
}

/// How two neighbours are written as one word of an index.
pub(super) fn pair(left: &str, right: &str) -> String {
    format!("{} {}", stem(left), stem(right))
}

impl Index {
    /// Indexes the tools of the servers, in their order.
    pub fn new(servers: &[IndexedServer], weights: Weights) -> Self {
        let averages = average_lengths(servers);
        let mut index = Self {
            weights,
            servers: Vec::new(),
            documents: Vec::new(),
            terms: HashMap::new(),
            rarity: Vec::new(),
            offsets: Vec::new(),
            postings: Vec::new(),
            lexicon: Lexicon::default(),
            surface: HashMap::new(),
            stems: Vec::new(),
            acts: Vec::new(),
            named: Vec::new(),
            names: Vec::new(),
            name_offsets: vec![0],
        };
        let mut unsorted: Vec<(u32, Posting)> = Vec::new();
        let mut scratch = Scratch::default();
        let mut surface: HashMap<Box<str>, (u32, u32)> = HashMap::new();
        for (number, server) in (0..).zip(servers) {
            let first = u32::try_from(index.documents.len()).unwrap_or(u32::MAX);
            let terms: Vec<u32> =
                server.terms.words.iter().map(|word| index.term_of_word(word, &mut surface)).collect();
            for (number_of_tool, tool) in (0..).zip(&server.terms.tools) {
                let document = u32::try_from(index.documents.len()).unwrap_or(u32::MAX);
                index.documents.push((number, number_of_tool));
                let scale: [f32; FIELDS] = std::array::from_fn(|f| {
                    let b = index.weights.lengths[f];
                    index.weights.fields[f] / (1.0 - b + b * f32::from(tool.lengths[f]) / averages[f])
                });
                scratch.begin(index.terms.len());
                for (word, counts) in &tool.counts {
                    let x: f32 = counts.iter().zip(&scale).map(|(n, scale)| f32::from(*n) * scale).sum();
                    scratch.add(terms[*word as usize], x);
                    if let Some((_, tools)) = surface.get_mut(server.terms.words[*word as usize].as_str()) {
                        *tools += 1;
                    }
                }
                let start = index.names.len();
                for (word, counts) in &tool.counts {
                    if counts[0] > 0 && !server.terms.words[*word as usize].contains(' ') {
                        index.names.push(terms[*word as usize]);
                    }
                }
                index.names[start..].sort_unstable();
                index.name_offsets.push(index.names.len() as u32);
                for term in &scratch.touched {
                    let x = scratch.sums[*term as usize];
                    let impact = x / (index.weights.saturation + x);
                    unsorted.push((*term, Posting { document, impact }));
                }
            }
            index.servers.push(NamedServer {
                stems: words(&server.name).iter().map(|word| stem(word)).collect(),
                first,
                tools: u32::try_from(server.terms.tools.len()).unwrap_or(u32::MAX),
            });
        }
        index.sort(unsorted);
        index.stems = vec!["".into(); index.terms.len()];
        for (stem, id) in &index.terms {
            index.stems[*id as usize] = stem.clone();
        }
        index.named = vec![false; index.terms.len()];
        index.acts = (0..index.documents.len()).map(|d| {
            let mut acts = Acts::NONE;
            for t in index.names_of(d) { acts = acts.with(Acts::of_verb(index.terms_text(*t))); }
            acts
        }).collect();
        for t in &index.names { index.named[*t as usize] = true; }
        let mut surface: Vec<_> = surface.into_iter().collect();
        surface.sort_unstable();
        for (word, (term, tools)) in surface {
            index.lexicon.push(&word, term, tools);
            index.surface.insert(word, term);
        }
        index
    }

    fn term_of_word(&mut self, word: &str, surface: &mut HashMap<Box<str>, (u32, u32)>) -> u32 {
        if word.contains(' ') {
            return self.term_id(word.into());
        }
        if let Some((term, _)) = surface.get(word) {
            return *term;
        }
        let term = self.term_id(stem(word).into());
        surface.insert(word.into(), (term, 0));
        term
    }

    fn term_id(&mut self, stem: Box<str>) -> u32 {
        let next = u32::try_from(self.terms.len()).unwrap_or(u32::MAX);
        *self.terms.entry(stem).or_insert(next)
    }

    fn sort(&mut self, unsorted: Vec<(u32, Posting)>) {
        let mut counts = vec![0u32; self.terms.len() + 1];
        for (term, _) in &unsorted {
            counts[*term as usize + 1] += 1;
        }
        for i in 1..counts.len() {
            counts[i] += counts[i - 1];
        }
        self.offsets = counts.clone();
        self.postings = vec![Posting { document: 0, impact: 0.0 }; unsorted.len()];
        for (term, posting) in unsorted {
            let place = &mut counts[term as usize];
            self.postings[*place as usize] = posting;
            *place += 1;
        }
        let all = self.documents.len() as f32;
        let soft = self.weights.soft_document;
        self.rarity = (0..self.terms.len() as u32)
            .map(|term| {
                let tools: f32 = self.postings(term).iter().map(|p| (p.impact / soft).min(1.0)).sum();
                (1.0 + (all - tools + 0.5) / (tools + 0.5)).ln().powf(self.weights.rarity)
            })
            .collect();
    }

    fn terms_text(&self, term: u32) -> &str {
        &self.stems[term as usize]
    }

    pub(super) fn names_of(&self, document: usize) -> &[u32] {
        &self.names[self.name_offsets[document] as usize..self.name_offsets[document + 1] as usize]
    }

    pub(super) fn postings(&self, term: u32) -> &[Posting] {
        let term = term as usize;
        &self.postings[self.offsets[term] as usize..self.offsets[term + 1] as usize]
    }
}

#[derive(Default)]
struct Scratch {
    sums: Vec<f32>,
    seen: Vec<u32>,
    round: u32,
    touched: Vec<u32>,
}

impl Scratch {
    fn begin(&mut self, terms: usize) {
        self.sums.resize(terms, 0.0);
        self.seen.resize(terms, 0);
        self.round += 1;
        self.touched.clear();
    }

    fn add(&mut self, term: u32, x: f32) {
        let at = term as usize;
        if self.seen[at] != self.round {
            self.seen[at] = self.round;
            self.sums[at] = 0.0;
            self.touched.push(term);
        }
        self.sums[at] += x;
    }
}

/// Mean length of each field over the tools that have it.
fn average_lengths(servers: &[IndexedServer]) -> [f32; FIELDS] {
    let mut sums = [0u64; FIELDS];
    let mut counts = [0u64; FIELDS];
    for tool in servers.iter().flat_map(|server| &server.terms.tools) {
        for (f, length) in tool.lengths.iter().enumerate().filter(|(_, length)| **length > 0) {
            sums[f] += u64::from(*length);
            counts[f] += 1;
        }
    }
    std::array::from_fn(|f| (sums[f] as f32 / counts[f].max(1) as f32).max(1.0))
}
