//! What the tools of each server were when the operator began to rely on them. A server that changes a tool later changes what a
//! rule allows.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Bytes of the file of one server.
const LONGEST: u64 = 64 << 20;

/// What a server says of a tool, as far as rules and models rely on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolShape {
    /// Clients and questions may show it in place of the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub input_schema: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Value>,
}

/// Tells two shapes of a tool apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShapeDigest([u8; 32]);

impl ToolShape {
    /// Returns the digest. The order of keys, and of texts in a list such as `required`, does not count: some servers change it
    /// at each start.
    pub fn digest(&self) -> ShapeDigest {
        let value = serde_json::to_value(self).map(sorted).unwrap_or_default();
        ShapeDigest(Sha256::digest(value.to_string().as_bytes()).into())
    }
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let members: BTreeMap<String, Value> =
                members.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            members.into_iter().collect()
        }
        Value::Array(mut items) if items.iter().all(Value::is_string) => {
            items.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
            items.into()
        }
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        other => other,
    }
}

impl fmt::Display for ShapeDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// The tools of a server by name.
pub type Shapes = BTreeMap<String, ToolShape>;

/// The file of one server.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    server: String,
    tools: Shapes,
}

/// Why a tool may not be called before somebody accepts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unaccepted {
    /// The server had no such tool.
    New,
    Changed,
}

/// The tools could not be read or kept.
#[derive(Debug, thiserror::Error)]
#[error("could not {what} '{}': {error}", .file.display())]
pub struct PinError {
    what: &'static str,
    file: PathBuf,
    error: io::Error,
}

/// The accepted tools of all servers.
#[derive(Debug)]
pub struct Pins {
    folder: PathBuf,
    known: Mutex<HashMap<String, Known>>,
}

#[derive(Debug)]
struct Known {
    tools: HashMap<String, ShapeDigest>,
    /// When the file was changed last: it is read again after `codebridge policy accept`.
    changed: Option<(i64, i64)>,
}

