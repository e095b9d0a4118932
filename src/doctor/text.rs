//! The diagnosis for people. The first word of a line says what the line is about.

use std::fmt::{Display, Write};

use codebridge_runtimes::{
    FactState, HeldLimits, Mechanism, ProbeReport, RuntimeKind, Setback, ShareMechanism, Verdict, Walls,
};
use jiff::Timestamp;

use super::{
    AuditState, Diagnosis, Http, Listener, Picked, PolicyState, Readiness, Run, Servers, SkippedServer,
    TokenCount,
};
use crate::http::Listening;
use crate::sizes::bytes_text;
use crate::telemetry::{TelemetryState, TelemetryStatus};

/// The longest foreign message in a line, in characters. The JSON has all of it.
const MESSAGE_LIMIT: usize = 300;

impl Diagnosis {
    /// Returns the text, which fits on one screen.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for report in &self.runtimes {
            describe(&mut text, report);
        }
        if let Some(Setback { runtime, refusal, .. }) = &self.setback {
            let message = shortened(&refusal.to_string());
            line(
                &mut text,
                "note",
                format!("{runtime} passed its probe and later failed to launch: {message}"),
            );
        }
        self.describe_host(&mut text);
        let store = &self.images;
        let kept = format!("{} in {}, {}", store.images, store.folder.display(), bytes_text(store.bytes));
        line(&mut text, "images", kept);
        self.describe_servers(&mut text);
        let kept = match &self.logins.why {
            None => "kept in the keyring".to_owned(),
            Some(why) => format!("kept in files that you alone can read: {}", shortened(why)),
        };
        line(&mut text, "logins", kept);
        self.describe_policy(&mut text);
        self.describe_telemetry(&mut text);
        self.describe_audit(&mut text);
        self.describe_http(&mut text);
        if !self.leftovers.is_empty() {
            let names: Vec<&str> = self.leftovers.iter().map(|one| one.name.as_str()).collect();
            let names = names.join(", ");
            line(
                &mut text,
                "left",
                format!("{names}: sandboxes of dead bridges; remove them with `codebridge reap`"),
            );
        }
        for done in &self.fixed {
            line(&mut text, "fixed", done);
        }
        self.describe_result(&mut text);
        text
    }

    fn describe_host(&self, text: &mut String) {
        let mut head = "host";
        for fact in &self.host {
            let mark = match fact.state {
                FactState::Good => "",
                FactState::Weak => "weak: ",
                FactState::Bad => "bad: ",
            };
            detail(text, head, fact.name, format!("{mark}{}", fact.text));
            head = "";
            if let Some(hint) = &fact.hint {
                detail(text, "", "", format!("hint: {hint}"));
            }
        }
    }

    fn describe_servers(&self, text: &mut String) {
        let Servers { used, skipped, warnings } = &self.servers;
        line(text, "servers", format!("{used} defined, {} skipped", skipped.len()));
        for SkippedServer { name, source, why } in skipped {
            detail(text, "", "skipped", format!("{name} ({source}): {}", shortened(why)));
        }
        for warning in warnings {
            detail(text, "", "warning", shortened(warning));
        }
    }

    fn describe_policy(&self, text: &mut String) {
        let PolicyState { file, rules, error, warnings } = &self.policy;
        match (rules, error) {
            (_, Some(error)) => {
                line(text, "policy", format!("every call of a tool is denied: {}", shortened(error)))
            }
            (Some(rules), None) => line(text, "policy", format!("{rules} rules in {}", file.display())),
            (None, None) => {
                line(text, "policy", "none: code may call every tool; see `codebridge help policy`")
            }
        }
        for warning in warnings {
            detail(text, "", "warning", shortened(warning));
        }
    }

    fn describe_telemetry(&self, text: &mut String) {
        let TelemetryState { status, traces, metrics, headers, error } = &self.telemetry;
        let head = "otel";
        match status {
            TelemetryStatus::Off => line(text, head, "off; see `codebridge help telemetry`"),
            TelemetryStatus::Refused => line(text, head, "off: the variables cannot be used"),
            TelemetryStatus::On => {
                let to = |what: &str, target: &Option<String>| {
                    target.as_ref().map(|target| format!("{what} to {target}"))
                };
                let targets: Vec<_> =
                    [to("traces", traces), to("metrics", metrics)].into_iter().flatten().collect();
                line(text, head, targets.join(", "));
            }
        }
        if !headers.is_empty() {
            let shown: Vec<_> = headers.iter().map(|name| format!("{name}=***")).collect();
            detail(text, "", "headers", shown.join(", "));
        }
        for words in error.iter().flat_map(|error| error.lines()) {
            detail(text, "", "", words);
        }
    }

    fn describe_audit(&self, text: &mut String) {
        let AuditState { folder, mode, error, lines, problems, .. } = &self.audit;
        match (error, problems.first()) {
            (Some(error), _) => line(text, "audit", format!("nothing is recorded: {}", shortened(error))),
            (None, Some(problem)) => {
                line(text, "audit", format!("the log was changed: {}", shortened(problem)));
                detail(text, "", "hint", "`codebridge audit verify` shows all of it");
            }
            (None, None) => {
                line(text, "audit", format!("{mode}; {lines} lines in {}, in order", folder.display()));
            }
        }
    }

    fn describe_http(&self, text: &mut String) {
        let Http { listeners, tokens, error } = &self.http;
        let TokenCount { valid, expired, console, approve, next_expiry } = tokens;
        if let Some(error) = error {
            line(text, "http", shortened(error));
        }
        // Most people serve one client, which needs neither.
        if *valid + *expired > 0 || !listeners.is_empty() {
            let next = next_expiry
                .as_ref()
                .map_or_else(String::new, |time| format!("; the next one {}", expiry(time)));
            line(text, "http", format!("{valid} valid tokens, {expired} expired{next}"));
            if *console > 0 {
                detail(
                    text,
                    "",
                    "console",
                    format!("{console} valid tokens, {approve} of them for approvals"),
                );
            }
        }
        for Listener { listening, certificate_expires } in listeners {
            let Listening { address, pid, certificate, issuer } = listening;
            let expires = certificate_expires
                .as_ref()
                .map_or_else(String::new, |time| format!(", which {}", expiry(time)));
            let tls = certificate
                .as_ref()
                .map_or("without TLS".to_owned(), |file| format!("TLS with {}{expires}", file.display()));
            let issuer = issuer.as_ref().map_or_else(String::new, |url| format!(", tokens of {url}"));
            detail(text, "", "listener", shortened(&format!("{address}, process {pid}, {tls}{issuer}")));
        }
    }

    /// Writes which runtime is picked, what it did, and the verdict.
    fn describe_result(&self, text: &mut String) {
        match &self.picked {
            Some(Picked { runtime, root, why, .. }) => {
                line(text, "picked", format!("{runtime}, '{root}': {why}"));
            }
            None => line(text, "picked", "none: no code can run here"),
        }
        if let Some(Run { ok, milliseconds, code_milliseconds, error, notices }) = &self.run {
            let result = match (ok, error) {
                (true, _) => {
                    format!("42 after {milliseconds} ms, of which the code took {code_milliseconds} ms")
                }
                (false, error) => shortened(error.as_deref().unwrap_or("it did not print 42")),
            };
            line(text, "run", format!("print(6*7) in a new session: {result}"));
            notices.iter().for_each(|notice| line(text, "note", shortened(notice)));
        }
        let verdict = match self.status {
            Readiness::Ready => "ready",
            Readiness::Reduced => "works, with reduced guarantees",
            Readiness::NotReady => "cannot run code",
        };
        line(text, "verdict", verdict);
        for why in &self.reduced {
            detail(text, "", "reduced", why);
        }
    }
}

