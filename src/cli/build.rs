//! `codebridge image build`.

use std::process::ExitCode;

use codebridge_images::{ImageName, Recipe};
use codebridge_runtimes::exec::visible_line;
use indicatif::ProgressBar;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::errors::CommandError;
use super::output::write;
use super::say::say;
use super::signals::Signals;
use super::spinner::{self, BYTES, ITEMS, TEXT};
use super::{BuildArgs, Form};
use crate::error::Exit;
use crate::image_sources::build::{self, Listener, Order};

fn order(args: BuildArgs) -> Result<Order, CommandError> {
    let BuildArgs { recipe, with, output, mirror, update, .. } = args;
    let ImageName::OciArchive { path, tag } = output.parse()? else {
        return Err(CommandError::BuildOutput(output));
    };
    let mut recipe = Recipe::find(recipe.as_deref().unwrap_or("slim"))?;
    if !with.is_empty() {
        recipe = recipe.with_packages(&with)?;
    }
    Ok(Order { recipe, target: path, tag, mirror, update })
}

pub(super) async fn build(args: BuildArgs) -> Result<ExitCode, CommandError> {
    let (dry_run, json) = (args.dry_run, args.form.json);
    let (order, signals) = (order(args)?, Signals::listen()?);
    let stop = CancellationToken::new();
    let reporter = Reporter(spinner::start());
    let (built, signal) = signals.until_second(&stop, build::build(&order, dry_run, &reporter, &stop)).await;
    reporter.0.finish_and_clear();
    match (built, signal) {
        (Some(Ok(digest)), _) => {
            let text = digest.as_ref().map(|digest| format!("{digest}\n")).unwrap_or_default();
            let digest = digest.map(|digest| digest.to_string());
            write(&Form { json }, &json!({ "digest": digest }), text, Exit::Success).await
        }
        (Some(Err(error)), signal) if !error.is_cancelled() || signal.is_none() => {
            Err(CommandError::Build(error))
        }
        (_, signal) => Err(CommandError::BuildStopped(signal.unwrap_or(Exit::Interrupted))),
    }
}

/// Prints lines that stay, and shows on a terminal what goes on.
struct Reporter(ProgressBar);

impl Listener for Reporter {
    fn say(&self, line: &str) {
        self.0.suspend(|| say(line));
    }

    fn step(&self, what: &str, amount: Option<(u64, u64)>) {
        let bar = &self.0;
        let style = match amount {
            // Packages are counted, and downloads measured.
            Some((_, total)) if total < 10_000 => ITEMS,
            Some(_) => BYTES,
            None => TEXT,
        };
        spinner::set_style(bar, style);
        if let Some((done, total)) = amount {
            bar.set_length(total);
            bar.set_position(done);
        }
        bar.set_message(visible_line(what));
    }
}
