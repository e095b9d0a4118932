//! `codebridge image build`.

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use codebridge_images::{ImageName, NameError, Recipe, RecipeError};
use indicatif::{ProgressBar, ProgressStyle};
use tokio_util::sync::CancellationToken;

use super::host::print;
use super::signals::Signals;
use super::{BuildArgs, complain};
use crate::error::Exit;
use crate::image_sources::build::{self, Listener, Order};

/// Why there is nothing to be built.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    #[error("images are written to `oci-archive:FILE[:TAG]`, not to '{0}'")]
    Output(String),
}

fn order(args: BuildArgs) -> Result<Order, Refused> {
    let BuildArgs { recipe, output, mirror, update, .. } = args;
    let ImageName::OciArchive { path, tag } = output.parse()? else { return Err(Refused::Output(output)) };
    Ok(Order { recipe: Recipe::find(&recipe)?, target: path, tag, mirror, update })
}

pub(super) async fn build(args: BuildArgs) -> ExitCode {
    let dry_run = args.dry_run;
    let (order, signals) = match (order(args), Signals::listen()) {
        (Ok(order), Ok(signals)) => (order, signals),
        (Err(error), _) => return complain(&error, None, Exit::Usage),
        (_, Err(error)) => return complain(&error, None, Exit::Io),
    };
    let stop = CancellationToken::new();
    let teller = Teller::new();
    let work = build::build(&order, dry_run, &teller, &stop);
    let (done, told) = signals.until_told_twice(&stop, work).await;
    teller.clear();
    match (done, told) {
        (Some(Ok(digest)), _) => {
            let text = digest.map(|digest| format!("{digest}\n")).unwrap_or_default();
            print(&text)
                .await
                .map_or_else(|error| complain(&error, None, Exit::Io), |()| Exit::Success.into())
        }
        (Some(Err(error)), told) if !error.is_cancelled() || told.is_none() => {
            complain(&error, error.hint().as_deref(), Exit::NoImage)
        }
        (_, told) => {
            let error = io::Error::other("stopped; nothing was written");
            complain(&error, None, told.unwrap_or(Exit::Interrupted))
        }
    }
}

/// Says what everybody reads; what only passes is shown on a terminal.
struct Teller(Option<ProgressBar>);

impl Teller {
    fn new() -> Self {
        Self(io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            bar.enable_steady_tick(std::time::Duration::from_millis(100));
            bar
        }))
    }

    fn clear(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

impl Listener for Teller {
    fn say(&self, line: &str) {
        match &self.0 {
            Some(bar) => bar.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }

    fn step(&self, what: &str, amount: Option<(u64, u64)>) {
        let Some(bar) = &self.0 else { return };
        let style = match amount {
            // Packages are counted, and downloads measured.
            Some((_, total)) if total < 10_000 => "{spinner} {msg} [{bar:30}] {pos}/{len}",
            Some(_) => "{spinner} {msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
            None => "{spinner} {msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style.progress_chars("=> "));
        }
        if let Some((done, total)) = amount {
            bar.set_length(total);
            bar.set_position(done);
        }
        bar.set_message(what.to_owned());
    }
}
