//! The commands and their arguments.

use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use super::artifact_args::ArtifactCommand;
use super::audit_args::{AuditArgs, ReplayArgs};
use super::console_args::ConsoleArgs;
use super::exec_args::ExecArgs;
use super::flags::{SettingFlags, with_settings};
use super::form::Form;
use super::gc_args::GcArgs;
use super::image_args::ImageCommand;
use super::login_args::{LoginArgs, LogoutArgs, WhoamiArgs};
use super::packages_args::PackagesCommand;
use super::policy_args::PolicyCommand;
use super::saved_args::SavedArgs;
use super::serve_args::ServeArgs;
use super::servers_args::{AddArgs, FindArgs, ImportArgs};
use super::token_args::TokenCommand;
use super::workflow_args::WorkflowCommand;
use crate::upstream::catalog::Detail;

/// Where the shells look for completions.
const COMPLETIONS_HELP: &str = "\
Examples:
  codebridge completions bash > ~/.local/share/bash-completion/completions/codebridge
  codebridge completions fish > ~/.config/fish/completions/codebridge.fish
  codebridge completions zsh > ~/.zfunc/_codebridge    # a folder of $fpath";

/// Runs Python in a locked-down OCI sandbox, as an MCP server or once
#[derive(Debug, Args)]
pub struct Cli {
    // Read before the command, which takes its part of the matches away.
    #[command(flatten)]
    pub settings: SettingFlags,
    #[command(subcommand)]
    pub command: Option<Command>,
}

// Not derived: each command gets the flags of the settings that act on it.
impl CommandFactory for Cli {
    fn command() -> clap::Command {
        let command = clap::Command::new("codebridge")
            .version(env!("CARGO_PKG_VERSION"))
            .disable_help_subcommand(true)
            .after_help("`codebridge help` lists the topics of the documentation, such as `codebridge help settings`.");
        with_settings(Self::augment_args(command))
    }

    fn command_for_update() -> clap::Command {
        Self::command()
    }
}

impl Parser for Cli {}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Speak MCP on standard input and output (the default), or over HTTP
    #[command(alias = "run")]
    Serve(ServeArgs),
    /// Run Python once
    Exec(ExecArgs),
    /// Run Python whose finished steps are not repeated after a crash
    #[command(subcommand)]
    Workflow(WorkflowCommand),
    /// Try every runtime with a real sandbox, and explain what does not work
    Doctor(DoctorArgs),
    /// List sandboxes
    Ps(Form),
    /// List the configured MCP servers, add and remove some, or ask them for their tools
    Servers(ServersArgs),
    /// Search and show the tools of MCP servers
    #[command(subcommand)]
    Tools(ToolsCommand),
    /// Manage the model that finds tools by meaning
    #[command(subcommand)]
    SearchModel(SearchModelCommand),
    /// Call a tool of an MCP server and print its result
    Call(CallArgs),
    /// Remove the sandboxes of dead bridges
    Reap(ReapArgs),
    /// Remove what is unused: images, packages, old files; shows it first
    Gc(GcArgs),
    /// List what runs in the background, or print the output of one run
    Runs(RunsArgs),
    /// Manage the files that code has saved
    #[command(subcommand)]
    Artifact(ArtifactCommand),
    /// Manage the functions that code has saved
    Saved(SavedArgs),
    /// Manage the images for crun and runc
    #[command(subcommand)]
    Image(ImageCommand),
    /// Manage the Python packages that sandboxes can have without a network
    #[command(subcommand)]
    Packages(PackagesCommand),
    /// Say what code may do: rules for calls of tools
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Show the audit log: which code ran, and what it called
    Audit(AuditArgs),
    /// Run recorded code again, and show where its output differs
    Replay(ReplayArgs),
    /// Show in a browser what runs and what ran, for bridges on standard input and output
    Console(ConsoleArgs),
    /// Manage the access tokens of `serve --http`
    #[command(subcommand)]
    Token(TokenCommand),
    /// Register codebridge in an MCP client
    Setup(SetupArgs),
    /// Show a topic of the documentation, or the flags of a command
    Help {
        /// A topic or a command; nothing = list the topics
        #[arg(value_name = "TOPIC")]
        words: Vec<String>,
    },
    /// Print the completions of a shell
    #[command(after_help = COMPLETIONS_HELP)]
    Completions {
        /// The shell
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
    /// Wait for the end of a bridge and remove what it leaves behind; bridges start it themselves
    #[command(hide = true)]
    Reaper {
        /// The bridge's process id
        owner: u32,
    },
    /// Wait until a podman machine is idle and stop it; bridges start it themselves
    #[command(hide = true)]
    MachineSupervisor(MachineSupervisorArgs),
}