impl Pins {
    /// Returns those of a folder. Nothing is read before it is needed.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, known: Mutex::default() }
    }

    /// Returns why a tool needs to be accepted first; None if it is as it was. The tools of a server that is used for the first
    /// time are accepted as they are; `all` returns them.
    ///
    /// # Errors
    /// They could not be read or written.
    pub fn check(
        &self,
        server: &str,
        tool: &str,
        digest: ShapeDigest,
        all: impl FnOnce() -> Shapes,
    ) -> Result<Option<Unaccepted>, PinError> {
        let state = |known: &Known| match known.tools.get(tool) {
            Some(accepted) if *accepted == digest => None,
            Some(_) => Some(Unaccepted::Changed),
            None => Some(Unaccepted::New),
        };
        let mut known = self.lock();
        let file = self.file(server);
        if let Some(of_server) = known.get(server) {
            let unaccepted = state(of_server);
            // They are rarely wrong, so the file is looked at only then.
            if unaccepted.is_none() || of_server.changed == changed(&file) {
                return Ok(unaccepted);
            }
        }
        let shapes = match self.read(server)? {
            Some(shapes) => shapes,
            None => {
                let shapes = all();
                self.write(server, &shapes)?;
                shapes
            }
        };
        let tools = shapes.iter().map(|(name, shape)| (name.clone(), shape.digest())).collect();
        let of_server = Known { tools, changed: changed(&file) };
        let unaccepted = state(&of_server);
        known.insert(server.to_owned(), of_server);
        Ok(unaccepted)
    }

    /// Returns the accepted tools of a server; None if it was never used under a policy.
    ///
    /// # Errors
    /// The file is damaged or cannot be read.
    pub fn read(&self, server: &str) -> Result<Option<Shapes>, PinError> {
        let file = self.file(server);
        let failed = |error| PinError { what: "read", file: file.clone(), error };
        let text = match fs::metadata(&file) {
            Ok(metadata) if metadata.len() > LONGEST => {
                return Err(failed(io::ErrorKind::FileTooLarge.into()));
            }
            Ok(_) => fs::read(&file).map_err(failed)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let stored: Stored = serde_json::from_slice(&text).map_err(|error| failed(error.into()))?;
        Ok(Some(stored.tools))
    }

    /// Accepts the tools of a server as they are.
    ///
    /// # Errors
    /// They could not be written.
    pub fn write(&self, server: &str, tools: &Shapes) -> Result<(), PinError> {
        let file = self.file(server);
        let write = || -> io::Result<()> {
            create_private(&self.folder)?;
            let mut new = tempfile::NamedTempFile::new_in(&self.folder)?;
            let stored = Stored { server: server.to_owned(), tools: tools.clone() };
            serde_json::to_writer_pretty(&mut new, &stored)?;
            new.flush()?;
            new.persist(&file)?;
            Ok(())
        };
        write().map_err(|error| PinError { what: "write", file: file.clone(), error })
    }

    /// A server can have any name, so its file has the digest of it.
    fn file(&self, server: &str) -> PathBuf {
        let digest = Sha256::digest(server.as_bytes());
        self.folder.join(hex::encode(&digest[..16])).with_extension("json")
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn changed(file: &Path) -> Option<(i64, i64)> {
    use std::os::unix::fs::MetadataExt;
    let metadata = fs::metadata(file).ok()?;
    Some((metadata.ctime(), metadata.ctime_nsec()))
}

fn create_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// One difference between the accepted tools of a server and those of now.
#[derive(Debug, Clone, PartialEq)]
pub enum Difference<'a> {
    Added(&'a str, &'a ToolShape),
    Removed(&'a str),
    Changed(&'a str, &'a ToolShape, &'a ToolShape),
}

/// Returns why a tool needs to be accepted first; None if it is as it was.
pub fn unaccepted(accepted: &Shapes, tool: &str, now: &ToolShape) -> Option<Unaccepted> {
    match accepted.get(tool) {
        Some(shape) if shape.digest() == now.digest() => None,
        Some(_) => Some(Unaccepted::Changed),
        None => Some(Unaccepted::New),
    }
}

/// Returns what differs, by the names of the tools.
pub fn differences<'a>(accepted: &'a Shapes, now: &'a Shapes) -> Vec<Difference<'a>> {
    let mut found = Vec::new();
    for (name, shape) in now {
        match accepted.get(name) {
            None => found.push(Difference::Added(name, shape)),
            Some(before) if before.digest() != shape.digest() => {
                found.push(Difference::Changed(name, before, shape));
            }
            Some(_) => {}
        }
    }
    found.extend(
        accepted.keys().filter(|name| !now.contains_key(*name)).map(|name| Difference::Removed(name)),
    );
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shape(description: &str, schema: Value) -> ToolShape {
        let description = description.to_owned();
        ToolShape { title: None, description, input_schema: schema, output_schema: None, annotations: None }
    }

    fn shapes(tools: &[(&str, &ToolShape)]) -> Shapes {
        tools.iter().map(|(name, shape)| ((*name).to_owned(), (*shape).clone())).collect()
    }

    #[test]
    fn the_order_of_keys_and_of_required_names_is_no_change() {
        let one = shape("d", json!({ "type": "object", "required": ["a", "b"] }));
        let other = shape("d", json!({ "required": ["b", "a"], "type": "object" }));
        assert_eq!(one.digest(), other.digest());
        assert_ne!(one.digest(), shape("d", json!({ "type": "object", "required": ["a"] })).digest());
        assert_ne!(
            one.digest(),
            ToolShape { annotations: Some(json!({ "readOnlyHint": true })), ..one.clone() }.digest()
        );
        assert_ne!(one.digest(), ToolShape { title: Some("Reads".into()), ..one.clone() }.digest());
    }

    #[test]
    fn a_changed_or_new_tool_has_to_be_accepted_first() {
        let folder = tempfile::tempdir().unwrap();
        let pins = || Pins::new(folder.path().join("pins"));
        let (one, other) = (shape("reads", json!({})), shape("reads, and sends", json!({})));
        let first = pins();
        let check = |pins: &Pins, tool, shape: &ToolShape| {
            pins.check("s/../x", tool, shape.digest(), || shapes(&[("t", &one)])).unwrap()
        };
        assert_eq!(check(&first, "t", &one), None, "at the first use it is accepted");
        assert_eq!(check(&first, "t", &other), Some(Unaccepted::Changed));
        assert_eq!(check(&first, "u", &one), Some(Unaccepted::New));
        assert_eq!(check(&pins(), "t", &other), Some(Unaccepted::Changed), "also in another process");

        let now = shapes(&[("t", &other), ("u", &one)]);
        let accepted = first.read("s/../x").unwrap().unwrap();
        assert_eq!(
            differences(&accepted, &now),
            [Difference::Changed("t", &one, &other), Difference::Added("u", &one)]
        );
        pins().write("s/../x", &now).unwrap();
        assert_eq!(check(&first, "t", &other), None, "what another process accepts holds here");
        assert_eq!(check(&first, "u", &one), None);
        assert_eq!(check(&first, "t", &one), Some(Unaccepted::Changed));
    }

    #[test]
    fn a_damaged_file_is_an_error_and_not_a_first_use() {
        let folder = tempfile::tempdir().unwrap();
        let pins = Pins::new(folder.path().to_path_buf());
        fs::write(pins.file("s"), "{").unwrap();
        let error = pins.check("s", "t", shape("", json!({})).digest(), Shapes::new).unwrap_err();
        assert!(error.to_string().starts_with("could not read '"), "{error}");
    }
}
