//! What podman and docker are told for a sandbox: their flags, computed without starting anything.

use std::path::Path;

use crate::cgroup;
use crate::plan::{self, HeldLimits, Mechanism, Plan, PlanError, ShareMechanism, Supply, Volume};
use crate::rlimits::{self, OwnLimits};
use crate::root::ComposedRoot;
use crate::runtime::CgroupMode;
use crate::seccomp::{self, UnixSockets};
use crate::spec::{SandboxSpec, Tmpfs, User};
use crate::state::{Instance, Record};
use crate::watched_folders::WatchedFolders;

use super::skeleton;

use super::driver::EngineDriver;

/// In MiB. `/dev/shm` is part of a minimal `/dev`: POSIX semaphores live there.
const SHM_SIZE: u64 = 64;

impl EngineDriver {
    pub(crate) fn plan(&self, spec: &SandboxSpec, instance: &Instance) -> Result<Plan, PlanError> {
        let dialect = self.dialect();
        let volumes = if self.id.remote { Volume::all_of(spec) } else { Vec::new() };
        let (host_binds, supplied) = match self.id.remote {
            true => (Vec::new(), Vec::new()),
            false => self.supply(spec.user).plan(spec, instance),
        };
        let mut root = ComposedRoot::of(spec, host_binds.clone())?;
        if let Some(root) = &mut root {
            root.ensure_files("/etc", dialect.mounts_in_etc)?;
        }
        let mut binds = match &root {
            Some(root) => root.binds.clone(),
            None => host_binds,
        };
        let aliases = plan::alias(&mut binds, &instance.bundle(&spec.name), is_plain);
        // An engine elsewhere has copies, in which no socket is.
        let unix = if self.id.remote { UnixSockets::Any } else { spec.unix_sockets() };
        let file = if unix == UnixSockets::Any { "seccomp.json" } else { "seccomp-shares.json" };
        // A remote engine reads it from a folder that both machines have.
        let profile = match &self.id.shared {
            Some(folder) => folder.join(".codebridge/seccomp.json"),
            None => instance.path().join(file),
        };
        let text = serde_json::to_string(&seccomp::profile(unix)?)
            .map_err(|error| PlanError::Config(error.into()))?;
        let mut args: Vec<String> =
            ["run", "--name", spec.name.as_str(), "--interactive", "--rm"].map(String::from).into();
        args.extend(dialect.flags(self.id.remote).map(String::from));
        args.extend(self.constraints(spec, &profile));
        args.extend(spec.owner.label_flags());
        args.extend(
            dialect.environment(spec, self.id.remote).map(|(key, value)| format!("--env={key}={value}")),
        );
        args.extend(binds.iter().map(|bind| {
            format!("--volume={}:{}:ro{}", bind.told().display(), bind.target, dialect.bind_options)
        }));
        args.extend(volumes.iter().map(Volume::flag));
        let mut image = None;
        let reference = match &root {
            None => spec.root.to_string(),
            Some(root) => {
                let skeleton = instance.skeleton_path(root);
                if dialect.starts_folders {
                    args.push("--rootfs".into());
                    skeleton.display().to_string()
                } else {
                    let name = skeleton::image_name(&skeleton);
                    image = Some(name.clone());
                    name
                }
            }
        };
        let (program, rest) = spec.argv.split_first().ok_or(crate::spec::SpecError::Command)?;
        if root.is_some() && dialect.starts_folders {
            // With --rootfs there is no image whose entry point could be in the way.
            args.extend([reference, program.clone()]);
        } else {
            args.extend([format!("--entrypoint={program}"), "--pull=never".into(), reference]);
        }
        args.extend(rest.iter().cloned());
        // The processes of a remote engine cannot be seen from here.
        let held = HeldLimits::of(
            self.id.cgroups,
            spec.limits.cpus,
            !self.id.remote,
            self.id.remote || !cgroup::is_v1(),
        );
        let writes = dialect.writes_to_working_directory && !self.id.remote;
        Ok(Plan {
            command: self.engine().args(args),
            folder: writes.then(|| instance.path().to_path_buf()),
            files: vec![(profile, text)],
            aliases,
            supplied,
            volumes,
            root,
            image,
            record: Record::now(&spec.name, &self.id, spec.root.clone()),
            held,
            memory: spec.limits.memory,
            folders: self.watched_folders(spec, held),
            own_limits: OwnLimits::of(spec, self.id.cgroups == CgroupMode::Unmanaged),
            own_filter: None,
        })
    }

