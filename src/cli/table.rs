//! Tables for people.

use crate::housekeeping::{SandboxEntry, owner_word};

/// Returns the table of `codebridge ps`.
pub(super) fn sandboxes(entries: &[SandboxEntry]) -> String {
    if entries.is_empty() {
        return "no sandboxes\n".into();
    }
    let rows = entries.iter().map(|entry| {
        vec![
            entry.name.to_string(),
            entry.runtime.clone(),
            entry.root.clone().unwrap_or_else(|| "-".into()),
            format!("{} ({})", entry.owner_pid, owner_word(entry.owner)),
            entry.age.map_or_else(|| "-".into(), |seconds| format!("{seconds} s")),
        ]
    });
    columns(&["NAME", "RUNTIME", "ROOT", "OWNER", "AGE"], rows)
}

/// Returns rows in columns as wide as their widest cell. Each row has as many cells as the head.
pub(super) fn columns(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
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
