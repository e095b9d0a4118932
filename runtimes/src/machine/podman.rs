//! Podman's commands for machines, which need no engine.

use std::path::Path;
use std::time::Duration;

use crate::exec::{self, CommandLine, ExecError};
use crate::messages::machine::{self as messages, Machine};
use crate::runtime::{Address, RuntimeId, RuntimeKind};

pub(super) const ASK_LIMIT: Duration = Duration::from_secs(30);

/// Booting, and waiting until its ssh answers.
pub(super) const START_LIMIT: Duration = Duration::from_secs(300);

/// Returns whether an engine may be in a machine of podman. An engine that a variable names is another one.
pub(super) fn may_be_in_a_machine(id: &RuntimeId) -> bool {
    id.kind == RuntimeKind::Podman && id.remote && id.address.variables.is_empty()
}

/// Podman's client without a connection.
pub(super) struct Podman<'a> {
    pub(super) program: &'a Path,
}

impl Podman<'_> {
    pub(super) async fn run(&self, words: &[&str], limit: Duration) -> Result<exec::Finished, ExecError> {
        // Variables that choose an engine would take precedence over the arguments.
        let environment = Address::default();
        let command = CommandLine::new(self.program).args(words);
        exec::run(command.env(environment.environment(RuntimeKind::Podman)), limit).await?.success()
    }

    /// Starts a machine, and goes on if the caller no longer waits: a podman that is killed meanwhile leaves a machine that is
    /// neither up nor down.
    pub(super) async fn start(&self, name: &str, limit: Duration) -> Result<exec::Finished, ExecError> {
        let (program, name) = (self.program.to_owned(), name.to_owned());
        let starting = tokio::spawn(async move {
            Podman { program: &program }.run(&["machine", "start", &name], limit).await
        });
        match starting.await {
            Ok(started) => started,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The task was cancelled because this process ends.
                Err(_) => std::future::pending().await,
            },
        }
    }

    /// Returns every machine of this user; None where podman has no machines, as for root on Linux.
    pub(super) async fn list(&self) -> Option<Vec<Machine>> {
        let listed = self.run(&["machine", "list", "--format", "json"], ASK_LIMIT).await;
        match listed {
            Ok(done) => match messages::parse_list(&done.stdout) {
                Some(machines) => Some(machines),
                // A version that took "json" for a template.
                None => {
                    let words = ["machine", "list", "--noheading", "--format", messages::LIST_TEMPLATE];
                    let done = self.run(&words, ASK_LIMIT).await.ok()?;
                    Some(messages::parse_plain_list(&done.stdout))
                }
            },
            Err(error) => {
                tracing::debug!(%error, "podman did not list its machines");
                None
            }
        }
    }

    /// Returns the machine of a connection, or of podman without a connection.
    pub(super) async fn choose(&self, machines: &[Machine], connection: Option<&str>) -> Option<Machine> {
        if let Some(connection) = connection {
            return machine_of(machines, connection);
        }
        if let Some(default) = machines.iter().find(|machine| machine.is_default) {
            return Some(default.clone());
        }
        // A rootful machine is not marked as the default, and the default may be another engine.
        let words = ["system", "connection", "list", "--format", "json"];
        let listed = self.run(&words, ASK_LIMIT).await.ok();
        match listed.and_then(|done| messages::parse_default_connection(&done.stdout)) {
            Some(default) => machine_of(machines, &default),
            None => likeliest(machines),
        }
    }

    /// Returns whether this podman is for a system without containers of its own. Before 4.2 it does not name its system, but
    /// its flags show whether it has an engine.
    pub(super) async fn is_of_another_system(&self) -> bool {
        let info = self.run(&["machine", "info", "--format", "json"], ASK_LIMIT).await;
        if let Some(system) = info.ok().and_then(|done| messages::parse_client_system(&done.stdout)) {
            return system != "linux";
        }
        let help = self.run(&["--help"], ASK_LIMIT).await;
        help.ok().and_then(|done| messages::parse_has_own_engine(&done.stdout)) == Some(false)
    }

    /// Returns whether containers run on a connection; None when the connection does not answer.
    pub(super) async fn is_busy(&self, connection: &str) -> Option<bool> {
        let done = self.run(&["--connection", connection, "ps", "--quiet"], ASK_LIMIT).await.ok()?;
        Some(!done.stdout.trim_ascii().is_empty())
    }
}

/// Returns the machine of a connection. Each machine has two: its name, and its name with `-root`.
fn machine_of(machines: &[Machine], connection: &str) -> Option<Machine> {
    let is_of = |machine: &&Machine| {
        connection == machine.name || connection.strip_suffix("-root") == Some(&machine.name)
    };
    machines.iter().find(is_of).cloned()
}

/// Returns the most likely machine where podman does not say which one is the default.
fn likeliest(machines: &[Machine]) -> Option<Machine> {
    let up = machines.iter().find(|machine| machine.running || machine.starting);
    up.or_else(|| machines.first()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str, is_default: bool, running: bool) -> Machine {
        let up = "2026-01-01T00:00:00Z".to_string();
        Machine { name: name.into(), is_default, running, starting: false, last_up: up.clone(), created: up }
    }

    #[test]
    fn the_machine_of_a_connection_is_found() {
        let machines =
            [machine("a", false, false), machine("b", false, true), machine("c-root", false, false)];
        let name = |connection| machine_of(&machines, connection).map(|machine| machine.name);
        assert_eq!(name("a-root").as_deref(), Some("a"));
        assert_eq!(name("c-root").as_deref(), Some("c-root"));
        assert_eq!(name("big-box"), None);
        assert_eq!(likeliest(&machines).map(|machine| machine.name).as_deref(), Some("b"));
        assert_eq!(likeliest(&machines[..1]).map(|machine| machine.name).as_deref(), Some("a"));
        assert_eq!(likeliest(&[]), None);
    }
}
