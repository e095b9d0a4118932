//! What is there on the host of one bridge's doing: folders, containers, processes, mounts, control groups.
//!
//! Other bridges run beside this one. What is looked at is found by the bridge's own process id and instance.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::bridge::Bridge;
use super::env::TestEnv;
use super::process::{eventually, processes};

/// A removal takes two seconds at most; the rest is for a loaded machine.
pub(crate) const REMOVAL: Duration = Duration::from_secs(15);

/// One bridge's instance, and everything of it that was seen.
#[derive(Debug)]
pub(crate) struct Traces<'a> {
    env: &'a TestEnv,
    /// The instance's id, which is in the name of every sandbox.
    pub(crate) id: String,
    /// The instance's folder.
    pub(crate) folder: PathBuf,
    /// Process id namespaces of its sandboxes, as `/proc` shows them.
    namespaces: BTreeSet<PathBuf>,
    /// Parts of paths that its containers' mounts have.
    mounts: BTreeSet<String>,
}

/// The instance of a bridge that has run something.
pub(crate) fn traces<'a>(bridge: &Bridge<'a>) -> Traces<'a> {
    let env = bridge.env();
    let (id, folder) = instance_of(env, bridge.pid()).expect("the bridge has no instance");
    let mounts = BTreeSet::from([format!("codebridge-{id}"), folder.display().to_string()]);
    Traces { env, id, folder, namespaces: BTreeSet::new(), mounts }
}

/// The id and the folder of the instance that this process owns.
pub(crate) fn instance_of(env: &TestEnv, pid: u32) -> Option<(String, PathBuf)> {
    fs::read_dir(env.state_base()).ok()?.flatten().find_map(|entry| {
        let owner: Value = serde_json::from_slice(&fs::read(entry.path().join("owner.json")).ok()?).ok()?;
        let id = owner["instance"].as_str()?.to_string();
        (owner["pid"] == pid).then(|| (id, entry.path()))
    })
}

impl<'a> Traces<'a> {
    /// Remembers the sandbox that a session runs in, and returns its process id namespace.
    pub(crate) fn see(&mut self, bridge: &Bridge<'a>, session: &str) -> PathBuf {
        let code = "import os\nprint(os.readlink('/proc/self/ns/pid'))";
        let namespace = PathBuf::from(bridge.run_in(session, code).ok());
        self.namespaces.insert(namespace.clone());
        self.see_containers();
        namespace
    }

    /// Remembers where the engine has mounted the containers that there are now.
    fn see_containers(&mut self) {
        if !self.env.runtime().kind.is_engine() {
            return;
        }
        for name in self.containers() {
            let inspected =
                self.env.run([self.env.runtime().kind.name(), "container", "inspect", &name]).ok();
            let inspected: Value = serde_json::from_str(&inspected).unwrap();
            let container = &inspected[0];
            self.mounts.insert(container["Id"].as_str().unwrap().into());
            if let Some(merged) = container["GraphDriver"]["Data"]["MergedDir"].as_str() {
                self.mounts.insert(merged.into());
            }
        }
    }

    /// The sandboxes that are written down.
    pub(crate) fn records(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.join("sandboxes")).into_iter().flatten().flatten();
        let names =
            entries.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".json").map(String::from));
        names.collect()
    }

    /// The containers that the engine has, or those that the low-level runtime keeps a state of.
    pub(crate) fn containers(&self) -> Vec<String> {
        let kind = self.env.runtime().kind;
        if kind.is_engine() {
            let filter = format!("name=codebridge-{}-", self.id);
            let listed =
                self.env.run([kind.name(), "ps", "--all", "--format={{.Names}}", "--filter", &filter]);
            return listed.ok().lines().map(String::from).collect();
        }
        let entries = fs::read_dir(self.folder.join("oci").join(kind.name())).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// The processes of the sandboxes that were seen.
    pub(crate) fn processes(&self) -> Vec<u32> {
        self.namespaces.iter().flat_map(|namespace| processes_in(namespace)).collect()
    }

    /// The guardian's process.
    pub(crate) fn guardian(&self) -> Option<u32> {
        let folder = self.folder.as_os_str().as_encoded_bytes();
        processes().find(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            words.contains(&&b"guardian"[..]) && words.contains(&folder)
        })
    }

    /// Everything that is still there.
    pub(crate) fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        if self.folder.exists() {
            left.push(format!("the folder {}", self.folder.display()));
        }
        left.extend(self.containers().into_iter().map(|name| format!("the container {name}")));
        left.extend(self.processes().into_iter().map(|pid| format!("the process {pid} in a sandbox")));
        left.extend(self.guardian().map(|pid| format!("the guardian {pid}")));
        left.extend(cgroups(&self.id).iter().map(|path| format!("the control group {}", path.display())));
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let ours = |line: &&str| self.mounts.iter().any(|part| line.contains(part.as_str()));
        left.extend(mountinfo.lines().filter(ours).map(|line| format!("the mount {line}")));
        left
    }

    /// Nothing may be left, at this moment.
    pub(crate) fn assert_nothing_left(&self) {
        let left = self.left();
        assert!(left.is_empty(), "left behind: {left:#?}");
        let temporary = self.env.folder("tmp");
        let files: Vec<_> = fs::read_dir(temporary).unwrap().flatten().map(|entry| entry.path()).collect();
        assert!(files.is_empty(), "left in the temporary folder: {files:#?}");
    }

    /// Nothing may be left a few seconds from now.
    pub(crate) fn wait_until_nothing_is_left(&self, limit: Duration) {
        eventually(&format!("nothing of instance {} is left", self.id), limit, || {
            self.left().is_empty().then_some(())
        });
        self.assert_nothing_left();
    }

    /// Waits until a sandbox that was seen has no process any more.
    pub(crate) fn wait_until_gone(&self, namespace: &Path) {
        eventually("the sandbox's processes are gone", REMOVAL, || {
            processes_in(namespace).is_empty().then_some(())
        });
    }
}

/// The processes in a process id namespace.
pub(crate) fn processes_in(namespace: &Path) -> Vec<u32> {
    processes()
        .filter(|pid| fs::read_link(format!("/proc/{pid}/ns/pid")).is_ok_and(|it| it == namespace))
        .collect()
}

/// The process that is number 1 in there.
pub(crate) fn init_of(namespace: &Path) -> u32 {
    let is_init = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        ids.is_some_and(|ids| ids.split_whitespace().next_back() == Some("1"))
    };
    processes_in(namespace).into_iter().find(is_init).expect("the sandbox has no first process")
}

/// The control groups that are named after an instance's sandboxes.
pub(crate) fn cgroups(id: &str) -> Vec<PathBuf> {
    let name = format!("codebridge-{id}-");
    let mut found = Vec::new();
    let mut todo = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = todo.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if entry.file_name().to_string_lossy().contains(&name) {
                found.push(entry.path());
            }
            todo.push(entry.path());
        }
    }
    found
}
