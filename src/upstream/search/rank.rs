//! Scores of tools for a query.

use super::index::{Index, rarity};
use super::query::{Concept, Query};

/// The part of what a concept can be worth that counts as having found it.
const FOUND: f32 = 0.5;

/// A tool that was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    /// Which server of the index.
    pub server: usize,
    /// Which of its tools.
    pub tool: usize,
    /// Only to be compared within one search.
    pub score: f32,
}

impl Index {
    /// The best tools for a query, best first; those that fit equally well in the order of the index.
    pub fn search(&self, query: &str, limit: usize) -> Vec<Hit> {
        let query = Query::new(query, self);
        let mut scores = Scores::new(self);
        for concept in &query.concepts {
            scores.add(concept);
        }
        scores.prefer_found();
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
        best.into_iter().map(|tool| self.hit(tool, scores[tool])).collect()
    }

    fn hit(&self, tool: usize, score: f32) -> Hit {
        let server = self.servers.partition_point(|server| server.first <= tool) - 1;
        Hit { server, tool: tool - self.servers[server].first, score }
    }
}

struct Scores<'a> {
    index: &'a Index,
    tools: Vec<f32>,
    /// For each tool, how much of what the concepts are worth it has.
    found: Vec<f32>,
    /// What all concepts are worth.
    worth: f32,
    /// How surely each term is spoken of by the query.
    asked: Vec<f32>,
}

impl<'a> Scores<'a> {
    fn new(index: &'a Index) -> Self {
        Self {
            index,
            tools: vec![0.0; index.tools],
            found: vec![0.0; index.tools],
            worth: 0.0,
            asked: vec![0.0; index.stems.len()],
        }
    }

    fn add(&mut self, concept: &Concept) {
        let (mut values, mut worth) = self.values(concept);
        if !concept.parts.is_empty() {
            let mut sums = vec![0.0f32; values.len()];
            let mut whole = 0.0;
            for part in &concept.parts {
                let (values, worth) = self.values(part);
                sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
                whole += worth;
            }
            let parts = self.index.weights.parts;
            values.iter_mut().zip(sums).for_each(|(value, sum)| *value = value.max(parts * sum));
            worth = worth.max(parts * whole);
        }
        for (tool, value) in values.into_iter().enumerate().filter(|(_, value)| *value > 0.0) {
            self.tools[tool] += concept.weight * value;
            self.found[tool] += concept.weight * worth * (value / worth / FOUND).min(1.0);
        }
        self.worth += concept.weight * worth;
    }

    /// What a concept, but for its parts, is worth to each tool, and at most.
    fn values(&mut self, concept: &Concept) -> (Vec<f32>, f32) {
        let Index { weights, rarity: rarities, tools, .. } = self.index;
        let mentions: Vec<_> =
            concept.readings.iter().map(|reading| self.mentions_of_all(&reading.terms)).collect();
        let mut speaks = vec![0.0f32; *tools];
        for (reading, mentions) in concept.readings.iter().zip(&mentions) {
            for (tool, impact) in mentions {
                let speaks = &mut speaks[*tool as usize];
                *speaks = speaks.max(reading.weight * impact);
            }
        }
        let speaking: f32 = speaks.iter().map(|speaks| (speaks / weights.speaks).min(1.0)).sum();
        let rarity_of_any = rarity(speaking, *tools);
        let mut values = speaks;
        values.fill(0.0);
        let mut worth = 0.0f32;
        for (reading, mentions) in concept.readings.iter().zip(&mentions) {
            let sum: f32 = reading.terms.iter().map(|term| rarities[*term as usize]).sum();
            let mut rarity = sum / reading.terms.len() as f32;
            if !reading.literal {
                // A rare word among many that mean the same tells no more than they do.
                rarity += weights.common * (rarity_of_any.min(rarity) - rarity);
            }
            worth = worth.max(reading.weight * rarity);
            for term in &reading.terms {
                let asked = &mut self.asked[*term as usize];
                *asked = asked.max(reading.weight);
            }
            for (tool, impact) in mentions {
                let value = &mut values[*tool as usize];
                *value = value.max(reading.weight * rarity * impact);
            }
        }
        (values, worth)
    }

    /// Tools that speak of all the terms, and how much of them on average.
    fn mentions_of_all(&self, terms: &[u32]) -> Vec<(u32, f32)> {
        let Some((first, rest)) = terms.split_first() else { return Vec::new() };
        let mut found: Vec<(u32, f32)> =
            self.index.mentions(*first).iter().map(|mention| (mention.tool, mention.impact)).collect();
        for term in rest {
            let mentions = self.index.mentions(*term);
            found.retain_mut(|(tool, sum)| {
                let at = mentions.binary_search_by_key(tool, |mention| mention.tool);
                at.is_ok_and(|at| {
                    *sum += mentions[at].impact;
                    true
                })
            });
        }
        found.iter_mut().for_each(|(_, sum)| *sum /= terms.len() as f32);
        found
    }

    /// Tools that have more of what was asked for.
    fn prefer_found(&mut self) {
        if self.worth > 0.0 {
            let weight = self.index.weights.coverage;
            for (score, found) in self.tools.iter_mut().zip(&self.found) {
                *score *= 1.0 - weight + weight * found / self.worth;
            }
        }
    }

    /// A query that names a server means its tools.
    fn prefer_servers(&mut self, named: &[f32]) {
        for (server, certainty) in self.index.servers.iter().zip(named).filter(|(_, named)| **named > 0.0) {
            let gain = 1.0 + self.index.weights.server * certainty;
            let base = self.index.weights.base * certainty;
            self.tools[server.range()].iter_mut().for_each(|score| *score = (*score + base) * gain);
        }
    }

    /// Tools whose name speaks of nothing else.
    fn prefer_names(&mut self) {
        let weight = self.index.weights.name_fit;
        for (tool, score) in self.tools.iter_mut().enumerate().filter(|(_, score)| **score > 0.0) {
            let (mut all, mut asked) = (0.0, 0.0);
            for term in self.index.name_terms(tool) {
                let rarity = self.index.rarity[*term as usize];
                all += rarity;
                asked += rarity * self.asked[*term as usize];
            }
            if all > 0.0 {
                *score *= 1.0 - weight + weight * asked / all;
            }
        }
    }
}
