//! A sign of life on a terminal while something slow starts.

use std::time::Duration;

use indicatif::ProgressBar;

/// Shown on standard error, and only when that is a terminal.
#[derive(Debug, Default)]
pub(super) struct Spinner(Option<ProgressBar>);

impl Spinner {
    /// Shows what is under way.
    pub(super) fn show(&mut self, what: String) {
        let bar = self.0.get_or_insert_with(|| {
            let bar = ProgressBar::new_spinner();
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        bar.set_message(what);
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
