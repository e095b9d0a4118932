//! The process that supervises a podman machine which a bridge started.
//!
//! It outlives the bridge. So it holds neither a pipe nor the terminal of the bridge's caller, and is no descendant of the
//! bridge, where whoever ends a tree of processes would find it.

use std::io;
use std::path::{Path, PathBuf};

use codebridge_runtimes::exec::{CommandLine, spawn_detached};
use codebridge_runtimes::supervise_machine;
use rustix::process::{chdir, setsid};

/// The hidden subcommand that a supervisor is started with.
pub const SUBCOMMAND: &str = "machine-supervisor";
/// Where the system lists the open descriptors of a process.
const DESCRIPTORS: &str = "/dev/fd";

/// Returns the command that starts a supervisor, without the arguments that name the machine.
pub fn command() -> Option<CommandLine> {
    Some(CommandLine::new(std::env::current_exe().ok()?).arg(SUBCOMMAND))
}

/// Starts this program again as a detached process, which supervises the machine.
///
/// # Errors
/// The process cannot be set up.
pub fn run(detached: bool, folder: PathBuf, podman: &Path, machine: &str) -> io::Result<()> {
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

/// Gives up the caller's session, folder and descriptors. Must be called before this process opens anything.
fn leave_the_caller() {
    // A process that leads a group cannot start a session, and already has one of its own.
    let _ = setsid();
    // The caller's current folder can be unmounted.
    let _ = chdir("/");
    let entries = std::fs::read_dir(DESCRIPTORS).into_iter().flatten().flatten();
    let listed: Vec<i32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    // One of them belonged to the listing.
    let is_open = |fd: &i32| std::fs::symlink_metadata(format!("{DESCRIPTORS}/{fd}")).is_ok();
    for fd in listed.into_iter().filter(|fd| *fd > 2).filter(is_open) {
        #[expect(unsafe_code, reason = "descriptors that others left open are known by their numbers only")]
        // SAFETY: it is open, and nothing in this process owns it: this process has opened only the listing, which is
        // closed by now.
        unsafe {
            rustix::io::close(fd);
        }
    }
}
