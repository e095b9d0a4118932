//! The flags of all settings.

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, FromArgMatches};

use crate::settings::variables::NO_DEFAULT;
use crate::settings::{ALL, Variable};

/// The heading of the settings in the flags of a command.
pub(super) const SETTINGS_HEADING: &str = "Settings";

/// A flag for each setting, which wins over its variable. Flags can stand before and after the command.
#[derive(Debug, Default)]
pub struct SettingFlags(pub Vec<(&'static Variable, String)>);

impl Args for SettingFlags {
    fn augment_args(command: clap::Command) -> clap::Command {
        ALL.into_iter().fold(command, |command, variable| {
            let default = match variable.default {
                NO_DEFAULT => String::new(),
                default => format!(", default {default}"),
            };
            command.arg(
                Arg::new(variable.flag)
                    .long(variable.flag)
                    .value_name(variable.placeholder)
                    .help(format!("{} [{}{default}]", variable.meaning, variable.name))
                    .help_heading(SETTINGS_HEADING)
                    .global(true),
            )
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Vec::new();
        for variable in ALL {
            let value = matches
                .try_get_one::<String>(variable.flag)
                .map_err(|error| clap::Error::raw(ErrorKind::InvalidValue, error))?;
            flags.extend(value.map(|value| (variable, value.clone())));
        }
        Ok(Self(flags))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::Cli;

    fn parse(line: &str) -> Cli {
        Cli::try_parse_from(std::iter::once("codebridge").chain(line.split_whitespace())).unwrap()
    }

    fn flags(line: &str) -> Vec<(&'static str, String)> {
        parse(line).settings.0.into_iter().map(|(variable, value)| (variable.name, value)).collect()
    }

    #[test]
    fn every_setting_is_a_flag_before_and_after_the_command() {
        for variable in ALL {
            let expected = vec![(variable.name, "value".to_owned())];
            assert_eq!(flags(&format!("--{} value", variable.flag)), expected);
            assert_eq!(flags(&format!("--{} value serve", variable.flag)), expected);
            assert_eq!(flags(&format!("exec --{} value file", variable.flag)), expected);
            assert_eq!(flags(&format!("exec file --{}=value", variable.flag)), expected);
        }
    }

    #[test]
    fn the_help_of_a_flag_names_its_variable_and_its_default() {
        let help = Cli::command().render_long_help().to_string();
        for variable in ALL {
            assert!(help.contains(&format!("--{} <{}>", variable.flag, variable.placeholder)), "{help}");
            assert!(help.contains(variable.name), "{}", variable.name);
        }
        assert!(help.contains("[MCP_BRIDGE_PIDS, default 128]"), "{help}");
    }
}
