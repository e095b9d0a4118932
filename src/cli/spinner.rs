//! Progress on a terminal.

use std::io::{self, IsTerminal};
use std::time::Duration;

use codebridge_runtimes::exec::visible_line;
use indicatif::{ProgressBar, ProgressStyle};

/// A bar of bytes beside the text of a spinner.
pub(super) const BYTES: &str = "{spinner} {msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
/// A bar of things that are counted.
pub(super) const ITEMS: &str = "{spinner} {msg} [{bar:30}] {pos}/{len}";
/// The text alone.
pub(super) const TEXT: &str = "{spinner} {msg}";

/// A line on standard error that says what is going on, from its first text on.
#[derive(Debug, Default)]
pub(super) struct Spinner(Option<ProgressBar>);

impl Spinner {
    pub(super) fn show(&mut self, text: String) {
        self.0.get_or_insert_with(start).set_message(visible_line(&text));
    }

    /// Returns what is drawn, for those who need the terminal for themselves.
    pub(super) fn bar(&self) -> Option<ProgressBar> {
        self.0.clone()
    }

    /// Leaves the terminal as it was.
    pub(super) fn clear(&mut self) {
        if let Some(bar) = self.0.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Starts a spinner on standard error, hidden where that is not a terminal.
pub(super) fn start() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// Changes what is shown: [`BYTES`], [`ITEMS`] or [`TEXT`].
pub(super) fn set_style(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
}
