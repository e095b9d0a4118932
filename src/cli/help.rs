//! `codebridge help`: the topics of the documentation, and the flags of commands.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

use clap::{Arg, CommandFactory};
use codebridge_runtimes::exec::{self, CommandLine};

use super::args::Cli;
use super::errors::CommandError;
use super::flags::SETTINGS_HEADING;
use super::output;
use super::signals::Signals;
use crate::error::Exit;
use crate::help::{self, TOPICS};
use crate::nearest::nearest;

pub(super) fn help(words: &[String]) -> Result<ExitCode, CommandError> {
    show(&page(words)?)?;
    Ok(Exit::Success.into())
}

/// Returns the text for what was asked: a topic goes before the command of the same name.
fn page(words: &[String]) -> Result<String, CommandError> {
    let topic = match words {
        [] => return Ok(contents()),
        [name] => help::find(name),
        _ => None,
    };
    match (topic, flags_of(words, topic.is_none())) {
        (Some(topic), None) => Ok(topic.text.to_owned()),
        (Some(topic), Some(flags)) => Ok(format!("{}\n## Flags\n\n{flags}", topic.text)),
        (None, Some(flags)) => Ok(flags),
        (None, None) => Err(unknown(words.join(" "))),
    }
}

fn unknown(name: String) -> CommandError {
    let cli = Cli::command();
    let names = TOPICS.iter().map(|topic| topic.name).chain(commands(&cli));
    let nearest = nearest(&name, names).map(String::from);
    CommandError::HelpTopic { name, nearest }
}

/// Returns the names of the commands that users type.
fn commands(cli: &clap::Command) -> impl Iterator<Item = &str> {
    cli.get_subcommands().filter(|command| !command.is_hide_set()).map(clap::Command::get_name)
}

fn contents() -> String {
    let mut text = String::from("`codebridge help TOPIC` shows one of these topics:\n\n");
    for topic in &TOPICS {
        text.push_str(&format!("  {:<16} {}\n", topic.name, topic.summary()));
    }
    let cli = Cli::command();
    let commands: Vec<&str> = commands(&cli).collect();
    text.push_str(
        "\n`codebridge help COMMAND` or `codebridge COMMAND --help` shows the flags of a command:\n\n",
    );
    text.push_str(&format!("  {}\n", commands.join(", ")));
    text
}

/// Returns the flags of a command, given as it is typed: `image pull`. Every setting is a flag of every command.
fn flags_of(words: &[String], with_settings: bool) -> Option<String> {
    let mut cli = Cli::command();
    // Gives the commands their whole names, and the settings to each of them.
    cli.build();
    let command = words.iter().try_fold(&mut cli, |command, word| command.find_subcommand_mut(word))?;
    let hidden = |flag: Arg| match flag.get_help_heading() {
        Some(SETTINGS_HEADING) => flag.hide(true),
        _ => flag,
    };
    let mut command = if with_settings { command.clone() } else { command.clone().mut_args(hidden) };
    Some(command.render_long_help().to_string())
}

fn show(text: &str) -> io::Result<()> {
    let is_terminal = io::stdout().is_terminal();
    let text = if is_terminal { help::for_terminal(text) } else { text.to_owned() };
    if let Some(pager) = pager().filter(|_| is_terminal)
        && in_pager(&pager, &text).is_ok()
    {
        return Ok(());
    }
    output::print_now(text.as_bytes())
}

/// Returns `$PAGER`, else less; nothing when neither is installed, or `$PAGER` is empty or `cat`.
fn pager() -> Option<CommandLine> {
    let wanted = std::env::var("PAGER").unwrap_or_else(|_| "less".into());
    let words = shlex::split(&wanted)?;
    let (wanted, arguments) = words.split_first().filter(|(wanted, _)| *wanted != "cat")?;
    let program = |name: &str| exec::find_program(Path::new(name)).map(CommandLine::new);
    let command = program(wanted).map(|command| command.args(arguments)).or_else(|| program("less"))?;
    // As git does: colours, no switch of the screen, and no waiting where everything fits.
    Some(command.env([("LESS", Some("FRX".into()))]))
}

fn in_pager(pager: &CommandLine, text: &str) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Ctrl-C is for the pager, which returns to its prompt.
        let _signals = Signals::listen()?;
        exec::run_pager(pager, text.as_bytes()).await.map_err(io::Error::other)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_of(line: &str) -> Result<String, CommandError> {
        page(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn nothing_lists_every_topic_and_every_command() {
        let text = page_of("").unwrap();
        for topic in &TOPICS {
            assert!(text.contains(&format!("\n  {:<16} {}\n", topic.name, topic.summary())), "{text}");
        }
        assert!(
            text.contains("exec, ") && !text.contains("reaper") && !text.contains("machine-supervisor"),
            "{text}"
        );
    }

    #[test]
    fn a_topic_is_shown_before_the_command_of_the_same_name_and_ends_with_its_flags() {
        for name in ["servers", "doctor"] {
            let text = page_of(name).unwrap();
            assert!(text.starts_with(help::find(name).unwrap().text), "{text}");
            assert!(text.contains("\n## Flags\n\n") && text.contains(&format!("Usage: codebridge {name}")));
        }
        assert_eq!(page_of("images").unwrap(), help::find("images").unwrap().text);
    }

    #[test]
    fn a_command_without_a_topic_shows_its_flags() {
        assert!(page_of("exec").unwrap().contains("Usage: codebridge exec [OPTIONS] [FILE] [ARGUMENT]..."));
        assert!(page_of("run").unwrap().contains("Usage: codebridge serve"));
        assert!(page_of("image pull").unwrap().contains("--plain-http"));
    }

    #[test]
    fn an_unknown_topic_names_the_nearest_one() {
        for (line, expected, nearest) in [
            ("imges", "imges", Some("images")),
            ("doktor", "doktor", Some("doctor")),
            ("xyzzy", "xyzzy", None),
            ("image nothing", "image nothing", Some("image")),
        ] {
            match page_of(line) {
                Err(CommandError::HelpTopic { name, nearest: found }) => {
                    assert_eq!((name.as_str(), found.as_deref()), (expected, nearest));
                }
                other => panic!("{line}: {other:?}"),
            }
        }
    }
}
