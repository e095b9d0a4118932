//! Processes of a test: all are started here, and the guard of the test ends them when the test hangs.
//!
//! When a test takes longer than its limit, its guard kills every child that the test has started. A test that waits
//! for such a child then sees the end of its output, and fails with everything that was printed so far.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// No test takes as long as this unless it hangs, also on a loaded machine.
const TEST_LIMIT: Duration = Duration::from_secs(300);

/// A soak is meant to take longer: `CODEBRIDGE_TEST_LIMIT` in seconds.
fn test_limit() -> Duration {
    let asked = std::env::var("CODEBRIDGE_TEST_LIMIT").ok().and_then(|text| text.parse().ok());
    asked.map_or(TEST_LIMIT, Duration::from_secs)
}
/// Bytes of each output that a failed test shows.
const SHOWN: usize = 12_000;
/// Bytes of each output that are kept.
const KEPT: usize = 4 << 20;

/// What one test has started.
#[derive(Debug, Clone)]
pub(crate) struct Guard(Arc<GuardInner>);

#[derive(Debug)]
struct GuardInner {
    started: Mutex<Vec<Started>>,
    state: Mutex<GuardState>,
    changed: Condvar,
    deadline: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GuardState {
    Watching,
    Fired,
    Done,
}

/// A child, as a failed test tells of it.
#[derive(Debug)]
struct Started {
    line: String,
    process: Arc<OwnedFd>,
    pid: u32,
    transcript: Transcript,
}

impl Guard {
    /// Watches over a test that starts now.
    pub(crate) fn start() -> Self {
        let inner = GuardInner {
            started: Mutex::default(),
            state: Mutex::new(GuardState::Watching),
            changed: Condvar::new(),
            deadline: Instant::now() + test_limit(),
        };
        let guard = Self(Arc::new(inner));
        let watching = guard.clone();
        thread::spawn(move || watching.watch());
        guard
    }

    fn watch(&self) {
        let mut state = self.0.state.lock().unwrap();
        while *state == GuardState::Watching {
            let left = self.0.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                *state = GuardState::Fired;
                drop(state);
                return self.kill_all();
            }
            state = self.0.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    /// Ends the watch, and whatever still runs. True when the test took too long.
    pub(crate) fn finish(&self) -> bool {
        let fired = {
            let mut state = self.0.state.lock().unwrap();
            std::mem::replace(&mut *state, GuardState::Done) == GuardState::Fired
        };
        self.0.changed.notify_all();
        self.kill_all();
        fired
    }

    /// A bridge that is killed leaves its reaper, which removes what it had started.
    fn kill_all(&self) {
        for child in self.0.started.lock().unwrap().iter() {
            let _ = pidfd_send_signal(&child.process, Signal::KILL);
        }
    }

    /// How long the test may still take.
    pub(crate) fn left(&self) -> Duration {
        self.0.deadline.saturating_duration_since(Instant::now())
    }

    /// Everything that was started and what it said, for the message of a failed test.
    pub(crate) fn story(&self) -> String {
        let started = self.0.started.lock().unwrap();
        let mut story = String::new();
        for child in started.iter() {
            let transcript = child.transcript.text();
            if transcript.is_empty() {
                continue;
            }
            let (cut, shown) = match transcript.char_indices().rev().nth(SHOWN) {
                Some((start, _)) => ("…", &transcript[start..]),
                None => ("", transcript.as_str()),
            };
            story.push_str(&format!("\n--- {} ({})\n{cut}{}", child.line, child.pid, shown.trim_end()));
        }
        story
    }
}

/// The input and output of a child, in the order in which it happened.
#[derive(Debug, Clone, Default)]
pub(crate) struct Transcript(Arc<Mutex<Vec<u8>>>);

impl Transcript {
    /// Adds a line or a piece.
    pub(crate) fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap();
        if kept.len() < KEPT {
            kept.extend_from_slice(bytes);
        }
    }

    /// All of it.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

/// A command that has not run yet: an absolute program and exactly these variables.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    pub(crate) argv: Vec<OsString>,
    pub(crate) env: BTreeMap<OsString, OsString>,
    pub(crate) cwd: PathBuf,
}

impl Prepared {
    /// Another program is started, which has to start this one.
    pub(crate) fn behind(mut self, prefix: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.argv.splice(0..0, prefix.into_iter().map(Into::into));
        self
    }

