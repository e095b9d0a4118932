//! Root filesystems composed of bind mounts: a skeleton of empty folders and links, with read-only mounts of real folders.
//!
//! A folder that holds a root filesystem is never mounted as the sandbox's `/` itself, because runtimes create missing
//! mount points (`/workspace`, `/etc/hosts` …) inside it. The skeleton holds those and the folder stays unchanged. This
//! machine's own `/usr` becomes a root in the same way.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};

use crate::mounts;
use crate::refusal::RootProblem;
use crate::spec::{HostFolder, RootFs, SandboxSpec, is_within};

/// Top-level names that belong to the runtime, never to the folder behind the root.
const RUNTIME_FOLDERS: &[&str] = &["dev", "proc", "sys", "tmp", "run"];
/// Top-level links of a merged `/usr` (<https://systemd.io/THE_CASE_FOR_THE_USR_MERGE/>).
const USR_LINKS: &[&str] = &["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// A read-only mount of a host folder or file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// The path on the host.
    pub source: PathBuf,
    /// The absolute path in the sandbox.
    pub target: String,
    /// A link to the source, for a runtime that cannot be told its path.
    pub alias: Option<PathBuf>,
    /// The folder that holds the alias, where that is no link.
    pub within: Option<PathBuf>,
}

impl Bind {
    fn new(source: PathBuf, target: String) -> Self {
        Self { source, target, alias: None, within: None }
    }

    /// Returns the path that the runtime is told.
    pub(crate) fn told(&self) -> &Path {
        self.alias.as_ref().unwrap_or(&self.source)
    }

    /// Returns the mount options: read-only, and every flag of the underlying mount that a user namespace must not drop
    /// (<https://man7.org/linux/man-pages/man7/mount_namespaces.7.html>, "restrictions on mount namespaces"). Not
    /// `relatime`: the kernel keeps it when a remount names none of its kind, and crun 1.28 makes `nosymfollow` of it
    /// together with `ro`, so that no link of the root can be followed.
    pub fn options(&self) -> Vec<String> {
        let mut options: Vec<String> = ["rbind", "ro", "nosuid", "nodev"].map(String::from).to_vec();
        let flags = |path| statvfs(path).ok().map(|stat| stat.f_flag);
        let found = [Some(&self.source), self.within.as_ref()].into_iter().flatten().filter_map(flags);
        if let Some(flags) = found.reduce(|all, flags| all | flags) {
            // Remote engines mount nothing of this machine.
            #[cfg(not(target_os = "linux"))]
            let locked: [(StatVfsMountFlags, &str); 0] = [];
            #[cfg(target_os = "linux")]
            let locked = [
                (StatVfsMountFlags::NOEXEC, "noexec"),
                (StatVfsMountFlags::NOATIME, "noatime"),
                (StatVfsMountFlags::NODIRATIME, "nodiratime"),
            ];
            options.extend(locked.iter().filter(|(f, _)| flags.contains(*f)).map(|(_, o)| (*o).to_string()));
        }
        options
    }
}

/// The parts of the sandbox's `/`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ComposedRoot {
    /// Empty folders with mode 0755, parents first.
    pub folders: Vec<String>,
    /// The folders that a tmpfs will cover, with mode 1777: runc gives the tmpfs the mode of the folder below it.
    pub writable: Vec<String>,
    /// Symbolic links: path in the sandbox, and target.
    pub links: BTreeMap<String, PathBuf>,
    /// Small files with mode 0644.
    pub files: BTreeMap<String, String>,
    /// Mounts over the skeleton.
    pub binds: Vec<Bind>,
}

#[derive(Debug, thiserror::Error)]
pub enum RootError {
    #[error("could not read the root filesystem '{path}': {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("'{0}' is not a root filesystem: it has neither a usr nor a bin folder")]
    NotARoot(PathBuf),
    #[error("could not write '{path}': {source}")]
    Write { path: PathBuf, source: io::Error },
}

impl RootError {
    /// Returns what is wrong with the folder of the root filesystem.
    pub fn problem(&self) -> RootProblem {
        match self {
            Self::NotARoot(_) => RootProblem::NotARoot,
            Self::Read { source, .. } | Self::Write { source, .. } => match source.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => RootProblem::Missing,
                _ => RootProblem::Unreadable,
            },
        }
    }
}

/// Returns the mounts of folders of this machine, and of what is mounted below them.
pub(crate) fn folder_binds<'a>(folders: impl IntoIterator<Item = &'a HostFolder>) -> Vec<Bind> {
    let folders = folders.into_iter();
    let mut binds = folders.map(|folder| Bind::new(folder.source.clone(), folder.target.clone())).collect();
    hold_mounts_below(&mut binds);
    binds
}

/// Returns the mount of a folder that is prepared at `place`, in the state folder `within`.
pub(crate) fn place_bind(folder: &HostFolder, place: PathBuf, within: PathBuf) -> Bind {
    let bind = Bind::new(folder.source.clone(), folder.target.clone());
    Bind { alias: Some(place), within: Some(within), ..bind }
}

