//! The words of a server's tools: counted once, when the documentation arrives, and stored with it.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::sentences::{Boilerplate, is_prose, sentences};
use super::stop::is_stop_word;
use super::words::{for_each_word, words};
use crate::upstream::ToolDoc;

/// The part of a tool's documentation that a word is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    Name,
    Title,
    /// The first sentence of the description that says what the tool does.
    Lead,
    /// The rest of the description, without boilerplate.
    Text,
    /// The names of parameters, including nested ones.
    Parameter,
    /// The descriptions and allowed values of parameters.
    ParameterText,
}

pub const FIELD_COUNT: usize = 6;

/// The words of each field that are counted: the rest is mostly examples.
const MOST_WORDS: [u16; FIELD_COUNT] = [48, 48, 64, 400, 160, 500];
/// The words of all tools of a server that are counted; of later tools only names and first sentences are.
const MOST_WORDS_OF_A_SERVER: usize = 1_000_000;
/// The depth and the number of nodes to which a schema is read.
const MOST_DEPTH: usize = 6;
const MOST_NODES: usize = 600;
/// The shortest word that is recognized inside a name, and the longest inflectional ending.
const SHORTEST_INNER: usize = 3;
const LONGEST_ENDING: usize = 3;

/// The words of one server's tools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Every word once, sorted.
    pub(super) words: Vec<Box<str>>,
    tools: usize,
    /// The [`ToolTerms`] of all tools, one after the other: they stay encoded until a search needs them.
    #[serde(with = "serde_bytes")]
    encoded: Vec<u8>,
}

/// The words of one tool.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ToolTerms {
    /// Words per field.
    pub(super) lengths: [u16; FIELD_COUNT],
    /// The number of a word, and how often it stands in each field.
    pub(super) counts: Vec<(u32, [u8; FIELD_COUNT])>,
}

impl Terms {
    /// Counts the words of all tools of a server.
    pub fn of(docs: &[ToolDoc], boilerplate: &Boilerplate) -> Self {
        let mut ids = HashMap::new();
        let mut words_left = MOST_WORDS_OF_A_SERVER;
        let mut tools: Vec<ToolTerms> = Vec::with_capacity(docs.len());
        for doc in docs {
            let tool = Tally::of(doc, boilerplate, &mut ids, words_left > 0);
            let words = tool.lengths.iter().map(|length| usize::from(*length)).sum();
            words_left = words_left.saturating_sub(words);
            tools.push(tool);
        }
        let mut words: Vec<(String, u32)> = ids.into_iter().collect();
        words.sort_unstable();
        let mut places = vec![0; words.len()];
        for (place, (_, id)) in (0..).zip(&words) {
            places[*id as usize] = place;
        }
        let mut encoded = Vec::new();
        for tool in &mut tools {
            tool.counts.iter_mut().for_each(|(word, _)| *word = places[*word as usize]);
            tool.counts.sort_unstable();
            // Writing to memory does not fail.
            encoded = postcard::to_extend(tool, encoded).unwrap_or_default();
        }
        let words = words.into_iter().map(|(word, _)| word.into_boxed_str()).collect();
        Self { words, tools: tools.len(), encoded }
    }

    /// Returns how many tools there are.
    pub(in crate::upstream) fn len(&self) -> usize {
        self.tools
    }

    /// Returns the words of each tool, in order; a damaged tool has none.
    pub(super) fn tools(&self) -> impl Iterator<Item = ToolTerms> {
        let mut rest = &self.encoded[..];
        (0..self.tools).map(move |_| {
            let (tool, behind): (ToolTerms, _) = postcard::take_from_bytes(rest).unwrap_or_default();
            rest = behind;
            let is_valid = tool.counts.iter().all(|(word, _)| (*word as usize) < self.words.len());
            if is_valid { tool } else { ToolTerms::default() }
        })
    }
}

/// Counts the words of one tool.
struct Tally<'a> {
    ids: &'a mut HashMap<String, u32>,
    counts: HashMap<u32, [u8; FIELD_COUNT]>,
    lengths: [u16; FIELD_COUNT],
    /// The number of schema nodes that may still be read.
    nodes: usize,
}

