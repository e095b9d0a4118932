//! What a host allows, according to its files and its kernel: for diagnosis only. Detection tries what works.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
#[cfg(target_os = "linux")]
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
#[cfg(target_os = "linux")]
use rustix::thread::{UnshareFlags, unshare_unsafe};
use serde::Serialize;

use crate::exec;
use crate::refusal::Refusal;
use crate::runtime::RuntimeKind;
use crate::subids::{parse_subids, user_name};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FactState {
    Good,
    /// Some runtimes can do less.
    Weak,
    /// Some runtimes do not work.
    Bad,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// One word for the property.
    pub name: &'static str,
    pub state: FactState,
    pub text: String,
    /// The command that fixes it.
    pub hint: Option<String>,
}

impl Fact {
    fn new(name: &'static str, state: FactState, text: impl Into<String>) -> Self {
        Self { name, state, text: text.into(), hint: None }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

pub fn host_facts() -> Vec<Fact> {
    let uid = rustix::process::getuid().as_raw();
    // Neither cron nor `docker exec` sets $USER, and it may be wrong.
    let user = user_name(uid);
    Host { root: PathBuf::from("/"), uid, user, filtered: filter_refuses_namespaces() }.facts()
}

/// Returns whether a seccomp filter refuses user namespaces to this process and its children.
#[cfg(target_os = "linux")]
fn filter_refuses_namespaces() -> bool {
    // A filter decides first. The kernel itself answers EINVAL to a process of several threads, whose state stays
    // unchanged: https://man7.org/linux/man-pages/man2/unshare.2.html
    std::thread::scope(|scope| {
        #[expect(unsafe_code, reason = "it could unshare descriptors; here it does not")]
        // SAFETY: the table of descriptors stays shared, because `FILES` is not among the flags.
        let other = scope.spawn(|| unsafe { unshare_unsafe(UnshareFlags::NEWUSER) });
        other.join().is_ok_and(|answer| matches!(answer, Err(Errno::PERM | Errno::NOSYS)))
    })
}

#[cfg(not(target_os = "linux"))]
fn filter_refuses_namespaces() -> bool {
    false
}

/// A host, by the folder that is its `/`.
struct Host {
    root: PathBuf,
    uid: u32,
    user: Option<String>,
    filtered: bool,
}

impl Host {
    fn facts(&self) -> Vec<Fact> {
        if std::env::consts::OS != "linux" {
            let text = format!("{}: containers need an engine in a virtual machine", std::env::consts::OS);
            return vec![Fact::new("system", FactState::Weak, text)];
        }
        vec![
            self.container(),
            self.user_namespaces(),
            self.subordinate_ids(),
            self.cgroups(),
            self.seccomp(),
            self.overlay(),
            self.capabilities(),
            self.rlimits(),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok().map(|text| text.trim().to_string())
    }

    fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    fn may_write(&self, path: &str) -> bool {
        access(self.root.join(path), Access::WRITE_OK).is_ok()
    }

    /// Returns a field of our own `/proc/self/status`.
    fn status(&self, field: &str) -> Option<String> {
        let status = self.read("proc/self/status")?;
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
        Some(line.trim().to_string())
    }

    /// Returns whether this is a container. There, paths of `/proc` are covered, and the kernel then refuses a new `/proc` to a new
    /// namespace.
    fn container(&self) -> Option<Fact> {
        let marks = [("run/.containerenv", "podman"), (".dockerenv", "docker")];
        let kind = marks.into_iter().find(|(file, _)| self.exists(file)).map(|(_, kind)| kind);
        let mounts = self.read("proc/self/mountinfo").unwrap_or_default();
        let covered = parse_covered(&mounts);
        match (kind, covered) {
            (None, 0) => None,
            (Some(kind), 0) => {
                let text = format!("inside a {kind} container, with all of /proc");
                Some(Fact::new("container", FactState::Good, text))
            }
            (kind, covered) => {
                let inside = kind.map_or("a container".into(), |kind| format!("a {kind} container"));
                let text = format!(
                    "inside {inside} with {covered} parts of /proc covered: a sandbox in it cannot have its own /proc"
                );
                let hint = Refusal::Confined { message: String::new() }.hint(RuntimeKind::Crun);
                Some(Fact::new("container", FactState::Bad, text).hint(hint))
            }
        }
    }

    fn user_namespaces(&self) -> Option<Fact> {
        let most = self.read("proc/sys/user/max_user_namespaces");
        let bad = |text, hint| Some(Fact::new("userns", FactState::Bad, text).hint(hint));
        if !self.exists("proc/self/ns/user") || most.as_deref() == Some("0") {
            return bad("the kernel allows no user namespaces", "`sysctl -w user.max_user_namespaces=15000`");
        }
        if self.uid != 0 && self.read("proc/sys/kernel/unprivileged_userns_clone").as_deref() == Some("0") {
            let hint = "`sysctl -w kernel.unprivileged_userns_clone=1`";
            return bad("only root may use user namespaces", hint);
        }
        if self.filtered {
            let text = "a seccomp filter refuses user namespaces here";
            return bad(text, "in a container: `--security-opt=seccomp=unconfined`");
        }
        let restricted = self.read("proc/sys/kernel/apparmor_restrict_unprivileged_userns");
        if self.uid != 0 && restricted.as_deref() == Some("1") {
            return bad(
                "AppArmor allows user namespaces only to programs with a profile",
                "`sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, or a profile with `userns,` for crun and runc",
            );
        }
        Some(Fact::new("userns", FactState::Good, "user namespaces are allowed"))
    }

    fn subordinate_ids(&self) -> Option<Fact> {
        if self.uid == 0 {
            return None;
        }
        let count = |file: &str| {
            let text = self.read(file).unwrap_or_default();
            parse_subids(&text, self.user.as_deref(), self.uid).map(|(_, size)| u64::from(size)).sum::<u64>()
        };
        let (uids, gids) = (count("etc/subuid"), count("etc/subgid"));
        let helpers = ["newuidmap", "newgidmap"];
        let missing: Vec<&str> =
            helpers.into_iter().filter(|name| exec::find_program(Path::new(name)).is_none()).collect();
        let name = "subids";
        if uids == 0 || gids == 0 {
            let text = "no subordinate ids: a sandbox has only one id, and rootless podman is limited";
            let hint = "`usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER`";
            Some(Fact::new(name, FactState::Weak, text).hint(hint))
        } else if missing.is_empty() {
            Some(Fact::new(name, FactState::Good, format!("{} subordinate ids, newuidmap", uids.min(gids))))
        } else {
            let text = format!("subordinate ids, but no {}", missing.join(" and "));
            Some(Fact::new(name, FactState::Weak, text).hint("`apt-get install uidmap`"))
        }
    }

    fn cgroups(&self) -> Option<Fact> {
        let name = "cgroups";
        let weak = |text: &str| Fact::new(name, FactState::Weak, text);
        let v2 = self.exists("sys/fs/cgroup/cgroup.controllers");
        let v1 = self.exists("sys/fs/cgroup/memory") && !v2;
        if v1 && self.exists("sys/fs/cgroup/unified/cgroup.controllers") {
            let text = "v1 beside v2 (hybrid): crun refuses it, runc works";
            let hint = match exec::find_program(Path::new("runc")) {
                Some(_) => "boot with systemd.unified_cgroup_hierarchy=1",
                None => "install runc, or boot with systemd.unified_cgroup_hierarchy=1",
            };
            return Some(weak(text).hint(hint));
        }
        let (version, folder) = if v1 { ("v1", "sys/fs/cgroup/memory") } else { ("v2", "sys/fs/cgroup") };
        Some(match (v1, v2) {
            (false, false) => weak("none are mounted: rlimits are used instead"),
            _ if self.uid == 0 && !self.may_write(folder) => {
                weak(&format!("{version} without write access: rlimits are used instead"))
            }
            (true, _) if self.uid == 0 => Fact::new(name, FactState::Good, "v1, writable"),
            (true, _) => weak("v1: only root can set limits, rlimits are used instead")
                .hint("boot with systemd.unified_cgroup_hierarchy=1"),
            (_, true) => {
                let own = self.read("proc/self/cgroup").unwrap_or_default();
                let group = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
                let path = format!("sys/fs/cgroup{group}/cgroup.controllers");
                let controllers = self.read(&path).unwrap_or_default();
                let has = |wanted: &str| controllers.split_whitespace().any(|it| it == wanted);
                if has("memory") && has("pids") {
                    Fact::new(name, FactState::Good, format!("v2 with {controllers}"))
                } else {
                    let delegated = if controllers.is_empty() { "nothing" } else { &controllers };
                    weak(&format!("v2, delegated here: {delegated}"))
                        .hint("`systemctl edit user@.service`: [Service] Delegate=cpu memory pids")
                }
            }
        })
    }

    fn seccomp(&self) -> Option<Fact> {
        let mode = self.status("Seccomp")?;
        let actions = self.read("proc/sys/kernel/seccomp/actions_avail");
        Some(match (actions, mode.as_str()) {
            (None, _) => Fact::new("seccomp", FactState::Bad, "the kernel has no seccomp filters"),
            (_, "2") => {
                Fact::new("seccomp", FactState::Weak, "filters work; one applies to this process already")
            }
            _ => Fact::new("seccomp", FactState::Good, "filters work"),
        })
    }

    fn overlay(&self) -> Option<Fact> {
        let systems = self.read("proc/filesystems")?;
        let has = |name: &str| systems.lines().any(|line| line.split_whitespace().next_back() == Some(name));
        Some(if has("overlay") {
            Fact::new("overlay", FactState::Good, "overlay file systems are available")
        } else {
            let text = "no overlay file system is loaded: engines may copy whole images";
            Fact::new("overlay", FactState::Weak, text).hint("`modprobe overlay`")
        })
    }

    fn capabilities(&self) -> Option<Fact> {
        if self.uid != 0 {
            return None;
        }
        let effective = u64::from_str_radix(&self.status("CapEff")?, 16).ok()?;
        let names = [(6, "SETGID"), (7, "SETUID"), (21, "SYS_ADMIN"), (24, "SYS_RESOURCE")];
        let missing: Vec<&str> =
            names.into_iter().filter(|(bit, _)| effective & (1 << bit) == 0).map(|(_, name)| name).collect();
        Some(if missing.is_empty() {
            Fact::new("capabilities", FactState::Good, "all that are needed")
        } else {
            let state = if missing.contains(&"SYS_ADMIN") { FactState::Bad } else { FactState::Weak };
            Fact::new("capabilities", state, format!("root without {}", missing.join(", ")))
        })
    }

    fn rlimits(&self) -> Option<Fact> {
        let word = |limit: Option<u64>| limit.map_or("unlimited".into(), |limit| limit.to_string());
        let (files, processes) = (getrlimit(Resource::Nofile).maximum, getrlimit(Resource::Nproc).maximum);
        let low = files.is_some_and(|files| files < 1024) || processes.is_some_and(|count| count < 512);
        Some(Fact {
            name: "rlimits",
            state: if low { FactState::Weak } else { FactState::Good },
            text: format!("{} files, {} processes at most", word(files), word(processes)),
            hint: low
                .then(|| "raise the hard limits (`ulimit -H -n`, `-u`) of what starts codebridge".into()),
        })
    }
}

/// Returns how many paths below `/proc` have something mounted over them: the fifth field of each line of `mountinfo`.
fn parse_covered(mountinfo: &str) -> usize {
    let points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    // systemd mounts this one everywhere.
    points.filter(|point| point.starts_with("/proc/") && *point != "/proc/sys/fs/binfmt_misc").count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(uid: u32, files: &[(&str, &str)]) -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = dir.path().to_path_buf();
        (dir, Host { root, uid, user: Some("ann".into()), filtered: false })
    }

    #[test]
    fn each_of_four_settings_forbids_user_namespaces() {
        let open = ("proc/self/ns/user", "");
        let state = |uid, files: &[(&str, &str)]| {
            let (_dir, host) = host(uid, files);
            host.user_namespaces().unwrap()
        };
        assert_eq!(state(1000, &[open]).state, FactState::Good);
        let closed = [
            ("proc/sys/user/max_user_namespaces", "0"),
            ("proc/sys/kernel/unprivileged_userns_clone", "0"),
            ("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
        ];
        for lock in closed {
            let fact = state(1000, &[open, lock]);
            assert_eq!(fact.state, FactState::Bad, "{lock:?}");
            assert!(fact.hint.unwrap().contains(lock.0.rsplit('/').next().unwrap()), "{lock:?}");
        }
        assert_eq!(state(0, &[open, closed[2]]).state, FactState::Good);
        let (_dir, host) = host(0, &[open]);
        let fact = Host { filtered: true, ..host }.user_namespaces().unwrap();
        assert_eq!(fact.state, FactState::Bad);
        assert!(fact.hint.unwrap().contains("seccomp"));
    }

    #[test]
    fn the_kinds_of_control_groups_are_told_apart() {
        let text = |uid, files: &[(&str, &str)]| {
            let (_dir, host) = host(uid, files);
            let fact = host.cgroups().unwrap();
            (fact.state, fact.text)
        };
        let v1 = ("sys/fs/cgroup/memory/x", "");
        assert!(text(0, &[v1]).1.starts_with("v1, writable"));
        assert_eq!(text(1000, &[v1]).0, FactState::Weak);
        assert!(text(0, &[v1, ("sys/fs/cgroup/unified/cgroup.controllers", "")]).1.contains("hybrid"));
        let v2 = [("sys/fs/cgroup/cgroup.controllers", "cpu memory pids"), ("proc/self/cgroup", "0::/a\n")];
        let given = |controllers| [v2[0], v2[1], ("sys/fs/cgroup/a/cgroup.controllers", controllers)];
        assert_eq!(text(1000, &given("memory pids")), (FactState::Good, "v2 with memory pids".into()));
        assert_eq!(text(1000, &given("pids")).0, FactState::Weak);
        assert_eq!(text(0, &[]).0, FactState::Weak);
    }

    #[test]
    fn a_container_with_a_covered_proc_is_named() {
        let mounts = "1 0 0:1 / / rw - overlay overlay rw\n2 1 0:2 / /proc rw - proc proc rw\n\
                      3 2 0:3 / /proc/acpi ro - tmpfs tmpfs rw\n4 2 0:3 / /proc/sys ro - proc proc rw\n";
        let (_dir, inside) = host(0, &[(".dockerenv", ""), ("proc/self/mountinfo", mounts)]);
        let fact = inside.container().unwrap();
        assert!(
            fact.state == FactState::Bad && fact.text.contains("docker container with 2 parts"),
            "{fact:?}"
        );
        let binfmt = "1 0 0:1 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw\n";
        let (_dir, outside) = host(0, &[("proc/self/mountinfo", binfmt)]);
        assert_eq!(outside.container(), None);
    }

    #[test]
    fn missing_capabilities_are_named() {
        let capabilities = |mask: &str| {
            let (_dir, host) = host(0, &[("proc/self/status", &format!("CapEff:\t{mask}\n"))]);
            host.capabilities().unwrap()
        };
        assert_eq!(capabilities("000001ffffffffff").state, FactState::Good);
        assert_eq!(capabilities("000001fffeffffff").text, "root without SYS_RESOURCE");
        assert_eq!(capabilities("00000000a80425fb").state, FactState::Bad);
    }

    #[test]
    fn this_host_is_described() {
        let names: Vec<_> = host_facts().iter().map(|fact| fact.name).collect();
        if cfg!(target_os = "linux") {
            assert!(names.contains(&"userns") && names.contains(&"cgroups"), "{names:?}");
        }
    }
}