/// Adds a read-only bind for each mount below the source of a bind: a bind includes those mounts, but its options do not
/// apply to them. (`rro` would do that in one step, but neither engine and no kernel before 5.12 supports it.)
fn hold_mounts_below(binds: &mut Vec<Bind>) {
    if !binds.is_empty() {
        binds.append(&mut mounts_below(binds, &mounts::of_this_process()));
    }
}

fn mounts_below(binds: &[Bind], mount_points: &[PathBuf]) -> Vec<Bind> {
    let mut more = Vec::new();
    for bind in binds {
        for place in mount_points {
            let Ok(below) = place.strip_prefix(&bind.source) else { continue };
            // A sandbox cannot reach a mount that we cannot read, or that a later mount covers.
            if below.as_os_str().is_empty() || fs::metadata(place).is_err() {
                continue;
            }
            if let Some(below) = below.to_str() {
                more.push(Bind::new(place.clone(), format!("{}/{below}", bind.target)));
            }
        }
    }
    more.sort_by(|a, b| a.target.cmp(&b.target));
    more.dedup();
    more
}

impl ComposedRoot {
    /// Composes the root of a sandbox, with these folders of the host. Returns None for an image reference.
    pub fn of(spec: &SandboxSpec, folders: Vec<Bind>) -> Result<Option<Self>, RootError> {
        let mut root = match &spec.root {
            RootFs::Image(_) => return Ok(None),
            RootFs::Directory(path) => Self::of_directory(path)?,
            RootFs::Leased(lease) => Self::of_directory(lease.path())?,
            RootFs::Host => Self::of_host(Path::new("/"))?,
        };
        hold_mounts_below(&mut root.binds);
        root.add_folders(spec, folders);
        root.folders.extend(RUNTIME_FOLDERS.iter().map(|name| format!("/{name}")));
        for target in spec.tmpfs.iter().map(|tmpfs| &tmpfs.target) {
            root.folders.push(target.clone());
            root.writable.push(target.clone());
            // A mount of the folder behind the root must not hide the tmpfs that goes there.
            root.binds.retain(|bind| bind.target != *target);
            root.links.remove(target);
        }
        root.folders.sort();
        root.folders.dedup();
        root.folders.retain(|folder| {
            folder.rfind('/') == Some(0)
                || !root.binds.iter().any(|b| folder.starts_with(&format!("{}/", b.target)))
        });
        Ok(Some(root))
    }

    /// Adds the folders of this machine that the sandbox sees. What the root has under such a top-level name is hidden.
    fn add_folders(&mut self, spec: &SandboxSpec, binds: Vec<Bind>) {
        for HostFolder { target, .. } in spec.host_folders() {
            let top = target[1..].find('/').map_or(target.as_str(), |end| &target[..=end]);
            self.links.remove(top);
            self.binds.retain(|bind| !is_within(&bind.target, top));
            let parents = target.match_indices('/').skip(1).map(|(end, _)| target[..end].to_string());
            self.folders.extend(parents.chain([target.clone()]));
        }
        self.binds.extend(binds);
    }

    /// Composes a root of the top-level folders of `path`, which are mounted, and its top-level links, which are copied.
    fn of_directory(path: &Path) -> Result<Self, RootError> {
        let read = |source| RootError::Read { path: path.to_path_buf(), source };
        let path = fs::canonicalize(path).map_err(read)?;
        if !path.join("usr").is_dir() && !path.join("bin").is_dir() {
            return Err(RootError::NotARoot(path));
        }
        let mut root = Self::default();
        for entry in fs::read_dir(&path).map_err(read)? {
            let entry = entry.map_err(read)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let kind = entry.file_type().map_err(read)?;
            if RUNTIME_FOLDERS.contains(&name.as_str()) || name.contains([',', ':', '\n']) {
                continue;
            }
            let target = format!("/{name}");
            if kind.is_symlink() {
                root.links.insert(target, fs::read_link(entry.path()).map_err(read)?);
            } else if kind.is_dir() {
                root.folders.push(target.clone());
                root.binds.push(Bind::new(entry.path(), target));
            }
        }
        root.binds.sort_by(|a, b| a.target.cmp(&b.target));
        Ok(root)
    }

    /// Composes a root of this machine's `/usr` and the links into it, with a new `/etc`.
    fn of_host(host: &Path) -> Result<Self, RootError> {
        let mut root = Self::default();
        root.folders.extend(["/etc", "/usr"].map(String::from));
        root.binds.push(Bind::new(host.join("usr"), "/usr".into()));
        for name in USR_LINKS {
            let (path, target) = (host.join(name), format!("/{name}"));
            match fs::read_link(&path) {
                Ok(link) => {
                    root.links.insert(target, link);
                }
                // A system that has not merged its /usr.
                Err(_) if path.is_dir() => {
                    root.folders.push(target.clone());
                    root.binds.push(Bind::new(path, target));
                }
                Err(_) => {}
            }
        }
        root.alternatives(host);
        root.etc();
        Ok(root)
    }

