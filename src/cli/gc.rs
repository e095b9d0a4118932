//! `codebridge gc`: shows what is unused, asks, and removes it.

use std::process::ExitCode;
use std::sync::Arc;

use serde::Serialize;

use super::ask::Person;
use super::errors::CommandError;
use super::gc_args::GcArgs;
use super::output::{columns, print, write};
use super::say::say;
use crate::error::Exit;
use crate::gc::{Act, Collected, Unused, collect};
use crate::sizes::bytes_text;
use crate::workspace::Bridge;

/// The outcome as JSON.
#[derive(Serialize)]
struct Report<'a> {
    /// Whether it is gone.
    removed: bool,
    unused: &'a [Unused],
    bytes: u64,
    failed: Vec<String>,
}

pub(super) async fn gc(bridge: &Arc<Bridge>, args: GcArgs) -> Result<ExitCode, CommandError> {
    let GcArgs { dry_run, yes, form } = args;
    let mut collected = collect(bridge, Act::Look).await;
    let found = !collected.unused.is_empty();
    let mut removed = false;
    if found && !dry_run {
        if !yes {
            // What is decided on is shown first, whatever form the outcome has.
            say(table(&collected).trim_end());
            match Person::find().confirms("remove this?")? {
                Some(true) => {}
                Some(false) => return Ok(Exit::Success.into()),
                None => return Err(CommandError::UnconfirmedRemoval),
            }
        }
        collected = collect(bridge, Act::Remove).await;
        removed = true;
    }
    let text = match (found, removed) {
        (false, _) => "nothing is unused\n".into(),
        (true, false) => table(&collected),
        (true, true) => removed_text(&collected),
    };
    let failed = collected.failed.iter().map(ToString::to_string).collect();
    let report = Report { removed, unused: &collected.unused, bytes: collected.total().bytes, failed };
    if form.json {
        write(&form, &report, String::new(), Exit::Success).await?;
    } else {
        print(&text).await?;
    }
    for error in &collected.failed {
        say(format_args!("error: {error}"));
    }
    Ok(if collected.failed.is_empty() { Exit::Success } else { Exit::Io }.into())
}

fn table(collected: &Collected) -> String {
    let row = |unused: &Unused| {
        let Unused { place, amount } = unused;
        let size = if amount.bytes == 0 { "-".into() } else { bytes_text(amount.bytes) };
        vec![place.name().into(), amount.count.to_string(), size, place.meaning().into()]
    };
    let rows = columns(&["UNUSED", "NUMBER", "SIZE", "WHAT"], collected.unused.iter().map(row));
    format!("{rows}total: {}\n", bytes_text(collected.total().bytes))
}

fn removed_text(collected: &Collected) -> String {
    let line = |unused: &Unused| format!("removed from {}: {}\n", unused.place.name(), unused.amount.count);
    let lines: String = collected.unused.iter().map(line).collect();
    format!("{lines}freed {}\n", bytes_text(collected.total().bytes))
}
