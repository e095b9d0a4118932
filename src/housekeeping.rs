//! The sandboxes of this user's bridges: listing them, and removing those of dead bridges.

use std::collections::BTreeMap;

use codebridge_runtimes::exec::ExecError;
use codebridge_runtimes::{
    AnyDriver, OwnerState, RuntimeChoice, RuntimeId, SandboxName, StateDir, Swept, sweep,
};
use serde::Serialize;

use crate::settings::Settings;

/// One sandbox of a bridge of this user.
#[derive(Debug, Clone, Serialize)]
pub struct SandboxEntry {
    /// The name, which is also that of the container.
    pub name: SandboxName,
    pub runtime: String,
    /// Where the root filesystem is from; None for a sandbox that is known by its labels only.
    pub root: Option<String>,
    /// The process id of the bridge that owns it.
    pub owner_pid: u32,
    pub owner: OwnerState,
    /// Seconds since it was started.
    pub age: Option<u64>,
    /// Whether it waits for a new session.
    pub spare: bool,
}

/// The sandboxes that are known.
#[derive(Debug)]
pub struct Listed {
    pub entries: Vec<SandboxEntry>,
    /// The engines that the settings name and that did not list theirs.
    pub unlisted: Vec<(RuntimeId, ExecError)>,
}

/// Returns every sandbox that is recorded, or that an engine lists with our labels.
pub async fn list(settings: &Settings) -> Listed {
    let mut unlisted = Vec::new();
    let mut found = BTreeMap::new();
    for instance in StateDir::usual().instances() {
        for record in instance.records() {
            let entry = SandboxEntry {
                name: record.name.clone(),
                runtime: record.runtime.to_string(),
                root: Some(record.root.to_string()),
                owner_pid: instance.owner().pid,
                owner: instance.owner().state(),
                age: Some(record.age()),
                spare: instance.is_spare(&record.name),
            };
            found.insert(record.name, entry);
        }
    }
    for engine in engines(settings) {
        let runtime = engine.to_string();
        let owned = match AnyDriver::new(engine.clone()).list_owned().await {
            Ok(owned) => owned,
            Err(error) => {
                unlisted.push((engine, error));
                continue;
            }
        };
        for sandbox in owned {
            found.entry(sandbox.name.clone()).or_insert_with(|| SandboxEntry {
                name: sandbox.name,
                runtime: runtime.clone(),
                root: None,
                owner_pid: sandbox.owner.pid,
                owner: sandbox.owner.state(),
                age: None,
                spare: false,
            });
        }
    }
    unlisted.retain(|(engine, _)| is_named(settings, engine));
    Listed { entries: found.into_values().collect(), unlisted }
}

/// Removes the sandboxes of dead bridges of this machine, in every engine that is installed or that the settings name.
pub async fn reap(settings: &Settings) -> Swept {
    let mut swept = sweep(&StateDir::usual(), &engines(settings)).await;
    swept.unlisted.retain(|(engine, _)| is_named(settings, engine));
    swept
}

/// Returns whether the settings name this engine: of one that is only installed, nobody expects an answer.
fn is_named(settings: &Settings, engine: &RuntimeId) -> bool {
    let RuntimeChoice::Named(targets) = &settings.runtime.value else { return false };
    targets.iter().any(|target| target.connection.is_some() && *target == engine.target())
}

/// Removes what stays without any sandbox: the network policies of the clusters that the settings name. Returns why some
/// were not removed.
pub async fn remove_policies(settings: &Settings) -> Vec<ExecError> {
    let mut failed = Vec::new();
    for engine in engines(settings) {
        failed.extend(AnyDriver::new(engine).remove_policy().await.err());
    }
    failed
}

fn engines(settings: &Settings) -> Vec<RuntimeId> {
    let mut engines = RuntimeId::installed_engines();
    if let RuntimeChoice::Named(targets) = &settings.runtime.value {
        let elsewhere = targets.iter().filter(|target| target.connection.is_some());
        engines.extend(elsewhere.filter_map(RuntimeId::installed));
    }
    engines
}
