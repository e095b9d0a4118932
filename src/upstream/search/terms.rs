//! A server's tools as words: computed once when its documentation arrives, kept with it.

use std::collections::HashMap;

use serde_json::Value;

use super::encoding::{Reader, Writer};
use super::sentences::{Refrains, says_something, sentences};
use super::stop::is_stop_word;
use super::words::for_each_word;
use crate::upstream::ToolDoc;

/// Where in the documentation a word stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// The tool's name.
    Name,
    /// Its name for people.
    Title,
    /// The first sentence of the description that says something.
    Lead,
    /// The rest of the description, without what the server's other tools say too.
    Text,
    /// Names of parameters, nested ones too.
    Parameter,
    /// Descriptions and allowed values of parameters.
    ParameterText,
}

/// How many fields there are.
pub const FIELDS: usize = 6;

/// Words of each field that count: what comes later is examples.
const MOST_WORDS: [u16; FIELDS] = [48, 48, 64, 400, 160, 500];
/// Words of all tools of a server; those that come later count by their names and first sentences.
const MOST_WORDS_OF_A_SERVER: usize = 1_000_000;
/// How deep and how wide a schema is looked through.
const MOST_DEPTH: usize = 6;
const MOST_NODES: usize = 600;
/// The shortest word that is looked for inside a name, and the longest ending of a form of a word.
const SHORTEST_GLUED: usize = 3;
const LONGEST_ENDING: usize = 3;
/// Marks the fields of a word that stands once in each.
const ONCE_EACH: u8 = 1 << 7;

/// The words of one server's tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Terms {
    /// Every word once, sorted.
    words: Vec<Box<str>>,
    tools: usize,
    /// Tool after tool: lengths of the fields, then for each word its distance from the one before, the fields that it
    /// stands in, and how often unless once each.
    postings: Vec<u8>,
}

/// The words of one tool.
#[derive(Debug, Default)]
pub(super) struct ToolTerms {
    /// Words per field.
    pub(super) lengths: [u16; FIELDS],
    /// A word's number, and how often it stands in each field.
    pub(super) counts: Vec<(u32, [u8; FIELDS])>,
}

impl Terms {
    /// Takes the documentation of all tools of a server apart.
    pub fn of(docs: &[ToolDoc], refrains: &Refrains) -> Self {
        let mut ids = HashMap::new();
        let mut room = MOST_WORDS_OF_A_SERVER;
        let tools: Vec<_> = docs
            .iter()
            .map(|doc| {
                let tool = Tally::of(doc, refrains, &mut ids, room > 0);
                room = room.saturating_sub(tool.lengths.iter().map(|length| usize::from(*length)).sum());
                tool
            })
            .collect();
        let mut words: Vec<(String, u32)> = ids.into_iter().collect();
        words.sort_unstable();
        let mut places = vec![0; words.len()];
        for (place, (_, id)) in (0..).zip(&words) {
            places[*id as usize] = place;
        }
        let mut postings = Writer::default();
        for tool in &tools {
            write_tool(&mut postings, tool, &places);
        }
        Self {
            words: words.into_iter().map(|(word, _)| word.into_boxed_str()).collect(),
            tools: tools.len(),
            postings: postings.finish(),
        }
    }

    /// Every word once, sorted.
    pub fn words(&self) -> &[Box<str>] {
        &self.words
    }

    /// How many tools there are.
    pub fn len(&self) -> usize {
        self.tools
    }

    /// Whether there are no tools.
    pub fn is_empty(&self) -> bool {
        self.tools == 0
    }

    /// Calls `each` for every tool, in order; its argument is used again for the next.
    pub(super) fn for_each_tool(&self, mut each: impl FnMut(&ToolTerms)) {
        let mut postings = Reader::new(&self.postings);
        let mut tool = ToolTerms::default();
        for _ in 0..self.tools {
            if read_tool(&mut postings, self.words.len(), &mut tool).is_none() {
                tool = ToolTerms::default();
            }
            each(&tool);
        }
    }

