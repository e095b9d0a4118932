//! `codebridge artifact`: the files that code has saved.

use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use codebridge_runtimes::exec::{visible, visible_line};

use super::artifact_args::{ArtifactCommand, PruneArgs};
use super::errors::CommandError;
use super::folder::{Folder, WriteError};
use super::output::{columns, print, was_read, write};
use super::outputs::copy_content;
use super::say::say;
use crate::artifacts::{Artifact, Artifacts, Prune, is_text};
use crate::error::Exit;
use crate::settings::Settings;
use crate::sizes::bytes_text;

/// Bytes of a text that is printed on a terminal.
const LONGEST_PRINTED: u64 = 1 << 20;
const CHUNK: usize = 256 << 10;

pub(super) async fn artifact(
    settings: &Settings,
    command: ArtifactCommand,
) -> Result<ExitCode, CommandError> {
    let artifacts = Artifacts::at(&settings.state_dir.value, settings.artifacts_limit.value);
    match command {
        ArtifactCommand::Ls { all, form } => {
            let list = if all { artifacts.all() } else { artifacts.latest() };
            write(&form, &list, table(&list, &artifacts), Exit::Success).await
        }
        ArtifactCommand::Get { name, version, output, force } => {
            let artifact = artifacts.find(&name, version)?;
            get(&artifacts, &artifact, output.as_deref(), force).await
        }
        ArtifactCommand::Rm { names, version, form } => {
            let mut removed = Vec::new();
            let mut errors = Vec::new();
            for name in &names {
                match artifacts.remove(name, version) {
                    Ok(versions) => removed.extend(versions),
                    Err(error) => errors.push(CommandError::from(error)),
                }
            }
            let text = if removed.is_empty() { String::new() } else { removed_text(&removed) };
            write(&form, &removed, text, Exit::Success).await?;
            // The last one is reported where all errors are, with its hint.
            let last = errors.pop();
            errors.iter().for_each(|error| say(format_args!("error: {error}")));
            last.map_or_else(|| Ok(Exit::Success.into()), Err)
        }
        ArtifactCommand::Prune(PruneArgs { older_than, keep, form }) => {
            let before = older_than.map(|age| jiff::Timestamp::now().checked_sub(age));
            // Nothing was saved before time began.
            let before = before.map(|before| before.unwrap_or(jiff::Timestamp::MIN));
            let removed = artifacts.prune(Prune { before, keep })?;
            write(&form, &removed, removed_text(&removed), Exit::Success).await
        }
        ArtifactCommand::Export { dir, names, force } => export(&artifacts, &dir, &names, force),
    }
}

fn table(list: &[Artifact], artifacts: &Artifacts) -> String {
    if list.is_empty() {
        return "no artifacts\n".into();
    }
    let row = |artifact: &Artifact| {
        vec![
            visible_line(&artifact.name),
            artifact.version.to_string(),
            bytes_text(artifact.bytes),
            artifact.created.to_string(),
            artifact.description.as_deref().map(visible_line).unwrap_or_default(),
        ]
    };
    let head = ["NAME", "VERSION", "SIZE", "SAVED", "DESCRIPTION"];
    let mut text = columns(&head, list.iter().map(row));
    text.push_str(&format!(
        "in use: {} of {}\n",
        bytes_text(artifacts.used()),
        bytes_text(artifacts.limit())
    ));
    text
}

fn removed_text(removed: &[Artifact]) -> String {
    let line = |artifact: &Artifact| {
        format!("removed {}, version {}\n", visible_line(&artifact.name), artifact.version)
    };
    let freed: u64 = removed.iter().map(|artifact| artifact.bytes).sum();
    let lines: String = removed.iter().map(line).collect();
    format!("{lines}freed {}\n", bytes_text(freed))
}

async fn get(
    artifacts: &Artifacts,
    artifact: &Artifact,
    output: Option<&Path>,
    force: bool,
) -> Result<ExitCode, CommandError> {
    let output = output.filter(|path| *path != Path::new("-"));
    if let Some(path) = output {
        let is_folder = path.is_dir();
        let (dir, name) = match (path.parent(), path.file_name()) {
            (Some(dir), Some(name)) if !is_folder => (dir, name.to_owned()),
            _ => (path, artifact.name.clone().into()),
        };
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        let folder = Folder::create(dir, force)?;
        let (path, bytes) = copy_content(artifacts, artifact, || folder.named_file(name.as_bytes()))?;
        say(format_args!("wrote {} ({})", path.display(), bytes_text(bytes)));
        return Ok(Exit::Success.into());
    }
    let mut content = artifacts.open(artifact)?;
    if io::stdout().is_terminal() {
        let mut text = String::new();
        let is_short = is_text(&artifact.mime_type) && artifact.bytes <= LONGEST_PRINTED;
        if !is_short || content.read_to_string(&mut text).is_err() {
            return Err(CommandError::Terminal(artifact.name.clone()));
        }
        print(&visible(&text)).await?;
        return Ok(Exit::Success.into());
    }
    let mut stdout = io::stdout().lock();
    let mut chunk = vec![0; CHUNK];
    loop {
        let size = content.read(&mut chunk)?;
        let is_read = was_read(stdout.write_all(&chunk[..size]))?;
        if size == 0 || !is_read {
            was_read(stdout.flush())?;
            return Ok(Exit::Success.into());
        }
    }
}

fn export(
    artifacts: &Artifacts,
    dir: &Path,
    names: &[String],
    force: bool,
) -> Result<ExitCode, CommandError> {
    let wanted = match names {
        [] => artifacts.latest(),
        names => names.iter().map(|name| artifacts.find(name, None)).collect::<Result<_, _>>()?,
    };
    let folder = Folder::create(dir, force)?;
    let mut exit = Exit::Success;
    for artifact in &wanted {
        match copy_content(artifacts, artifact, || folder.file(artifact.name.as_bytes())) {
            Ok((path, bytes)) => say(format_args!("wrote {} ({})", path.display(), bytes_text(bytes))),
            Err(error) => {
                say(format_args!("error: {error}"));
                if let Some(hint) = error.hint() {
                    say(format_args!("hint: {hint}"));
                }
                exit = Exit::Io;
            }
        }
    }
    Ok(exit.into())
}

impl From<WriteError> for CommandError {
    fn from(error: WriteError) -> Self {
        Self::Output(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_stays_in_its_row() {
        let dir = tempfile::tempdir().unwrap();
        let artifacts = Artifacts::at(dir.path(), 1 << 20);
        let description = "why\nreport.csv  1  5 B\u{1b}[2J";
        let staged = artifacts.begin("a", Some(description.into())).unwrap();
        let _ = staged.commit(crate::artifacts::Origin::default()).unwrap();
        let text = table(&artifacts.all(), &artifacts);
        assert!(text.lines().count() == 3 && !text.contains('\u{1b}'), "{text}");
    }
}