#[derive(Debug, Subcommand)]
pub enum SearchModelCommand {
    /// Download a model of 23 MB, and let it read the tools of all known servers
    Fetch(Form),
    /// Show which model is used, and how many tools it has read
    Status(Form),
}

#[derive(Debug, Args)]
pub struct RunsArgs {
    /// The run, as the list names it
    #[arg(value_name = "RUN")]
    pub(super) run: Option<String>,
    #[command(flatten)]
    pub(super) form: Form,
}

#[derive(Debug, Args)]
pub struct MachineSupervisorArgs {
    /// Supervise the machine in this process, instead of starting another one
    #[arg(long)]
    pub detached: bool,
    /// The folder where bridges record which machines they started
    pub folder: PathBuf,
    /// Podman's program
    pub podman: PathBuf,
    /// The machine's name
    pub machine: String,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ServersArgs {
    #[command(subcommand)]
    pub command: Option<ServersCommand>,
    #[command(flatten)]
    pub form: Form,
}

#[derive(Debug, Subcommand)]
pub enum ServersCommand {
    /// Ask servers for their tools, and keep the answers for searches
    Refresh {
        /// Names of servers [default: all]
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        #[command(flatten)]
        form: Form,
    },
    /// Search an MCP registry for servers
    Find(FindArgs),
    /// Add a server
    Add(Box<AddArgs>),
    /// Remove a server that was added
    Remove {
        /// The name of the server
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Use a disabled server again
    Enable {
        /// The name of the server
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Do not use a server, even if another program defines it
    Disable {
        /// The name of the server
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Copy the definitions of an MCP client
    Import(ImportArgs),
    /// Print definitions without their credentials, as JSON
    Export {
        /// Names of servers [default: all that are used]
        #[arg(value_name = "NAME")]
        names: Vec<String>,
    },
    /// Show a definition of the working directory, and approve it
    Trust {
        /// The name of the server [default: ask for each]
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
    /// Log in to a remote server, in a browser
    Login(LoginArgs),
    /// Remove the login to a remote server
    Logout(LogoutArgs),
    /// Show who is logged in to which remote servers
    Whoami(WhoamiArgs),
}

#[derive(Debug, Subcommand)]
pub enum ToolsCommand {
    /// Search the tools of all servers, best match first
    Search(SearchArgs),
    /// List the tools of a server, or show one in full
    Show {
        /// A server or a tool, by its name or its Python alias
        #[arg(value_name = "SERVER[.TOOL]")]
        name: String,
        #[command(flatten)]
        form: Form,
    },
}

#[derive(Debug, Args)]
pub struct SearchArgs {
    /// What the tool does, in a few words or a sentence
    #[arg(value_name = "QUERY", required = true)]
    pub query: Vec<String>,
    /// The number of tools to show, 1 to 20
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=20))]
    pub limit: u8,
    /// How much to show of each tool: `summary`, or `full` with its schemas
    #[arg(long, value_name = "DETAIL", default_value = "summary", value_parser = detail)]
    pub detail: Detail,
    #[command(flatten)]
    pub form: Form,
}

fn detail(text: &str) -> Result<Detail, String> {
    Detail::parse(text).ok_or_else(|| "expected summary or full".into())
}

#[derive(Debug, Args)]
pub struct CallArgs {
    /// The tool, by its name or its Python alias
    #[arg(value_name = "SERVER.TOOL")]
    pub tool: String,
    /// The arguments of the tool: each as NAME=VALUE, or all as one JSON object; `-` reads the object from standard input
    #[arg(value_name = "ARGUMENT")]
    pub arguments: Vec<String>,
    /// Write the image, sound, file or text of the result to a file; `-` = standard output
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print the result as JSON on a terminal too, as in a pipe
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ReapArgs {
    /// Also remove the network policy of sandboxes in the cluster that --runtime names
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub form: Form,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub form: Form,
    /// First remove the sandboxes of dead bridges, delete the cached choice of a runtime, and pull the image
    #[arg(long)]
    pub fix: bool,
    /// Print the seccomp profile for the nodes of a Kubernetes cluster, and do nothing else
    #[arg(long, conflicts_with_all = ["fix", "json"])]
    pub seccomp_profile: bool,
}

#[derive(Debug, Args)]
pub struct SetupArgs {
    /// The client; nothing = list the clients
    #[arg(value_name = "CLIENT")]
    pub client: Option<String>,
    /// List the clients, which of them are on this machine, and their files
    #[arg(long, conflicts_with_all = ["client", "yes", "print"])]
    pub list: bool,
    /// Print the entry, and change nothing
    #[arg(long, requires = "client")]
    pub print: bool,
    /// Do not ask before the file is changed
    #[arg(short = 'y', long, requires = "client", conflicts_with = "print")]
    pub yes: bool,
    /// Print the list as JSON
    #[arg(long, conflicts_with = "client")]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::OutputMode;

