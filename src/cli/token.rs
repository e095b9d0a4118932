//! `codebridge token`.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use super::errors::CommandError;
use super::output::{columns, print, write};
use super::say::say;
use super::{Form, TokenCommand};
use crate::error::Exit;
use crate::policy::{Policy, PolicyError, Source};
use crate::settings::Settings;
use crate::tokens::{Kept, NewToken, PrincipalName, Refused, TokenError, TokenList, Tokens, Unusable};
use crate::workspace::folder_of;

/// A token as it is listed.
#[derive(Debug, Serialize)]
struct Listed {
    /// None for a user of the issuer who is refused: its tokens are not known.
    id: Option<String>,
    /// None for a token that cannot be used.
    name: Option<String>,
    scopes: Option<String>,
    created: Option<String>,
    expires: Option<String>,
    valid: bool,
    refused: bool,
}

fn day(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M").to_string()
}

impl Listed {
    fn of(kept: &Kept) -> Self {
        Self {
            id: Some(kept.id.to_string()),
            name: Some(kept.principal.to_string()),
            scopes: Some(kept.scopes.to_string()),
            created: Some(day(kept.created)),
            expires: kept.expires.map(day),
            valid: kept.is_valid(),
            refused: false,
        }
    }

    fn of_unusable(unusable: &Unusable) -> Self {
        let id = Some(unusable.id.to_string());
        Self { id, name: None, scopes: None, created: None, expires: None, valid: false, refused: false }
    }

    /// A user of the issuer who is refused since then.
    fn refused(user: &PrincipalName, since: jiff::Timestamp) -> Self {
        Self {
            id: None,
            name: Some(user.to_string()),
            scopes: None,
            created: Some(day(since)),
            expires: None,
            valid: false,
            refused: true,
        }
    }

    fn row(self) -> Vec<String> {
        let expires = match (self.valid, self.expires) {
            _ if self.refused => "refused".to_owned(),
            _ if self.name.is_none() => "unusable".to_owned(),
            (false, _) => "expired".to_owned(),
            (true, Some(time)) => time,
            (true, None) => "-".to_owned(),
        };
        let known = [self.id, self.name, self.scopes, self.created];
        known.map(|cell| cell.unwrap_or_else(|| "-".into())).into_iter().chain([expires]).collect()
    }
}

pub(super) async fn token(settings: &Settings, command: TokenCommand) -> Result<ExitCode, CommandError> {
    let (tokens, refused) = (Tokens::at(&settings.state_dir), Refused::at(&settings.state_dir));
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
        TokenCommand::Ls(form) => list(&form, &tokens, &refused).await,
        TokenCommand::Revoke { name, form } => {
            let is_of_issuer = PrincipalName::meant_of_issuer(&name);
            let revoked: Vec<Listed> = match &is_of_issuer {
                Some(user) => {
                    refused.add(user)?;
                    vec![Listed::refused(user, jiff::Timestamp::now())]
                }
                None => revoke(&tokens, &name)?,
            };
            let line = |one: &Listed| match (&one.id, &one.name) {
                (Some(id), Some(name)) => format!("revoked {id} of {name}\n"),
                (Some(id), None) => format!("revoked {id}\n"),
                (None, name) => {
                    format!("tokens of the issuer for {} are refused\n", name.as_deref().unwrap_or_default())
                }
            };
            let text = revoked.iter().map(line).collect();
            write(&form, &revoked, text, Exit::Success).await
        }
        TokenCommand::Allow { name } => {
            let user = PrincipalName::meant_of_issuer(&name);
            let was_refused = user.as_ref().map(|user| refused.remove(user)).transpose()?;
            let user = user.filter(|_| was_refused == Some(true));
            let user = user.ok_or_else(|| TokenError::NotRefused(name.chars().take(100).collect()))?;
            print(&format!("tokens of the issuer for {user} are accepted\n")).await?;
            Ok(Exit::Success.into())
        }
    }
}

/// Revokes the tokens of a user, or one; it may be one that cannot be used.
fn revoke(tokens: &Tokens, name_or_id: &str) -> Result<Vec<Listed>, CommandError> {
    let revoked = tokens.revoke(name_or_id);
    let TokenList { unusable: left, .. } = tokens.list()?;
    for Unusable { id, why } in &left {
        say(format_args!(
            "token {id} cannot be used: {why}; whose it is, is not known: `codebridge token revoke {id}` removes it"
        ));
    }
    let TokenList { kept, unusable } = revoked?;
    Ok(kept.iter().map(Listed::of).chain(unusable.iter().map(Listed::of_unusable)).collect())
}

async fn list(form: &Form, tokens: &Tokens, refused: &Refused) -> Result<ExitCode, CommandError> {
    let TokenList { kept, unusable } = tokens.list()?;
    let mut listed: Vec<Listed> = kept.iter().map(Listed::of).collect();
    listed.extend(unusable.iter().map(Listed::of_unusable));
    for Unusable { id, why } in &unusable {
        say(format_args!("token {id} cannot be used: {why}"));
    }
    listed.extend(refused.list()?.iter().map(|(user, since)| Listed::refused(user, *since)));
    let value = serde_json::to_value(&listed).map_err(io::Error::from)?;
    let text = match listed.is_empty() && !form.json {
        true => {
            say("there are no tokens: `codebridge token add NAME` makes one");
            String::new()
        }
        false => {
            columns(&["ID", "NAME", "SCOPES", "CREATED", "EXPIRES"], listed.into_iter().map(Listed::row))
        }
    };
    write(form, &value, text, Exit::Success).await
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
