//! A server's tools as words: computed once when its documentation arrives, kept with it.

use std::collections::HashMap;

use serde_json::Value;

use super::stop::is_stop_word;
use super::words::for_each_word;
use crate::upstream::catalog::ToolDoc;

/// Where in the documentation a word stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// The tool's name.
    Name,
    /// Its name for people.
    Title,
    /// The first sentence of the description that says something.
    Lead,
    /// The rest of the description.
    Text,
    /// Names of parameters, nested ones too.
    Parameter,
    /// Descriptions and allowed values of parameters.
    ParameterText,
    /// Names of the fields of structured results.
    Result,
    /// Sentences that many tools of the server repeat.
    Refrain,
}

/// How many fields there are.
pub const FIELDS: usize = 8;

/// Words of one field that count: what comes later is mostly examples.
const MOST_WORDS: [usize; FIELDS] = [48, 48, 64, 400, 160, 600, 80, 400];
/// How deep and how wide a schema is looked through.
const MOST_DEPTH: usize = 6;
const MOST_NODES: usize = 600;

/// The words of one server's tools.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Terms {
    /// Every word once, sorted. One with a space is a pair of neighbours.
    pub words: Vec<String>,
    /// For each tool, what stands where.
    pub tools: Vec<ToolTerms>,
}

/// The words of one tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolTerms {
    /// Words per field.
    pub lengths: [u16; FIELDS],
    /// Word, and how often it stands in each field.
    pub counts: Vec<(u32, [u8; FIELDS])>,
}

impl Terms {
    /// Takes the documentation of all tools of a server apart.
    pub fn of(docs: &[ToolDoc]) -> Self {
        let refrains = Refrains::of(docs);
        let mut collector = Collector::default();
        let tools: Vec<_> = docs.iter().map(|doc| collector.tool(doc, &refrains)).collect();
        collector.finish(tools)
    }
}

/// Sentences that many tools of a server share.
struct Refrains {
    tools_with: HashMap<String, usize>,
    many: usize,
}

impl Refrains {
    fn of(docs: &[ToolDoc]) -> Self {
        let mut tools_with = HashMap::new();
        for doc in docs {
            let mut seen: Vec<String> = sentences(&doc.description).map(normalized).collect();
            seen.sort_unstable();
            seen.dedup();
            for sentence in seen {
                *tools_with.entry(sentence).or_insert(0) += 1;
            }
        }
        Self { tools_with, many: (docs.len() / 12).max(4) }
    }

    fn has(&self, sentence: &str) -> bool {
        self.tools_with.get(&normalized(sentence)).is_some_and(|count| *count >= self.many)
    }
}

fn normalized(sentence: &str) -> String {
    sentence.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

/// Cuts prose at ends of sentences and lines.
pub(super) fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            if rest.is_empty() {
                return None;
            }
            let end = sentence_end(rest);
            let (sentence, tail) = rest.split_at(end);
            rest = tail;
            let sentence = sentence.trim();
            if sentence.chars().any(char::is_alphanumeric) {
                return Some(sentence);
            }
        }
    })
}

fn sentence_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    for (i, byte) in bytes.iter().enumerate() {
        match byte {
            b'\n' => return i + 1,
            b'.' | b'!' | b'?' | b';' if bytes.get(i + 1).is_none_or(u8::is_ascii_whitespace) => {
                return i + 1;
            }
            _ => {}
        }
    }
    text.len()
}

#[derive(Default)]
struct Collector {
    ids: HashMap<String, u32>,
}

