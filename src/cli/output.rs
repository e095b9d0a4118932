//! What commands print.

use std::io::{self, Write};
use std::process::ExitCode;

use codebridge_runtimes::exec::{visible, visible_json};
use serde::Serialize;
use tokio::io::AsyncWriteExt;

use super::Form;
use super::errors::CommandError;
use crate::error::Exit;
use crate::mcp::stdio;

/// Prints a value as JSON or as this text, and returns the exit code.
pub(super) async fn write(
    form: &Form,
    value: &impl Serialize,
    text: String,
    exit: Exit,
) -> Result<ExitCode, CommandError> {
    let text = if form.json {
        visible_json(&serde_json::to_string_pretty(value).map_err(io::Error::from)?) + "\n"
    } else {
        visible(&text)
    };
    print(&text).await?;
    Ok(exit.into())
}

pub(super) async fn print(text: &str) -> io::Result<()> {
    let mut output = stdio::output()?;
    let written = match output.write_all(text.as_bytes()).await {
        Ok(()) => output.flush().await,
        failed => failed,
    };
    was_read(written).map(drop)
}

/// Returns false if the reader has seen enough, as `head` has: that is no error.
pub(super) fn was_read(written: io::Result<()>) -> io::Result<bool> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

/// Prints what needs no other task meanwhile.
pub(super) fn print_now(text: &[u8]) -> io::Result<()> {
    let mut output = io::stdout().lock();
    was_read(output.write_all(text).and_then(|()| output.flush())).map(drop)
}

/// Returns rows in columns as wide as their widest cell. Each row has as many cells as the head.
pub(super) fn columns(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let head: Vec<String> = head.iter().map(ToString::to_string).collect();
    let rows: Vec<Vec<String>> = [head].into_iter().chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}
