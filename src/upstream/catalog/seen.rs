//! What the results of tools looked like: learned from successful calls, where a server says nothing of them.
//!
//! Each definition has a file beside its documentation. It has types and names of fields, and no values.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::disk::{SEEN, Stamp, replace};
use super::shape::Shape;
use crate::mcp::bounds::Bounds;

/// Results of a tool that one bridge looks at.
const MOST_LOOKS: u32 = 10;
/// Results that are looked at.
const LOOKED_AT: Bounds = Bounds { bytes: 2 << 20, values: 50_000 };
/// Bytes of a file, and tools in it.
const LARGEST: u64 = 4 << 20;
const MOST_TOOLS: usize = 1000;

pub(super) type Shapes = BTreeMap<String, Shape>;

/// The shapes of one server's results, which grow while it is used.
#[derive(Debug, Clone, Default)]
pub(super) struct SeenResults(Arc<RwLock<Shapes>>);

impl SeenResults {
    /// Returns the shape of a tool's results; None if none was seen.
    pub(super) fn of(&self, tool: &str) -> Option<Shape> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(tool).cloned()
    }

    fn replace(&self, shapes: Shapes) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = shapes;
    }

    /// Adds what a result looks like, and returns everything if that is news.
    pub(super) fn add(&self, tool: &str, shape: Shape) -> Option<Shapes> {
        let mut shapes = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if !shapes.contains_key(tool) && shapes.len() == MOST_TOOLS {
            return None;
        }
        let known = shapes.entry(tool.to_owned()).or_default();
        let before = known.clone();
        known.add(shape);
        let is_news = *known != before;
        is_news.then(|| shapes.clone())
    }
}

/// The shapes of all servers' results.
#[derive(Debug)]
pub(super) struct Seen {
    folder: PathBuf,
    loaded: Mutex<HashMap<Arc<str>, Loaded>>,
    /// How many results were looked at, by server and tool.
    looks: Mutex<HashMap<Arc<str>, HashMap<String, u32>>>,
}

#[derive(Debug, Default)]
struct Loaded {
    stamp: Option<Stamp>,
    results: SeenResults,
}

impl Seen {
    pub(super) fn at(folder: PathBuf) -> Self {
        Self { folder, loaded: Mutex::default(), looks: Mutex::default() }
    }

    /// Returns the shapes of a definition's results, read again if another bridge has seen more.
    pub(super) fn of(&self, key: &Arc<str>) -> SeenResults {
        let path = self.path(key);
        let stamp = Stamp::at(&path);
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = loaded.entry(Arc::clone(key)).or_default();
        if stamp.is_some() && loaded.stamp != stamp {
            loaded.stamp = stamp;
            // A damaged file is written again at the next call.
            loaded.results.replace(read(&path).unwrap_or_default());
        }
        loaded.results.clone()
    }

    /// Whether another result of a server's tool is worth a look, and counts it.
    pub(super) fn wants(&self, server: &Arc<str>, tool: &str) -> bool {
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        let looks = looks.entry(Arc::clone(server)).or_default();
        let Some(count) = looks.get_mut(tool) else {
            looks.insert(tool.to_owned(), 1);
            return true;
        };
        *count += u32::from(*count < MOST_LOOKS);
        *count < MOST_LOOKS
    }

    /// Learns from the result of a successful call. Blocks for a moment.
    pub(super) fn learn(&self, key: &Arc<str>, tool: &str, result: &RawValue) {
        let Some(shape) = value_of(result).map(|value| Shape::of(&value)) else { return };
        let Some(shapes) = self.of(key).add(tool, shape) else { return };
        let path = self.path(key);
        let written =
            serde_json::to_vec(&shapes).map_err(io::Error::from).and_then(|bytes| replace(&path, &bytes));
        if let Err(error) = written {
            tracing::debug!(path = %path.display(), %error, "could not store what results look like; it is kept in memory");
        }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(key).with_extension(SEEN)
    }
}

fn read(path: &Path) -> io::Result<Shapes> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// The part of a result that code sees.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outcome<'a> {
    #[serde(borrow, default)]
    structured_content: Option<&'a RawValue>,
    #[serde(default)]
    content: Vec<Block>,
}

