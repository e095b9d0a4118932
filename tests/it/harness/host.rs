//! What one bridge has on the host: folders, containers, processes, mounts, control groups.
//!
//! Other bridges run at the same time, so everything is found by the bridge's own process id and instance.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::bridge::Bridge;
use super::env::TestEnv;
use super::matrix::{Kind, which};
use super::process::{REAPER, eventually, processes, start_time};
use crate::python;

/// A removal takes two seconds at most; the rest is for a loaded machine.
pub(crate) const REMOVAL: Duration = Duration::from_secs(40);

/// One bridge's instance, and everything of it that was seen.
#[derive(Debug)]
pub(crate) struct Traces<'a> {
    env: &'a TestEnv,
    /// The bridge's process id.
    pid: u32,
    /// The instance's id, which is in the name of every sandbox.
    pub(crate) id: String,
    /// The instance's folder.
    pub(crate) folder: PathBuf,
    /// The first processes of its sandboxes, with which all others end.
    first: BTreeSet<First>,
    /// Parts of paths that its containers' mounts have.
    mounts: BTreeSet<String>,
}

/// The first process of a sandbox's process id namespace. The kernel gives the numbers of processes and of namespaces to
/// others once they are free; the time of its start tells it from those.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct First {
    pid: u32,
    start: u64,
}

impl First {
    pub(crate) fn pid(self) -> u32 {
        self.pid
    }

    /// Whether it was there when these processes were listed, with the times of their starts.
    pub(crate) fn was_among(self, processes: &BTreeMap<u32, u64>) -> bool {
        processes.get(&self.pid) == Some(&self.start)
    }

    fn is_there(self) -> bool {
        start_time(self.pid) == Some(self.start)
    }
}

/// The instance of a bridge that has run something.
pub(crate) fn traces<'a>(bridge: &Bridge<'a>) -> Traces<'a> {
    let env = bridge.env();
    let (id, folder) = instance_of(env, bridge.pid()).expect("the bridge has no instance");
    let mounts = BTreeSet::from([format!("codebridge-{id}"), folder.display().to_string()]);
    Traces { env, pid: bridge.pid(), id, folder, first: BTreeSet::new(), mounts }
}

/// The id and the folder of the instance that this process owns.
pub(crate) fn instance_of(env: &TestEnv, pid: u32) -> Option<(String, PathBuf)> {
    instance_in(&env.state_base(), pid)
}

/// The same for a bridge that keeps its instances in this folder.
pub(crate) fn instance_in(folder: &Path, pid: u32) -> Option<(String, PathBuf)> {
    fs::read_dir(folder).ok()?.flatten().find_map(|entry| {
        let owner: Value = serde_json::from_slice(&fs::read(entry.path().join("owner.json")).ok()?).ok()?;
        let id = owner["instance"].as_str()?.to_string();
        (owner["pid"] == pid).then(|| (id, entry.path()))
    })
}

/// What runs a command of root with this folder in the place of the usual one of its instances. Otherwise any bridge that a
/// test starts removes what a dead one has left, and may do so before the test does.
pub(crate) fn with_instances_in(folder: &Path) -> [OsString; 7] {
    let script = "/bin/mkdir -p /run/codebridge && /bin/mount --bind \"$0\" /run/codebridge && exec \"$@\"";
    let unshare = which("unshare").expect("util-linux is there").into_os_string();
    let [mount, private, shell, option, script] =
        ["--mount", "--propagation=private", "/bin/sh", "-c", script].map(OsString::from);
    [unshare, mount, private, shell, option, script, folder.into()]
}

impl<'a> Traces<'a> {
    /// Remembers the sandbox that a session runs in, and returns its first process.
    pub(crate) fn see(&mut self, bridge: &Bridge<'a>, session: &str) -> First {
        let first = first_of(&namespace_of(bridge, session));
        self.first.insert(first);
        self.see_containers();
        first
    }

    /// Remembers the sandbox of a throw-away session, whose first process is seen while it runs.
    pub(crate) fn see_throw_away(&mut self, bridge: &Bridge<'a>, session: &str) -> First {
        let code = python!("sleep", "with_namespace");
        let call = bridge.start_until_ready(session, code, json!({ "timeout": 100 }));
        let said = call.progress();
        let first = first_of(Path::new(said.trim_start_matches("ready ")));
        self.first.insert(first);
        self.see_containers();
        call.0.cancel();
        first
    }

    /// Remembers where the engine has mounted the containers that there are now.
    fn see_containers(&mut self) {
        if !self.env.runtime().kind.is_engine() {
            return;
        }
        for name in self.containers() {
            let inspected = self.env.run([self.env.runtime().kind.name(), "container", "inspect", &name]);
            if !inspected.status.success() {
                // It was on its way out.
                continue;
            }
            let inspected: Value = serde_json::from_str(&inspected.stdout).unwrap();
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
        // Without a real runtime it is a fake crun.
        let kind = self.env.runtime_if_any().map_or(Kind::Crun, |runtime| runtime.kind);
        if kind.is_engine() {
            let filter = format!("name=codebridge-{}-", self.id);
            let listed =
                self.env.run([kind.name(), "ps", "--all", "--format={{.Names}}", "--filter", &filter]);
            return listed.ok().lines().map(String::from).collect();
        }
        if kind == Kind::Kubernetes {
            let selector = format!("--selector=codebridge.instance={}", self.id);
            // Those that are being deleted are gone for the bridge: the cluster removes them.
            let names = "--output=go-template={{range .items}}{{if not .metadata.deletionTimestamp}}{{.metadata.name}}\n{{end}}{{end}}";
            let listed = self.env.run(["kubectl", "--context=least", "get", "pods", &selector, names]);
            return listed.ok().lines().map(String::from).collect();
        }
        let entries = fs::read_dir(self.folder.join("oci").join(kind.name())).into_iter().flatten().flatten();
        // crun 1.28 keeps things of its own beside them.
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.starts_with("codebridge-")).collect()
    }

    /// The sandboxes that were seen and still have processes.
    pub(crate) fn processes(&self) -> Vec<u32> {
        self.first.iter().filter(|first| first.is_there()).map(|first| first.pid).collect()
    }

    /// The reaper's process.
    pub(crate) fn reaper(&self) -> Option<u32> {
        let bridge = self.pid.to_string();
        processes().find(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            words.contains(&REAPER.as_bytes()) && words.contains(&bridge.as_bytes())
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
        left.extend(self.reaper().map(|pid| format!("the reaper {pid}")));
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
        let deadline = Instant::now() + limit;
        while !self.left().is_empty() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
        self.assert_nothing_left();
    }

    /// Waits until a sandbox that was seen has no process any more.
    pub(crate) fn wait_until_gone(&self, first: First) {
        eventually("the sandbox's processes are gone", REMOVAL, || (!first.is_there()).then_some(()));
    }
}

/// The process id namespace that a session's code runs in, as `/proc` shows it.
fn namespace_of(bridge: &Bridge<'_>, session: &str) -> PathBuf {
    PathBuf::from(bridge.run_in(session, "import os\nprint(os.readlink('/proc/self/ns/pid'))").ok())
}

/// The process that is number 1 in there.
fn first_of(namespace: &Path) -> First {
    let is_first = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        ids.is_some_and(|ids| ids.split_whitespace().next_back() == Some("1"))
    };
    let is_in = |pid: &u32| fs::read_link(format!("/proc/{pid}/ns/pid")).is_ok_and(|it| it == namespace);
    let pid = processes().filter(is_in).find(is_first).expect("the sandbox has no first process");
    First { pid, start: start_time(pid).expect("the sandbox has just ended") }
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