    /// Returns how a sandbox of this user gets its shares.
    fn supply(&self, user: User) -> Supply {
        match (self.dialect().starts_as_child, rustix::process::getuid().is_root()) {
            (true, true) => Supply::Mapped(user),
            (true, false) if self.owner_maps(user).is_some() => Supply::Mounted,
            _ => Supply::Copied,
        }
    }

    pub(crate) fn share_mechanism(&self, user: User) -> ShareMechanism {
        if self.id.remote { ShareMechanism::Volume } else { self.supply(user).mechanism() }
    }

    /// Returns the flags that make the sandbox's user the ordinary user who runs the engine, so that it reads the shares: 0 of the
    /// engine's namespace is that user. None where there are too few ids.
    fn owner_maps(&self, User { uid, gid }: User) -> Option<[String; 4]> {
        let (uids, gids) = self.id.ids?;
        (uid > 0 && gid > 0 && uid < uids && gid < gids).then(|| {
            [
                format!("--uidmap={uid}:0:1"),
                format!("--uidmap=0:1:{uid}"),
                format!("--gidmap={gid}:0:1"),
                format!("--gidmap=0:1:{gid}"),
            ]
        })
    }

    /// Returns the flags of a sandbox that reads its shares as the user who runs it; None for others.
    fn own_maps(&self, spec: &SandboxSpec) -> Option<[String; 4]> {
        let shares = !spec.shares.is_empty() && !self.id.remote;
        let mounted = shares && matches!(self.supply(spec.user), Supply::Mounted);
        self.owner_maps(spec.user).filter(|_| mounted)
    }

    /// Returns every constraint of the specification as flags that both engines spell alike.
    fn constraints(&self, spec: &SandboxSpec, profile: &Path) -> Vec<String> {
        let rlimits = rlimits::of(spec, self.id.cgroups == CgroupMode::Unmanaged);
        let mut args = vec![
            "--network=none".to_string(),
            "--read-only".into(),
            "--cap-drop=ALL".into(),
            "--security-opt=no-new-privileges".into(),
            format!("--user={}:{}", spec.user.uid, spec.user.gid),
            format!("--workdir={}", spec.cwd),
            format!("--hostname={}", spec.hostname),
            "--ipc=private".into(),
            "--cgroupns=private".into(),
            format!("--shm-size={SHM_SIZE}m"),
            format!("--ulimit=nofile={0}:{0}", rlimits.descriptors),
            "--ulimit=core=0:0".into(),
            // Both engines mount /dev/mqueue, where anybody may make files.
            "--ulimit=msgqueue=0:0".into(),
        ];
        args.extend(rlimits.processes.map(|count| format!("--ulimit=nproc={count}:{count}")));
        if self.profile_arrives() {
            args.push(format!("--security-opt=seccomp={}", profile.display()));
        }
        args.extend(self.tmpfs_flags(spec));
        if self.dialect().masks_paths && (self.id.remote || cgroup::is_v1()) {
            // crun mounts the controllers on a tmpfs that anybody may write to; a remote engine may do the same.
            args.push("--security-opt=mask=/sys/fs/cgroup".into());
        }
        args.extend(self.limit_flags(spec, rlimits.data));
        args.extend(self.own_maps(spec).into_iter().flatten());
        args.extend(
            spec.security_options.iter().map(|option| format!("--security-opt={}", absolute(option))),
        );
        args
    }

