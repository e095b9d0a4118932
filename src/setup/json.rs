//! Files in JSON, in which clients allow comments and trailing commas.

use jsonc_parser::cst::{CstInputValue, CstNode, CstObject, CstObjectProp, CstRootNode};

use super::clients::Form;
use super::entry::{Change, Entry, NAME, Problem, only_one};
use crate::upstream::discovery::JSON_WITH_COMMENTS;

const BYTE_ORDER_MARK: &str = "\u{feff}";

pub(super) fn register(form: Form, file: &str, command: &str) -> Result<Change, Problem> {
    let text = file.strip_prefix(BYTE_ORDER_MARK).unwrap_or(file);
    let root = CstRootNode::parse(text, &JSON_WITH_COMMENTS)
        .map_err(|error| Problem(format!("line {}: {}", error.line_display(), error.kind())))?;
    let is_new = root.value().is_none();
    let top = root.object_value_or_create().ok_or_else(|| not_an_object("the file"))?;
    let (table, form) = table(form, &top)?;

    let ours = only_one(entries(&table).filter(|(entry, _)| entry.is_ours()).collect())?;
    let done = || {
        let mut text = file[..file.len() - text.len()].to_owned() + &root.to_string();
        if is_new && !text.ends_with('\n') {
            text.push('\n');
        }
        text
    };
    let Some((old, property)) = ours else {
        table.ensure_multiline();
        table.append(NAME, entry(form, command));
        return Ok(Change::Add { text: done() });
    };
    if old.command.as_deref() == Some(command) {
        return Ok(Change::None);
    }
    let kept = old.kept_arguments()?;
    let value = property.object_value().ok_or_else(|| not_an_object(&format!("'{}'", old.name)))?;
    replace_command(form, &value, command, kept);
    Ok(old.replaced(done(), command, kept))
}

/// Opens the object with the entries, and makes it if there is none.
fn table(form: Form, top: &CstObject) -> Result<(CstObject, Entries), Problem> {
    match form {
        Form::VsCode => Ok((member(top, "servers")?, Entries::Named)),
        Form::ClaudeCode => Ok((member(top, "mcpServers")?, Entries::Named)),
        Form::McpServers | Form::Codex => Ok((member(top, "mcpServers")?, Entries::Plain)),
        Form::OpenCode => {
            let mcp = member(top, "mcp")?;
            // opencode 2 has them one level deeper. A server of opencode 1 may have this name; it has a type.
            let deeper = mcp.object_value("servers").filter(|servers| servers.get("type").is_none());
            match deeper {
                Some(_) => Ok((member(&mcp, "servers")?, Entries::List { enabled: false })),
                None => Ok((mcp, Entries::List { enabled: true })),
            }
        }
    }
}

/// What entries contain.
#[derive(Debug, Clone, Copy)]
enum Entries {
    /// The command alone.
    Plain,
    /// The transport too.
    Named,
    /// The command and its arguments as a list.
    List { enabled: bool },
}

fn entry(form: Entries, command: &str) -> CstInputValue {
    let text = |text: &str| CstInputValue::String(text.to_owned());
    let members = match form {
        Entries::Plain => vec![("command", text(command))],
        Entries::Named => vec![("type", text("stdio")), ("command", text(command))],
        Entries::List { enabled } => {
            let mut members =
                vec![("type", text("local")), ("command", CstInputValue::Array(vec![text(command)]))];
            members.extend(enabled.then_some(("enabled", CstInputValue::Bool(true))));
            members
        }
    };
    CstInputValue::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn replace_command(form: Entries, value: &CstObject, command: &str, kept: &[String]) {
    let list = |words: &mut dyn Iterator<Item = &str>| {
        CstInputValue::Array(words.map(|word| CstInputValue::String(word.to_owned())).collect())
    };
    let Some(property) = value.get("command") else { return };
    let mut kept_words = kept.iter().map(String::as_str);
    if let Entries::List { .. } = form {
        return property.set_value(list(&mut std::iter::once(command).chain(kept_words)));
    }
    property.set_value(CstInputValue::String(command.to_owned()));
    match value.get("args") {
        Some(args) if kept.is_empty() => args.remove(),
        Some(args) if strings(value, "args") != kept => args.set_value(list(&mut kept_words)),
        _ => {}
    }
}

/// Returns the object of this name, and makes it if there is none.
fn member(object: &CstObject, name: &str) -> Result<CstObject, Problem> {
    let named = object.properties().into_iter().filter(|property| name_of(property) == name);
    if named.count() > 1 {
        return Err(Problem(format!("'{name}' occurs twice")));
    }
    if object.get(name).is_none() {
        object.ensure_multiline();
    }
    object.object_value_or_create(name).ok_or_else(|| not_an_object(&format!("'{name}'")))
}

fn not_an_object(what: &str) -> Problem {
    Problem(format!("{what} must be an object"))
}

fn entries(table: &CstObject) -> impl Iterator<Item = (Entry, CstObjectProp)> {
    table.properties().into_iter().map(|property| {
        let name = name_of(&property);
        let Some(value) = property.object_value() else {
            return (Entry { name, ..Entry::default() }, property);
        };
        let mut words = strings(&value, "command").into_iter();
        let command = words.next();
        let args = words.chain(strings(&value, "args")).collect();
        (Entry { name, command, args }, property)
    })
}

fn name_of(property: &CstObjectProp) -> String {
    property.decoded_name().unwrap_or_default()
}

/// Returns the string of this name, or the strings of the list.
fn strings(object: &CstObject, name: &str) -> Vec<String> {
    let string = |node: &CstNode| node.as_string_lit()?.decoded_value().ok();
    match object.get(name).and_then(|property| property.value()) {
        Some(node) => match node.as_array() {
            Some(list) => list.elements().iter().filter_map(string).collect(),
            None => string(&node).into_iter().collect(),
        },
        None => Vec::new(),
    }
}