    fn command(&self) -> Command {
        #[expect(clippy::disallowed_methods, reason = "the tests' one place that starts processes")]
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]).env_clear().envs(&self.env).current_dir(&self.cwd);
        command
    }

    fn line(&self) -> String {
        self.argv.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    /// Starts it with these streams.
    pub(crate) fn spawn(&self, guard: &Guard, stdin: Stdio, stdout: Stdio, stderr: Stdio) -> Running {
        let mut command = self.command();
        command.stdin(stdin).stdout(stdout).stderr(stderr);
        let child =
            command.spawn().unwrap_or_else(|error| panic!("failed to start {}: {error}", self.line()));
        // The command holds the child's ends of its streams.
        drop(command);
        let process = Arc::new(pidfd_open(pid_of(child.id()), PidfdFlags::empty()).unwrap());
        let transcript = Transcript::default();
        let started = Started {
            line: self.line(),
            process: Arc::clone(&process),
            pid: child.id(),
            transcript: transcript.clone(),
        };
        guard.0.started.lock().unwrap().push(started);
        Running { child, process, transcript, guard: guard.clone() }
    }

    /// Starts a server, whose standard error is kept for the test's story, and waits until `ask` finds that it serves.
    pub(crate) fn serve(
        &self,
        guard: &Guard,
        limit: Duration,
        mut ask: impl FnMut() -> Option<()>,
    ) -> Running {
        let mut server = self.spawn(guard, Stdio::null(), Stdio::null(), Stdio::piped());
        collect(server.child.stderr.take().unwrap(), server.transcript.clone());
        eventually(&format!("`{}` serves", self.line()), limit, || {
            let ended = server.child.try_wait().unwrap();
            assert_eq!(ended, None, "`{}` ended: {}", self.line(), server.transcript.text());
            ask()
        });
        server
    }

    /// Runs it to its end with nothing on its standard input.
    pub(crate) fn run(&self, guard: &Guard) -> Output {
        self.run_with_input(guard, b"")
    }

    /// Runs it to its end.
    pub(crate) fn run_with_input(&self, guard: &Guard, input: &[u8]) -> Output {
        self.run_typing(guard, "", input)
    }

    /// Runs it to its end. Its input comes when it has written this.
    pub(crate) fn run_typing(&self, guard: &Guard, prompt: &str, input: &[u8]) -> Output {
        let started = Instant::now();
        let mut running = self.spawn(guard, Stdio::piped(), Stdio::piped(), Stdio::piped());
        let screen = Transcript::default();
        let stdout = collect(running.child.stdout.take().unwrap(), screen.clone());
        let stderr = collect(running.child.stderr.take().unwrap(), Transcript::default());
        eventually(&format!("'{prompt}' is written"), guard.left(), || {
            let has_ended = running.child.try_wait().unwrap().is_some();
            (has_ended || screen.text().contains(prompt)).then_some(())
        });
        {
            use std::io::Write;
            // Who does not read its input says so by its exit status.
            let _ = running.child.stdin.take().unwrap().write_all(input);
        }
        let status = running.wait();
        let output = Output {
            line: self.line(),
            status,
            stdout: String::from_utf8_lossy(&stdout.join().unwrap()).into_owned(),
            stderr: String::from_utf8_lossy(&stderr.join().unwrap()).into_owned(),
            elapsed: started.elapsed(),
        };
        running.transcript.push(output.to_string().as_bytes());
        output
    }
}

/// Reads a stream to its end in a thread of its own.
pub(crate) fn collect(mut stream: impl Read + Send + 'static, transcript: Transcript) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        let mut chunk = vec![0; 64 << 10];
        while let Ok(count @ 1..) = stream.read(&mut chunk) {
            transcript.push(&chunk[..count]);
            if all.len() < KEPT {
                all.extend_from_slice(&chunk[..count]);
            }
        }
        all
    })
}

/// Opens a terminal: the side that shows what is written, and the side of the program.
pub(crate) fn open_terminal() -> (File, OwnedFd) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let screen = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    (File::from(terminal), screen)
}