    /// Returns the writable folders, and an empty one over each volume of the image.
    fn tmpfs_flags(&self, spec: &SandboxSpec) -> Vec<String> {
        let mut args = Vec::new();
        args.extend(spec.tmpfs.iter().map(|tmpfs| {
            let mut option =
                format!("--tmpfs={}:rw,noexec,nosuid,nodev,size={},mode=1777", tmpfs.target, tmpfs.size);
            if self.dialect().owns_tmpfs {
                // Where the image lacks the folder, runc gives the tmpfs the mode that docker made it with, 0755.
                let User { uid, gid } = spec.user;
                option.push_str(&format!(",uid={uid},gid={gid},nr_inodes={}", tmpfs.files()));
            }
            option
        }));
        let is_tmpfs =
            |path: &String| spec.tmpfs.iter().any(|tmpfs| tmpfs.target == path.trim_end_matches('/'));
        args.extend(spec.volumes.iter().filter(|path| !is_tmpfs(path)).map(|path| {
            // An anonymous volume cannot be read-only, and one with a name would be left behind: an empty tmpfs hides the folder.
            format!("--tmpfs={path}:ro,noexec,nosuid,nodev,size=4096")
        }));
        if self.dialect().asks_for_shm {
            args.push(format!("--tmpfs=/dev/shm:rw,noexec,nosuid,nodev,size={SHM_SIZE}m,mode=1777"));
        }
        args
    }

    /// Returns the writable folders whose files only the watch can limit: no engine has an option for those of `/dev/shm`.
    fn watched_folders(&self, spec: &SandboxSpec, held: HeldLimits) -> WatchedFolders {
        if held.memory != Mechanism::Watch {
            return WatchedFolders::default();
        }
        let shm = Tmpfs { target: "/dev/shm".into(), size: SHM_SIZE << 20 };
        let without_limit = spec.tmpfs.iter().filter(|_| !self.dialect().owns_tmpfs).cloned();
        WatchedFolders::of(without_limit.chain([shm]))
    }

    /// Returns the limits of a control group, or what replaces it.
    fn limit_flags(&self, spec: &SandboxSpec, data: Option<u64>) -> Vec<String> {
        let mut args = Vec::new();
        if self.id.cgroups == CgroupMode::Unmanaged {
            // Neither engine has a flag for the address space: the sandboxed program has to lower that limit by itself.
            args.extend(data.map(|data| format!("--ulimit=data={data}:{data}")));
            // A namespace of its own with the same ids, so that the image's files keep their owners.
            let User { uid, gid } = spec.user;
            let own = self.id.ids.filter(|_| self.own_maps(spec).is_none());
            let (uids, gids) = own.filter(|&(uids, gids)| uid < uids && gid < gids).unzip();
            args.extend(uids.map(|count| format!("--uidmap=0:0:{count}")));
            args.extend(gids.map(|count| format!("--gidmap=0:0:{count}")));
        } else {
            let memory = spec.limits.memory;
            // Memory and swap together: equal values leave no swap at all.
            args.extend([format!("--memory={memory}b"), format!("--memory-swap={memory}b")]);
            args.push(format!("--pids-limit={}", spec.limits.pids));
            args.extend(spec.limits.cpus.map(|cpus| format!("--cpus={cpus}")));
        }
        args
    }
}

/// Returns whether a path can be part of a `--volume`, whose parts are separated by colons.
fn is_plain(path: &Path) -> bool {
    path.to_str().is_some_and(|path| !path.contains([':', '\n']))
}

/// Returns a security option whose profile, if it is a relative path, is the file in our working directory.
fn absolute(option: &str) -> String {
    let relative = option.strip_prefix("seccomp=").filter(|path| Path::new(path).is_relative());
    let file = relative.and_then(|path| std::path::absolute(path).ok()).filter(|file| file.is_file());
    file.map_or_else(|| option.to_string(), |file| format!("seccomp={}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_of_the_user_is_found_from_any_folder() {
        let file = std::path::absolute("Cargo.toml").unwrap();
        assert_eq!(absolute("seccomp=Cargo.toml"), format!("seccomp={}", file.display()));
        for other in ["seccomp=unconfined", "seccomp=/etc/profile.json", "label=disable"] {
            assert_eq!(absolute(other), other);
        }
    }
}