    /// For the disk.
    pub fn write(&self, writer: &mut Writer) {
        writer.number(self.words.len() as u64);
        for word in &self.words {
            writer.text(word);
        }
        writer.number(self.tools as u64);
        writer.block(&self.postings);
    }

    /// From the disk.
    pub fn read(reader: &mut Reader<'_>, most_tools: usize) -> Option<Self> {
        let count = reader.count(u32::MAX as usize)?;
        let words = (0..count).map(|_| reader.text().map(Box::from)).collect::<Option<Vec<_>>>()?;
        let tools = reader.count(most_tools)?;
        Some(Self { words, tools, postings: reader.block()?.to_vec() })
    }
}

fn write_tool(writer: &mut Writer, tool: &ToolTerms, places: &[u32]) {
    for length in tool.lengths {
        writer.number(length.into());
    }
    let mut counts: Vec<_> = tool.counts.iter().map(|(id, counts)| (places[*id as usize], counts)).collect();
    counts.sort_unstable();
    writer.number(counts.len() as u64);
    let mut last = 0;
    for (word, counts) in counts {
        writer.number(u64::from(word - last));
        last = word;
        let fields = (0..FIELDS).filter(|f| counts[*f] > 0).fold(0u8, |set, f| set | 1 << f);
        if counts.iter().all(|count| *count <= 1) {
            writer.byte(fields | ONCE_EACH);
        } else {
            writer.byte(fields);
            counts.iter().filter(|count| **count > 0).for_each(|count| writer.byte(*count));
        }
    }
}

fn read_tool(reader: &mut Reader<'_>, words: usize, tool: &mut ToolTerms) -> Option<()> {
    for length in &mut tool.lengths {
        *length = u16::try_from(reader.number()?).ok()?;
    }
    tool.counts.clear();
    let mut word = 0;
    for _ in 0..reader.count(words)? {
        word += reader.count(words)?;
        if word >= words {
            return None;
        }
        let fields = reader.byte()?;
        let mut counts = [0; FIELDS];
        for (f, count) in counts.iter_mut().enumerate().filter(|(f, _)| fields & 1 << f != 0) {
            debug_assert!(f < FIELDS);
            *count = if fields & ONCE_EACH == 0 { reader.byte()? } else { 1 };
        }
        tool.counts.push((u32::try_from(word).ok()?, counts));
    }
    Some(())
}

/// Counts the words of one tool.
struct Tally<'a> {
    ids: &'a mut HashMap<String, u32>,
    counts: HashMap<u32, [u8; FIELDS]>,
    lengths: [u16; FIELDS],
    /// Parts of schemas that may still be looked at.
    nodes: usize,
}

