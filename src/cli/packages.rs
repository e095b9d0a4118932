//! `codebridge packages`: the sets of Python packages of the store.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::errors::CommandError;
use super::output::{columns, print, write};
use super::signals::Signals;
use super::spinner::Spinner;
use super::{Form, PackagesCommand};
use crate::error::Exit;
use crate::packages::{PackageService, Store, StoredSet, requirements_text};
use crate::reaper::Reaper;
use crate::requirements::Requirement;
use crate::session::{Caller, Progress, RunPython, RunRequest, Status, cache_dir, split_hint};
use crate::settings::{Environment, Settings};
use crate::sizes::bytes_text;
use crate::workspace::{Bridge, Workspace};

/// A set that was not used for so many seconds is pruned.
const UNUSED: u64 = 30 * 24 * 3600;
/// How a lock file begins.
const HEAD: &str = "# Written by `codebridge packages lock";
/// Packages of a set in a table.
const MOST_NAMED: usize = 4;
/// Progress that waits for a slow terminal.
const QUEUE: usize = 16;

pub(super) async fn packages(
    command: PackagesCommand,
    settings: Settings,
    environment: &Environment,
) -> Result<ExitCode, CommandError> {
    // Only its store is used here.
    let service = PackageService::new(&settings, environment.clone(), Reaper::of(None), cache_dir());
    let store =
        service.store().map_err(|error| CommandError::Packages { why: error.to_string(), hint: None })?;
    match command {
        PackagesCommand::Ls(form) => {
            let sets = store.list()?;
            write(&form, &sets, table(&sets), Exit::Success).await
        }
        PackagesCommand::Add { packages, form } => {
            let sets = provide(&packages, settings, environment).await?;
            write(&form, &sets, added(&sets), Exit::Success).await
        }
        PackagesCommand::Rm { sets, form } => {
            let chosen = choose(store.list()?, &sets)?;
            remove(store, chosen, &form).await
        }
        PackagesCommand::Prune { all, form } => {
            let chosen = store.list()?.into_iter().filter(|set| all || set.unused >= UNUSED).collect();
            store.clean()?;
            remove(store, chosen, &form).await
        }
        PackagesCommand::Lock { packages, output, force } => {
            if let Some(file) = output.as_ref().filter(|file| !force && !may_replace(file)) {
                return Err(CommandError::NoLockFile(file.clone()));
            }
            let text = lock_text(&packages, &provide(&packages, settings, environment).await?);
            match output {
                Some(file) => {
                    std::fs::write(&file, text).map_err(|error| CommandError::Write { file, error })?
                }
                None => print(&text).await?,
            }
            Ok(Exit::Success.into())
        }
    }
}

fn table(sets: &[StoredSet]) -> String {
    if sets.is_empty() {
        return "no packages\n".into();
    }
    let rows = sets.iter().map(|set| {
        let names: Vec<_> = set.packages.iter().map(|pin| format!("{} {}", pin.name, pin.version)).collect();
        let more = names.len().saturating_sub(MOST_NAMED);
        let mut shown = names[..names.len() - more].join(", ");
        if more > 0 {
            shown += &format!(", {more} more");
        }
        let place = format!("{} {}", set.python, set.platform);
        vec![
            set.id[..12].to_owned(),
            place,
            bytes_text(set.bytes),
            format!("{} d", set.unused / 86_400),
            shown,
        ]
    });
    let total: u64 = sets.iter().map(|set| set.bytes).sum();
    columns(&["SET", "PYTHON", "SIZE", "UNUSED", "PACKAGES"], rows)
        + &format!("on disk: {}\n", bytes_text(total))
}

fn added(sets: &[StoredSet]) -> String {
    match sets {
        [] => "the image has all of them\n".into(),
        sets => sets
            .iter()
            .flat_map(|set| &set.packages)
            .map(|pin| format!("{} {}\n", pin.name, pin.version))
            .collect(),
    }
}

