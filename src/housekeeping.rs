//! What runs and what was left: the listings and removals behind `codebridge ps` and `codebridge reap`.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use codebridge_runtimes::{AnyDriver, OwnerState, RuntimeId, SandboxName, StateDir, Swept, Target, sweep};
use serde::Serialize;

use crate::settings::{RuntimeChoice, Settings};

/// One sandbox of some bridge of this user.
#[derive(Debug, Clone, Serialize)]
pub struct Listed {
    /// Its name, which is the container's.
    pub name: SandboxName,
    /// What runs it.
    pub runtime: String,
    /// Where its root is from; unknown for one that is known by its labels only.
    pub root: Option<String>,
    /// Process id of the bridge that owns it.
    pub owner_pid: u32,
    /// `alive`, `dead`, or `elsewhere` when it belongs to another machine.
    pub owner: &'static str,
    /// Seconds since it was started.
    pub age: Option<u64>,
}

/// Every sandbox that is written down or that an engine lists with our labels.
pub async fn list(settings: &Settings) -> Vec<Listed> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut found = BTreeMap::new();
    for instance in StateDir::usual().instances() {
        for record in instance.records() {
            let listed = Listed {
                name: record.name.clone(),
                runtime: record.runtime.to_string(),
                root: Some(record.root.to_string()),
                owner_pid: instance.owner().pid,
                owner: word(instance.owner().state()),
                age: Some(now.saturating_sub(record.created)),
            };
            found.insert(record.name, listed);
        }
    }
    for engine in engines(settings) {
        let runtime = engine.to_string();
        // An engine that does not answer has nothing to list.
        for sandbox in AnyDriver::new(engine).list_owned().await.unwrap_or_default() {
            found.entry(sandbox.name.clone()).or_insert_with(|| Listed {
                name: sandbox.name,
                runtime: runtime.clone(),
                root: None,
                owner_pid: sandbox.owner.pid,
                owner: word(sandbox.owner.state()),
                age: None,
            });
        }
    }
    found.into_values().collect()
}

/// A table for people; one line saying so when there is nothing.
pub fn table(listed: &[Listed]) -> String {
    if listed.is_empty() {
        return "no sandboxes\n".into();
    }
    let rows = listed.iter().map(|one| {
        let age = one.age.map_or_else(|| "-".into(), |seconds| format!("{seconds} s"));
        let owner = format!("{} ({})", one.owner_pid, one.owner);
        vec![
            one.name.to_string(),
            one.runtime.clone(),
            one.root.clone().unwrap_or_else(|| "-".into()),
            owner,
            age,
        ]
    });
    columns(&["NAME", "RUNTIME", "ROOT", "OWNER", "AGE"], rows)
}

/// Rows in columns as wide as they have to be, below a head; each row has as many cells as the head.
pub(crate) fn columns(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
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

/// Removes what dead bridges of this machine left, in every engine that is installed and those that the settings name.
pub async fn reap(settings: &Settings) -> Swept {
    sweep(&StateDir::usual(), &engines(settings)).await
}

fn engines(settings: &Settings) -> Vec<RuntimeId> {
    let mut engines = RuntimeId::installed_engines();
    if let RuntimeChoice::Named(names) = &settings.runtime.value {
        let named = names.iter().filter(|name| name.connection.is_some());
        let targets = named.filter_map(|name| name.to_string().parse::<Target>().ok());
        engines.extend(targets.filter_map(|target| RuntimeId::installed(&target)));
    }
    engines
}

fn word(state: OwnerState) -> &'static str {
    match state {
        OwnerState::Alive => "alive",
        OwnerState::Dead => "dead",
        OwnerState::Elsewhere => "elsewhere",
    }
}
