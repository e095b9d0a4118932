//! Changes of the text of a file of definitions. Comments, order and layout of everything else stay.

use jsonc_parser::cst::{CstInputValue, CstNode, CstObject, CstObjectProp, CstRootNode};
use serde_json::Value as Json;

use super::document::JSON_WITH_COMMENTS;

const BYTE_ORDER_MARK: &str = "\u{feff}";
/// Where new definitions are written.
const TABLE: &str = "mcpServers";
/// Where a file of the user may have its definitions, in the order in which they are read.
const TABLES: [&[&str]; 6] =
    [&[TABLE], &["servers"], &["mcp.servers"], &["mcp", "servers"], &["mcp"], &["mcp_servers"]];
const DISABLED: &str = "disabled";
const ENABLED: &str = "enabled";

/// Why the text of a file cannot be changed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditProblem {
    #[error("line {line}: {why}")]
    Syntax { line: usize, why: String },
    #[error("{0} must be an object")]
    NotAnObject(String),
    #[error("'{0}' occurs twice")]
    Twice(String),
    #[error("it has a definition of '{0}' already")]
    Exists(String),
    #[error("it has no definition of '{0}' in a form that can be changed")]
    Missing(String),
}

/// Adds a definition.
pub(super) fn add(file: &str, name: &str, definition: &Json) -> Result<String, EditProblem> {
    let document = Document::parse(file)?;
    let top = document.top()?;
    let named = top.properties().into_iter().filter(|member| name_of(member) == TABLE).count();
    if named > 1 {
        return Err(EditProblem::Twice(TABLE.into()));
    }
    if named == 0 {
        top.ensure_multiline();
    }
    let table = top.object_value_or_create(TABLE);
    let table = table.ok_or_else(|| EditProblem::NotAnObject(format!("'{TABLE}'")))?;
    if table.get(name).is_some() {
        return Err(EditProblem::Exists(name.into()));
    }
    table.ensure_multiline();
    table.append(name, input(definition));
    Ok(document.text())
}

/// Removes a definition.
pub(super) fn remove(file: &str, name: &str) -> Result<String, EditProblem> {
    let document = Document::parse(file)?;
    document.definition(name)?.remove();
    Ok(document.text())
}

/// Disables a definition.
pub(super) fn disable(file: &str, name: &str) -> Result<String, EditProblem> {
    let document = Document::parse(file)?;
    let definition = members_of(&document.definition(name)?, name)?;
    match (definition.get(DISABLED), definition.get(ENABLED)) {
        (Some(disabled), _) => disabled.set_value(CstInputValue::Bool(true)),
        (None, Some(enabled)) => enabled.set_value(CstInputValue::Bool(false)),
        (None, None) => drop(definition.append(DISABLED, CstInputValue::Bool(true))),
    }
    Ok(document.text())
}

/// Enables a definition. One that only hides another is removed.
pub(super) fn enable(file: &str, name: &str) -> Result<String, EditProblem> {
    let document = Document::parse(file)?;
    let property = document.definition(name)?;
    let definition = members_of(&property, name)?;
    if definition.properties().iter().all(|member| [DISABLED, ENABLED].contains(&name_of(member).as_str())) {
        property.remove();
        return Ok(document.text());
    }
    if let Some(disabled) = definition.get(DISABLED) {
        disabled.remove();
    }
    if let Some(enabled) = definition.get(ENABLED) {
        enabled.set_value(CstInputValue::Bool(true));
    }
    Ok(document.text())
}

/// Returns the definition that only hides another of the same name.
pub(super) fn hiding() -> Json {
    serde_json::json!({ DISABLED: true })
}

/// The text of a file, as it is changed.
struct Document<'a> {
    mark: &'a str,
    root: CstRootNode,
    is_new: bool,
}

impl<'a> Document<'a> {
    fn parse(file: &'a str) -> Result<Self, EditProblem> {
        let text = file.strip_prefix(BYTE_ORDER_MARK).unwrap_or(file);
        let root = CstRootNode::parse(text, &JSON_WITH_COMMENTS).map_err(|error| EditProblem::Syntax {
            line: error.line_display(),
            why: error.kind().to_string(),
        })?;
        let is_new = root.value().is_none();
        Ok(Self { mark: &file[..file.len() - text.len()], root, is_new })
    }

    fn top(&self) -> Result<CstObject, EditProblem> {
        self.root.object_value_or_create().ok_or_else(|| EditProblem::NotAnObject("the file".into()))
    }

    /// Returns the first definition of a name.
    fn definition(&self, name: &str) -> Result<CstObjectProp, EditProblem> {
        let top = self.top()?;
        let find = |path: &&[&str]| {
            let table = path.iter().try_fold(top.clone(), |object, member| object.object_value(member))?;
            // `mcp` has definitions or `servers`.
            table.get(name).filter(|_| **path != ["mcp"] || name != "servers")
        };
        TABLES.iter().find_map(find).ok_or_else(|| EditProblem::Missing(name.into()))
    }

