//! `codebridge image`: the images of the store.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use codebridge_images::{
    Digest, Event, ImageName, ImageResolver, Listed, NameError, Progress, Prune, Root, Store,
};
use codebridge_runtimes::exec::visible;
use indicatif::ProgressBar;
use serde_json::json;

use super::errors::CommandError;
use super::image_text::{ImageList, pruned_text};
use super::output::write;
use super::signals::Signals;
use super::spinner::{self, BYTES};
use super::{Form, ImageCommand};
use crate::error::Exit;
use crate::image_sources::{image_resolver, import_from_engine};

pub(super) async fn image(command: ImageCommand) -> Result<ExitCode, CommandError> {
    let plain_http = matches!(command, ImageCommand::Pull { plain_http: true, .. });
    let images = image_resolver(plain_http);
    let store = images.store();
    match command {
        ImageCommand::Pull { name, form, .. } => {
            let id = pull_until_stopped(&images, &name).await?;
            write(&form, &json!({ "id": id }), format!("{id}\n"), Exit::Success).await
        }
        ImageCommand::Ls(form) => {
            let list = ImageList { images: store.list()?, usage: store.usage()? };
            write(&form, &list, list.text(), Exit::Success).await
        }
        ImageCommand::Rm { names, form } => remove(store, &names, &form).await,
        ImageCommand::Prune { all, layers, form } => {
            let pruned = store.prune(Prune { all, layers })?;
            write(&form, &pruned, pruned_text(&pruned), Exit::Success).await
        }
        ImageCommand::Build(args) => super::build::build(args).await,
        ImageCommand::Inspect { name, .. } => {
            let image = find(store, &name)?;
            write(&Form { json: true }, &image, String::new(), Exit::Success).await
        }
    }
}

async fn pull_until_stopped(images: &ImageResolver, name: &str) -> Result<String, CommandError> {
    let mut signals = Signals::listen()?;
    let bar = Arc::new(PullBar::new(name));
    // The program exits, and with it what unpacks.
    let signal = tokio::select! {
        pulled = pull(images, name, &bar) => return pulled,
        signal = signals.next() => signal,
    };
    bar.bar.finish_and_clear();
    Err(CommandError::PullStopped(signal))
}

async fn pull(images: &ImageResolver, text: &str, bar: &Arc<PullBar>) -> Result<String, CommandError> {
    let name = absolute(text)?;
    let progress: Arc<dyn Progress> = Arc::clone(bar) as Arc<dyn Progress>;
    let root: Root = match &name {
        ImageName::Registry(name) => images.pull(name, &progress).await?,
        ImageName::Engine(engine, reference) => {
            let root = import_from_engine(images, *engine, reference, &progress).await?;
            images.set_name(&name, &root)?;
            root
        }
        local => images.open_local(local, &progress).await?,
    };
    bar.bar.finish_and_clear();
    Ok(root.id().to_string())
}

/// Removes one image after the other, as far as the first that cannot be removed.
async fn remove(store: &Store, names: &[String], form: &Form) -> Result<ExitCode, CommandError> {
    let mut removed = Vec::new();
    let all = names.iter().try_for_each(|name| {
        removed.push(store.remove(&full_name(store, name))?);
        Ok(())
    });
    let text = removed.iter().map(pruned_text).collect();
    write(form, &removed, text, Exit::Success).await?;
    all.map(|()| Exit::Success.into())
}

fn find(store: &Store, text: &str) -> Result<Listed, CommandError> {
    Ok(store.find(&full_name(store, text))?)
}

/// Returns a name as the store knows it: in full when it has that, or as the name of an image that an engine had; else as it
/// was typed, which may be an id.
fn full_name(store: &Store, text: &str) -> String {
    let Ok(name) = absolute(text) else { return text.to_owned() };
    let full = name.to_string();
    let copies = ["containers-storage:", "docker-daemon:"];
    let copied = copies.iter().flat_map(|engine| [text, &full].map(|name| format!("{engine}{name}")));
    let mut names = std::iter::once(full.clone()).chain(copied);
    names.find(|name| store.find(name).is_ok()).unwrap_or_else(|| text.to_owned())
}

/// Parses a name, with its path, if it has one, made absolute.
fn absolute(text: &str) -> Result<ImageName, NameError> {
    let name: ImageName = text.parse()?;
    Ok(name.map_path(|path| std::path::absolute(&path).unwrap_or(path)))
}

/// A bar on a terminal; nothing elsewhere.
struct PullBar {
    name: String,
    bar: ProgressBar,
    received: Mutex<HashMap<Digest, u64>>,
}

impl PullBar {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), bar: spinner::start(), received: Mutex::default() }
    }
}

impl Drop for PullBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl Progress for PullBar {
    fn event(&self, event: Event) {
        let bar = &self.bar;
        match event {
            Event::Asking { endpoint } => bar.set_message(format!("{}: contacting {endpoint}", self.name)),
            Event::Waiting => {
                bar.set_message(format!("{}: waiting for another process that pulls it", self.name))
            }
            Event::Layers { bytes } if bytes > 0 => {
                spinner::set_style(bar, BYTES);
                bar.set_length(bytes);
                bar.set_message(format!("{}: downloading", self.name));
            }
            Event::Layers { .. } => {}
            Event::Received { layer, received, .. } => {
                let mut layers = self.received.lock().unwrap_or_else(PoisonError::into_inner);
                layers.insert(layer, received);
                bar.set_position(layers.values().sum());
            }
            Event::Retrying { why } => bar.println(visible(&format!("{}: retrying: {why}", self.name))),
            Event::Unpacking { layer, of } => {
                bar.set_message(format!("{}: unpacking layer {layer} of {of}", self.name));
            }
        }
    }
}
