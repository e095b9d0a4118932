//! The tools of all servers as one index: for every term, which tools mention it and how much.
//!
//! A term is the stem of a word. How much a tool mentions it is computed over all fields (BM25F): occurrences, weighted by
//! the field and its length, up to a limit.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::stem::stem;
use super::terms::{FIELD_COUNT, Field, Terms, ToolTerms};
use super::typos::Lexicon;
use super::weights;
use super::words::stems;

/// A server and the words of its tools.
#[derive(Debug, Clone)]
pub struct IndexedServer {
    /// The name in the configuration.
    pub name: String,
    pub terms: Arc<Terms>,
}

/// An index over the tools of many servers. Tools are numbered in one sequence, server after server.
#[derive(Debug)]
pub struct Index {
    pub(super) servers: Vec<NamedServer>,
    pub(super) tools: usize,
    /// Every word before stemming.
    pub(super) lexicon: Lexicon,
    /// The number of each term by its stem, and back.
    pub(super) terms: HashMap<Box<str>, u32>,
    pub(super) stems: Vec<Box<str>>,
    /// The weight of each term: rare terms distinguish tools better.
    pub(super) rarity: Vec<f32>,
    /// The tools that mention each term.
    mentions: Lists<Mention>,
    /// The terms of each tool's name.
    names: Lists<u32>,
}

/// A server's name and the range of its tools.
#[derive(Debug)]
pub(super) struct NamedServer {
    /// The stems of its name.
    pub(super) stems: Vec<String>,
    pub(super) tools: Range<usize>,
}

/// A tool that mentions a term.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mention {
    pub(super) tool: u32,
    /// How much it does, from 0 to 1.
    pub(super) impact: f32,
}

impl Index {
    /// Indexes the tools of the servers, in their order.
    pub fn new(servers: &[IndexedServer]) -> Self {
        let mut builder = Builder::default();
        let averages = average_lengths(servers);
        let named = servers.iter().map(|server| builder.server(server, &averages)).collect();
        builder.finish(named)
    }

    pub(super) fn mentions(&self, term: u32) -> &[Mention] {
        self.mentions.list(term as usize)
    }

    pub(super) fn name_terms(&self, tool: usize) -> &[u32] {
        self.names.list(tool)
    }
}

/// Returns the weight of a term that `some` of `all` tools mention (the inverse document frequency of BM25).
pub(super) fn rarity(some: f32, all: usize) -> f32 {
    (1.0 + (all as f32 - some + 0.5) / (some + 0.5)).ln()
}

/// Collects mentions tool after tool.
#[derive(Default)]
struct Builder {
    terms: HashMap<Box<str>, u32>,
    /// The term of each word.
    words: HashMap<Box<str>, u32>,
    mentions: Vec<(u32, Mention)>,
    names: Vec<(u32, u32)>,
    tools: usize,
}

impl Builder {
    fn server(&mut self, server: &IndexedServer, averages: &[f32; FIELD_COUNT]) -> NamedServer {
        let first = self.tools;
        let terms: Vec<u32> = server.terms.words.iter().map(|word| self.term(word)).collect();
        for tool in server.terms.tools() {
            self.tool(&tool, &terms, averages);
        }
        NamedServer { stems: stems(&server.name), tools: first..self.tools }
    }

    fn term(&mut self, word: &str) -> u32 {
        if let Some(term) = self.words.get(word) {
            return *term;
        }
        let next = number(self.terms.len());
        let term = *self.terms.entry(stem(word).into_boxed_str()).or_insert(next);
        self.words.insert(word.into(), term);
        term
    }

    fn tool(&mut self, tool: &ToolTerms, terms: &[u32], averages: &[f32; FIELD_COUNT]) {
        let number = number(self.tools);
        self.tools += 1;
        let scale: [f32; FIELD_COUNT] = std::array::from_fn(|f| {
            let b = weights::LENGTHS[f];
            weights::FIELDS[f] / (1.0 - b + b * f32::from(tool.lengths[f]) / averages[f])
        });
        let mut values: Vec<(u32, f32)> = Vec::with_capacity(tool.counts.len());
        for (word, counts) in &tool.counts {
            let term = terms[*word as usize];
            if counts[Field::Name as usize] > 0 {
                self.names.push((number, term));
            }
            values.push((term, counts.iter().zip(&scale).map(|(n, scale)| f32::from(*n) * scale).sum()));
        }
        values.sort_by_key(|(term, _)| *term);
        for same in values.chunk_by(|left, right| left.0 == right.0) {
            let sum: f32 = same.iter().map(|(_, value)| value).sum();
            let impact = sum / (weights::SATURATION + sum);
            self.mentions.push((same[0].0, Mention { tool: number, impact }));
        }
    }

    fn finish(self, servers: Vec<NamedServer>) -> Index {
        let mut stems = vec![Box::default(); self.terms.len()];
        for (stem, term) in &self.terms {
            stems[*term as usize] = stem.clone();
        }
        let mentions = Lists::new(self.terms.len(), &self.mentions);
        let count = |term| -> f32 {
            mentions.list(term).iter().map(|mention| (mention.impact / weights::FULL_MENTION).min(1.0)).sum()
        };
        let rarity = (0..stems.len()).map(|term| rarity(count(term), self.tools)).collect();
        let names = Lists::new(self.tools, &self.names);
        Index {
            servers,
            tools: self.tools,
            lexicon: Lexicon::new(self.words),
            rarity,
            mentions,
            names,
            terms: self.terms,
            stems,
        }
    }
}

/// Converts a count that is far below the limit of its type.
fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Many short lists in one allocation.
#[derive(Debug)]
struct Lists<T> {
    starts: Vec<u32>,
    items: Vec<T>,
}

impl<T: Copy + Default> Lists<T> {
    /// Sorts items by the number of their list; within a list they keep their order.
    fn new(lists: usize, items: &[(u32, T)]) -> Self {
        let mut starts = vec![0; lists + 1];
        for (list, _) in items {
            starts[*list as usize + 1] += 1;
        }
        for list in 0..lists {
            starts[list + 1] += starts[list];
        }
        let mut next = starts.clone();
        let mut sorted = vec![T::default(); items.len()];
        for (list, item) in items {
            let place = &mut next[*list as usize];
            sorted[*place as usize] = *item;
            *place += 1;
        }
        Self { starts, items: sorted }
    }

    fn list(&self, list: usize) -> &[T] {
        &self.items[self.starts[list] as usize..self.starts[list + 1] as usize]
    }
}

/// Returns the mean length of each field over the tools that have it.
fn average_lengths(servers: &[IndexedServer]) -> [f32; FIELD_COUNT] {
    let mut sums = [0u64; FIELD_COUNT];
    let mut tools = [0u64; FIELD_COUNT];
    for tool in servers.iter().flat_map(|server| server.terms.tools()) {
        for (f, length) in tool.lengths.iter().enumerate().filter(|(_, length)| **length > 0) {
            sums[f] += u64::from(*length);
            tools[f] += 1;
        }
    }
    std::array::from_fn(|f| (sums[f] as f32 / tools[f].max(1) as f32).max(1.0))
}