    fn text(&self) -> String {
        let mut text = format!("{}{}", self.mark, self.root);
        if self.is_new && !text.ends_with('\n') {
            text.push('\n');
        }
        text
    }
}

fn members_of(property: &CstObjectProp, name: &str) -> Result<CstObject, EditProblem> {
    let object = property.value().as_ref().and_then(CstNode::as_object);
    object.ok_or_else(|| EditProblem::NotAnObject(format!("'{name}'")))
}

fn name_of(property: &CstObjectProp) -> String {
    property.decoded_name().unwrap_or_default()
}

fn input(value: &Json) -> CstInputValue {
    match value {
        Json::Null => CstInputValue::Null,
        Json::Bool(value) => CstInputValue::Bool(*value),
        Json::Number(number) => CstInputValue::Number(number.to_string()),
        Json::String(text) => CstInputValue::String(text.clone()),
        Json::Array(items) => CstInputValue::Array(items.iter().map(input).collect()),
        Json::Object(members) => {
            CstInputValue::Object(members.iter().map(|(name, value)| (name.clone(), input(value))).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const WRITTEN: &str = r#"{
  // what I use
  "mcpServers": {
    "time": { "command": "uvx", "args": ["mcp-server-time"] }, // zones
    /* off for now */
    "old": { "command": "x", "disabled": true },
  },
  "profiles": { "work": ["time"] }
}
"#;

    #[test]
    fn a_definition_is_added_and_removed_and_all_else_stays() {
        let definition = json!({ "command": "npx", "args": ["-y", "a\"b\\c\u{1}\n"], "env": { "N": "1" } });
        let added = add(WRITTEN, "new", &definition).unwrap();
        for line in WRITTEN.lines() {
            assert!(added.contains(line), "{line}\n{added}");
        }
        let plain = jsonc(&added);
        assert_eq!(plain["mcpServers"]["new"], definition, "{added}");
        assert_eq!(remove(&added, "new").unwrap(), WRITTEN);
        let without = remove(WRITTEN, "time").unwrap();
        assert!(without.contains("// what I use") && without.contains("/* off for now */"), "{without}");
        assert_eq!(jsonc(&without)["mcpServers"], json!({ "old": { "command": "x", "disabled": true } }));
    }

    fn jsonc(text: &str) -> Json {
        let root = super::super::document::parse_json(text).unwrap().unwrap();
        super::super::trust::readable(&root)
    }

    #[test]
    fn a_definition_is_disabled_and_enabled_as_it_is_written() {
        let disabled = disable(WRITTEN, "time").unwrap();
        assert_eq!(jsonc(&disabled)["mcpServers"]["time"]["disabled"], true, "{disabled}");
        assert_eq!(jsonc(&enable(&disabled, "time").unwrap()), jsonc(WRITTEN));
        assert_eq!(jsonc(&enable(WRITTEN, "old").unwrap())["mcpServers"]["old"], json!({ "command": "x" }));
        let codex = r#"{"servers": {"a": {"command": "x", "enabled": true}}}"#;
        assert_eq!(disable(codex, "a").unwrap(), codex.replace("true", "false"));
        assert_eq!(enable(&disable(codex, "a").unwrap(), "a").unwrap(), codex);
        let hidden = add("", "a", &hiding()).unwrap();
        assert_eq!(jsonc(&enable(&hidden, "a").unwrap()), json!({ "mcpServers": {} }));
    }

    #[test]
    fn definitions_of_every_form_are_found() {
        for text in [
            r#"{"servers": {"a": {}}}"#,
            r#"{"mcp.servers": {"a": {}}}"#,
            r#"{"mcp": {"servers": {"a": {}}}}"#,
            r#"{"mcp": {"a": {}}}"#,
            r#"{"mcp_servers": {"a": {}}}"#,
        ] {
            assert!(!remove(text, "a").unwrap().contains("\"a\""), "{text}");
        }
    }

    #[test]
    fn a_file_that_is_wrong_is_not_changed() {
        for (text, expected) in [
            ("{\n  b\n}", "line 2: "),
            ("[]", "the file must be an object"),
            (r#"{"mcpServers": []}"#, "'mcpServers' must be an object"),
            (r#"{"mcpServers": {}, "mcpServers": {}}"#, "'mcpServers' occurs twice"),
            (r#"{"mcpServers": {"a": 1}}"#, "it has a definition of 'a' already"),
        ] {
            let problem = add(text, "a", &json!({})).unwrap_err().to_string();
            assert!(problem.starts_with(expected), "{problem}");
        }
        assert_eq!(remove("{}", "a"), Err(EditProblem::Missing("a".into())));
        assert_eq!(disable(r#"{"servers": {"a": 1}}"#, "a"), Err(EditProblem::NotAnObject("'a'".into())));
    }
}
