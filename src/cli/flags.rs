//! The flags of all settings.

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, FromArgMatches};

use crate::help::in_lines;
use crate::settings::variables::NO_DEFAULT;
use crate::settings::{ALL, Variable};

/// The command that runs if none is named.
const DEFAULT: &str = "serve";
/// Commands that read no settings: their text is the same everywhere.
const WITHOUT_SETTINGS: [&str; 3] = ["help", "completions", "setup"];

/// The heading of the settings in the flags of a command.
pub(super) const SETTINGS_HEADING: &str = "Settings";

/// The topic of the documentation in which a command is described.
const TOPICS: [(&str, &str); 22] = [
    ("serve", "clients"),
    ("exec", "quickstart"),
    ("workflow", "workflows"),
    ("doctor", "doctor"),
    ("ps", "engines"),
    ("servers", "servers"),
    ("tools", "servers"),
    ("search-model", "servers"),
    ("call", "servers"),
    ("reap", "engines"),
    ("gc", "settings"),
    ("runs", "runs"),
    ("artifact", "files"),
    ("saved", "python"),
    ("image", "images"),
    ("packages", "packages"),
    ("policy", "policy"),
    ("audit", "audit"),
    ("replay", "audit"),
    ("console", "console"),
    ("token", "http"),
    ("setup", "clients"),
];

/// Columns of the text of a flag, which is indented.
const COLUMNS: usize = 90;
/// What `-h` says instead of listing the settings.
const IN_SHORT_HELP: &str = "Settings: see `--help`, or `codebridge help settings`.";