impl<'a> Tally<'a> {
    fn of(
        doc: &ToolDoc,
        boilerplate: &Boilerplate,
        ids: &'a mut HashMap<String, u32>,
        whole: bool,
    ) -> ToolTerms {
        let mut tally = Self { ids, counts: HashMap::new(), lengths: [0; FIELD_COUNT], nodes: MOST_NODES };
        tally.add(Field::Name, &doc.name);
        if let Some(title) = &doc.title {
            tally.add(Field::Title, title);
        }
        let mut field = Field::Lead;
        for sentence in sentences(&doc.description).filter(|sentence| !boilerplate.contains(sentence)) {
            if field == Field::Lead && is_prose(sentence) {
                tally.add(Field::Lead, sentence);
                tally.add_inner_words(&doc.name, sentence);
                field = Field::Text;
            } else if whole {
                tally.add(Field::Text, sentence);
            }
        }
        if whole {
            tally.schema(&doc.input_schema, MOST_DEPTH);
        }
        ToolTerms { lengths: tally.lengths, counts: tally.counts.into_iter().collect() }
    }

    /// Counts words of the first sentence that are inside a name like `xreadgroup`.
    fn add_inner_words(&mut self, name: &str, lead: &str) {
        let names = first_words(name, Field::Name);
        let is_inside = |word: &String| {
            let in_name = |name: &String| {
                name.contains(word) && (!name.starts_with(word) || name.len() > word.len() + LONGEST_ENDING)
            };
            word.len() >= SHORTEST_INNER && !is_stop_word(word) && names.iter().any(in_name)
        };
        let mut inner: Vec<String> = first_words(lead, Field::Lead).into_iter().filter(is_inside).collect();
        inner.sort_unstable();
        inner.dedup();
        inner.iter().for_each(|word| self.count(Field::Name as usize, word));
    }

    fn add(&mut self, field: Field, text: &str) {
        let field = field as usize;
        for_each_word(text, |word| {
            if self.lengths[field] < MOST_WORDS[field] {
                self.lengths[field] += 1;
                if !is_stop_word(word) {
                    self.count(field, word);
                }
            }
        });
    }

    fn count(&mut self, field: usize, word: &str) {
        let id = match self.ids.get(word) {
            Some(id) => *id,
            None => {
                let id = u32::try_from(self.ids.len()).unwrap_or(u32::MAX);
                self.ids.insert(word.to_owned(), id);
                id
            }
        };
        let count = &mut self.counts.entry(id).or_default()[field];
        *count = count.saturating_add(1);
    }

    fn schema(&mut self, schema: &Value, depth: usize) {
        let Some(schema) = schema.as_object().filter(|_| depth > 0 && self.nodes > 0) else { return };
        self.nodes -= 1;
        for (key, value) in schema {
            match (key.as_str(), value) {
                ("properties", Value::Object(properties)) => {
                    for (name, property) in properties {
                        self.add(Field::Parameter, name);
                        self.schema(property, depth - 1);
                    }
                }
                ("$defs" | "definitions", Value::Object(definitions)) => {
                    definitions.values().for_each(|definition| self.schema(definition, depth - 1));
                }
                ("items" | "additionalProperties", Value::Object(_)) => self.schema(value, depth - 1),
                ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(schemas)) => {
                    schemas.iter().for_each(|schema| self.schema(schema, depth - 1));
                }
                ("description" | "const", Value::String(text)) => self.add(Field::ParameterText, text),
                ("enum", Value::Array(values)) => {
                    let texts = values.iter().filter_map(Value::as_str).take(MOST_NODES);
                    texts.for_each(|text| self.add(Field::ParameterText, text));
                }
                _ => {}
            }
        }
    }
}

