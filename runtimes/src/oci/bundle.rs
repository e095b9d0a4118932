//! `config.json` of a bundle: <https://github.com/opencontainers/runtime-spec/blob/main/config.md>.

use std::path::Path;

use oci_spec::OciSpecError;
use oci_spec::runtime::{
    Capability, LinuxBuilder, LinuxCapabilitiesBuilder, LinuxCpuBuilder, LinuxDeviceCgroupBuilder,
    LinuxMemoryBuilder, LinuxNamespaceBuilder, LinuxNamespaceType, LinuxPidsBuilder, LinuxResources,
    LinuxResourcesBuilder, Mount, MountBuilder, PosixRlimit, PosixRlimitBuilder, PosixRlimitType, Process,
    ProcessBuilder, RootBuilder, Spec, SpecBuilder, UserBuilder,
};

use crate::cgroup;
use crate::rlimits::Rlimits;
use crate::root::ComposedRoot;
use crate::runtime::CgroupMode;
use crate::seccomp;
use crate::spec::{SandboxSpec, Tmpfs};

use super::idmap::IdMaps;

/// The period of the cpu quota in microseconds, the kernel's default.
const CPU_PERIOD: u64 = 100_000;
/// `/dev/shm` is part of a minimal `/dev`: POSIX semaphores live there.
const SHM_SIZE: u64 = 64 << 20;

const NAMESPACES: [LinuxNamespaceType; 7] = [
    LinuxNamespaceType::User,
    LinuxNamespaceType::Pid,
    LinuxNamespaceType::Mount,
    LinuxNamespaceType::Ipc,
    LinuxNamespaceType::Uts,
    LinuxNamespaceType::Network,
    LinuxNamespaceType::Cgroup,
];

/// Parts of `/proc` and `/sys` that reveal the host or reach its hardware.
const MASKED: &[&str] = &[
    "/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
    "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/firmware",
];
/// Parts of `/proc` that programs read and nobody in a sandbox writes.
const READ_ONLY: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

pub(super) fn config(
    spec: &SandboxSpec,
    root: &ComposedRoot,
    skeleton: &Path,
    maps: &IdMaps,
    cgroups: CgroupMode,
    rlimits: &Rlimits,
) -> Result<Spec, OciSpecError> {
    let (uids, gids) = maps.to_oci()?;
    let namespaces = NAMESPACES
        .into_iter()
        .map(|kind| LinuxNamespaceBuilder::default().typ(kind).build())
        .collect::<Result<Vec<_>, _>>()?;
    let mut linux = LinuxBuilder::default()
        .namespaces(namespaces)
        .uid_mappings(uids)
        .gid_mappings(gids)
        .masked_paths(MASKED.iter().map(ToString::to_string).collect::<Vec<_>>())
        .readonly_paths(READ_ONLY.iter().map(ToString::to_string).collect::<Vec<_>>())
        .seccomp(seccomp::profile(spec.unix_sockets())?);
    linux = match cgroups {
        CgroupMode::Direct => linux.cgroups_path(cgroup::path_of(&spec.name)).resources(resources(spec)?),
        // slice:prefix:name, <https://github.com/opencontainers/runc/blob/main/docs/systemd.md>
        CgroupMode::Systemd => {
            linux.cgroups_path(format!("user.slice:codebridge:{}", spec.name)).resources(resources(spec)?)
        }
        CgroupMode::Unmanaged => linux,
    };
    SpecBuilder::default()
        .process(process(spec, maps, rlimits)?)
        .root(RootBuilder::default().path(skeleton).readonly(true).build()?)
        .hostname(spec.hostname.clone())
        .mounts(mounts(spec, root, maps)?)
        .linux(linux.build()?)
        .build()
}

fn process(spec: &SandboxSpec, maps: &IdMaps, rlimits: &Rlimits) -> Result<Process, OciSpecError> {
    let none = || std::collections::HashSet::<Capability>::new();
    let capabilities = LinuxCapabilitiesBuilder::default()
        .bounding(none())
        .effective(none())
        .inheritable(none())
        .permitted(none())
        .ambient(none())
        .build()?;
    let env: Vec<String> = spec.env.iter().map(|(key, value)| format!("{key}={value}")).collect();
    ProcessBuilder::default()
        .terminal(false)
        .user(UserBuilder::default().uid(maps.user.uid).gid(maps.user.gid).build()?)
        .args(spec.argv.clone())
        .env(env)
        .cwd(spec.cwd.clone())
        .capabilities(capabilities)
        .rlimits(posix_rlimits(rlimits)?)
        .no_new_privileges(true)
        .build()
}

