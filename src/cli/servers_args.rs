//! The arguments of the commands that change definitions of servers.

use std::path::PathBuf;

use clap::Args;

use super::form::Form;

#[derive(Debug, Args)]
pub struct FindArgs {
    /// What the server is for, in a few words
    #[arg(value_name = "WORDS", required = true)]
    pub words: Vec<String>,
    /// The number of servers to show, 1 to 50
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=50))]
    pub limit: u8,
    #[command(flatten)]
    pub form: Form,
}

/// What can be added.
const ADD_HELP: &str = "\
Examples:
  codebridge servers add io.example/tracker    # a name of the MCP registry
  codebridge servers add https://tracker.example/mcp --header Authorization
  codebridge servers add time -- uvx mcp-server-time
  codebridge servers add --env API_TOKEN -- npx -y some-mcp-server
Values that are not given are asked for at the terminal, where they are not shown, or read from standard
input, one line for each. They are stored in the definition, in a file that only you can read.";

#[derive(Debug, Args)]
#[command(after_help = ADD_HELP)]
pub struct AddArgs {
    /// A server by its URL or its name in the MCP registry; or the name of the server that the command starts
    #[arg(value_name = "NAME|URL", required_unless_present = "command")]
    pub what: Option<String>,
    /// The command line that starts the server
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// The name of the server [default: made of the command, the URL or the registry's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// A variable of the server; without a value it is asked for. The flag can be repeated
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// A header of each request to the server; without a value it is asked for. The flag can be repeated
    #[arg(short = 'H', long, value_name = "NAME[=VALUE]")]
    pub header: Vec<String>,
    /// What the server is for
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
    /// The folder in which the server starts
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Use the older transport, server-sent events
    #[arg(long)]
    pub sse: bool,
    /// How to reach or start the server, if the registry has several ways: remote, npm, pypi, oci or nuget [default: the first]
    #[arg(long, value_name = "TYPE", conflicts_with = "command")]
    pub from: Option<String>,
    /// Do not ask before a server of the registry is added
    #[arg(short, long)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The client: see `codebridge setup --list`
    #[arg(value_name = "CLIENT")]
    pub client: String,
    /// Names of servers [default: all]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
}
