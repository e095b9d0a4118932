//! Finds out whether a remote engine sees a folder of this host under the same path: by a file with a secret name and content
//! in that folder, which the other side is asked to read.
//!
//! No sandbox needs such a folder, because everything goes over frames. The folder carries the seccomp profile to engines that
//! read it from their own disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::podman::Podman;
use crate::engine::{COMMAND_LIMIT, DockerService, EngineDriver};
use crate::exec::{self, CommandLine};
use crate::messages::machine::{self as messages, Machine};
use crate::random::random_hex;
use crate::runtime::{RuntimeId, RuntimeKind};
use crate::spec::RootFs;
use crate::state::{Instance, Record, is_younger, read_json, unix_seconds, write_json};

const LIMIT: Duration = Duration::from_secs(30);
/// Seconds for which an answer holds: a shared folder stays shared, and the user may share one that is not.
const SHARED_AGE: u64 = 7 * 24 * 3600;
const NOT_SHARED_AGE: u64 = 3600;

/// Whether an engine sees a folder, for diagnosis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShareReport {
    pub folder: PathBuf,
    pub shared: bool,
    /// How to share the folder, when the engine does not see it.
    pub hint: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Shares {
    folder: Option<PathBuf>,
    cache: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    engine: String,
    folder: PathBuf,
    shared: bool,
    /// Seconds since 1970.
    when: u64,
}

impl Shares {
    pub(super) fn new(folder: Option<PathBuf>, dir: Option<PathBuf>) -> Self {
        Self { folder, cache: dir.map(|dir| dir.join("shares.json")) }
    }

    /// Returns the folder when the engine sees it; `image` is an image that the engine has.
    pub(crate) async fn look(
        &self,
        driver: &EngineDriver,
        image: &str,
        instance: &Instance,
    ) -> Option<PathBuf> {
        let folder = self.folder.clone()?;
        let machine = machine_behind(driver.id()).await;
        let engine = key(driver.id(), machine.as_ref());
        let known = self.known(&engine, &folder);
        let shared = match known {
            Some(shared) => shared,
            None => {
                let shared = self.ask(driver, machine.as_ref(), image, instance, &folder).await;
                tracing::debug!(engine = %driver.id(), folder = %folder.display(), ?shared, "asked whether the engine sees a folder");
                self.remember(&engine, &folder, shared?);
                shared?
            }
        };
        shared.then_some(folder)
    }

    /// Returns the last answer, unless it is too old.
    fn known(&self, engine: &str, folder: &Path) -> Option<bool> {
        let entries: Vec<Entry> = read_json(self.cache.as_ref()?)?;
        let entry = entries.into_iter().find(|entry| entry.engine == engine && entry.folder == folder)?;
        let longest = if entry.shared { SHARED_AGE } else { NOT_SHARED_AGE };
        is_younger(entry.when, longest).then_some(entry.shared)
    }

    fn remember(&self, engine: &str, folder: &Path, shared: bool) {
        let Some(cache) = &self.cache else { return };
        let mut entries: Vec<Entry> = read_json(cache).unwrap_or_default();
        entries.retain(|entry| entry.engine != engine || entry.folder != folder);
        entries.push(Entry { engine: engine.into(), folder: folder.into(), shared, when: unix_seconds() });
        let written = cache.parent().map_or(Ok(()), fs::create_dir_all);
        if written.is_err() || write_json(cache, &entries).is_err() {
            tracing::debug!("could not record what engines share");
        }
    }

    /// Forgets the answer of an engine that did not find a shared file.
    pub(crate) fn forget(&self, id: &RuntimeId) {
        let Some(cache) = &self.cache else { return };
        let mut entries: Vec<Entry> = read_json(cache).unwrap_or_default();
        let key = key(id, None);
        entries.retain(|entry| entry.engine != key && !entry.engine.starts_with(&format!("{key} in ")));
        let _ = write_json(cache, &entries);
    }

