//! From what somebody typed to the tools that fit.

use std::collections::HashMap;

use super::index::{Hit, Index};
use super::intent::Acts;
use super::stem::stem;
use super::stop::is_stop_word;
use super::synonyms::{Nearness, SYNONYMS, Synonym};
use super::words::words;

/// Words of a query that count.
const MOST_WORDS: usize = 64;

/// Something the query speaks of.
#[derive(Debug, Default)]
struct Concept {
    readings: Vec<Reading>,
    /// The words of a phrase, each for itself.
    parts: Vec<Concept>,
    weight: f32,
}

/// One way to say it: all of the terms.
#[derive(Debug, PartialEq)]
struct Reading {
    weight: f32,
    own: bool,
    terms: Vec<u32>,
}

struct Word {
    text: String,
    stem: String,
    stop: bool,
}

fn is_number(word: &str) -> bool {
    word.len() < 2 || word.bytes().all(|b| b.is_ascii_digit())
}

impl Index {
    /// What each word of a query adds to some tools, for people.
    pub fn explain(&self, query: &str, hits: &[Hit]) -> String {
        use std::fmt::Write;
        let mut out = String::new();
        let tokens: Vec<Word> = words(query).into_iter().map(|text| Word { stem: stem(&text), stop: is_stop_word(&text)||is_number(&text), text }).collect();
        for concept in self.concepts(&tokens, &self.named_servers(&tokens)) {
            let mut scores = vec![0.0f32; self.documents.len()];
            let mut covered = vec![0.0f32; self.documents.len()];
            let worth = self.score(&concept, &mut scores, &mut covered, &mut HashMap::new());
            let name = |r: &Reading| r.terms.iter().map(|t| &*self.stems[*t as usize]).collect::<Vec<_>>().join("+");
            let _ = write!(out, "  [{:.1}] {} :", worth, concept.readings.first().map(name).unwrap_or_default());
            for hit in hits {
                let at = self.documents.iter().position(|d| *d == (hit.server as u32, hit.tool as u32)).unwrap_or(0);
                let _ = write!(out, " {:.1}", scores[at]);
            }
            let _ = writeln!(out, "   <- {}", concept.readings.iter().skip(1).take(12).map(|r| format!("{}*{:.1}", name(r), r.weight)).collect::<Vec<_>>().join(" "));
        }
        out
    }

    /// The best tools for a query, best first.
    pub fn search(&self, query: &str, limit: usize) -> Vec<Hit> {
        let mut tokens: Vec<Word> = words(query)
            .into_iter()
            .take(MOST_WORDS)
            .map(|text| Word { stem: stem(&text), stop: is_stop_word(&text), text })
            .collect();
        if tokens.iter().all(|word| word.stop) {
            tokens.iter_mut().for_each(|word| word.stop = false);
        }
        if tokens.iter().any(|word| !word.stop && !is_number(&word.text)) {
            tokens.iter_mut().filter(|word| is_number(&word.text)).for_each(|word| word.stop = true);
        }
        let named = self.named_servers(&tokens);
        let concepts = self.concepts(&tokens, &named);
        let mut scores = vec![0.0f32; self.documents.len()];
        let mut covered = vec![0.0f32; self.documents.len()];
        let mut most = 0.0;
        let mut matched = HashMap::new();
        for concept in &concepts {
            most += self.score(concept, &mut scores, &mut covered, &mut matched);
        }
        let coverage = self.weights.coverage;
        if most > 0.0 {
            for (score, covered) in scores.iter_mut().zip(&covered) {
                *score *= 1.0 - coverage + coverage * covered / most;
            }
        }
        self.pairs(&tokens, &mut scores);
        self.servers(&named, &mut scores);
        self.names(&matched, &mut scores);
        self.intent(&tokens, &mut scores);
        self.neighbours(&mut scores);
        self.best(&scores, limit)
    }

    fn best(&self, scores: &[f32], limit: usize) -> Vec<Hit> {
        let mut hits: Vec<Hit> = (self.documents.iter().zip(scores))
            .filter(|(_, score)| **score > 0.0)
            .map(|((server, tool), score)| Hit {
                server: *server as usize,
                tool: *tool as usize,
                score: *score,
            })
            .collect();
        let order = |a: &Hit, b: &Hit| {
            b.score.total_cmp(&a.score).then_with(|| (a.server, a.tool).cmp(&(b.server, b.tool)))
        };
        if hits.len() > limit && limit > 0 {
            hits.select_nth_unstable_by(limit - 1, order);
        }
        hits.truncate(limit);
        hits.sort_unstable_by(order);
        hits
    }

