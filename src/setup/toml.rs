//! The file of Codex.

use toml_edit::{Array, DocumentMut, Item, Table, TableLike, value};

use super::entry::{Change, Entry, NAME, Problem, only_one};

/// The table of the entries.
const TABLE: &str = "mcp_servers";
/// Seconds after which Codex stops waiting for a result: more than the longest call, 120 s.
const TOOL_TIMEOUT: i64 = 130;

pub(super) fn register(text: &str, command: &str) -> Result<Change, Problem> {
    let mut document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| {
        let before = error.span().map_or("", |span| &text[..span.start]);
        Problem(format!("line {}: {}", before.matches('\n').count() + 1, error.message()))
    })?;
    let mut none = Table::new();
    // Only its parts are written: `[mcp_servers.codebridge]`.
    none.set_implicit(true);
    let table = document.entry(TABLE).or_insert(Item::Table(none));
    let not_a_table = |name: &str| Problem(format!("'{name}' must be a table"));
    let table = table.as_table_like_mut().ok_or_else(|| not_a_table(TABLE))?;

    let ours = table.iter().map(|(name, item)| (entry(name, item), ())).filter(|(entry, ())| entry.is_ours());
    let Some((old, ())) = only_one(ours.collect())? else {
        let mut new = Table::new();
        new.insert("command", value(command));
        new.insert("tool_timeout_sec", value(TOOL_TIMEOUT));
        table.insert(NAME, Item::Table(new));
        return Ok(Change::Add { text: document.to_string() });
    };
    if old.command.as_deref() == Some(command) {
        return Ok(Change::None);
    }
    let kept = old.kept_arguments()?;
    let changed = table.get_mut(&old.name).and_then(Item::as_table_like_mut);
    replace_command(changed.ok_or_else(|| not_a_table(&old.name))?, &old, command, kept);
    Ok(old.replaced(document.to_string(), command, kept))
}

fn entry(name: &str, item: &Item) -> Entry {
    let member = |name: &str| item.as_table_like().and_then(|table| table.get(name));
    let command = member("command").and_then(Item::as_str).map(String::from);
    let args = member("args").and_then(Item::as_array).into_iter().flatten();
    let args = args.filter_map(|word| word.as_str().map(String::from)).collect();
    Entry { name: name.to_owned(), command, args }
}

fn replace_command(table: &mut dyn TableLike, old: &Entry, command: &str, kept: &[String]) {
    if kept.is_empty() {
        table.remove("args");
    } else if kept != old.args {
        table.insert("args", value(kept.iter().map(String::as_str).collect::<Array>()));
    }
    if let Some(current) = table.get_mut("command").and_then(Item::as_value_mut) {
        // What is around the value stays: a comment at the end of its line.
        let around = current.decor().clone();
        *current = command.into();
        *current.decor_mut() = around;
    }
}
