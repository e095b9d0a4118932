//! `codebridge ps` and `codebridge reap`.

use std::process::ExitCode;

use codebridge_runtimes::exec::ExecError;
use codebridge_runtimes::{RuntimeId, SandboxName};
use serde::Serialize;

use super::Form;
use super::args::ReapArgs;
use super::errors::CommandError;
use super::output::{columns, write};
use crate::error::Exit;
use crate::housekeeping::{self, Listed, SandboxEntry};
use crate::settings::Settings;

pub(super) async fn ps(settings: &Settings, form: Form) -> Result<ExitCode, CommandError> {
    let Listed { entries, unlisted } = housekeeping::list(settings).await;
    let printed = write(&form, &entries, table(&entries), Exit::Success).await?;
    Ok(report(unlisted, printed))
}

/// Says which engines did not list their sandboxes; returns the exit status.
fn report(unlisted: Vec<(RuntimeId, ExecError)>, otherwise: ExitCode) -> ExitCode {
    let errors = unlisted.into_iter().map(|(engine, error)| CommandError::Unlisted {
        runtime: engine.target().to_string(),
        error: Box::new(error),
    });
    errors.fold(otherwise, |_, error| error.report())
}

fn table(entries: &[SandboxEntry]) -> String {
    if entries.is_empty() {
        return "no sandboxes\n".into();
    }
    let rows = entries.iter().map(|entry| {
        vec![
            entry.name.to_string(),
            entry.runtime.clone(),
            entry.root.clone().unwrap_or_else(|| "-".into()),
            format!("{} ({})", entry.owner_pid, entry.owner),
            entry.age.map_or_else(|| "-".into(), |seconds| format!("{seconds} s")),
            if entry.spare { "yes".into() } else { "-".into() },
        ]
    });
    columns(&["NAME", "RUNTIME", "ROOT", "OWNER", "AGE", "SPARE"], rows)
}

/// What was removed.
#[derive(Serialize)]
struct Reaped<'a> {
    removed: &'a [SandboxName],
    /// Why others were not.
    failed: Vec<String>,
}

pub(super) async fn reap(settings: &Settings, args: ReapArgs) -> Result<ExitCode, CommandError> {
    let ReapArgs { all, form } = args;
    let swept = housekeeping::reap(settings).await;
    let of_policies = if all { housekeeping::remove_policies(settings).await } else { Vec::new() };
    let mut text: String = swept.removed.iter().map(|name| format!("removed {name}\n")).collect();
    if text.is_empty() && swept.failed.is_empty() && swept.absent.is_empty() && swept.unlisted.is_empty() {
        text = "nothing to remove\n".into();
    }
    let failures = swept.failed.iter().chain(&swept.absent);
    let failures = failures.map(ToString::to_string).chain(of_policies.iter().map(ToString::to_string));
    let reaped = Reaped { removed: &swept.removed, failed: failures.collect() };
    let printed = write(&form, &reaped, text, Exit::Success).await;
    let failed = swept.failed.into_iter().map(|error| CommandError::Reclaim(Box::new(error)));
    let absent = swept.absent.into_iter().map(|error| CommandError::OutOfReach(Box::new(error)));
    let policies = of_policies.into_iter().map(|error| CommandError::NetworkPolicy(Box::new(error)));
    let failures = failed.chain(absent).chain(policies);
    let exit = failures.fold(Exit::Success.into(), |_, failure| failure.report());
    printed?;
    Ok(report(swept.unlisted, exit))
}
