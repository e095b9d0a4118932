//! The Python end of the frames: embedded here, sent over the sandbox's standard input, never on its disk.
//!
//! `boot.txt` is the command line's program; it reads a length and that many bytes: a line of settings, a table of
//! contents, and the parts. `FRAMES.md` has the protocol that they speak afterwards.

use codebridge_runtimes::OwnLimits;

/// The program on the command line of the interpreter; it reads the rest from standard input.
const BOOT: &str = include_str!("boot.txt");

/// Name and source of each part; the first one runs first.
const PARTS: &[(&str, &str)] = &[
    ("launcher", include_str!("launcher.py")),
    ("filter", FILTER),
    ("supervisor", include_str!("supervisor.py")),
    ("interpreter", include_str!("interpreter.py")),
    ("event_loop", include_str!("event_loop.py")),
    ("imports", include_str!("imports.py")),
    ("script", include_str!("script.py")),
    ("notebook", include_str!("notebook.py")),
    ("magics", include_str!("magics.py")),
    ("shell", include_str!("shell.py")),
    ("timing", include_str!("timing.py")),
    ("inspection", include_str!("inspection.py")),
    ("history", include_str!("history.py")),
    ("reset", include_str!("reset.py")),
    ("questions", include_str!("questions.py")),
    ("report", include_str!("report.py")),
    ("display", include_str!("display.py")),
    ("packages", include_str!("packages.py")),
    ("runtime", include_str!("runtime.py")),
    ("servers", include_str!("servers.py")),
    ("values", include_str!("values.py")),
    ("namespace", include_str!("namespace.py")),
    ("interrupts", include_str!("interrupts.py")),
    ("channel", include_str!("channel.py")),
    ("files", include_str!("files.py")),
    ("artifacts", include_str!("artifacts.py")),
    ("steps", include_str!("steps.py")),
    ("offers", include_str!("offers.py")),
    ("saved", include_str!("saved.py")),
];

/// Installs the seccomp filter of a pod.
const FILTER: &str = include_str!("filter.py");

/// Returns a number that differs between the guests of two builds.
pub fn fingerprint() -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    PARTS.hash(&mut hasher);
    hasher.finish()
}

/// A program that checks the version of the sandbox's Python.
pub const PROBE: &str = "import sys\n\
    sys.version_info >= (3, 9) or sys.exit('CPython 3.9 or newer is needed, this is ' + sys.version.split()[0])\n\
    sys.stdout.write('codebridge')";
/// The output of [`PROBE`] when the version is right.
pub const PROBE_ANSWER: &str = "codebridge";

/// The program of another pod, which the probe in a pod tries to reach.
pub const POD_PEER: &str = include_str!("pod_peer.py");

/// Returns the program of the probe in a pod, which checks the version and then what it can reach.
pub fn pod_probe() -> String {
    [FILTER, PROBE, include_str!("pod_probe.py")].join("\n")
}

/// Returns the command of the sandbox.
pub fn argv() -> Vec<String> {
    // -B: the root is read-only, and modules that the code rewrites must not leave stale bytecode.
    ["python3", "-B", "-c", BOOT].map(String::from).to_vec()
}

/// What the guest needs to know of its sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Start {
    /// Limits that the interpreter sets on itself, because nothing else does.
    pub limits: OwnLimits,
    /// The seccomp filter that the guest installs before it forks, as an array of `sock_filter`.
    pub filter: Option<Vec<u8>>,
    /// Whether the guest has to offer its parts in compiled form.
    pub wants_compiled: bool,
    /// What an earlier guest under the same Python offered.
    pub compiled: Option<Vec<u8>>,
    /// Whether the first run installs the packages that the operator named.
    pub installs: bool,
}

/// Returns the command that compiles the standard library of an image and writes it as an archive. Its first line of
/// input is [`library_limits`].
pub fn library_argv() -> Vec<String> {
    // -I: the environment of the image must not change what runs.
    ["python3", "-B", "-I", "-c", include_str!("library.py")].map(String::from).to_vec()
}

/// Returns the limits that [`library_argv`] sets on itself.
pub fn library_limits(limits: OwnLimits) -> String {
    let OwnLimits { data, address_space, processes, .. } = limits;
    let word = |limit: Option<u64>| limit.map_or_else(|| "-".into(), |limit| limit.to_string());
    format!("{} {} {}\n", word(data), word(address_space), word(processes.map(u64::from)))
}

/// Returns the first bytes for the guest: the length, the settings and all parts.
pub fn blob(start: &Start) -> Vec<u8> {
    let OwnLimits { data, address_space, processes, descriptors } = start.limits;
    let in_pod = start.filter.is_some();
    let settings: Vec<String> = [
        ("data", data),
        ("address_space", address_space),
        ("processes", processes.map(u64::from)),
        ("descriptors", descriptors),
        // No runtime has set these for a pod.
        ("core", in_pod.then_some(0)),
        ("messages", in_pod.then_some(0)),
        ("offer", start.wants_compiled.then_some(1)),
        ("with", start.installs.then_some(1)),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some(format!("{name}={}", value?)))
    .chain(start.filter.as_ref().map(|filter| format!("filter={}", hex::encode(filter))))
    .collect();
    let compiled = start.compiled.iter().map(|part| ("compiled", part.as_slice()));
    let parts = compiled.chain(PARTS.iter().map(|(name, source)| (*name, source.as_bytes())));
    let contents: Vec<String> = parts.clone().map(|(name, part)| format!("{name} {}", part.len())).collect();
    let mut body = format!("{}\n{}\n", settings.join(" "), contents.join(" ")).into_bytes();
    parts.for_each(|(_, part)| body.extend_from_slice(part));
    let mut blob = (body.len() as u64).to_be_bytes().to_vec();
    blob.append(&mut body);
    blob
}