    fn concepts(&self, tokens: &[Word], named: &Named) -> Vec<Concept> {
        let mut concepts = Vec::new();
        let mut at = 0;
        while at < tokens.len() {
            if let Some((length, concept)) = self.phrase(&tokens[at..]) {
                concepts.push(concept);
                at += length;
                continue;
            }
            if !tokens[at].stop {
                let mut concept = self.word(&tokens[at]);
                if let Some(sure) = named.stems.get(&tokens[at].stem) { concept.weight *= 1.0 - self.weights.server_word * sure; }
                concepts.push(concept);
            } else if self.weights.question > 0.0 && let Some(synonyms) = SYNONYMS.of(&tokens[at].text) {
                let mut concept = Concept { weight: 1.0, ..Concept::default() };
                self.read_synonyms(&mut concept, self.weights.question, synonyms);
                concepts.push(concept);
            }
            at += 1;
        }
        concepts
    }

    /// The longest phrase that the text begins with.
    fn phrase(&self, tokens: &[Word]) -> Option<(usize, Concept)> {
        for length in (2..=SYNONYMS.longest.min(tokens.len())).rev() {
            let stems: Vec<&str> = tokens[..length].iter().map(|word| word.stem.as_str()).collect();
            if let Some(synonyms) = SYNONYMS.of(&stems.join(" ")) {
                let mut concept = Concept { weight: 1.0, ..Concept::default() };
                let own: Vec<String> =
                    tokens[..length].iter().filter(|w| !w.stop).map(|w| w.stem.clone()).collect();
                if !own.is_empty() {
                    self.read(&mut concept, if own.len() < length { 0.6 } else { 1.0 }, &own);
                }
                self.read_synonyms(&mut concept, 1.0, synonyms);
                if own.len() == length && self.weights.parts > 0.5 {
                    concept.parts = tokens[..length].iter().map(|word| self.word(word)).collect();
                }
                return Some((length, concept));
            }
        }
        if let [left, right, ..] = tokens
            && let Some(term) = self.surface.get(format!("{}{}", left.text, right.text).as_str())
            && left.text.len() > 1
            && right.text.len() > 1
        {
            let mut concept = Concept { weight: 1.0, ..Concept::default() };
            concept.readings.push(Reading { weight: 1.0, own: true, terms: vec![*term] });
            if !left.stop && !right.stop {
                self.read(&mut concept, 1.0, &[left.stem.clone(), right.stem.clone()]);
                self.read(&mut concept, 0.6, std::slice::from_ref(&left.stem));
                self.read(&mut concept, 0.6, std::slice::from_ref(&right.stem));
            }
            return Some((2, concept));
        }
        None
    }

    fn word(&self, word: &Word) -> Concept {
        let mut concept = Concept { weight: 1.0, ..Concept::default() };
        let synonyms = SYNONYMS.of(&word.stem);
        self.read(&mut concept, 1.0, std::slice::from_ref(&word.stem));
        if let Some(synonyms) = synonyms {
            self.read_synonyms(&mut concept, 1.0, synonyms);
        }
        if concept.readings.is_empty() && synonyms.is_none() {
            self.meant(&mut concept, word);
        }
        concept
    }

    /// Readings of a word that no tool speaks of.
    fn meant(&self, concept: &mut Concept, word: &Word) {
        for cut in 3..word.text.len().saturating_sub(2) {
            if !word.text.is_char_boundary(cut) {
                continue;
            }
            let (left, right) = word.text.split_at(cut);
            if self.surface.contains_key(left) && self.surface.contains_key(right) {
                self.read(concept, 0.9, &[stem(left), stem(right)]);
            }
        }
        for guess in self.lexicon.guesses(&word.text) {
            let weight = self.weights.typo * guess.likeness;
            concept.readings.push(Reading { weight, own: true, terms: vec![guess.id] });
            if let Some(synonyms) = SYNONYMS.of(&self.stems[guess.id as usize]) {
                self.read_synonyms(concept, weight, synonyms);
            }
        }
    }

    fn read_synonyms(&self, concept: &mut Concept, weight: f32, synonyms: &[Synonym]) {
        for synonym in synonyms {
            let near = match synonym.nearness {
                Nearness::Same => self.weights.synonym,
                Nearness::Related => self.weights.related,
            };
            let n = concept.readings.len();
            self.read(concept, weight * near, &synonym.stems);
            for r in &mut concept.readings[n..] {
                r.own = false;
            }
        }
    }