/// A flag for each setting, which wins over its variable. Flags can stand before and after the command, if they act on it.
#[derive(Debug)]
pub struct SettingFlags {
    pub given: Vec<(&'static Variable, String)>,
    /// The command that they are for.
    pub command: String,
}

fn with_flags(
    command: clap::Command,
    variables: impl IntoIterator<Item = &'static Variable>,
) -> clap::Command {
    command.args(variables.into_iter().map(|variable| {
        let default = match variable.default {
            NO_DEFAULT => String::new(),
            default => format!(", default {default}"),
        };
        let flag = Arg::new(variable.flag);
        let flag = if variable.may_be_repeated() { flag.action(ArgAction::Append) } else { flag };
        let flag = if variable.is_switch() {
            flag.num_args(0..=1).require_equals(true).default_missing_value("1")
        } else {
            flag
        };
        flag.long(variable.flag)
            .value_name(variable.placeholder)
            .help(format!("{}\n[{}{default}]", in_lines(variable.meaning, COLUMNS), variable.name))
            .help_heading(SETTINGS_HEADING)
            .hide_short_help(true)
    }))
}

/// Gives the commands below the program the flags of the settings that act on them.
pub(super) fn with_settings(program: clap::Command) -> clap::Command {
    program.mut_subcommands(|command| {
        let name = command.get_name().to_owned();
        if command.is_hide_set() {
            return command;
        }
        match documentation(&name) {
            text if !WITHOUT_SETTINGS.contains(&&*name) => below(command, &name, &text.unwrap_or_default()),
            Some(text) => command.after_help(text),
            None => command,
        }
    })
}

/// Returns the line that leads from the flags of a command to its documentation.
fn documentation(command: &str) -> Option<String> {
    let (_, topic) = TOPICS.iter().find(|(known, _)| *known == command)?;
    Some(format!("Documentation: `codebridge help {topic}`."))
}

/// Gives a command, and the commands below it, the flags of a command of the program.
fn below(command: clap::Command, name: &str, documentation: &str) -> clap::Command {
    let acting = ALL.into_iter().filter(|variable| variable.acts_on(name));
    let own = command.get_after_help().map(ToString::to_string);
    let with_own =
        |text: String| own.iter().map(String::as_str).chain([&*text]).collect::<Vec<_>>().join("\n\n");
    let short = with_own(format!("{IN_SHORT_HELP}\n{documentation}"));
    with_flags(command, acting)
        .after_help(short)
        .after_long_help(with_own(documentation.to_owned()))
        .mut_subcommands(|command| below(command, name, documentation))
}

/// Returns the flags that stand at one place of the command line.
fn flags_at(matches: &ArgMatches) -> impl Iterator<Item = (&'static Variable, String)> + '_ {
    ALL.into_iter().flat_map(|variable| {
        // A command that does not have the flag is an error here.
        let values = matches.try_get_many::<String>(variable.flag).ok().flatten();
        values.into_iter().flatten().map(move |value| (variable, value.clone()))
    })
}

impl Args for SettingFlags {
    fn augment_args(command: clap::Command) -> clap::Command {
        with_flags(command, ALL)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingFlags {
    /// Reads the flags before, after and between the words of the command. Those that stand later win.
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given: Vec<_> = flags_at(matches).collect();
        let mut place = matches.subcommand();
        let command = place.map_or(DEFAULT, |(command, _)| command).to_owned();
        if let Some((variable, _)) = given.iter().find(|(variable, _)| !variable.acts_on(&command)) {
            let text = format!(
                "unexpected argument '--{}' found: `codebridge {command}` does not use it",
                variable.flag
            );
            return Err(clap::Error::raw(ErrorKind::UnknownArgument, text));
        }
        while let Some((_, matches)) = place {
            // A command may have a flag of its own under the name of a setting.
            given.extend(flags_at(matches).filter(|(variable, _)| variable.acts_on(&command)));
            place = matches.subcommand();
        }
        Ok(Self { given, command })
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
    use crate::settings::Commands;

    #[test]
    fn each_command_leads_to_its_documentation() {
        let cli = Cli::command();
        let commands = cli.get_subcommands().filter(|command| !command.is_hide_set());
        let names = commands.map(clap::Command::get_name);
        let known: Vec<&str> = names.filter(|name| !["help", "completions"].contains(name)).collect();
        let mut listed = TOPICS.map(|(command, _)| command).to_vec();
        listed.retain(|command| known.contains(command));
        assert_eq!(listed.len(), TOPICS.len(), "a command of the list does not exist");
        for name in known {
            let topic = TOPICS.iter().find(|(command, _)| *command == name).map(|(_, topic)| *topic);
            assert!(topic.is_some_and(|topic| crate::help::find(topic).is_some()), "{name}: {topic:?}");
        }
        let replay = Cli::command().find_subcommand("replay").unwrap().clone().render_help().to_string();
        assert!(replay.contains("\nDocumentation: `codebridge help audit`."), "{replay}");
    }

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("codebridge").chain(line.split_whitespace()))
    }

    fn flags(line: &str) -> Vec<(&'static str, String)> {
        let flags = parse(line).unwrap().settings.given;
        flags.into_iter().map(|(variable, value)| (variable.name, value)).collect()
    }

    /// Returns commands as they are typed, by the first word. The shortest lines that each takes.
    const LINES: [(&str, &str); 12] = [
        ("serve", ""),
        ("exec", "-c 1"),
        ("doctor", ""),
        ("ps", ""),
        ("reap", ""),
        ("servers", ""),
        ("servers", "refresh"),
        ("servers", "trust"),
        ("tools", "search x"),
        ("tools", "show x"),
        ("call", "x.y"),
        ("image", "ls"),
    ];

    #[test]
    fn a_setting_is_a_flag_of_the_commands_that_it_acts_on() {
        for variable in ALL {
            let expected = vec![(variable.name, "value".to_owned())];
            let flag = variable.flag;
            assert_eq!(flags(&format!("--{flag}=value")), expected);
            for (command, rest) in LINES {
                let before = format!("--{flag}=value {command} {rest}");
                let after = format!("{command} {rest} --{flag}=value");
                if variable.acts_on(command) {
                    assert_eq!(flags(&before), expected, "{before}");
                    assert_eq!(flags(&after), expected, "{after}");
                } else {
                    for line in [before, after] {
                        let error = parse(&line).unwrap_err();
                        assert_eq!(error.kind(), ErrorKind::UnknownArgument, "{line}");
                        let text = format!("error: unexpected argument '--{flag}' found");
                        assert!(error.to_string().starts_with(&text), "{line}: {error}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_flag_after_the_command_wins() {
        let last = |line| flags(line).pop();
        assert_eq!(last("--memory 1g exec --memory 2g x"), Some(("MCP_BRIDGE_MEMORY", "2g".into())));
    }

    #[test]
    fn the_flag_of_shares_is_repeated_anywhere() {
        let expected = ["a", "b", "c:d"].map(|value| ("MCP_BRIDGE_SHARE", value.to_owned()));
        assert_eq!(flags("--share a exec --share b --share=c:d x"), expected);
        assert_eq!(flags("exec --share-anyway x"), [("MCP_BRIDGE_SHARE_ANYWAY", "1".to_owned())]);
    }

    #[test]
    fn settings_name_commands_that_exist() {
        let program = Cli::command();
        for variable in ALL {
            let Commands::Only(names) = variable.commands else { continue };
            for name in names {
                assert!(program.find_subcommand(name).is_some(), "{}: {name}", variable.name);
            }
        }
    }

    #[test]
    fn the_short_help_leaves_settings_out_and_says_where_they_are() {
        let mut program = Cli::command();
        program.build();
        for name in ["exec", "serve", "servers"] {
            let command = program.find_subcommand_mut(name).unwrap();
            let (short, long) = (command.render_help().to_string(), command.render_long_help().to_string());
            assert!(!short.contains("--log-level") && short.contains("codebridge help settings"), "{short}");
            assert!(long.contains("--log-level"), "{long}");
        }
        let short = program.render_help().to_string();
        assert!(!short.contains("--memory") && short.contains("codebridge help settings"), "{short}");
    }

    #[test]
    fn the_help_of_a_flag_names_its_variable_and_its_default() {
        let help = Cli::command().render_long_help().to_string();
        for variable in ALL {
            let Variable { flag, placeholder, .. } = variable;
            let value = if variable.is_switch() {
                format!("[=<{placeholder}>]")
            } else {
                format!(" <{placeholder}>")
            };
            assert!(help.contains(&format!("--{flag}{value}")), "{help}");
            assert!(help.contains(variable.name), "{}", variable.name);
        }
        assert!(help.contains("[MCP_BRIDGE_PIDS, default 128]"), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    }
}