fn line(text: &mut String, head: &str, words: impl Display) {
    let _ = writeln!(text, "{head:<8} {words}");
}

fn detail(text: &mut String, head: &str, name: &str, words: impl Display) {
    // As wide as the longest name and a space.
    let _ = writeln!(text, "{head:<8} {name:<13}{words}");
}

/// Returns a foreign message in one line that is not too long.
/// Says when something expires, in days from now.
fn expiry(time: &Timestamp) -> String {
    let date: String = time.to_string().chars().take(10).collect();
    match time.as_second() - Timestamp::now().as_second() {
        ..=0 => format!("has expired ({date})"),
        left => format!("expires in {} days ({date})", left / (24 * 3600)),
    }
}

fn shortened(words: &str) -> String {
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(MESSAGE_LIMIT) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
}

/// Returns what happens to a folder of `--share`.
fn share_words(mechanism: ShareMechanism) -> &'static str {
    match mechanism {
        ShareMechanism::SameUser => {
            "mounted read-only; code runs under your user id, and reads what you can read; copied if there are named pipes"
        }
        ShareMechanism::MappedIds => {
            "mounted read-only; code reads what the folder's owner can read; copied if there are named pipes, or the file system cannot map ids"
        }
        ShareMechanism::Copy => "copied when a session starts, up to 64 MiB",
        ShareMechanism::Volume => "copied to the engine when a session starts, up to 64 MiB",
        ShareMechanism::None => "none: pods see no folder of this machine",
    }
}