    fn read(&self, concept: &mut Concept, weight: f32, stems: &[String]) {
        let terms: Option<Vec<u32>> =
            stems.iter().map(|stem| self.terms.get(stem.as_str()).copied()).collect();
        if let Some(terms) = terms {
            concept.readings.push(Reading { weight, own: true, terms });
        }
    }

    /// Adds what a concept is worth to each tool; returns what it is worth at most.
    fn score(&self, concept: &Concept, scores: &mut [f32], covered: &mut [f32], matched: &mut HashMap<u32, f32>) -> f32 {
        let (mut best, mut worth) = self.values(concept, matched);
        if !concept.parts.is_empty() {
            let mut sum = vec![0.0f32; best.len()];
            let mut whole = 0.0;
            for part in &concept.parts {
                let (values, worth) = self.values(part, matched);
                for (sum, value) in sum.iter_mut().zip(values) { *sum += value; }
                whole += worth;
            }
            for (best, sum) in best.iter_mut().zip(sum) { *best = best.max(sum); }
            worth = worth.max(whole);
        }
        for ((score, covered), best) in scores.iter_mut().zip(covered).zip(&best) {
            if *best > 0.0 {
                *score += concept.weight * best;
                *covered += concept.weight * worth * (best / worth).min(0.5) * 2.0;
            }
        }
        concept.weight * worth
    }

    /// What a concept is worth to each tool, and at most.
    fn values(&self, concept: &Concept, matched: &mut HashMap<u32, f32>) -> (Vec<f32>, f32) {
        let w = &self.weights;
        let mut fit = vec![0.0f32; self.documents.len()];
        let mut best = vec![0.0f32; self.documents.len()];
        for reading in &concept.readings {
            for (document, impact) in self.together(&reading.terms) {
                let fit = &mut fit[document as usize];
                *fit = fit.max(reading.weight * impact);
            }
        }
        let tools: f32 = fit.iter().map(|fit| (fit / w.soft_document).min(1.0)).sum();
        let all = fit.len() as f32;
        let common = (1.0 + (all - tools + 0.5) / (tools + 0.5)).ln().powf(w.rarity);
        let mut worth = 0.0f32;
        for reading in &concept.readings {
            let n = reading.terms.len() as f32;
            let rarity = reading.terms.iter().map(|term| self.rarity[*term as usize]).sum::<f32>() / n;
            let rarity = if reading.own { rarity * (1.0 + w.second * (n - 1.0)) } else { rarity * (1.0 - w.verb) + common.min(rarity) * w.verb };
            worth = worth.max(reading.weight * rarity);
            for term in &reading.terms {
                let m = matched.entry(*term).or_insert(0.0);
                *m = m.max(reading.weight);
            }
            for (document, impact) in self.together(&reading.terms) {
                let best = &mut best[document as usize];
                *best = best.max(reading.weight * rarity * impact);
            }
        }
        (best, worth)
    }

    /// Tools that speak of all the terms, and how much of them on average.
    fn together(&self, terms: &[u32]) -> Vec<(u32, f32)> {
        let Some((first, rest)) = terms.split_first() else { return Vec::new() };
        let mut found: Vec<(u32, f32)> =
            self.postings(*first).iter().map(|p| (p.document, p.impact)).collect();
        for term in rest {
            let postings = self.postings(*term);
            found.retain_mut(|(document, sum)| {
                match postings.binary_search_by_key(document, |posting| posting.document) {
                    Ok(at) => {
                        *sum += postings[at].impact;
                        true
                    }
                    Err(_) => false,
                }
            });
        }
        if !rest.is_empty() {
            for f in &mut found {
                f.1 /= terms.len() as f32;
            }
        }
        found
    }

    /// Words that stand side by side in the query and in the documentation.
    fn pairs(&self, tokens: &[Word], scores: &mut [f32]) {
        let content: Vec<&Word> = tokens.iter().filter(|word| !word.stop).collect();
        for two in content.windows(2) {
            let pair = format!("{} {}", two[0].stem, two[1].stem);
            if let Some(term) = self.terms.get(pair.as_str()) {
                for posting in self.postings(*term) {
                    scores[posting.document as usize] +=
                        self.weights.pair * self.rarity[*term as usize] * posting.impact;
                }
            }
        }
    }

