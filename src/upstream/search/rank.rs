//! Scores of tools for a query.

use super::index::{Index, Mention, rarity};
use super::query::{Concept, Query, Reading};
use super::weights;

/// A tool that has this share of a concept's value counts as matching it in full.
const FULL_MATCH: f32 = 0.5;

/// A tool that matches a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hit {
    /// The position of the server in the index.
    pub server: usize,
    /// The position of the tool in its server.
    pub tool: usize,
}

impl Index {
    /// Returns the best tools for a query, best first; equal ones in the order of the index.
    pub fn search(&self, query: &str, limit: usize) -> Vec<Hit> {
        let query = Query::new(query, self);
        let mut scores = Scores::new(self);
        for concept in &query.concepts {
            scores.add(concept);
        }
        scores.prefer_coverage();
        scores.prefer_servers(&query.servers);
        scores.prefer_names();
        self.best(&scores.tools, limit)
    }

    fn best(&self, scores: &[f32], limit: usize) -> Vec<Hit> {
        let mut best: Vec<usize> = (0..scores.len()).filter(|tool| scores[*tool] > 0.0).collect();
        let order = |a: &usize, b: &usize| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b));
        if limit > 0 && best.len() > limit {
            best.select_nth_unstable_by(limit - 1, order);
        }
        best.truncate(limit);
        best.sort_unstable_by(order);
        let hit = |tool: usize| {
            let server = self.servers.partition_point(|server| server.tools.start <= tool) - 1;
            Hit { server, tool: tool - self.servers[server].tools.start }
        };
        best.into_iter().map(hit).collect()
    }
}

struct Scores<'a> {
    index: &'a Index,
    tools: Vec<f32>,
    /// For each tool, how much of the value of all concepts it has.
    found: Vec<f32>,
    /// The highest value of all concepts together.
    highest: f32,
    /// For each term, how much the query asks for it.
    asked: Vec<f32>,
}

/// What a concept is worth to each tool, and the highest possible value.
struct Values {
    tools: Vec<f32>,
    highest: f32,
}

impl<'a> Scores<'a> {
    fn new(index: &'a Index) -> Self {
        Self {
            index,
            tools: vec![0.0; index.tools],
            found: vec![0.0; index.tools],
            highest: 0.0,
            asked: vec![0.0; index.stems.len()],
        }
    }

    fn add(&mut self, concept: &Concept) {
        let mut values = self.values(&concept.readings);
        if !concept.parts.is_empty() {
            self.add_parts(&mut values, &concept.parts);
        }
        let highest = values.highest;
        for (tool, value) in values.tools.into_iter().enumerate().filter(|(_, value)| *value > 0.0) {
            self.tools[tool] += concept.weight * value;
            self.found[tool] += concept.weight * highest * (value / highest / FULL_MATCH).min(1.0);
        }
        self.highest += concept.weight * highest;
    }

    /// Raises the values of a phrase to those of its single words, where these are higher.
    fn add_parts(&mut self, phrase: &mut Values, parts: &[Concept]) {
        let mut sums = vec![0.0f32; phrase.tools.len()];
        let mut highest = 0.0;
        for part in parts {
            let values = self.values(&part.readings);
            sums.iter_mut().zip(values.tools).for_each(|(sum, value)| *sum += value);
            highest += values.highest;
        }
        phrase.tools.iter_mut().zip(sums).for_each(|(value, sum)| *value = value.max(weights::PARTS * sum));
        phrase.highest = phrase.highest.max(weights::PARTS * highest);
    }

    /// Returns the values of the best reading for each tool.
    fn values(&mut self, readings: &[Reading]) -> Values {
        let Index { rarity: rarities, tools, .. } = self.index;
        let mentions: Vec<_> = readings.iter().map(|reading| self.mentions_of_all(&reading.terms)).collect();
        let shared_rarity = self.shared_rarity(readings, &mentions);
        let mut values = Values { tools: vec![0.0; *tools], highest: 0.0 };
        for (reading, mentions) in readings.iter().zip(&mentions) {
            let sum: f32 = reading.terms.iter().map(|term| rarities[*term as usize]).sum();
            let mut rarity = sum / reading.terms.len() as f32;
            if !reading.literal {
                // A rare synonym distinguishes tools no better than its common synonyms do.
                rarity += weights::SHARED_RARITY * (shared_rarity.min(rarity) - rarity);
            }
            values.highest = values.highest.max(reading.weight * rarity);
            for term in &reading.terms {
                let asked = &mut self.asked[*term as usize];
                *asked = asked.max(reading.weight);
            }
            for Mention { tool, impact } in mentions {
                let value = &mut values.tools[*tool as usize];
                *value = value.max(reading.weight * rarity * impact);
            }
        }
        values
    }

    /// Returns the rarity of all readings together, as if they were one term.
    fn shared_rarity(&self, readings: &[Reading], mentions: &[Vec<Mention>]) -> f32 {
        let mut impacts = vec![0.0f32; self.index.tools];
        for (reading, mentions) in readings.iter().zip(mentions) {
            for Mention { tool, impact } in mentions {
                let best = &mut impacts[*tool as usize];
                *best = best.max(reading.weight * impact);
            }
        }
        rarity(impacts.iter().map(|impact| (impact / weights::FULL_MENTION).min(1.0)).sum(), self.index.tools)
    }

    /// Returns the tools that mention all the terms, and how much on average.
    fn mentions_of_all(&self, terms: &[u32]) -> Vec<Mention> {
        let Some((first, rest)) = terms.split_first() else { return Vec::new() };
        let mut found = self.index.mentions(*first).to_vec();
        for term in rest {
            let mentions = self.index.mentions(*term);
            found.retain_mut(|found| {
                let at = mentions.binary_search_by_key(&found.tool, |mention| mention.tool);
                at.inspect(|at| found.impact += mentions[*at].impact).is_ok()
            });
        }
        found.iter_mut().for_each(|found| found.impact /= terms.len() as f32);
        found
    }

    /// Prefers tools that match more of the concepts.
    fn prefer_coverage(&mut self) {
        if self.highest > 0.0 {
            for (score, found) in self.tools.iter_mut().zip(&self.found) {
                *score *= 1.0 - weights::COVERAGE + weights::COVERAGE * found / self.highest;
            }
        }
    }

    /// Prefers the tools of servers that the query names.
    fn prefer_servers(&mut self, named: &[f32]) {
        for (server, certainty) in self.index.servers.iter().zip(named).filter(|(_, named)| **named > 0.0) {
            let gain = 1.0 + weights::SERVER * certainty;
            let base = weights::BASE * certainty;
            self.tools[server.tools.clone()].iter_mut().for_each(|score| *score = (*score + base) * gain);
        }
    }

    /// Prefers tools whose name has no word that the query does not ask for.
    fn prefer_names(&mut self) {
        for (tool, score) in self.tools.iter_mut().enumerate().filter(|(_, score)| **score > 0.0) {
            let (mut all, mut asked) = (0.0, 0.0);
            for term in self.index.name_terms(tool) {
                let rarity = self.index.rarity[*term as usize];
                all += rarity;
                asked += rarity * self.asked[*term as usize];
            }
            if all > 0.0 {
                *score *= 1.0 - weights::NAME_FIT + weights::NAME_FIT * asked / all;
            }
        }
    }
}
