//! `codebridge completions`: the completions of a shell, generated from the definition of the command line.

use std::io;

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use super::args::Cli;
use super::output;

/// Prints the completions of a shell.
pub(super) fn completions(shell: Shell) -> io::Result<()> {
    output::print_now(&script(shell))
}

fn script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut visible(&Cli::command()), "codebridge", &mut script);
    script
}

/// Returns the command line without what users do not type: clap completes hidden commands like any other.
fn visible(cli: &Command) -> Command {
    let shown = cli.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    // A command loses no subcommand once it has it, so the visible ones move to a new one.
    Command::new("codebridge")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .args(cli.get_arguments().cloned())
        .subcommands(shown)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;
    use crate::settings::ALL;

    #[test]
    fn each_shell_completes_every_command_and_setting() {
        for shell in Shell::value_variants() {
            let script = String::from_utf8(script(*shell)).unwrap();
            for command in Cli::command().get_subcommands() {
                assert_eq!(
                    script.contains(command.get_name()),
                    !command.is_hide_set(),
                    "{shell}: {}",
                    command.get_name()
                );
            }
            for variable in ALL {
                assert!(script.contains(variable.flag), "{shell}: {}", variable.flag);
            }
        }
    }
}
