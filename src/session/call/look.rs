//! A look at a run in the background.

use std::time::Duration;

/// A look at a run in the background, already validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// The number of the run.
    pub run: u32,
    /// How long to wait for something new.
    pub timeout: Duration,
    /// Whether the run is to be interrupted.
    pub stop: bool,
}

/// What a run that has not ended is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningNow {
    pub run: u32,
    pub session: String,
    /// Since the code began to run.
    pub elapsed: Duration,
    /// The last progress that the code reported.
    pub progress: Option<String>,
    /// What it waits for: calls as `server.tool`, an answer of the person.
    pub waits_for: Vec<String>,
}

impl RunningNow {
    /// Returns the state in one line.
    pub fn describe(&self) -> String {
        let Self { run, session, elapsed, progress, waits_for } = self;
        let progress = progress.as_ref().map_or_else(String::new, |progress| format!(": {progress}"));
        let waits_for = match waits_for.is_empty() {
            true => String::new(),
            false => format!("; it waits for {}", waits_for.join(", ")),
        };
        format!("run {run} is running in session {session}, {} s{progress}{waits_for}", elapsed.as_secs())
    }
}

/// One run in the background, as code and people list it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedRun {
    pub run: u32,
    pub session: String,
    /// `starting`, `running`, or the status of its result.
    pub status: &'static str,
    pub elapsed: Duration,
    pub progress: Option<String>,
}