/// A command that has run.
#[derive(Debug)]
#[must_use]
pub(crate) struct Output {
    line: String,
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) elapsed: Duration,
}

impl Output {
    /// The exit status; None after a signal.
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// What a diagnosis printed; code must be able to run, with all guarantees or fewer.
    pub(crate) fn diagnosed(self) -> String {
        assert!(matches!(self.code(), Some(0 | 10)), "{self}");
        self.stdout
    }

    /// What it printed; it must have succeeded.
    pub(crate) fn ok(self) -> String {
        assert!(self.status.success(), "{self}");
        self.stdout
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { line, status, stdout, stderr, elapsed } = self;
        write!(f, "`{line}` ended with {status} after {elapsed:.1?}\n{stdout}{stderr}")
    }
}

/// A child that runs or has run.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) child: Child,
    process: Arc<OwnedFd>,
    pub(crate) transcript: Transcript,
    guard: Guard,
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn guard(&self) -> &Guard {
        &self.guard
    }

    pub(crate) fn signal(&self, signal: Signal) {
        pidfd_send_signal(&self.process, signal).unwrap();
    }

    /// Waits for its end, as long as the guard lets it live.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Waits for its end within a time.
    pub(crate) fn wait_within(&mut self, limit: Duration) -> ExitStatus {
        let mut fds = [PollFd::new(&self.process, PollFlags::IN)];
        let ready = poll(&mut fds, Some(&Timespec::try_from(limit).unwrap())).unwrap();
        assert!(ready > 0, "process {} has not ended within {limit:?}", self.child.id());
        self.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = pidfd_send_signal(&self.process, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// A port for a server that has to be told one. Not one of those that the kernel gives to clients: while the server is away,
/// one that keeps asking for it would sooner or later be given that very port, and then talk to itself.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Other processes that look for one begin elsewhere.
    let begin = std::process::id().wrapping_mul(64) as u16;
    loop {
        let offset = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 20_000 + offset % 12_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

pub(crate) fn pid_of(pid: u32) -> Pid {
    Pid::from_raw(pid.try_into().unwrap()).unwrap()
}

/// The ids of all processes.
pub(crate) fn processes() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Calls a function again and again until it returns a value, for ends that are not notified.
pub(crate) fn eventually<T>(what: &str, limit: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(started.elapsed() < limit, "not within {limit:?}: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The processes that were started by this one.
pub(crate) fn children(of: u32) -> Vec<u32> {
    processes().filter(|pid| parent_of(*pid) == Some(of)).collect()
}

pub(crate) fn parent_of(pid: u32) -> Option<u32> {
    stat_field(pid, 4)?.parse().ok()
}

/// When a process was started, in ticks since boot; None when there is none, or a dead one that nobody has asked about yet.
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    let dead = matches!(stat_field(pid, 3)?.as_str(), "Z" | "X");
    if dead { None } else { stat_field(pid, 22)?.parse().ok() }
}

/// A field of `/proc/PID/stat` after the second one, the command, which may hold anything.
fn stat_field(pid: u32, number: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat[stat.rfind(')')? + 1..].split_whitespace().nth(number - 3).map(String::from)
}

/// The words of a process's command line.
pub(crate) fn command_line(pid: u32) -> Vec<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// The subcommand of the process that removes the sandboxes of a bridge that was killed.
pub(crate) const REAPER: &str = "reaper";

/// The subcommand of the process that stops a podman machine that a bridge has started.
pub(crate) const MACHINE_SUPERVISOR: &str = "machine-supervisor";

/// The reaper of this bridge.
pub(crate) fn reaper_of(bridge: u32) -> u32 {
    let is_reaper = |pid: &u32| command_line(*pid).iter().any(|word| word == REAPER);
    children(bridge).into_iter().find(is_reaper).expect("the bridge has no reaper")
}

/// Sends a signal to a process that the test knows to be its own.
pub(crate) fn kill(pid: u32, signal: Signal) {
    rustix::process::kill_process(pid_of(pid), signal).unwrap();
}

/// Peak of the resident memory of a process in bytes, by the kernel's count. Pages of files do not count: those of the program
/// are many in a build for debugging.
pub(crate) fn peak_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let bytes = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        value.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() << 10
    };
    bytes("VmHWM:").saturating_sub(bytes("RssFile:"))
}