fn posix_rlimits(rlimits: &Rlimits) -> Result<Vec<PosixRlimit>, OciSpecError> {
    let named = [
        (PosixRlimitType::RlimitNofile, Some(rlimits.descriptors)),
        (PosixRlimitType::RlimitCore, Some(0)),
        (PosixRlimitType::RlimitData, rlimits.data),
        (PosixRlimitType::RlimitNproc, rlimits.processes),
    ];
    named
        .into_iter()
        .filter_map(|(kind, value)| Some((kind, value?)))
        .map(|(kind, value)| PosixRlimitBuilder::default().typ(kind).soft(value).hard(value).build())
        .collect()
}

fn resources(spec: &SandboxSpec) -> Result<LinuxResources, OciSpecError> {
    let bytes = i64::try_from(spec.limits.memory).unwrap_or(i64::MAX);
    let mut memory = LinuxMemoryBuilder::default().limit(bytes);
    if swap_is_accounted() {
        // Memory and swap together: equal values leave no swap at all.
        memory = memory.swap(bytes);
    }
    let mut resources = LinuxResourcesBuilder::default()
        .devices(vec![LinuxDeviceCgroupBuilder::default().allow(false).access("rwm").build()?])
        .memory(memory.build()?)
        .pids(LinuxPidsBuilder::default().limit(i64::from(spec.limits.pids)).build()?);
    if let Some(cpus) = spec.limits.cpus {
        #[expect(clippy::cast_possible_truncation, reason = "a number of processors times 100,000 fits")]
        let quota = (cpus * 100_000.0) as i64;
        resources = resources.cpu(LinuxCpuBuilder::default().quota(quota).period(CPU_PERIOD).build()?);
    }
    resources.build()
}

/// Kernels without swap accounting refuse a swap limit: <https://docs.kernel.org/admin-guide/cgroup-v1/memory.html>.
fn swap_is_accounted() -> bool {
    let v1 = Path::new("/sys/fs/cgroup/memory");
    !v1.is_dir() || v1.join("memory.memsw.limit_in_bytes").exists()
}

fn mount(
    kind: &str,
    source: impl AsRef<Path>,
    target: &str,
    options: &[impl ToString],
) -> Result<Mount, OciSpecError> {
    MountBuilder::default()
        .typ(kind)
        .source(source.as_ref())
        .destination(target)
        .options(options.iter().map(ToString::to_string).collect::<Vec<_>>())
        .build()
}

fn tmpfs(tmpfs: &Tmpfs) -> Result<Mount, OciSpecError> {
    let size = format!("size={}", tmpfs.size);
    let files = format!("nr_inodes={}", tmpfs.files());
    mount("tmpfs", "tmpfs", &tmpfs.target, &["noexec", "nosuid", "nodev", "mode=1777", &size, &files])
}

/// Returns the mounts: binds first, so that a tmpfs below one of them covers it.
fn mounts(spec: &SandboxSpec, root: &ComposedRoot, maps: &IdMaps) -> Result<Vec<Mount>, OciSpecError> {
    let mut mounts = Vec::new();
    for bind in &root.binds {
        mounts.push(mount("bind", bind.told(), &bind.target, &bind.options())?);
    }
    mounts.push(mount("proc", "proc", "/proc", &["nosuid", "noexec", "nodev"])?);
    mounts.push(mount(
        "tmpfs",
        "tmpfs",
        "/dev",
        &["nosuid", "noexec", "strictatime", "mode=755", "size=65536k"],
    )?);
    // Group 5 is tty by convention; a map of one id does not have it.
    let mut pts = vec!["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"];
    if maps.has_gid(5) {
        pts.push("gid=5");
    }
    mounts.push(mount("devpts", "devpts", "/dev/pts", &pts)?);
    mounts.push(tmpfs(&Tmpfs { target: "/dev/shm".into(), size: SHM_SIZE })?);
    for writable in &spec.tmpfs {
        mounts.push(tmpfs(writable)?);
    }
    Ok(mounts)
}
