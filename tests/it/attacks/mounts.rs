//! A root filesystem with another file system mounted inside.

use std::fs;
use std::path::PathBuf;

use crate::harness::matrix::{Kind, Machine, which};
use crate::harness::{Suite, TestEnv};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    // A cluster has no folders of this machine.
    suite.kinds(
        &[Kind::Podman, Kind::Docker, Kind::Crun, Kind::Runc],
        "attacks",
        tests![what_is_mounted_inside_a_root_cannot_be_written_to],
    );
}

fn what_is_mounted_inside_a_root_cannot_be_written_to(env: &TestEnv) {
    let Some(rootfs) = &Machine::get().rootfs_314 else { panic!("no root filesystem was prepared") };
    let inside = rootfs.join("usr/local/games");
    // In mounts of the bridge's own: the sandboxes of others that start at this moment have the same root.
    let script = "mount -t tmpfs -o mode=1777 none \"$0\" && exec \"$@\"";
    let unshare = which("unshare").unwrap();
    let own = [unshare.to_str().unwrap(), "--mount", "--propagation=private", "--", "/bin/sh", "-c", script];
    let bridge = env
        .bridge()
        .behind(own.into_iter().chain([inside.to_str().unwrap()]))
        .var("MCP_BRIDGE_IMAGE", format!("dir:{}", rootfs.display()))
        .start();
    let code = python!("files", "name_of_the_error");
    assert_eq!(bridge.run(code).ok(), "EROFS");
    // The attack is sound: outside of a sandbox anybody can.
    let file = PathBuf::from(format!("/proc/{}/root{}/file", bridge.pid(), inside.display()));
    assert!(!file.exists());
    fs::write(&file, "x").unwrap();
    assert!(!inside.join("file").exists(), "it is not mounted");
    let _ = bridge.close();
}
