//! The choice that worked last time, on disk: `<cache>/runtime.json`.
//!
//! Its key is everything that could change the choice: the settings, the user, the kernel, and path, size and time of the
//! program of every runtime.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::choice::Choice;
use crate::exec;
use crate::refusal::Refusal;
use crate::runtime::{Address, RuntimeKind, Target};
use crate::spec::RootFs;
use crate::state::{is_younger, read_json, unix_seconds, write_json};

/// A runtime that passed its probe and later failed to launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setback {
    pub runtime: Target,
    pub refusal: Refusal,
    /// Seconds since 1970.
    pub when: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    key: String,
    /// Seconds since 1970.
    written: u64,
    /// How long the choice is valid, in seconds.
    age: u64,
    choice: Option<Remembered>,
    setback: Option<Setback>,
}

/// A choice that worked, and how its root is found again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Remembered {
    pub(super) choice: Choice,
    /// The place of the root in the order of preference.
    pub(super) rank: usize,
    /// The id of the lease on the root, when the root was on lease.
    pub(super) lease: Option<String>,
}

#[derive(Debug)]
pub(super) struct Cache {
    path: Option<PathBuf>,
    settings: String,
}

impl Cache {
    pub(super) fn new(dir: Option<PathBuf>, settings: String) -> Self {
        Self { path: dir.map(|dir| dir.join("runtime.json")), settings }
    }

    fn entry(&self) -> Option<Entry> {
        read_json(self.path.as_ref()?)
    }

    /// Returns the remembered choice, when nothing that it depends on has changed.
    pub(super) fn read(&self) -> Option<Remembered> {
        let entry =
            self.entry().filter(|entry| is_younger(entry.written, entry.age) && entry.key == self.key())?;
        entry.choice.filter(|remembered| match &remembered.choice.root {
            RootFs::Directory(path) => path.is_dir(),
            _ => true,
        })
    }

    pub(super) fn write(&self, choice: &Choice, age: Duration) {
        // A setback ends when its runtime works again.
        let setback = self.setback().filter(|setback| setback.runtime != choice.runtime.target());
        self.store(&Entry {
            key: self.key(),
            written: unix_seconds(),
            age: age.as_secs(),
            choice: Some(Remembered {
                choice: choice.clone(),
                rank: choice.rank,
                lease: choice.root.lease().map(|lease| lease.id()),
            }),
            setback,
        });
    }

    pub(super) fn drop_choice(&self, choice: &Choice, refusal: &Refusal) {
        let setback =
            Setback { runtime: choice.runtime.target(), refusal: refusal.clone(), when: unix_seconds() };
        self.store(&Entry { key: self.key(), written: 0, age: 0, choice: None, setback: Some(setback) });
    }

    pub(super) fn setback(&self) -> Option<Setback> {
        self.entry()?.setback
    }

    /// Writes the file; a cache that cannot be written costs only time.
    fn store(&self, entry: &Entry) {
        let Some(path) = &self.path else { return };
        if let Some(dir) = path.parent()
            && let Err(error) = fs::create_dir_all(dir)
        {
            tracing::debug!(dir = %dir.display(), %error, "could not create the folder of the cache");
            return;
        }
        if let Err(error) = write_json(path, entry) {
            tracing::debug!(%error, "could not write the cache");
        }
    }

    fn key(&self) -> String {
        let uid = rustix::process::getuid().as_raw();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let programs = RuntimeKind::ALL.map(|kind| program_stamp(kind.program_name()));
        let engines = RuntimeKind::ALL.map(|kind| Address::of(&kind.into()).variables);
        let kubectl = (program_stamp(RuntimeKind::Kubernetes.program_name()), std::env::var_os("KUBECONFIG"));
        let hybrid = Path::new("/sys/fs/cgroup/unified").exists();
        format!(
            "{} {uid} {} {programs:?} {engines:?} {kubectl:?} {hybrid} {}",
            self.settings,
            kernel.trim(),
            env!("CARGO_PKG_VERSION")
        )
    }
}

/// Returns path, size and time of a program; empty when there is none.
fn program_stamp(name: &str) -> String {
    let Some(path) = exec::find_program(Path::new(name)) else { return String::new() };
    let stamp = fs::metadata(&path).map(|meta| format!("{} {}", meta.size(), meta.mtime()));
    format!("{} {}", path.display(), stamp.unwrap_or_default())
}
