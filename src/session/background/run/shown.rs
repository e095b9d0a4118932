//! What looks at a run show: its output, its displayed objects, its progress, its result.

use std::collections::HashMap;

use super::State;
use crate::session::background::unseen::Unseen;
use crate::session::output::PictureBudget;
use crate::session::{Display, Failure, Form, OutputStream, Picture, RunOutcome, Status};

impl State {
    pub(super) fn add_progress(&mut self, what: String) {
        if let Some(record) = &mut self.record {
            record.progress(&what);
        }
        (self.progress, self.is_progress_new) = (Some(what), true);
    }

    pub(super) fn add_output(&mut self, stream: OutputStream, bytes: &[u8]) {
        let (unseen, bars) = match stream {
            OutputStream::Stdout => (&mut self.stdout, &mut self.stdout_bars),
            OutputStream::Stderr | OutputStream::Traceback => (&mut self.stderr, &mut self.stderr_bars),
        };
        let shown = bars.push(bytes);
        unseen.push(&shown);
        if let Some(record) = &mut self.record {
            record.output(&shown);
        }
        if let Some(progress) = bars.progress() {
            self.add_progress(progress);
        }
    }

    /// Takes what the streams hold back.
    pub(super) fn finish_lines(&mut self) {
        let (stdout, stderr) = (self.stdout_bars.finish(), self.stderr_bars.finish());
        self.stdout.push(&stdout);
        self.stderr.push(&stderr);
        if let Some(record) = &mut self.record {
            record.output(&stdout);
            record.output(&stderr);
        }
    }

    pub(super) fn add_picture(&mut self, run: Option<&u32>, number: usize, picture: Picture) {
        let PictureBudget { count, bytes } = &mut self.pictures;
        let size = picture.data.as_ref().map_or(0, Vec::len) as u64;
        let has_space = *count < self.most_pictures.count && *bytes + size <= self.most_pictures.bytes;
        if has_space {
            (*count, *bytes) = (*count + 1, *bytes + size);
        }
        let picture = Picture { data: picture.data.filter(|_| has_space), ..picture };
        self.displays.push(Display {
            uri: format!("codebridge://runs/{}/display/{number}", run.copied().unwrap_or_default()),
            after_line: self.stdout.lines(),
            forms: vec![Form { mime: picture.mime.clone(), bytes: picture.bytes }],
            picture: Some(picture),
        });
    }

    /// Returns the result, without what looks have shown; once. Later looks get the status alone.
    pub(super) fn ended(&mut self) -> RunOutcome {
        let Some(end) = &mut self.end else {
            return RunOutcome::not_started(Failure::Sandbox, String::new());
        };
        let Some(outcome) = end.outcome.take() else {
            let mut again =
                RunOutcome::not_started(Failure::Code, "the result of this run was shown already".into());
            (again.status, again.elapsed) = (end.status, end.elapsed);
            if end.status == Status::Success {
                (again.failure, again.error) = (None, None);
                again.notices.push("the result of this run was shown already".into());
            }
            return again;
        };
        if !self.is_shown_in_part {
            return *outcome;
        }
        let mut shown = self.pictures_shown;
        let mut outcome = *outcome;
        outcome.displays.retain(|display| {
            let was_shown = display.picture.is_some() && shown > 0;
            shown -= usize::from(was_shown);
            !was_shown
        });
        // The first pictures of the run may have been shown: those that were not have the space of this result.
        let unseen = std::mem::take(&mut self.displays).into_iter();
        let mut unseen: HashMap<_, _> = unseen.map(|display| (display.uri, display.picture)).collect();
        for display in &mut outcome.displays {
            display.after_line = usize::MAX;
            if let Some(picture) = unseen.remove(&display.uri) {
                display.picture = picture;
            }
        }
        let (stdout, stderr) = (self.stdout.take(false), self.stderr.take(false));
        self.forget_unseen();
        RunOutcome { stdout, stderr, ..outcome }
    }

    /// Gives back what is kept for looks.
    pub(super) fn forget_unseen(&mut self) {
        (self.stdout, self.stderr) = (Unseen::new(0), Unseen::new(0));
        self.displays = Vec::new();
    }
}
