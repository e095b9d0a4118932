//! What is said of the settings before a command begins: once, and whatever the command then needs of them.

use std::fs::File;

use super::SettingFlags;
use super::errors::CommandError;
use crate::settings::variables::{ALL, SERVERS_CONFIG};
use crate::settings::{SettingWarning, Settings};

/// Warns of settings that do not do what they say, as far as they act on the command.
///
/// # Errors
/// A flag names a file that cannot be read.
pub(super) fn check(settings: &Settings, flags: &SettingFlags) -> Result<(), CommandError> {
    for warning in settings.warnings.iter().filter(|warning| acts(warning, &flags.command)) {
        tracing::warn!("{warning}");
    }
    if let Some(path) = settings.servers_config.as_ref().filter(|_| SERVERS_CONFIG.acts_on(&flags.command))
        && let Err(source) = File::open(path)
    {
        if settings.servers_config.is_from_flag() {
            return Err(CommandError::ServersConfig { path: path.clone(), source });
        }
        tracing::warn!(
            "could not read {}, the file of {}: {source}",
            path.display(),
            settings.servers_config.origin
        );
    }
    Ok(())
}

fn acts(warning: &SettingWarning, command: &str) -> bool {
    let about = ALL.into_iter().find(|variable| warning.is_about(variable));
    about.is_none_or(|variable| variable.acts_on(command))
}
