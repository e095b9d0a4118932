//! Drives podman and docker by their command lines.

use std::time::Duration;

use tokio::process::Child;

use crate::exec::{self, CommandLine, ExecError, Finished};
use crate::memory::find_monitor;
use crate::messages::{engine as messages, unknown_refusal};
use crate::owner::{INSTANCE_LABEL, Owner};
use crate::plan::{End, OwnedSandbox, Plan, ReclaimError};
use crate::refusal::{Product, Refusal};
use crate::runtime::{RuntimeId, RuntimeKind};
use crate::spec::SandboxName;

use super::desktop::find_stopped;
use super::dialect::Dialect;
use super::info::EngineInfo;
use super::skeleton;

/// Short commands: info, inspect, list, remove.
pub(crate) const COMMAND_LIMIT: Duration = Duration::from_secs(20);
/// A pull may take long; the engine reports its own failures much earlier.
const PULL_LIMIT: Duration = Duration::from_secs(900);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineDriver {
    pub(super) id: RuntimeId,
}

impl EngineDriver {
    pub(crate) fn new(id: RuntimeId) -> Self {
        Self { id }
    }

    pub(crate) fn id(&self) -> &RuntimeId {
        &self.id
    }

    pub(super) fn dialect(&self) -> &'static Dialect {
        Dialect::of(self.id.kind)
    }

    /// Returns the program with the variables that choose the engine.
    fn engine_itself(&self) -> CommandLine {
        CommandLine::new(&self.id.program).env(self.id.address.environment(self.id.kind))
    }

    /// Returns the program with its global options.
    pub(crate) fn engine(&self) -> CommandLine {
        let command = self.engine_itself();
        let command = match &self.id.address.connection {
            Some(connection) => command.arg(self.dialect().selects_engine).arg(connection),
            None => command,
        };
        match &self.id.oci_runtime {
            // Clients of a service do not have the option:
            // <https://docs.podman.io/en/latest/markdown/podman.1.html#runtime-value>
            Some(path) if !self.id.remote => command.arg("--runtime").arg(path),
            _ => command,
        }
    }

    pub(super) async fn run<S: AsRef<std::ffi::OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> Result<Finished, ExecError> {
        exec::run(self.engine().args(args), COMMAND_LIMIT).await
    }

    /// Returns whether the sandbox gets our own seccomp profile; if not, it has the engine's.
    pub(crate) fn profile_arrives(&self) -> bool {
        !self.id.remote || self.dialect().sends_profile || self.id.shared.is_some()
    }

    /// Makes the skeleton image that a plan needs.
    pub(crate) async fn prepare_image(&self, plan: &Plan) -> Result<(), ExecError> {
        let (Some(image), Some(root)) = (&plan.image, &plan.root) else { return Ok(()) };
        if self.has_image(image).await? {
            return Ok(());
        }
        let command = self.engine().args(["import", "-", image]);
        exec::run_with_input(command, skeleton::archive(root), COMMAND_LIMIT).await?.success()?;
        Ok(())
    }

    pub(crate) async fn has_image(&self, reference: &str) -> Result<bool, ExecError> {
        let done = self.run(["image", "inspect", "--format", "{{.Id}}", reference]).await?;
        Ok(done.status.success())
    }

    /// Returns the digest of an image's configuration; None if the engine does not say.
    pub(crate) async fn image_digest(&self, reference: &str) -> Option<String> {
        let done = self.run(["image", "inspect", "--format", "{{.Id}}", reference]).await.ok()?;
        let done = done.success().ok()?;
        parse_image_id(&done.stdout)
    }

    /// Returns the name under which the engine has the image.
    pub(crate) async fn resolve_local(&self, reference: &str) -> Result<Option<String>, ExecError> {
        for name in [reference.to_string(), qualified(reference)] {
            if self.has_image(&name).await? {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Returns the volumes of an image that have to be hidden; none where the engine ignores them.
    pub(crate) async fn volumes(&self, image: &str) -> Result<Vec<String>, ExecError> {
        if !self.dialect().makes_volumes {
            return Ok(Vec::new());
        }
        let done =
            self.run(["image", "inspect", "--format", "{{json .Config.Volumes}}", image]).await?.success()?;
        Ok(messages::parse_volumes(&done.stdout))
    }

    /// Pulls an image and returns the name to start it by.
    pub(crate) async fn pull(&self, reference: &str) -> Result<String, ExecError> {
        let reference = &qualified(reference);
        exec::run(self.engine().args(["pull", "--quiet", reference]), PULL_LIMIT).await?.success()?;
        Ok(reference.clone())
    }

    /// Returns the id and the environment of an image that the engine has.
    pub(crate) async fn inspect_image(
        &self,
        reference: &str,
    ) -> Result<Option<(String, Vec<String>)>, ExecError> {
        let done = self.run(["image", "inspect", reference]).await?;
        if !done.status.success() {
            return Ok(None);
        }
        Ok(messages::parse_image(&done.stdout))
    }

    /// Starts writing the image's flattened root filesystem as a tar archive to the child's standard output. The
    /// container that it goes through is never started; `name` is removed by [`EngineDriver::reclaim`].
    pub(crate) async fn export(
        &self,
        reference: &str,
        name: &SandboxName,
        owner: &Owner,
    ) -> Result<Child, ExecError> {
        let create = self
            .engine()
            .args(["create", "--name", name.as_str(), "--network=none"])
            .args(owner.label_flags())
            .args(["--entrypoint=/bin/true", reference]);
        exec::run(create, COMMAND_LIMIT).await?.success()?;
        exec::spawn_piped(&self.engine().args(["export", name.as_str()]))
    }

    /// Runs `info`, which shows whether the engine works at all. An engine that does not answer within `limit` counts as one
    /// that does not.
    pub(crate) async fn info(&self, limit: Duration) -> Result<Finished, ExecError> {
        exec::run(self.engine().args(["info", "--format", "{{json .}}"]), limit).await
    }

    pub(crate) fn parse_info(&self, stdout: &[u8]) -> Option<EngineInfo> {
        (self.dialect().parse_info)(stdout)
    }

    /// Returns the URL of the engine, for a client that has several.
    pub(crate) async fn endpoint(&self) -> Option<String> {
        let command = self.engine_itself().args(self.dialect().tells_endpoint?);
        let command = command.args(self.id.address.connection.as_deref());
        let done = exec::run(command, COMMAND_LIMIT).await.ok()?.success().ok()?;
        Some(String::from_utf8_lossy(&done.stdout).trim().to_string()).filter(|url| !url.is_empty())
    }

    /// Returns whether the engine sees none of this machine's folders.
    pub(crate) async fn is_remote(&self, info: &EngineInfo) -> bool {
        if info.remote || self.dialect().tells_endpoint.is_none() {
            return info.remote;
        }
        // A local socket may be the end of a tunnel, or belong to an engine in a virtual machine or outside of the
        // container that this process is in.
        let local = self.endpoint().await.is_none_or(|url| url.starts_with("unix:"));
        let here = rustix::system::uname();
        let same_host = info.host.0.as_bytes() == here.nodename().to_bytes()
            && info.host.1.as_bytes() == here.release().to_bytes();
        !(local && same_host)
    }

    /// Removes the container of a sandbox, and its volumes on an engine elsewhere.
    pub(crate) async fn reclaim(&self, name: &SandboxName) -> Result<(), ReclaimError> {
        self.remove_container(name).await?;
        if self.id.remote { self.remove_volumes(name).await } else { Ok(()) }
    }

    pub(super) async fn remove_container(&self, name: &SandboxName) -> Result<(), ReclaimError> {
        let error = |source| ReclaimError::Command { name: name.clone(), source };
        let remove = self.engine().args(self.dialect().remove).arg(name.as_str());
        let done = exec::run(remove, COMMAND_LIMIT).await.map_err(error)?;
        if !done.status.success() && messages::parse_missing_container(&done.stderr).is_none() {
            // Both engines also fail when `--rm` is about to remove the container at this moment; what counts is the end.
            tracing::debug!(sandbox = %name, stderr = done.stderr_text(), "the engine refused to remove a sandbox");
        }
        let deadline = tokio::time::Instant::now() + COMMAND_LIMIT / 4;
        loop {
            if self.is_gone(name).await.map_err(error)? {
                return Ok(());
            }
            if tokio::time::Instant::now() > deadline {
                return Err(ReclaimError::StillThere {
                    name: name.clone(),
                    what: format!("its container in {}", self.id.kind),
                });
            }
            // Paced by the engine's own answer time; an event stream would need a process of its own.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn is_gone(&self, name: &SandboxName) -> Result<bool, ExecError> {
        let filter = format!("name=^{name}$");
        let done = self.run(["ps", "--all", "--quiet", "--filter", &filter]).await?.success()?;
        Ok(done.stdout.trim_ascii().is_empty())
    }

    /// Returns the process id of the engine's monitor of a sandbox, as this machine counts it.
    pub(crate) async fn monitor(&self, name: &SandboxName) -> Option<u32> {
        let words = ["container", "inspect", "--format", "{{.Id}} {{.State.Pid}}", name.as_str()];
        let done = self.run(words).await.ok()?.success().ok()?;
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        let (id, first) = text.trim().split_once(' ')?;
        find_monitor(id, first.parse().ok()?)
    }

    pub(crate) async fn list_owned(&self) -> Result<Vec<OwnedSandbox>, ExecError> {
        let filter = format!("label={INSTANCE_LABEL}");
        let done =
            self.run(["ps", "--all", "--quiet", "--no-trunc", "--filter", &filter]).await?.success()?;
        let ids: Vec<String> =
            String::from_utf8_lossy(&done.stdout).split_whitespace().map(String::from).collect();
        let of_volumes = if self.id.remote { self.owners_of_volumes().await? } else { Vec::new() };
        if ids.is_empty() {
            return Ok(of_volumes);
        }
        // A container that vanishes meanwhile makes the command fail; the others are on its standard output all the same.
        let done =
            self.run(["container", "inspect"].into_iter().chain(ids.iter().map(String::as_str))).await?;
        let mut owned = messages::parse_containers(&done.stdout);
        for one in of_volumes {
            if owned.iter().all(|other| other.name != one.name) {
                owned.push(one);
            }
        }
        Ok(owned)
    }

    pub(crate) fn explain(&self, end: End, text: &str) -> Refusal {
        let errors = messages::parse_server_errors(text);
        let text = errors.as_deref().unwrap_or(text);
        let mut refusal =
            messages::parse_refusal(text).unwrap_or_else(|| unknown_refusal(self.id.kind, end, text));
        if let Refusal::DaemonUnreachable { product, engine, at, .. } = &mut refusal {
            *engine = Some(self.id.kind);
            *product = match self.id.kind {
                RuntimeKind::Docker => find_stopped(text),
                _ => at.as_deref().and_then(podman_service),
            };
        }
        refusal
    }

    /// Returns why a pull failed, from what the engine said.
    pub(crate) fn explain_pull(&self, reference: &str, text: &str) -> Refusal {
        match self.explain(End::Exited(1), text) {
            unreachable if unreachable.is_out_of_reach() => unreachable,
            _ => {
                let full = qualified(reference);
                let registry = full.split('/').next().unwrap_or_default();
                let (why, hint) = messages::parse_pull_failure(text, registry);
                let message = format!("cannot pull {reference}: {why}");
                Refusal::ImageMissing { image: reference.to_string(), message, hint }
            }
        }
    }
}

/// Returns the service behind podman's own sockets.
fn podman_service(url: &str) -> Option<Product> {
    let start = match url {
        "unix:///run/podman/podman.sock" => "systemctl start podman.socket",
        _ if url.starts_with("unix:///run/user/") && url.ends_with("/podman/podman.sock") => {
            "systemctl --user start podman.socket"
        }
        _ => return None,
    };
    Some(Product { name: "podman".into(), start: start.into() })
}

/// Returns the full form of a short name, as docker resolves it: podman has no default registry on many hosts and must not
/// ask.
fn qualified(reference: &str) -> String {
    match reference.split_once('/') {
        Some((first, _)) if first == "localhost" || first.contains(['.', ':']) => reference.to_string(),
        Some(_) => format!("docker.io/{reference}"),
        None => format!("docker.io/library/{reference}"),
    }
}

/// Reads the id of an image: 64 hexadecimal digits, with docker behind `sha256:`.
fn parse_image_id(output: &[u8]) -> Option<String> {
    let id = str::from_utf8(output).ok()?.trim();
    let digits = id.strip_prefix("sha256:").unwrap_or(id);
    let is_id = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| format!("sha256:{digits}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_mean_what_they_mean_to_docker() {
        assert_eq!(qualified("python:3.14-slim"), "docker.io/library/python:3.14-slim");
        assert_eq!(qualified("ann/tools"), "docker.io/ann/tools");
        for full in ["localhost/x", "quay.example/x/y", "127.0.0.1:5000/x"] {
            assert_eq!(qualified(full), full);
        }
    }
}