/// Returns whether there is no such file, or one that this command wrote.
fn may_replace(file: &Path) -> bool {
    match std::fs::read(file) {
        Ok(bytes) => bytes.starts_with(HEAD.as_bytes()),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn lock_text(packages: &[String], sets: &[StoredSet]) -> String {
    let head = format!("{HEAD} {}`", packages.join(" "));
    let place = sets.iter().map(|set| format!("# for Python {} on {}\n", set.python, set.platform)).next();
    let pins: String = sets.iter().map(|set| requirements_text(&set.packages)).collect();
    format!("{head}\n{}{pins}", place.unwrap_or_default())
}

/// Returns the sets that these words mean: a prefix of an id, or the name of a package.
fn choose(sets: Vec<StoredSet>, words: &[String]) -> Result<Vec<StoredSet>, CommandError> {
    let is_meant = |set: &StoredSet, word: &str| {
        let name = codebridge_images::package_name(word);
        (word.len() >= 4 && set.id.starts_with(word)) || set.packages.iter().any(|pin| pin.name == name)
    };
    if let Some(word) = words.iter().find(|word| !sets.iter().any(|set| is_meant(set, word))) {
        return Err(CommandError::UnknownSet(word.clone()));
    }
    Ok(sets.into_iter().filter(|set| words.iter().any(|word| is_meant(set, word))).collect())
}

/// What was removed.
#[derive(Serialize)]
struct Removed {
    removed: Vec<String>,
    bytes: u64,
}

async fn remove(store: &Store, sets: Vec<StoredSet>, form: &Form) -> Result<ExitCode, CommandError> {
    let mut removed = Removed { removed: Vec::new(), bytes: 0 };
    for set in sets {
        store.remove(&set.id)?;
        removed.bytes += set.bytes;
        removed.removed.push(set.id);
    }
    let text = match removed.removed.as_slice() {
        [] => "nothing to remove\n".into(),
        ids => format!("removed {}, {}\n", json!(ids.len()), bytes_text(removed.bytes)),
    };
    write(form, &removed, text, Exit::Success).await
}

/// Has packages downloaded for the image, as a session with `--with` does; returns their sets.
async fn provide(
    packages: &[String],
    mut settings: Settings,
    environment: &Environment,
) -> Result<Vec<StoredSet>, CommandError> {
    settings.with.value =
        packages.iter().map(|text| text.parse()).collect::<Result<Vec<Requirement>, _>>()?;
    settings.one_shot = true;
    let timeout = *settings.timeout;
    let workspace = Workspace::new(std::sync::Arc::new(Bridge::new(settings, environment.clone())));
    let request = RunRequest {
        code: String::new(),
        servers: Vec::new(),
        timeout,
        session: RunRequest::THROW_AWAY.to_owned(),
        clamped: None,
    };
    let (signals, stop) = (Signals::listen()?, CancellationToken::new());
    let (progress, mut events) = mpsc::channel(QUEUE);
    let mut spinner = Spinner::default();
    let work = async {
        let caller = Caller::without_answers(progress, stop.clone());
        let showing = async {
            while let Some(event) = events.recv().await {
                if let Progress::Preparing(what) = event {
                    spinner.show(what);
                }
            }
        };
        let (outcome, ()) = tokio::join!(workspace.sessions.run(request, caller), showing);
        workspace.close().await;
        outcome
    };
    let (done, signal) = signals.until_second(&stop, work).await;
    spinner.clear();
    let Some(outcome) = done.filter(|outcome| outcome.status != Status::Cancelled) else {
        return Err(CommandError::Stopped(signal.unwrap_or(Exit::Interrupted)));
    };
    match outcome.status {
        Status::Success => Ok(workspace.bridge.packages.provided()),
        _ => {
            let error = outcome.error.unwrap_or_default();
            // This command has no flag for them.
            let (why, hint) = split_hint(error.strip_prefix("--with: ").unwrap_or(&error));
            Err(CommandError::Packages { why: why.to_owned(), hint: hint.map(str::to_owned) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lock_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("six.lock");
        assert!(may_replace(&file));
        std::fs::write(&file, lock_text(&["six".into()], &[])).unwrap();
        assert!(may_replace(&file));
        std::fs::write(&file, "import six\n").unwrap();
        assert!(!may_replace(&file) && !may_replace(folder.path()));
    }
}