/// Returns the words of a text that are counted in a field.
fn first_words(text: &str, field: Field) -> Vec<String> {
    let mut words = words(text);
    words.truncate(MOST_WORDS[field as usize].into());
    words
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn doc() -> ToolDoc {
        ToolDoc {
            kind: Default::default(),
            name: "bake_bread".into(),
            title: Some("Bake Bread".into()),
            description: "Bakes one loaf of bread. The oven must be hot.".into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "flourType": { "enum": ["rye", "wheat"], "description": "What the bread is made of" },
                    "oven": { "type": "object", "properties": { "heat": { "type": "integer" } } },
                },
            }),
            output_schema: None,
        }
    }

    fn terms_of(docs: &[ToolDoc]) -> Terms {
        Terms::of(docs, &Boilerplate::of(docs))
    }

    fn fields_of(terms: &Terms, wanted: &str) -> [u8; FIELD_COUNT] {
        let mut found = [0; FIELD_COUNT];
        for (word, counts) in terms.tools().flat_map(|tool| tool.counts) {
            if &*terms.words[word as usize] == wanted {
                found = counts;
            }
        }
        found
    }

    #[test]
    fn words_are_counted_in_their_field() {
        let terms = terms_of(&[doc()]);
        assert_eq!(fields_of(&terms, "bread"), [1, 1, 1, 0, 0, 1]);
        assert_eq!(fields_of(&terms, "oven"), [0, 0, 0, 1, 1, 0]);
        assert_eq!(fields_of(&terms, "flour"), [0, 0, 0, 0, 1, 0]);
        assert_eq!(fields_of(&terms, "wheat"), [0, 0, 0, 0, 0, 1]);
        assert_eq!(fields_of(&terms, "heat"), [0, 0, 0, 0, 1, 0]);
        assert_eq!(fields_of(&terms, "the"), [0; FIELD_COUNT]);
    }

    #[test]
    fn words_inside_a_name_are_found() {
        let terms = terms_of(&[ToolDoc {
            name: "xreadgroup commits".into(),
            description: "Read as one of a group of commit readers.".into(),
            ..ToolDoc::default()
        }]);
        assert_eq!(fields_of(&terms, "group"), [1, 0, 1, 0, 0, 0]);
        assert_eq!(fields_of(&terms, "read"), [1, 0, 1, 0, 0, 0]);
        assert_eq!(fields_of(&terms, "commit"), [0, 0, 1, 0, 0, 0], "a form of the word itself");
    }

    #[test]
    fn terms_are_read_as_they_were_written() {
        let terms = terms_of(&[doc(), ToolDoc::default(), ToolDoc { name: "x".into(), ..doc() }]);
        let bytes = postcard::to_allocvec(&terms).unwrap();
        assert_eq!(postcard::from_bytes::<Terms>(&bytes).unwrap(), terms);
    }

    #[test]
    fn damaged_terms_have_fewer_words_and_do_not_panic() {
        let terms = terms_of(&[doc(), doc()]);
        for at in 0..terms.encoded.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut damaged = terms.clone();
                damaged.encoded[at] = byte;
                let tools: Vec<_> = damaged.tools().collect();
                assert_eq!(tools.len(), 2);
                let mut words = tools.iter().flat_map(|tool| &tool.counts);
                assert!(words.all(|(word, _)| (*word as usize) < damaged.words.len()));
            }
        }
    }

    #[test]
    fn the_words_of_a_hostile_server_are_bounded() {
        let doc = |tool: u32| ToolDoc {
            name: format!("tool{tool}"),
            description: (0..500).map(|word| format!("w{tool}x{word} ")).collect(),
            ..ToolDoc::default()
        };
        let docs: Vec<_> = (0..2200).map(doc).collect();
        let terms = Terms::of(&docs, &Boilerplate::default());
        assert!(terms.words.len() < MOST_WORDS_OF_A_SERVER + 100_000, "{}", terms.words.len());
        let last = terms.tools().last().unwrap();
        assert_eq!(last.lengths, [1, 0, 64, 0, 0, 0]);
    }

    #[test]
    fn the_words_of_a_hostile_tool_are_bounded() {
        let mut schema = json!({});
        for _ in 0..100 {
            schema = json!({ "properties": { "deeper": schema } });
        }
        let wide: serde_json::Map<_, _> =
            (0..10_000).map(|i| (format!("p{i}x"), json!({ "description": format!("d{i}x") }))).collect();
        for input_schema in [schema, json!({ "properties": wide })] {
            let hostile = ToolDoc {
                name: "a_".repeat(100_000),
                description: "word ".repeat(100_000),
                input_schema,
                ..ToolDoc::default()
            };
            let terms = terms_of(&[hostile]);
            assert!(terms.words.len() < 2000, "{}", terms.words.len());
        }
    }
}
