//! The diagnosis for people: a word at the left for what a line is about.

use std::fmt::Write;

use codebridge_runtimes::{FactState, HeldLimits, ProbeReport, RuntimeKind, Setback, Verdict};

use super::{Diagnosis, Readiness, Run};
use crate::image_sources::bytes_text;

/// Characters of what others say that a line shows; all of it is in the JSON.
const MOST_SAID: usize = 300;

impl Diagnosis {
    /// On one screen.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for report in &self.runtimes {
            describe(&mut text, report);
        }
        if let Some(Setback { runtime, refusal, .. }) = &self.setback {
            let said = said(&refusal.to_string());
            line(
                &mut text,
                "note",
                &format!("{runtime} passed its probe and later failed to launch: {said}"),
            );
        }
        let mut head = "host";
        for fact in &self.host {
            let mark = match fact.state {
                FactState::Good => "",
                FactState::Weak => "weak: ",
                FactState::Bad => "bad: ",
            };
            detail(&mut text, head, fact.name, &format!("{mark}{}", fact.text));
            head = "";
            if let Some(hint) = &fact.hint {
                detail(&mut text, "", "", &format!("hint: {hint}"));
            }
        }
        let store = &self.images;
        let kept = format!("{} in {}, {}", store.images, store.folder.display(), bytes_text(store.bytes));
        line(&mut text, "images", &kept);
        line(
            &mut text,
            "servers",
            &format!("{} defined, {} skipped", self.servers.used, self.servers.skipped.len()),
        );
        for server in &self.servers.skipped {
            detail(
                &mut text,
                "",
                "skipped",
                &format!("{} ({}): {}", server.name, server.source, said(&server.why)),
            );
        }
        for warning in &self.servers.warnings {
            detail(&mut text, "", "warning", &said(warning));
        }
        if !self.leftovers.is_empty() {
            let names: Vec<&str> = self.leftovers.iter().map(|one| one.name.as_str()).collect();
            line(
                &mut text,
                "left",
                &format!("{} of dead bridges; `codebridge reap` removes them", names.join(", ")),
            );
        }
        for done in &self.fixed {
            line(&mut text, "fixed", done);
        }
        match &self.picked {
            Some(picked) => {
                line(
                    &mut text,
                    "picked",
                    &format!("{} with {}: {}", picked.runtime, picked.root, picked.why),
                );
            }
            None => line(&mut text, "picked", "nothing: no code can run here"),
        }
        if let Some(Run { ok, milliseconds, code_milliseconds, error }) = &self.run {
            let result = match (ok, error) {
                (true, _) => format!("42 after {milliseconds} ms, {code_milliseconds} ms of them the code"),
                (false, error) => said(error.as_deref().unwrap_or("something else than 42")),
            };
            line(&mut text, "run", &format!("print(6*7) in a new session: {result}"));
        }
        let verdict = match self.status {
            Readiness::Ready => "ready",
            Readiness::Reduced => "works, with less than it could",
            Readiness::NotReady => "cannot run code",
        };
        line(&mut text, "verdict", verdict);
        for why in &self.reduced {
            detail(&mut text, "", "less", why);
        }
        text
    }
}

fn line(text: &mut String, head: &str, words: &str) {
    let _ = writeln!(text, "{head:<8} {words}");
}

fn detail(text: &mut String, head: &str, name: &str, words: &str) {
    // As wide as the longest name and a space.
    let _ = writeln!(text, "{head:<8} {name:<13}{words}");
}

/// What others say, in one line that is not too long.
fn said(words: &str) -> String {
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(MOST_SAID) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
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
            let elsewhere = if choice.runtime.remote { ", an engine elsewhere" } else { "" };
            detail(text, &name, "works", &format!("{place}{with}{engine} ({version}{elsewhere})"));
            let HeldLimits { memory, pids, cpus } = choice.held;
            detail(text, "", "root", &choice.asked.to_string());
            detail(text, "", "limits", &format!("memory: {memory}, pids: {pids}, cpus: {cpus}"));
        }
        Verdict::Refused(refusal) => {
            let found = if place.is_empty() {
                String::new()
            } else {
                format!("{place}{engine} ({version}) with {}: ", report.root)
            };
            detail(text, &name, "refused", &format!("{found}{}", said(&refusal.to_string())));
            detail(text, "", "hint", &refusal.hint());
        }
    }
    if let Some(machine) = &report.machine {
        let state = if machine.running { "runs" } else { "is stopped" };
        let by =
            if machine.started_by_bridge { ", started by codebridge, which stops it when idle" } else { "" };
        detail(text, "", "machine", &format!("{} {state}{by}", machine.name));
    }
    if let Some(share) = &report.share {
        let folder = share.folder.display();
        // What only a folder can bring there: docker's client sends the profile by itself.
        let brings_profile = report.kind == RuntimeKind::Podman;
        let words = match (share.shared, brings_profile) {
            (true, true) => format!("the engine sees {folder}: it reads our seccomp profile there"),
            (true, false) => format!("the engine sees {folder}"),
            (false, true) => format!(
                "the engine does not see {folder}: saved tools travel over frames all the same, its own seccomp profile holds"
            ),
            (false, false) => format!(
                "the engine does not see {folder}: nothing is lost, saved tools travel over frames and the client sends our seccomp profile"
            ),
        };
        detail(text, "", "share", &words);
        if let Some(hint) = &share.hint {
            detail(text, "", "", &format!("hint: {hint}"));
        }
    }
}
