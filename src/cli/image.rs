//! `codebridge image`: what is in the store, and how it gets there and away.

use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use codebridge_images::{
    Digest, Event, ImageError, ImageName, ImageResolver, NameError, Progress, Prune, Root, Store, StoreError,
};
use indicatif::{ProgressBar, ProgressStyle};

use super::host::{print, write};
use super::signals::Signals;
use super::{Form, ImageCommand, complain};
use crate::error::Exit;
use crate::image_sources::{ImageList, SourceError, image_resolver, import_from_engine, pruned_text};

/// Why a subcommand failed.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl From<ImageError> for Trouble {
    fn from(error: ImageError) -> Self {
        Self::Source(error.into())
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Source(error.into())
    }
}

impl Trouble {
    fn complain(&self) -> ExitCode {
        match self {
            Self::Name(_) => complain(self, None, Exit::Usage),
            Self::Source(error) => complain(self, error.hint().as_deref(), Exit::NoImage),
        }
    }
}

pub(super) async fn image(what: ImageCommand) -> ExitCode {
    let plain_http = matches!(what, ImageCommand::Pull { plain_http: true, .. });
    let images = image_resolver(plain_http);
    let store = images.store();
    let done = match what {
        ImageCommand::Pull { name, .. } => return pull_until_told(&images, &name).await,
        ImageCommand::Ls(form) => return list(store, form).await,
        ImageCommand::Rm { names } => remove(store, &names).await,
        ImageCommand::Prune { all, layers } => {
            store.prune(Prune { all, layers }).map(|pruned| pruned_text(&pruned)).map_err(Trouble::from)
        }
        ImageCommand::Build(args) => return super::build::build(args).await,
        ImageCommand::Inspect { name } => {
            return match find(store, &name) {
                Ok(image) => write(&Form { json: true }, &image, String::new(), Exit::Success).await,
                Err(trouble) => trouble.complain(),
            };
        }
    };
    end(done).await
}

async fn end(done: Result<String, Trouble>) -> ExitCode {
    match done {
        Ok(text) => print(&text)
            .await
            .map_or_else(|error| complain(&error, None, Exit::Io), |()| Exit::Success.into()),
        Err(trouble) => trouble.complain(),
    }
}

async fn list(store: &Store, form: Form) -> ExitCode {
    let listed = store.list().and_then(|images| Ok(ImageList { images, usage: store.usage()? }));
    match listed {
        Ok(list) => write(&form, &list, list.text(), Exit::Success).await,
        Err(error) => Trouble::from(error).complain(),
    }
}

async fn pull_until_told(images: &ImageResolver, name: &str) -> ExitCode {
    let mut signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(error) => return complain(&error, None, Exit::Io),
    };
    let bars = Arc::new(Bars::new(name));
    // The program ends, and with it what is being unpacked.
    let told = tokio::select! {
        done = pull(images, name, &bars) => return end(done).await,
        told = signals.next() => told,
    };
    bars.clear();
    let error =
        io::Error::other("stopped; what has been fetched is kept, and the next pull goes on from there");
    complain(&error, None, told)
}

async fn pull(images: &ImageResolver, text: &str, bars: &Arc<Bars>) -> Result<String, Trouble> {
    let name = text.parse::<ImageName>()?.map_path(|path| std::path::absolute(&path).unwrap_or(path));
    let progress: Arc<dyn Progress> = Arc::clone(bars) as Arc<dyn Progress>;
    let root: Root = match &name {
        ImageName::Registry(name) => images.pull(name, &progress).await?,
        ImageName::Engine(engine, reference) => {
            let root = import_from_engine(images, *engine, reference, &progress).await?;
            images.remember(&name, &root)?;
            root
        }
        local => images.open_local(local, &progress).await?,
    };
    bars.clear();
    Ok(format!("{}\n", root.id()))
}

/// Removes one after the other; what is gone is gone when a later one fails.
async fn remove(store: &Store, names: &[String]) -> Result<String, Trouble> {
    let mut text = String::new();
    for name in names {
        match full_name(store, name).and_then(|name| Ok(store.remove(&name)?)) {
            Ok(pruned) => text.push_str(&pruned_text(&pruned)),
            Err(trouble) => {
                // What is gone is told before what is not.
                let _ = print(&text).await;
                return Err(trouble);
            }
        }
    }
    Ok(text)
}

fn find(store: &Store, text: &str) -> Result<codebridge_images::Listed, Trouble> {
    Ok(store.find(&full_name(store, text)?)?)
}

/// A name as the store knows it: in full when it has it, else as it was typed, which may be an id.
fn full_name(store: &Store, text: &str) -> Result<String, Trouble> {
    let full = text
        .parse::<ImageName>()
        .map(|name| name.map_path(|path| std::path::absolute(Path::new(&path)).unwrap_or(path)).to_string());
    match full {
        Ok(full) if store.find(&full).is_ok() => Ok(full),
        _ => Ok(text.to_owned()),
    }
}

/// Bars on a terminal; nothing elsewhere.
struct Bars {
    name: String,
    bar: Option<ProgressBar>,
    received: Mutex<HashMap<Digest, u64>>,
}

impl Bars {
    fn new(name: &str) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            bar.enable_steady_tick(std::time::Duration::from_millis(100));
            bar
        });
        Self { name: name.to_owned(), bar, received: Mutex::default() }
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Progress for Bars {
    fn event(&self, event: Event) {
        let Some(bar) = &self.bar else { return };
        match event {
            Event::Asking { endpoint } => bar.set_message(format!("{}: asking {endpoint}", self.name)),
            Event::Waiting => {
                bar.set_message(format!("{}: waiting for another one that fetches it", self.name))
            }
            Event::Layers { bytes, .. } if bytes > 0 => {
                let style = "{spinner} {msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
                if let Ok(style) = ProgressStyle::with_template(style) {
                    bar.set_style(style.progress_chars("=> "));
                }
                bar.set_length(bytes);
                bar.set_message(format!("{}: fetching", self.name));
            }
            Event::Layers { .. } => {}
            Event::Received { layer, received, .. } => {
                let mut layers = self.received.lock().unwrap_or_else(PoisonError::into_inner);
                layers.insert(layer, received);
                bar.set_position(layers.values().sum());
            }
            Event::Retrying { why, .. } => bar.println(format!("{}: once more, because: {why}", self.name)),
            Event::Unpacking { layer, of } => {
                bar.set_message(format!("{}: unpacking layer {layer} of {of}", self.name));
            }
        }
    }
}
