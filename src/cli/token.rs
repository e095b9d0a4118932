//! `codebridge token`.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use super::TokenCommand;
use super::errors::CommandError;
use super::output::{columns, print, write};
use super::say::say;
use crate::error::Exit;
use crate::policy::{Policy, PolicyError, Source};
use crate::settings::Settings;
use crate::tokens::{Kept, NewToken, PrincipalName, Tokens};
use crate::workspace::folder_of;

/// A token as it is listed.
#[derive(Debug, Serialize)]
struct Listed {
    id: String,
    name: String,
    scopes: String,
    created: String,
    expires: Option<String>,
    valid: bool,
}

impl Listed {
    fn of(kept: &Kept) -> Self {
        let day = |time: jiff::Timestamp| time.strftime("%Y-%m-%d %H:%M").to_string();
        Self {
            id: kept.id.to_string(),
            name: kept.principal.to_string(),
            scopes: kept.scopes.to_string(),
            created: day(kept.created),
            expires: kept.expires.map(day),
            valid: kept.is_valid(),
        }
    }

    fn row(self) -> Vec<String> {
        let expires = match (self.valid, self.expires) {
            (false, _) => "expired".to_owned(),
            (true, Some(time)) => time,
            (true, None) => "-".to_owned(),
        };
        vec![self.id, self.name, self.scopes, self.created, expires]
    }
}

pub(super) async fn token(settings: &Settings, command: TokenCommand) -> Result<ExitCode, CommandError> {
    let tokens = Tokens::at(&settings.state_dir);
    match command {
        TokenCommand::Add { name, expires, policy, force, scope } => {
            let principal: PrincipalName = name.parse().map_err(CommandError::TokenName)?;
            let scopes = scope.parse().map_err(CommandError::TokenScope)?;
            if let Some(file) = policy {
                give_policy(settings, &principal, &file, force)?;
            }
            let secret = tokens.add(NewToken { principal, scopes, lifetime: expires })?;
            print(&format!("{secret}\n")).await?;
            Ok(Exit::Success.into())
        }
        TokenCommand::Ls(form) => {
            let listed: Vec<Listed> = tokens.list()?.iter().map(Listed::of).collect();
            let value = serde_json::to_value(&listed).map_err(io::Error::from)?;
            let text = match listed.is_empty() && !form.json {
                true => {
                    say("there are no tokens: `codebridge token add NAME` makes one");
                    String::new()
                }
                false => columns(
                    &["ID", "NAME", "SCOPES", "CREATED", "EXPIRES"],
                    listed.into_iter().map(Listed::row),
                ),
            };
            write(&form, &value, text, Exit::Success).await
        }
        TokenCommand::Revoke { name, form } => {
            let revoked: Vec<Listed> = tokens.revoke(&name)?.iter().map(Listed::of).collect();
            let line = |one: &Listed| format!("revoked {} of {}\n", one.id, one.name);
            let text = revoked.iter().map(line).collect();
            write(&form, &revoked, text, Exit::Success).await
        }
    }
}

/// Copies the rules of a user to their place, after reading them.
fn give_policy(
    settings: &Settings,
    principal: &PrincipalName,
    file: &Path,
    force: bool,
) -> Result<(), CommandError> {
    let failed = |why: String| CommandError::Policy(PolicyError::Read { file: file.to_path_buf(), why });
    let text = fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
    let source = Source::Named(file.to_path_buf());
    Policy::new(source, PathBuf::new()).rules().map_err(CommandError::Policy)?;
    let folder = folder_of(&settings.state_dir, principal.as_str());
    let place = Policy::file_of_principal(&folder);
    if place.exists() && !force {
        return Err(CommandError::HasPolicy(principal.to_string()));
    }
    let written = || -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let beside = place.with_extension("new");
        let mut options = fs::OpenOptions::new();
        let mut new = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        io::Write::write_all(&mut new, text.as_bytes())?;
        new.sync_all()?;
        // A bridge that runs sees the old rules or the new ones.
        fs::rename(&beside, &place)
    };
    written().map_err(|source| CommandError::WritePolicy { name: principal.to_string(), source })
}