#[derive(Deserialize)]
struct Block {
    r#type: String,
    #[serde(default)]
    text: String,
}

/// Returns the value that code sees of a result: structured content, else one text, parsed if it is JSON. None for images and
/// for lists of blocks.
fn value_of(result: &RawValue) -> Option<Value> {
    let whole: Outcome<'_> =
        LOOKED_AT.admit(result.get()).then(|| serde_json::from_str(result.get()).ok())??;
    if let Some(structured) = whole.structured_content.filter(|value| value.get() != "null") {
        let value: Value = serde_json::from_str(structured.get()).ok()?;
        return Some(
            match value.as_object().filter(|object| object.len() == 1).and_then(|it| it.get("result")) {
                // It has to be an object, so servers put other values into a field of one.
                Some(inner) if !inner.is_object() => inner.clone(),
                _ => value,
            },
        );
    }
    match whole.content.as_slice() {
        [block] if block.r#type == "text" => {
            Some(serde_json::from_str(&block.text).unwrap_or_else(|_| Value::String(String::new())))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    fn raw(value: &Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(value).unwrap()
    }

    fn text(text: &str) -> Value {
        json!({ "content": [{ "type": "text", "text": text }] })
    }

    #[test]
    fn it_is_what_code_sees() {
        for (result, seen) in [
            (json!({ "structuredContent": { "result": [1] }, "content": [] }), Some(json!([1]))),
            (json!({ "structuredContent": { "result": { "a": 1 } } }), Some(json!({ "result": { "a": 1 } }))),
            (json!({ "structuredContent": null, "content": [] }), None),
            (text("[1, 2]"), Some(json!([1, 2]))),
            (text("seven"), Some(json!(""))),
            (json!({ "content": [{ "type": "image", "data": "" }] }), None),
            (json!({ "content": [{ "type": "text", "text": "1" }, { "type": "text", "text": "2" }] }), None),
            (json!({ "content": 7 }), None),
            (json!("odd"), None),
            (text(&"[".repeat(1000)), Some(json!(""))),
        ] {
            assert_eq!(value_of(&raw(&result)), seen, "{result}");
        }
        assert_eq!(value_of(&raw(&text(&"x".repeat(3 << 20)))), None, "too large");
    }

    #[test]
    fn bridges_of_one_folder_learn_from_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = [0, 1].map(|_| Seen::at(folder.path().join("catalog")));
        let key: Arc<str> = "k".into();
        assert_eq!(other.of(&key).of("get"), None);
        one.learn(&key, "get", &raw(&text(r#"{"a": "hunter2"}"#)));
        assert_eq!(other.of(&key).of("get"), Some(Shape::of(&json!({ "a": "" }))));
        let path = folder.path().join("catalog/k.seen");
        assert!(!fs::read_to_string(&path).unwrap().contains("hunter2"));
        let before = Stamp::at(&path);
        other.learn(&key, "get", &raw(&text(r#"{"a": "again"}"#)));
        assert_eq!(Stamp::at(&path), before, "nothing new");
        fs::write(&path, "damaged").unwrap();
        assert_eq!(one.of(&key).of("get"), None);
        one.learn(&key, "get", &raw(&text("7")));
        assert_eq!(other.of(&key).of("get"), Some(Shape::of(&json!(7))));
    }

    #[test]
    fn a_folder_that_cannot_be_written_learns_in_memory() {
        let seen = Seen::at("/proc/self/nowhere".into());
        seen.learn(&"k".into(), "get", &raw(&text("7")));
        assert_eq!(seen.of(&"k".into()).of("get"), Some(Shape::of(&json!(7))));
    }

    #[test]
    fn a_tool_that_is_called_often_is_looked_at_a_few_times() {
        let seen = Seen::at("/nowhere".into());
        let wanted = (0..1000).filter(|_| seen.wants(&"k".into(), "get")).count();
        assert!((1..=MOST_LOOKS as usize).contains(&wanted), "{wanted}");
        assert!(seen.wants(&"k".into(), "other"));
    }
}
