//! What a launch would do, for every way to drive each runtime: command lines and bundles as snapshots.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use codebridge_runtimes::{
    AnyDriver, CgroupMode, HostFolder, Instance, Limits, OwnLimits, Owner, Plan, RootFs, RuntimeId,
    RuntimeKind, SandboxSpec, StateDir, Tmpfs, User,
};
use serde_json::Value;

/// A state folder and a root filesystem, and the plan made with them.
struct Planned {
    plan: Plan,
    base: tempfile::TempDir,
}

fn owner() -> Owner {
    Owner {
        instance: "abc".into(),
        pid: 42,
        start_time: 4242,
        boot: "boot".into(),
        pid_namespace: 7,
        machine: "machine".into(),
        host: "host".into(),
    }
}

fn spec(instance: &Instance, base: &Path, root: RootFs, cpus: Option<f64>) -> SandboxSpec {
    SandboxSpec {
        name: instance.next_name(),
        root,
        argv: ["python3", "-c", "print(1)"].map(String::from).to_vec(),
        env: vec![("HOME".into(), "/workspace".into())],
        cwd: "/workspace".into(),
        hostname: "sandbox".into(),
        tmpfs: vec![Tmpfs { target: "/workspace".into(), size: 128 << 20 }],
        folders: vec![HostFolder { source: base.join("a:b,c"), target: "/packages".into() }],
        shares: Vec::new(),
        copied_shares: Vec::new(),
        user: User { uid: 65534, gid: 65534 },
        limits: Limits { memory: 512 << 20, pids: 128, cpus, descriptors: 64 },
        owner: owner(),
        security_options: vec!["label=disable".into()],
        volumes: Vec::new(),
        pod: Default::default(),
        knows_addresses: false,
    }
}