    /// Adds the links of `/etc/alternatives` that lead into `/usr`: `awk`, `libblas.so.3` and others go through them
    /// (<https://man7.org/linux/man-pages/man1/update-alternatives.1.html>).
    fn alternatives(&mut self, host: &Path) {
        let folder = "/etc/alternatives";
        let Ok(entries) = fs::read_dir(host.join(&folder[1..])) else { return };
        for entry in entries.flatten() {
            let (Ok(name), Ok(link)) = (entry.file_name().into_string(), fs::read_link(entry.path())) else {
                continue;
            };
            if link.starts_with("/usr") {
                self.links.insert(format!("{folder}/{name}"), link);
            }
        }
        self.folders.push(folder.into());
    }

    /// Adds the minimal files that libc and Python look for.
    fn etc(&mut self) {
        let files = [
            (
                "/etc/passwd",
                "root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/workspace:/sbin/nologin\n",
            ),
            ("/etc/group", "root:x:0:\nnogroup:x:65534:\n"),
            ("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
            ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
        ];
        self.files.extend(files.map(|(path, text)| (path.to_string(), text.to_string())));
    }

    /// Adds empty files to a mounted folder that lacks them, for an engine that mounts its own files there: the folder becomes
    /// part of the skeleton, and each of its entries is mounted.
    pub(crate) fn ensure_files(&mut self, folder: &str, names: &[&str]) -> Result<(), RootError> {
        let Some(at) = self.binds.iter().position(|bind| bind.target == folder) else { return Ok(()) };
        let missing = names.iter().filter(|name| !self.binds[at].source.join(name).exists());
        let missing: Vec<String> = missing.map(|name| format!("{folder}/{name}")).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let source = self.binds.remove(at).source;
        let read = |error| RootError::Read { path: source.clone(), source: error };
        for entry in fs::read_dir(&source).map_err(read)? {
            let entry = entry.map_err(read)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let (kind, target) = (entry.file_type().map_err(read)?, format!("{folder}/{name}"));
            if kind.is_symlink() {
                self.links.insert(target, fs::read_link(entry.path()).map_err(read)?);
            } else if (kind.is_dir() || kind.is_file()) && !name.contains([',', ':', '\n']) {
                if kind.is_dir() {
                    self.folders.push(target.clone());
                } else {
                    self.files.insert(target.clone(), String::new());
                }
                self.binds.push(Bind::new(entry.path(), target));
            }
        }
        // Last, because a dangling link may have one of these names.
        for target in missing {
            self.links.remove(&target);
            self.files.insert(target, String::new());
        }
        self.folders.sort();
        self.binds.sort_by(|a, b| a.target.cmp(&b.target));
        Ok(())
    }

    pub(crate) fn mode_of(&self, folder: &str) -> u32 {
        if self.writable.iter().any(|path| path == folder) { 0o1777 } else { 0o755 }
    }

    /// Writes the skeleton into a folder, which must be empty or not exist.
    pub fn write_skeleton(&self, root: &Path) -> Result<(), RootError> {
        let place = |inside: &str| root.join(inside.trim_start_matches('/'));
        let error = |path: &Path| {
            let path = path.to_path_buf();
            move |source| RootError::Write { path, source }
        };
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o755);
        builder.create(root).map_err(error(root))?;
        // The umask restricts the mode above; the sandbox's user needs access.
        fs::set_permissions(root, fs::Permissions::from_mode(0o755)).map_err(error(root))?;
        for folder in &self.folders {
            let path = place(folder);
            builder.create(&path).map_err(error(&path))?;
            let mode = fs::Permissions::from_mode(self.mode_of(folder));
            fs::set_permissions(&path, mode).map_err(error(&path))?;
        }
        for (inside, link) in &self.links {
            let path = place(inside);
            symlink(link, &path).map_err(error(&path))?;
        }
        for (inside, text) in &self.files {
            let path = place(inside);
            fs::write(&path, text).map_err(error(&path))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).map_err(error(&path))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_below_a_bound_folder_is_bound_read_only_on_top() {
        let host = tempfile::tempdir().unwrap();
        let place = |path: &str| host.path().join(path);
        for folder in ["usr/local/data/deep", "usrx", "etc"] {
            fs::create_dir_all(place(folder)).unwrap();
        }
        let mut root = ComposedRoot::default();
        root.binds.push(Bind::new(place("usr"), "/usr".into()));
        let mounts = ["usr", "usr/local/data/deep", "usr/local/data", "usrx", "etc", "usr/gone"].map(place);
        let below = mounts_below(&root.binds, &mounts);
        root.binds.extend(below);
        let targets: Vec<_> = root.binds.iter().map(|bind| bind.target.as_str()).collect();
        assert_eq!(targets, ["/usr", "/usr/local/data", "/usr/local/data/deep"]);
        assert_eq!(root.binds[1].source, place("usr/local/data"));
        assert!(root.binds.iter().all(|bind| bind.options().contains(&"ro".to_string())));
    }
}