    fn parse(line: &str) -> Cli {
        Cli::try_parse_from(std::iter::once("codebridge").chain(line.split_whitespace())).unwrap()
    }

    fn fails(line: &str) -> bool {
        Cli::try_parse_from(std::iter::once("codebridge").chain(line.split_whitespace())).is_err()
    }

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn serve_is_the_default_and_has_an_alias() {
        assert!(parse("").command.is_none());
        assert!(matches!(parse("serve").command, Some(Command::Serve(_))));
        assert!(matches!(parse("run").command, Some(Command::Serve(_))));
    }

    #[test]
    fn servers_are_listed_or_refreshed() {
        let servers = |line| match parse(line).command {
            Some(Command::Servers(args)) => args,
            other => panic!("{other:?}"),
        };
        assert!(servers("servers --json").form.json && servers("servers").command.is_none());
        let Some(ServersCommand::Refresh { names, form }) = servers("servers refresh a b --json").command
        else {
            panic!("no refresh")
        };
        assert!(names == ["a", "b"] && form.json);
        assert!(fails("servers a"));
    }

    #[test]
    fn a_search_takes_words_and_a_limit() {
        let search = |line| match parse(line).command {
            Some(Command::Tools(ToolsCommand::Search(args))) => args,
            other => panic!("{other:?}"),
        };
        let args = search("tools search free slots --limit 20 --detail full --json");
        assert!(args.query == ["free", "slots"] && args.limit == 20 && args.form.json);
        assert_eq!((args.detail, search("tools search x").detail), (Detail::Full, Detail::Summary));
        for wrong in
            ["tools search", "tools search x --limit 0", "tools search x --limit 21", "tools show", "tools"]
        {
            assert!(fails(wrong), "{wrong}");
        }
    }

    #[test]
    fn exec_takes_its_code_from_one_source() {
        let exec = |line| match parse(line).command {
            Some(Command::Exec(args)) => args,
            other => panic!("{other:?}"),
        };
        assert_eq!(exec("exec -c -1").code.as_deref(), Some("-1"));
        assert_eq!(exec("exec file.py").words, ["file.py"]);
        assert_eq!(exec("exec -").words, ["-"]);
        assert_eq!(exec("exec -c 1 a b").words, ["a", "b"]);
        assert_eq!(exec("exec --in a --in b:c x").flags.files, ["a", "b:c"]);
        assert_eq!(exec("exec --server a --server b x").flags.servers, ["a", "b"]);
        assert_eq!(exec("exec --output json x").flags.output, Some(OutputMode::Json));
        assert!(exec("exec").code.is_none());
        assert!(fails("exec --output xml x"));
        assert!(fails("exec --unknown a"));
    }

    #[test]
    fn a_workflow_takes_its_flags_also_behind_its_file() {
        let run = |line| match parse(line).command {
            Some(Command::Workflow(WorkflowCommand::Run(args))) => args,
            other => panic!("{other:?}"),
        };
        let args = run("workflow run a.py x --resume 0a1b2c3d --server s --timeout 2h -- --flag");
        assert_eq!(args.words, ["a.py", "x", "--flag"]);
        assert_eq!((args.resume.as_deref(), &*args.flags.servers), (Some("0a1b2c3d"), &["s".to_owned()][..]));
        assert!(run("workflow run --resume 0a1b2c3d a.py").words == ["a.py"]);
        for wrong in
            ["workflow run", "workflow run a.py --flag", "workflow", "workflow show", "workflow cancel"]
        {
            assert!(fails(wrong), "{wrong}");
        }
    }

    #[test]
    fn what_follows_a_file_belongs_to_the_script() {
        let Some(Command::Exec(args)) = parse("exec --server a x.py --server b --help -c 1 -- y").command
        else {
            panic!("no exec")
        };
        assert_eq!(args.words, ["x.py", "--server", "b", "--help", "-c", "1", "--", "y"]);
        assert!(args.flags.servers == ["a"] && args.code.is_none());
        assert!(fails("unknown"));
    }
}
