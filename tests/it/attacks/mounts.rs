//! A root folder with another file system mounted inside.

use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::matrix::{Machine, which};
use crate::harness::process::Prepared;
use crate::harness::{Suite, TestEnv};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime("attacks", tests![what_is_mounted_inside_a_root_cannot_be_written_to]);
}

/// Mounts of a test, undone when it ends.
struct Mounts<'a> {
    env: &'a TestEnv,
    places: Vec<PathBuf>,
}

impl Mounts<'_> {
    fn mount(&mut self, arguments: &[&str], place: &Path) {
        let mut argv = vec![which("mount").unwrap().into_os_string()];
        argv.extend(arguments.iter().map(Into::into));
        argv.push(place.into());
        let _ = self.command(argv).run(self.env.guard()).ok();
        self.places.push(place.into());
    }

    /// As root, whoever the test is.
    fn command(&self, argv: Vec<std::ffi::OsString>) -> Prepared {
        Prepared { argv, env: self.env.variables(), cwd: "/".into() }
    }
}

impl Drop for Mounts<'_> {
    fn drop(&mut self) {
        for place in self.places.iter().rev() {
            let argv = vec![which("umount").unwrap().into(), "--lazy".into(), place.into()];
            let _ = self.command(argv).run(self.env.guard());
        }
    }
}

fn what_is_mounted_inside_a_root_cannot_be_written_to(env: &TestEnv) {
    let Some(rootfs) = &Machine::get().rootfs_314 else { panic!("no root filesystem was prepared") };
    // A root of this test's own: what is mounted in that of all would come up in the sandboxes of others that start at
    // this moment. Nobody can remove anything by it.
    let root = env.folder("root");
    let mut mounts = Mounts { env, places: Vec::new() };
    mounts.mount(&["--bind", "-o", "ro", rootfs.to_str().unwrap()], &root);
    let inside = root.join("usr/local/games");
    mounts.mount(&["-t", "tmpfs", "-o", "mode=1777", "none"], &inside);
    let bridge = env.bridge().var("MCP_BRIDGE_IMAGE", format!("dir:{}", root.display())).start();
    let code = "import errno\n\
                try: open('/usr/local/games/file', 'w')\n\
                except OSError as error: print(errno.errorcode[error.errno])";
    assert_eq!(bridge.run(code).ok(), "EROFS");
    assert!(!inside.join("file").exists());
    // The attack is sound: outside of a sandbox anybody can.
    fs::write(inside.join("file"), "x").unwrap();
    let _ = bridge.close();
}
