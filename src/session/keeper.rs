//! The process that looks after a podman machine which a bridge started: it outlives the bridge, so nothing of the bridge's
//! caller may stay in its hands, neither a pipe nor a terminal, and nobody who ends a tree of processes may find it there.

use std::io;
use std::path::{Path, PathBuf};

use codebridge_runtimes::exec::{CommandLine, spawn_detached};
use codebridge_runtimes::supervise_machine;
use rustix::process::{chdir, setsid};

/// The hidden subcommand that a keeper is started with.
pub const SUBCOMMAND: &str = "machine-keeper";
/// Where the system lists a process's own.
const DESCRIPTORS: &str = "/dev/fd";

/// What starts a keeper once it is told which machine.
pub(super) fn command() -> Option<CommandLine> {
    Some(CommandLine::new(std::env::current_exe().ok()?).arg(SUBCOMMAND))
}

/// What the subcommand does: starts itself once more as nobody's child, and that one keeps the machine.
///
/// # Errors
/// It cannot even begin.
pub fn keep(detached: bool, folder: PathBuf, podman: &Path, machine: &str) -> io::Result<()> {
    if detached {
        leave_the_caller();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        if detached {
            supervise_machine(folder, podman, machine).await;
            return Ok(());
        }
        let again = CommandLine::new(std::env::current_exe()?).arg(SUBCOMMAND).arg("--detached");
        let again = again.arg(folder).arg(podman).arg(machine);
        spawn_detached(&again).map_err(io::Error::other)
    })
}

/// To be called before anything else is done in this process.
fn leave_the_caller() {
    // A process that leads a group cannot, and is by itself already.
    let _ = setsid();
    // Whatever was the current folder can be unmounted.
    let _ = chdir("/");
    let entries = std::fs::read_dir(DESCRIPTORS).into_iter().flatten().flatten();
    let listed: Vec<i32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    // The listing had one itself.
    let is_open = |fd: &i32| std::fs::symlink_metadata(format!("{DESCRIPTORS}/{fd}")).is_ok();
    for fd in listed.into_iter().filter(|fd| *fd > 2).filter(is_open) {
        #[expect(unsafe_code, reason = "descriptors that others left open are known by their numbers only")]
        // SAFETY: it is open, and nothing in this process holds it, because none was opened here yet but that of the
        // listing, which is closed by now.
        unsafe {
            rustix::io::close(fd);
        }
    }
}