    /// Adds the folder to what a machine shares, which is possible only before it starts. This is done for a folder that is
    /// known to be missing, with versions that can; what the user has set up stays as it is.
    pub(super) async fn before_start(&self, podman: &Podman<'_>, machine: &Machine) {
        let (Some(folder), Some(cache)) = (&self.folder, &self.cache) else { return };
        let entries: Vec<Entry> = read_json(cache).unwrap_or_default();
        let of_machine =
            |entry: &Entry| entry.folder == *folder && entry.engine.ends_with(&in_machine(machine));
        let missing = entries.iter().any(|entry| of_machine(entry) && !entry.shared);
        let Some(path) = folder.to_str().filter(|path| missing && !path.contains(':')) else { return };
        let volume = format!("{path}:{path}");
        match podman.run(&["machine", "set", "--volume", &volume, &machine.name], LIMIT).await {
            Ok(_) => {
                tracing::info!(
                    machine = machine.name,
                    folder = path,
                    "the podman machine now shares the folder"
                );
                let kept: Vec<Entry> = entries.iter().filter(|entry| !of_machine(entry)).cloned().collect();
                let _ = write_json(cache, &kept);
            }
            Err(exec::ExecError::Failed(failed))
                if messages::parse_unknown_flag(&failed.stderr_tail).is_some() => {}
            Err(error) => tracing::warn!(%error, "could not add a folder to what the podman machine shares"),
        }
    }

    /// Asks over ssh, then a container; None when neither answers.
    async fn ask(
        &self,
        driver: &EngineDriver,
        machine: Option<&Machine>,
        image: &str,
        instance: &Instance,
        folder: &Path,
    ) -> Option<bool> {
        let nonce = Nonce::put_into(folder)?;
        let podman = Podman { program: &driver.id().program };
        if let Some(machine) = machine.filter(|machine| machine.running)
            && let Some(answer) = nonce.ask_over_ssh(&podman, &machine.name).await
        {
            return Some(answer);
        }
        nonce.ask_a_container(driver, image, instance).await
    }

    /// Returns whether the engine sees the folder, and how to share it.
    pub(crate) async fn report(
        &self,
        driver: &EngineDriver,
        image: &str,
        instance: &Instance,
    ) -> Option<ShareReport> {
        let folder = self.folder.clone()?;
        let shared = self.look(driver, image, instance).await.is_some();
        let mut report = ShareReport { shared, hint: None, folder };
        if !shared {
            let endpoint = driver.endpoint().await.unwrap_or_default();
            let info = driver.info(COMMAND_LIMIT).await.ok();
            let info = info.and_then(|done| driver.parse_info(&done.stdout));
            let (system, name) = info.map(|info| (info.system, info.host.0)).unwrap_or_default();
            let service = DockerService::of(&endpoint, &system, &name);
            report.hint = Some(hint(driver.id().kind, &report.folder, service.as_ref()));
        }
        Some(report)
    }
}

/// Returns how to share a folder with the machine of an engine.
fn hint(kind: RuntimeKind, folder: &Path, service: Option<&DockerService>) -> String {
    let path = shlex::try_quote(&folder.to_string_lossy()).map(|it| it.into_owned()).unwrap_or_default();
    if kind == RuntimeKind::Podman {
        // A folder that is named replaces those that are shared by default.
        return format!(
            "`podman machine rm`, which removes its containers and images too, and \
             `podman machine init --volume \"$HOME:$HOME\" --volume {path}:{path}`"
        );
    }
    service.and_then(|service| service.sharing(&path)).unwrap_or_else(|| {
        "nothing to do: docker's client sends the profile itself, and a remote engine shares no disk".into()
    })
}

/// Returns the machine that an engine is in.
async fn machine_behind(id: &RuntimeId) -> Option<Machine> {
    if id.kind != RuntimeKind::Podman || !id.address.variables.is_empty() {
        return None;
    }
    let podman = Podman { program: &id.program };
    podman.choose(&podman.list().await?, id.address.connection.as_deref()).await
}