impl<'a> Tally<'a> {
    fn of(doc: &ToolDoc, refrains: &Refrains, ids: &'a mut HashMap<String, u32>, whole: bool) -> ToolTerms {
        let mut tally = Self { ids, counts: HashMap::new(), lengths: [0; FIELDS], nodes: MOST_NODES };
        tally.add(Field::Name, &doc.name);
        if let Some(title) = &doc.title {
            tally.add(Field::Title, title);
        }
        let mut field = Field::Lead;
        for sentence in sentences(&doc.description).filter(|sentence| !refrains.contains(sentence)) {
            if field == Field::Lead && says_something(sentence) {
                tally.add(Field::Lead, sentence);
                tally.add_glued(&doc.name, sentence);
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

    /// Names like `xreadgroup` hold words that the first sentence has.
    fn add_glued(&mut self, name: &str, lead: &str) {
        let names = first_words(name, Field::Name);
        let is_inside = |word: &String| {
            let in_name = |name: &String| {
                name.contains(word) && (!name.starts_with(word) || name.len() > word.len() + LONGEST_ENDING)
            };
            word.len() >= SHORTEST_GLUED && !is_stop_word(word) && names.iter().any(in_name)
        };
        let mut glued: Vec<String> = first_words(lead, Field::Lead).into_iter().filter(is_inside).collect();
        glued.sort_unstable();
        glued.dedup();
        glued.iter().for_each(|word| self.count(Field::Name as usize, word));
    }

    fn add(&mut self, field: Field, text: &str) {
        let field = field as usize;
        if self.lengths[field] >= MOST_WORDS[field] {
            return;
        }
        for_each_word(text, |word| {
            if self.lengths[field] >= MOST_WORDS[field] {
                return;
            }
            self.lengths[field] += 1;
            if is_stop_word(word) {
                return;
            }
            self.count(field, word);
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

/// The words of a text that count in a field.
fn first_words(text: &str, field: Field) -> Vec<String> {
    let mut words = Vec::new();
    for_each_word(text, |word| {
        if words.len() < MOST_WORDS[field as usize].into() {
            words.push(word.to_owned());
        }
    });
    words
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn doc() -> ToolDoc {
        ToolDoc {
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
        Terms::of(docs, &Refrains::of(docs))
    }

    fn fields_of(terms: &Terms, wanted: &str) -> [u8; FIELDS] {
        let mut found = [0; FIELDS];
        terms.for_each_tool(|tool| {
            for (word, counts) in &tool.counts {
                if &*terms.words[*word as usize] == wanted {
                    found = *counts;
                }
            }
        });
        found
    }

    #[test]
    fn words_are_counted_where_they_stand() {
        let terms = terms_of(&[doc()]);
        assert_eq!(fields_of(&terms, "bread"), [1, 1, 1, 0, 0, 1]);
        assert_eq!(fields_of(&terms, "oven"), [0, 0, 0, 1, 1, 0]);
        assert_eq!(fields_of(&terms, "flour"), [0, 0, 0, 0, 1, 0]);
        assert_eq!(fields_of(&terms, "wheat"), [0, 0, 0, 0, 0, 1]);
        assert_eq!(fields_of(&terms, "heat"), [0, 0, 0, 0, 1, 0]);
        assert_eq!(fields_of(&terms, "the"), [0; FIELDS]);
    }

    #[test]
    fn run_together_names_are_looked_into() {
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
    fn they_come_back_from_the_disk() {
        let terms = terms_of(&[doc(), ToolDoc::default(), ToolDoc { name: "x".into(), ..doc() }]);
        let mut writer = Writer::default();
        terms.write(&mut writer);
        let bytes = writer.finish();
        let mut reader = Reader::new(&bytes);
        assert_eq!(Terms::read(&mut reader, 3).as_ref(), Some(&terms));
        assert!(reader.is_empty());
        assert_eq!(Terms::read(&mut Reader::new(&bytes), 2), None, "more tools than are allowed");
    }

    #[test]
    fn damage_ends_in_fewer_words_but_not_in_a_panic() {
        let terms = terms_of(&[doc(), doc()]);
        for at in 0..terms.postings.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut damaged = terms.clone();
                damaged.postings[at] = byte;
                let mut tools = 0;
                damaged.for_each_tool(|tool| {
                    tools += 1;
                    assert!(tool.counts.iter().all(|(word, _)| (*word as usize) < damaged.words.len()));
                });
                assert_eq!(tools, 2);
            }
        }
    }

    #[test]
    fn a_hostile_server_has_only_so_many_words() {
        let doc = |tool: u32| ToolDoc {
            name: format!("tool{tool}"),
            description: (0..500).map(|word| format!("w{tool}x{word} ")).collect(),
            ..ToolDoc::default()
        };
        let docs: Vec<_> = (0..2200).map(doc).collect();
        let terms = Terms::of(&docs, &Refrains::default());
        assert!(terms.words.len() < MOST_WORDS_OF_A_SERVER + 100_000, "{}", terms.words.len());
        let mut last = ToolTerms::default();
        terms.for_each_tool(|tool| last.lengths = tool.lengths);
        assert_eq!(last.lengths, [1, 0, 64, 0, 0, 0]);
    }

    #[test]
    fn a_hostile_tool_has_few_words() {
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