fn plan(kind: RuntimeKind, cgroups: CgroupMode, root: Option<RootFs>, cpus: Option<f64>) -> Planned {
    let base = tempfile::tempdir().unwrap();
    std::fs::set_permissions(base.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    for folder in ["root/usr/bin", "root/etc", "root/workspace", "state", "a:b,c"] {
        std::fs::create_dir_all(base.path().join(folder)).unwrap();
    }
    std::os::unix::fs::symlink("usr/bin", base.path().join("root/bin")).unwrap();
    let instance = StateDir::at(base.path().join("state")).create_instance(&owner()).unwrap();
    let root = root.unwrap_or_else(|| RootFs::Directory(base.path().join("root")));
    let mut spec = spec(&instance, base.path(), root, cpus);
    if kind == RuntimeKind::Docker {
        spec.volumes = vec!["/data".into(), "/workspace".into()];
    }
    let program = PathBuf::from("/usr/bin").join(kind.program_name());
    let id = RuntimeId::local(kind, program, cgroups);
    let plan = AnyDriver::new(id).plan(&spec, &instance).unwrap();
    Planned { plan, base }
}

/// Paths and numbers of this machine, replaced.
fn plain(text: &str, base: &Path) -> String {
    let mut text = text.replace(&base.display().to_string(), "BASE");
    // The skeleton's folder is named by a hash, 16 digits long.
    while let Some(start) = text.find("/roots/").filter(|start| !text[start + 7..].starts_with("HASH")) {
        text.replace_range(start + 7..start + 23, "HASH");
    }
    while let Some(start) = text.find("skeleton:").filter(|start| !text[start + 9..].starts_with("HASH")) {
        text.replace_range(start + 9..start + 25, "HASH");
    }
    text
}

fn arguments(planned: &Planned) -> String {
    let args: Vec<String> =
        planned.plan.command.args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let nproc = |line: &str| line.starts_with("--ulimit=nproc=");
    // Of machines with cgroup v1 only.
    let mask = |line: &str| line == "--security-opt=mask=/sys/fs/cgroup";
    let lines = args
        .iter()
        .filter(|line| !mask(line))
        .map(|line| if nproc(line) { "--ulimit=nproc=MACHINE" } else { line });
    plain(&lines.collect::<Vec<_>>().join("\n"), planned.base.path())
}

/// `config.json` without the parts that have tests of their own: the seccomp profile and the id maps.
fn bundle(planned: &Planned) -> String {
    let (_, text) = planned.plan.files.iter().find(|(path, _)| path.ends_with("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(text).unwrap();
    for part in ["seccomp", "uidMappings", "gidMappings"] {
        assert!(config["linux"].as_object_mut().unwrap().remove(part).is_some(), "{part} is missing");
    }
    for limit in config["process"]["rlimits"].as_array_mut().unwrap() {
        if limit["type"] == "RLIMIT_NPROC" {
            limit["hard"] = "MACHINE".into();
            limit["soft"] = "MACHINE".into();
        }
    }
    for mount in config["mounts"].as_array_mut().unwrap() {
        // Flags that the file system below the bind has on this machine.
        let machine = ["relatime", "noatime", "nodiratime", "noexec"];
        if mount["type"] == "bind" {
            mount["options"]
                .as_array_mut()
                .unwrap()
                .retain(|option| !machine.contains(&option.as_str().unwrap()));
        }
    }
    plain(&serde_json::to_string_pretty(&config).unwrap(), planned.base.path())
}

#[test]
fn podman_with_an_image() {
    let planned =
        plan(RuntimeKind::Podman, CgroupMode::Direct, Some(RootFs::Image("python:3".into())), Some(1.5));
    insta::assert_snapshot!(arguments(&planned));
}

#[test]
fn podman_with_a_folder_and_without_control_groups() {
    insta::assert_snapshot!(arguments(&plan(RuntimeKind::Podman, CgroupMode::Unmanaged, None, None)));
}

#[test]
fn docker_with_a_folder() {
    insta::assert_snapshot!(arguments(&plan(RuntimeKind::Docker, CgroupMode::Direct, None, None)));
}

#[test]
fn crun_with_control_groups() {
    let planned = plan(RuntimeKind::Crun, CgroupMode::Direct, None, Some(1.5));
    insta::assert_snapshot!(arguments(&planned));
    // Swap is limited where the kernel counts it.
    insta::assert_snapshot!(
        bundle(&planned)
            .replace("        \"swap\": 536870912,\n", "")
            .replace(",\n        \"swap\": 536870912", "")
    );
}

#[test]
fn runc_without_control_groups() {
    let planned = plan(RuntimeKind::Runc, CgroupMode::Unmanaged, None, None);
    insta::assert_snapshot!(arguments(&planned));
    insta::assert_snapshot!(bundle(&planned));
}

#[test]
fn kubernetes_with_an_image() {
    let target = "kubernetes:big/boxes".parse().unwrap();
    let base = tempfile::tempdir().unwrap();
    std::fs::set_permissions(base.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let instance = StateDir::at(base.path().join("state")).create_instance(&owner()).unwrap();
    std::fs::create_dir(base.path().join("a:b,c")).unwrap();
    let mut spec = spec(&instance, base.path(), RootFs::Image("python:3".into()), Some(1.5));
    spec.pod =
        serde_json::from_str(r#"{"runtimeClassName": "gvisor", "nodeSelector": {"pool": "code"}}"#).unwrap();
    let mut id = RuntimeId::at(&target, "/usr/bin/kubectl", CgroupMode::Direct);
    id.address.variables.clear();
    let driver = AnyDriver::new(id);
    let error = driver.plan(&spec, &instance).unwrap_err().to_string();
    assert!(error.ends_with("cannot be shared with a pod, which may be on any node"), "{error}");
    spec.folders.clear();
    let plan = driver.plan(&spec, &instance).unwrap();
    assert!(plan.own_filter.is_some());
    let mut lines: Vec<String> =
        plan.command.args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let last = lines.pop().unwrap();
    let pod: Value = serde_json::from_str(last.strip_prefix("--overrides=").unwrap()).unwrap();
    insta::assert_snapshot!(format!("{}\n{}", lines.join("\n"), serde_json::to_string_pretty(&pod).unwrap()));
    spec.root = RootFs::Host;
    assert!(driver.plan(&spec, &instance).is_err());
}

#[test]
fn without_a_control_group_the_program_counts_its_processes_itself() {
    for kind in RuntimeKind::ALL {
        let grouped = plan(kind, CgroupMode::Direct, None, None).plan;
        assert_eq!(grouped.own_limits, OwnLimits::default(), "{kind}");
        let alone = plan(kind, CgroupMode::Unmanaged, None, None).plan;
        assert_eq!(alone.own_limits.processes, Some(128), "{kind}");
    }
}

#[test]
fn systemd_is_asked_for_a_delegated_group() {
    let crun = plan(RuntimeKind::Crun, CgroupMode::Systemd, None, None);
    assert!(arguments(&crun).contains("--cgroup-manager=systemd"));
    assert!(bundle(&crun).contains(r#""cgroupsPath": "user.slice:codebridge:codebridge-abc-1""#));
    let runc = plan(RuntimeKind::Runc, CgroupMode::Systemd, None, None);
    assert!(arguments(&runc).contains("--systemd-cgroup"));
}