/// Returns the key of an engine in the records: another machine of the same name is another engine.
fn key(id: &RuntimeId, machine: Option<&Machine>) -> String {
    let variables: Vec<String> =
        id.address.variables.iter().map(|(name, value)| format!(" {name}={value}")).collect();
    format!("{}{}{}", id.target(), variables.concat(), machine.map(in_machine).unwrap_or_default())
}

fn in_machine(machine: &Machine) -> String {
    format!(" in {} of {}", machine.name, machine.created)
}

/// A file that only somebody who sees this folder can read; removed on drop.
struct Nonce {
    file: tempfile::NamedTempFile,
    secret: String,
}

impl Nonce {
    fn put_into(folder: &Path) -> Option<Self> {
        use std::io::Write;
        use std::os::unix::fs::PermissionsExt;
        let made = || {
            fs::create_dir_all(folder)?;
            let secret = random_hex::<16>();
            let mut file = tempfile::Builder::new().prefix(".codebridge-share-").tempfile_in(folder)?;
            file.write_all(secret.as_bytes())?;
            // Engines may read as another user.
            file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
            Ok(Self { file, secret })
        };
        made().inspect_err(|error: &std::io::Error| tracing::debug!(%error, "could not write a file into the shared folder")).ok()
    }

    fn name(&self) -> String {
        self.file.path().file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Returns whether the machine sees the file; None when it does not answer, or the path cannot be quoted.
    async fn ask_over_ssh(&self, podman: &Podman<'_>, machine: &str) -> Option<bool> {
        let script = remote_script(self.file.path())?;
        let done = exec::run(
            CommandLine::new(podman.program).args(["machine", "ssh", machine, script.as_str()]),
            LIMIT,
        )
        .await
        .ok()?;
        let said = String::from_utf8_lossy(&done.stdout);
        if said.contains(&self.secret) {
            return Some(true);
        }
        said.contains(ABSENT).then_some(false)
    }

    /// Returns whether a container sees the file; None when no container runs.
    async fn ask_a_container(&self, driver: &EngineDriver, image: &str, instance: &Instance) -> Option<bool> {
        let folder = self.file.path().parent()?;
        let code = format!("print(open('/share/{}').read())", self.name());
        let name = instance.next_name();
        instance.record(&Record::now(&name, driver.id(), RootFs::Image(image.into()))).ok()?;
        let flags = [
            "run",
            "--rm",
            "--pull=never",
            "--network=none",
            "--read-only",
            "--cap-drop=ALL",
            "--security-opt=no-new-privileges",
            "--ulimit=nofile=256:256",
            "--ulimit=nproc=256:256",
        ];
        let asked = driver
            .engine()
            .args(flags)
            .arg(format!("--name={name}"))
            .args(instance.owner().label_flags())
            .arg(format!("--mount={}", mount(folder)?))
            .args(["--entrypoint=python3", image, "-c", &code]);
        let done = exec::run(asked, LIMIT).await;
        match driver.reclaim(&name).await {
            Ok(()) => instance.forget(&name),
            Err(error) => {
                tracing::warn!(%error, "could not remove the container that looked for a shared folder")
            }
        }
        let done = done.ok()?;
        if String::from_utf8_lossy(&done.stdout).contains(&self.secret) {
            return Some(true);
        }
        // A missing folder is an error of the engine, a missing file is one of the program.
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        let absent = [
            "no such file or directory", "No such file or directory", "FileNotFoundError", "does not exist",
            // Docker Desktop, for a folder that is not in its list.
            "is not shared from the host",
        ];
        absent.iter().any(|words| said.contains(words)).then_some(false)
    }
}

/// Printed by the other side when it has no such folder.
const ABSENT: &str = "codebridge: not here";

/// Returns the script for the shell of the machine: one word, because ssh joins words with spaces.
fn remote_script(file: &Path) -> Option<String> {
    let folder = shlex::try_quote(file.parent()?.to_str()?).ok()?.into_owned();
    let file = shlex::try_quote(file.to_str()?).ok()?.into_owned();
    Some(format!("test -d {folder} && cat {file} || echo '{ABSENT}'"))
}

/// Returns a bind mount that fails when the folder does not exist, instead of making it. Its fields are those of a CSV line.
fn mount(folder: &Path) -> Option<String> {
    let source = folder.to_str()?.replace('"', "\"\"");
    Some(format!("type=bind,\"src={source}\",dst=/share,readonly"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::CgroupMode;

    #[tokio::test]
    async fn any_path_is_quoted_for_the_shell() {
        let base = tempfile::tempdir().unwrap();
        for name in ["plain", "with space", "it's", "a\"b", "$(false)", "ünïcode", "-n", "a;b&c"] {
            let folder = base.path().join(name);
            let nonce = Nonce::put_into(&folder).unwrap();
            let script = remote_script(nonce.file.path()).unwrap();
            // As ssh does it: one string for the shell at the other end.
            let done = exec::run(CommandLine::new("/bin/sh").args(["-c", &script]), LIMIT).await.unwrap();
            assert_eq!(String::from_utf8_lossy(&done.stdout), nonce.secret, "{name}");
            let path = nonce.file.path().to_path_buf();
            drop(nonce);
            assert!(!path.exists());
            fs::remove_dir(&folder).unwrap();
            let done = exec::run(CommandLine::new("/bin/sh").args(["-c", &script]), LIMIT).await.unwrap();
            assert_eq!(String::from_utf8_lossy(&done.stdout).trim(), ABSENT, "{name}");
        }
    }

    #[test]
    fn a_mount_is_one_line_of_csv() {
        assert_eq!(mount(Path::new("/a,b")).unwrap(), "type=bind,\"src=/a,b\",dst=/share,readonly");
        assert_eq!(mount(Path::new("/a\"b")).unwrap(), "type=bind,\"src=/a\"\"b\",dst=/share,readonly");
    }

    #[test]
    fn each_kind_of_engine_has_its_own_hint_to_share() {
        let said = |kind, service: Option<&DockerService>| hint(kind, Path::new("/x"), service);
        assert!(said(RuntimeKind::Docker, Some(&DockerService::OrbStack)).contains("OrbStack shares"));
        assert!(said(RuntimeKind::Docker, None).contains("nothing to do"));
        let podman = hint(RuntimeKind::Podman, Path::new("/x y"), None);
        assert!(podman.contains("init --volume \"$HOME:$HOME\" --volume '/x y':'/x y'"), "{podman}");
    }

    #[test]
    fn answers_are_remembered_for_each_engine_and_folder() {
        let dir = tempfile::tempdir().unwrap();
        let shares = Shares::new(Some("/x".into()), Some(dir.path().into()));
        assert_eq!(shares.known("podman", Path::new("/x")), None);
        shares.remember("podman", Path::new("/x"), true);
        shares.remember("podman:a", Path::new("/x"), false);
        shares.remember("podman in m of yesterday", Path::new("/x"), true);
        assert_eq!(shares.known("podman", Path::new("/x")), Some(true));
        assert_eq!(shares.known("podman:a", Path::new("/x")), Some(false));
        assert_eq!(shares.known("podman", Path::new("/y")), None);
        shares.forget(&RuntimeId::local(RuntimeKind::Podman, "/usr/bin/podman", CgroupMode::Direct));
        assert_eq!(shares.known("podman", Path::new("/x")), None);
        assert_eq!(shares.known("podman in m of yesterday", Path::new("/x")), None);
        assert_eq!(shares.known("podman:a", Path::new("/x")), Some(false));
    }
}