    /// Who wants to look does not want to delete.
    fn intent(&self, tokens: &[Word], scores: &mut [f32]) {
        let mut wanted = Acts::NONE;
        for word in tokens {
            wanted = wanted.with(Acts::of_verb(&word.stem));
            if word.stop { continue; }
            if let Some(synonyms) = SYNONYMS.of(&word.stem) {
                for s in synonyms.iter().filter(|s| s.nearness == Nearness::Same && s.stems.len() == 1) {
                    wanted = wanted.with(Acts::of_verb(&s.stems[0]));
                }
            }
        }
        if wanted.is_none() {
            if tokens.iter().any(|w| matches!(w.text.as_str(), "what" | "which" | "who" | "how" | "whose" | "where" | "when" | "whether" | "is" | "are" | "does" | "do")) {
                wanted = Acts::LOOK;
            }
        }
        for (score, acts) in scores.iter_mut().zip(&self.acts) {
            if acts.contradicts(wanted) { *score *= 1.0 - self.weights.intent; }
        }
    }

    /// Tools of a server that fits as a whole are likelier meant.
    fn neighbours(&self, scores: &mut [f32]) {
        let w = self.weights.neighbours;
        for server in &self.servers {
            let tools = &mut scores[server.first as usize..(server.first + server.tools) as usize];
            let mut best = tools.to_vec();
            best.sort_unstable_by(|a, b| b.total_cmp(a));
            let n = self.weights.near_count as usize;
            let top = best.iter().take(n).sum::<f32>() / n as f32;
            for score in tools.iter_mut().filter(|s| **s > 0.0) { *score = *score * (1.0 - w) + w * top; }
        }
    }

    /// A tool whose name speaks of other things too is less likely meant.
    fn names(&self, matched: &HashMap<u32, f32>, scores: &mut [f32]) {
        let w = self.weights.name_fit;
        for (document, score) in scores.iter_mut().enumerate().filter(|(_, score)| **score > 0.0) {
            let (mut all, mut hit) = (0.0, 0.0);
            for term in self.names_of(document) {
                let rarity = self.rarity[*term as usize];
                all += rarity;
                hit += rarity * matched.get(term).copied().unwrap_or(0.0);
            }
            if all > 0.0 {
                *score *= 1.0 - w + w * hit / all;
            }
        }
    }

    /// How surely the query names each server.
    fn named_servers(&self, tokens: &[Word]) -> Named {
        let mut named = Named { certainty: vec![0.0; self.servers.len()], stems: HashMap::new() };
        for (number, server) in self.servers.iter().enumerate() {
            let length = server.stems.len();
            let all = length > 1
                && tokens.windows(length).any(|words| words.iter().zip(&server.stems).all(|(w, s)| w.stem == *s));
            let mut certainty = 0.0f32;
            for stem in server.stems.iter().filter(|stem| tokens.iter().any(|word| word.stem == **stem)) {
                let sure = if all { 1.0 } else { self.server_word(stem) };
                certainty = certainty.max(sure);
                let known = named.stems.entry(stem.clone()).or_insert(0.0f32);
                *known = known.max(sure);
            }
            named.certainty[number] = certainty;
        }
        named
    }

    /// The share of tools that speak of a word because their server has it in its name.
    fn server_word(&self, stem: &str) -> f32 {
        let owners: Vec<_> =
            self.servers.iter().filter(|server| server.stems.iter().any(|own| own == stem)).collect();
        let own: u32 = owners.iter().map(|server| server.tools).sum();
        let others = self.terms.get(stem).map_or(0, |term| {
            let speaks = |p: &&super::index::Posting| {
                !owners.iter().any(|s| (s.first..s.first + s.tools).contains(&p.document))
            };
            self.postings(*term).iter().filter(speaks).count()
        });
        own as f32 / (own as f32 + others as f32).max(1.0)
    }

    /// A query that names a server means its tools.
    fn servers(&self, named: &Named, scores: &mut [f32]) {
        for (server, certainty) in self.servers.iter().zip(&named.certainty) {
            if *certainty > 0.0 {
                for score in &mut scores[server.first as usize..(server.first + server.tools) as usize] {
                    *score *= 1.0 + self.weights.server * certainty;
                }
            }
        }
    }
}

struct Named {
    certainty: Vec<f32>,
    /// Words that stand for a server, not for what is wanted of it.
    stems: HashMap<String, f32>,
}
