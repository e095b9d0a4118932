//! The Python end of the frames: embedded here, sent over the sandbox's standard input, never on its disk.
//!
//! `boot.txt` is the command line's program; it reads a length and that many bytes: a line of settings, a table of
//! contents, and the parts. `FRAMES.md` has the protocol that they speak afterwards.

/// What the interpreter is started with; it reads the rest from its standard input.
const BOOT: &str = include_str!("boot.txt");

/// Name and source of each part; the first one runs first.
const PARTS: &[(&str, &str)] = &[
    ("launcher", include_str!("launcher.py")),
    ("supervisor", include_str!("supervisor.py")),
    ("interpreter", include_str!("interpreter.py")),
    ("event_loop", include_str!("event_loop.py")),
    ("imports", include_str!("imports.py")),
    ("questions", include_str!("questions.py")),
    ("report", include_str!("report.py")),
    ("runtime", include_str!("runtime.py")),
    ("servers", include_str!("servers.py")),
    ("values", include_str!("values.py")),
    ("namespace", include_str!("namespace.py")),
    ("interrupts", include_str!("interrupts.py")),
    ("channel", include_str!("channel.py")),
];

/// What tells the guest of one build of the bridge from that of another.
pub fn fingerprint() -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    PARTS.hash(&mut hasher);
    hasher.finish()
}

/// A program that says whether the sandbox's Python is good enough.
pub const PROBE: &str = "import sys\n\
    sys.version_info >= (3, 9) or sys.exit('CPython 3.9 or newer is needed, this is ' + sys.version.split()[0])\n\
    sys.stdout.write('codebridge')";
/// What it prints when it is.
pub const PROBE_ANSWER: &str = "codebridge";

/// The sandbox's command.
pub fn argv() -> Vec<String> {
    // -B: the root is read-only, and stale bytecode beside modules that the code writes would only confuse.
    ["python3", "-B", "-c", BOOT].map(String::from).to_vec()
}

/// What a sandbox of its own kind needs to know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Start {
    /// Limits in bytes that the interpreter has to put on itself, because nobody else does.
    pub data: Option<u64>,
    /// Likewise.
    pub address_space: Option<u64>,
    /// Likewise, a number of processes.
    pub processes: Option<u32>,
    /// Whether the guest is to offer its parts in compiled form.
    pub wants_compiled: bool,
    /// What a guest under the same Python offered before.
    pub compiled: Option<Vec<u8>>,
}

/// A program that compiles the standard library of an image, and writes it as an archive. It reads a line of
/// [`library_limits`] first.
pub fn library_argv() -> Vec<String> {
    // Isolated from whatever the image's environment says; nothing of another is run.
    ["python3", "-B", "-I", "-c", include_str!("library.py")].map(String::from).to_vec()
}

/// What [`library_argv`] puts on itself.
pub fn library_limits(data: Option<u64>, address_space: Option<u64>, processes: Option<u32>) -> String {
    let word = |limit: Option<u64>| limit.map_or_else(|| "-".into(), |limit| limit.to_string());
    format!("{} {} {}\n", word(data), word(address_space), word(processes.map(u64::from)))
}

/// What is sent first: the length, the settings and all parts.
pub fn blob(start: &Start) -> Vec<u8> {
    let settings: Vec<String> = [
        ("data", start.data),
        ("address_space", start.address_space),
        ("processes", start.processes.map(u64::from)),
        ("offer", start.wants_compiled.then_some(1)),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some(format!("{name}={}", value?)))
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
