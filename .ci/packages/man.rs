//! Writes the man pages into a folder: one for the program and one for each command.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use codebridge::cli::Cli;

const SOURCE: &str = concat!("codebridge ", env!("CARGO_PKG_VERSION"));
const SETTINGS: &str = "The settings are flags of this command too: see codebridge(1).";

fn main() -> io::Result<()> {
    let folder: OsString = std::env::args_os().nth(1).unwrap_or_else(|| ".".into());
    let folder = PathBuf::from(folder);
    fs::create_dir_all(&folder)?;
    let mut cli = Cli::command();
    // Gives the commands their whole names.
    cli.build();
    write_page(&folder, &cli)?;
    write_commands(&folder, &cli)
}

fn write_commands(folder: &Path, parent: &Command) -> io::Result<()> {
    for command in parent.get_subcommands().filter(|command| !command.is_hide_set()) {
        // The settings are flags of each command; one page explains them.
        let help = command.get_after_long_help().or(command.get_after_help());
        let help = help.map(|help| format!("{help}\n\n")).unwrap_or_default() + SETTINGS;
        let command = command
            .clone()
            .mut_args(|flag| if flag.is_global_set() { flag.hide(true) } else { flag })
            .after_long_help(help);
        write_page(folder, &command)?;
        write_commands(folder, &command)?;
    }
    Ok(())
}

fn write_page(folder: &Path, command: &Command) -> io::Result<()> {
    let page = Man::new(command.clone()).source(SOURCE).manual("codebridge manual");
    let mut text = Vec::new();
    page.render(&mut text)?;
    fs::write(folder.join(page.get_filename()), text)
}