impl Collector {
    fn tool(&mut self, doc: &ToolDoc, refrains: &Refrains) -> ToolTerms {
        let mut tool = Tally { ids: &mut self.ids, counts: HashMap::new(), lengths: [0; FIELDS] };
        tool.add(Field::Name, &doc.tool, true);
        if let Some(title) = &doc.title {
            tool.add(Field::Title, title, true);
        }
        let mut lead = true;
        for sentence in sentences(&doc.description) {
            if refrains.has(sentence) {
                tool.add(Field::Refrain, sentence, false);
            } else if lead && sentence.split_whitespace().count() > 2 {
                tool.add(Field::Lead, sentence, true);
                lead = false;
            } else {
                tool.add(Field::Text, sentence, false);
            }
        }
        let mut nodes = MOST_NODES;
        tool.schema(&doc.input_schema, true, MOST_DEPTH, &mut nodes);
        if let Some(schema) = &doc.output_schema {
            let mut nodes = MOST_NODES / 4;
            tool.schema(schema, false, MOST_DEPTH / 2, &mut nodes);
        }
        let mut counts: Vec<_> = tool.counts.into_iter().collect();
        counts.sort_unstable_by_key(|(word, _)| *word);
        ToolTerms { lengths: tool.lengths, counts }
    }

    /// Numbers the words anew, in their order.
    fn finish(self, mut tools: Vec<ToolTerms>) -> Terms {
        let mut words: Vec<(String, u32)> = self.ids.into_iter().collect();
        words.sort_unstable();
        let mut renumbered = vec![0; words.len()];
        for (new, (_, old)) in (0..).zip(&words) {
            renumbered[*old as usize] = new;
        }
        for tool in &mut tools {
            for (word, _) in &mut tool.counts {
                *word = renumbered[*word as usize];
            }
            tool.counts.sort_unstable_by_key(|(word, _)| *word);
        }
        Terms { words: words.into_iter().map(|(word, _)| word).collect(), tools }
    }
}

struct Tally<'a> {
    ids: &'a mut HashMap<String, u32>,
    counts: HashMap<u32, [u8; FIELDS]>,
    lengths: [u16; FIELDS],
}

impl Tally<'_> {
    fn add(&mut self, field: Field, text: &str, with_pairs: bool) {
        let mut last: Option<String> = None;
        let mut room = MOST_WORDS[field as usize].saturating_sub(self.lengths[field as usize].into());
        for_each_word(text, |word| {
            if room == 0 {
                return;
            }
            room -= 1;
            self.lengths[field as usize] += 1;
            if is_stop_word(word) {
                last = None;
                return;
            }
            self.count(field, word);
            if with_pairs {
                if let Some(last) = &last {
                    self.count(field, &super::index::pair(last, word));
                }
                last = Some(word.to_owned());
            }
        });
    }

    fn count(&mut self, field: Field, word: &str) {
        let id = match self.ids.get(word) {
            Some(id) => *id,
            None => {
                let id = u32::try_from(self.ids.len()).unwrap_or(u32::MAX);
                self.ids.insert(word.to_owned(), id);
                id
            }
        };
        let count = &mut self.counts.entry(id).or_default()[field as usize];
        *count = count.saturating_add(1);
    }

    fn schema(&mut self, schema: &Value, input: bool, depth: usize, nodes: &mut usize) {
        let Some(object) = schema.as_object().filter(|_| depth > 0 && *nodes > 0) else { return };
        *nodes -= 1;
        for (key, value) in object {
            match (key.as_str(), value) {
                ("properties" | "$defs" | "definitions", Value::Object(properties)) => {
                    for (name, property) in properties {
                        if key == "properties" {
                            self.add(if input { Field::Parameter } else { Field::Result }, name, false);
                        }
                        self.schema(property, input, depth - 1, nodes);
                    }
                }
                ("items" | "additionalProperties", Value::Object(_)) => {
                    self.schema(value, input, depth - 1, nodes);
                }
                ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(schemas)) => {
                    for schema in schemas {
                        self.schema(schema, input, depth - 1, nodes);
                    }
                }
                ("description", Value::String(text)) if input => self.add(Field::ParameterText, text, false),
                ("const", Value::String(text)) if input => self.add(Field::ParameterText, text, false),
                ("enum", Value::Array(values)) if input => {
                    for value in values.iter().filter_map(Value::as_str) {
                        self.add(Field::ParameterText, value, false);
                    }
                }
                _ => {}
            }
        }
    }
}