/// Returns what is between code in a pod and the network.
fn wall_words(walls: &Walls) -> String {
    let policy = match (walls.policy, &walls.answered[..]) {
        (true, _) => "the seccomp filter and the network policy hold".into(),
        (false, []) if walls.profile => {
            "the seccomp filter holds; the network policy was not tested, because the node's seccomp profile already blocks the network".into()
        }
        (false, []) => "the seccomp filter holds; there is no network policy".into(),
        (false, answered) => format!(
            "the seccomp filter holds; the cluster does not enforce the network policy: without the filter a pod reaches {}",
            answered.join(", ")
        ),
    };
    let no_peer = walls.no_peer.as_ref().filter(|_| !walls.profile);
    let no_peer = no_peer.map(|why| format!("; another pod could not be tried: {why}"));
    format!("{policy}{}", no_peer.unwrap_or_default())
}

/// Returns which seccomp profile the node applies before the first process of a pod starts.
fn profile_words(walls: &Walls) -> &'static str {
    match walls.profile {
        true => "the node applies codebridge's own",
        false => {
            "the node applies its container runtime's profile until the sandbox installs codebridge's; `codebridge help kubernetes` says how nodes can apply it from the start"
        }
    }
}

/// Returns which optional rights are missing.
fn rights_words(missing: &[String]) -> String {
    format!(
        "this user may not {}, which is optional; `codebridge help kubernetes` says what for, and has the Role",
        missing.join(", ")
    )
}

fn describe(text: &mut String, report: &ProbeReport) {
    let place = report.program.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    let version = report.version.as_deref().unwrap_or_default();
    let name = report.kind.to_string();
    let connection = match &report.verdict {
        Verdict::Works(choice) => choice.runtime.connection(),
        Verdict::Refused(_) => report.connection.as_deref(),
    };
    let engine = connection.map(|name| format!(" at {name}")).unwrap_or_default();
    match &report.verdict {
        Verdict::Works(choice) => {
            let with = choice.runtime.oci_runtime.as_ref().map(|path| format!(" with {}", path.display()));
            let with = with.unwrap_or_default();
            let elsewhere = if choice.runtime.remote { ", a remote engine" } else { "" };
            detail(text, &name, "works", format!("{place}{with}{engine} ({version}{elsewhere})"));
            let HeldLimits { memory, sockets, pids, cpus } = choice.held;
            // No rlimit holds the memory of sockets.
            let sockets = if sockets == Mechanism::Watch { "watch".to_string() } else { sockets.to_string() };
            detail(text, "", "root", &choice.asked);
            detail(
                text,
                "",
                "limits",
                format!("memory: {memory}, sockets: {sockets}, pids: {pids}, cpus: {cpus}"),
            );
        }
        Verdict::Refused(refusal) => {
            let found = if place.is_empty() {
                String::new()
            } else {
                format!("{place}{engine} ({version}, {}) ", report.root)
            };
            detail(text, &name, "refused", format!("{found}{}", shortened(&refusal.to_string())));
            detail(text, "", "hint", refusal.hint(report.kind));
        }
    }
    if let Verdict::Works(choice) = &report.verdict
        && let Some(walls) = &choice.walls
    {
        detail(text, "", "walls", wall_words(walls));
        detail(text, "", "profile", profile_words(walls));
        if !walls.missing_rights.is_empty() {
            detail(text, "", "rights", rights_words(&walls.missing_rights));
        }
    }
    if let Some(mechanism) = report.share_mechanism {
        detail(text, "", "shares", share_words(mechanism));
    }
    if let Some(machine) = &report.machine {
        let state = if machine.running { "runs" } else { "is stopped" };
        let by =
            if machine.started_by_bridge { ", started by codebridge, which stops it when idle" } else { "" };
        detail(text, "", "machine", format!("{} {state}{by}", machine.name));
    }
    if let Some(share) = &report.share {
        let folder = share.folder.display();
        // Docker's client sends the profile by itself.
        let needs_folder = report.kind == RuntimeKind::Podman;
        let words = match (share.shared, needs_folder) {
            (true, true) => format!("the engine sees {folder}, and reads the bridge's seccomp profile there"),
            (true, false) => format!("the engine sees {folder}"),
            (false, true) => format!(
                "the engine does not see {folder}: saved functions still work, but the engine's own seccomp profile applies"
            ),
            (false, false) => format!(
                "the engine does not see {folder}: saved functions still work, and the client sends the bridge's seccomp profile"
            ),
        };
        detail(text, "", "share", words);
        if let Some(hint) = &share.hint {
            detail(text, "", "", format!("hint: {hint}"));
        }
    }
}
