//! A small folder in memory, which a test fills or makes read-only.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use super::env::TestEnv;
use super::matrix::which;
use super::process::Prepared;

/// A folder that root has mounted, and takes away at the end.
#[derive(Debug)]
pub(crate) struct Mounted<'a>(&'a TestEnv, pub(crate) PathBuf);

/// The largest file that the folders of the tests hold.
const BALLAST: usize = 1 << 20;

impl<'a> Mounted<'a> {
    /// A small folder in memory, of the test's user.
    pub(crate) fn new(env: &'a TestEnv, folder: PathBuf) -> Self {
        Self::of_size(env, folder, BALLAST)
    }

    /// The same with so many bytes, in whole pages.
    pub(crate) fn of_size(env: &'a TestEnv, folder: PathBuf, size: usize) -> Self {
        let mounted = Self(env, folder);
        let owner = env.user().map_or(String::new(), |user| format!(",uid={},gid={}", user.uid, user.gid));
        mounted.mount(&format!("size={size},mode=700{owner}"));
        mounted
    }

    fn mount(&self, options: &str) {
        self.as_root("mount", &["-t", "tmpfs", "-o", options, "none"]);
    }

    pub(crate) fn remount(&self, options: &str) {
        self.as_root("mount", &["-o", &format!("remount,{options}")]);
    }

    fn as_root(&self, program: &str, args: &[&str]) {
        let mut argv = vec![which(program).unwrap().into_os_string()];
        argv.extend(args.iter().map(Into::into));
        argv.push(self.1.clone().into());
        let command = Prepared { argv, env: BTreeMap::new(), cwd: "/".into() };
        let _ = command.run(self.0.guard()).ok();
    }

    fn ballast(&self) -> PathBuf {
        self.1.join("ballast")
    }

    /// Leaves no space in it.
    pub(crate) fn fill(&self) {
        let error = fs::write(self.ballast(), vec![0; 2 * BALLAST]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    }

    pub(crate) fn free(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        self.as_root("umount", &["--lazy"]);
    }
}
