//! The grammar of the command line.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, FromArgMatches, Parser, Subcommand};

use crate::settings::variables::NO_DEFAULT;
use crate::settings::{ALL, OutputMode, Variable};
use crate::upstream::catalog::Detail;

/// Runs Python in a locked-down OCI sandbox: as an MCP server on standard input and output, or once.
#[derive(Debug, Parser)]
#[command(name = "codebridge", version)]
pub struct Cli {
    /// What to do; without it, `serve`.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Flags in place of environment variables.
    #[command(flatten)]
    pub settings: SettingFlags,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Speak MCP on standard input and output (the default)
    #[command(alias = "run")]
    Serve,
    /// Run Python once; its output and its exit status are passed on
    Exec(ExecArgs),
    /// Try every runtime with a real sandbox and say what works, what does not and why
    Doctor(DoctorArgs),
    /// List the sandboxes of this user's bridges
    Ps(Form),
    /// List the MCP servers that are defined for this user, with where, and why some are not used
    Servers(ServersArgs),
    /// Search and show what the tools of MCP servers do
    #[command(subcommand)]
    Tools(ToolsCommand),
    /// Call a tool of an MCP server and print its result as JSON
    Call(CallArgs),
    /// Remove what bridges that are gone have left
    Reap,
    /// Fetch, list and remove the images of crun and runc, and of files
    #[command(subcommand)]
    Image(ImageCommand),
    /// Wait for the end of a bridge and remove what it leaves behind; bridges start it themselves
    #[command(hide = true)]
    Reaper {
        /// The bridge's process id
        owner: u32,
    },
    /// Wait until a podman machine is idle and stop it; the bridge that starts the machine starts this
    #[command(hide = true)]
    MachineSupervisor(MachineSupervisorArgs),
}

/// Which machine is supervised.
#[derive(Debug, Args)]
pub struct MachineSupervisorArgs {
    /// Supervise it in this process, which nobody waits for
    #[arg(long)]
    pub detached: bool,
    /// The folder where bridges record which machines they started
    pub folder: PathBuf,
    /// Podman's program
    pub podman: PathBuf,
    /// The machine's name
    pub machine: String,
}

/// What to do with images.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Fetch an image as it is now and unpack it
    Pull {
        /// A reference, or any other form that `--image` takes
        #[arg(value_name = "IMAGE")]
        name: String,
        /// Also ask the registry without TLS, or with a certificate that nobody vouches for
        #[arg(long)]
        plain_http: bool,
    },
    /// List the images of the store
    Ls(Form),
    /// Remove images by name or id; those in use stay
    Rm {
        /// Names, or beginnings of ids
        #[arg(value_name = "IMAGE", required = true)]
        names: Vec<String>,
    },
    /// Remove images that have no name any more, and what is left of broken downloads
    Prune {
        /// Also images that have a name
        #[arg(long)]
        all: bool,
        /// Also the compressed layers of images that are unpacked
        #[arg(long)]
        layers: bool,
    },
    /// Put an image together from packages, without any builder
    Build(BuildArgs),
    /// Show what is known of an image, as JSON
    Inspect {
        /// A name, or the beginning of an id
        #[arg(value_name = "IMAGE")]
        name: String,
    },
}

/// What is built, and where it goes.
#[derive(Debug, Args)]
pub struct BuildArgs {
    /// slim, data, or a folder with a recipe.toml
    #[arg(value_name = "RECIPE")]
    pub recipe: String,
    /// The archive to write, as `--image` takes it: `oci-archive:FILE[:TAG]`
    #[arg(short = 'o', long, value_name = "IMAGE")]
    pub output: String,
    /// Where Debian packages come from, in place of the mirror that apt uses here
    #[arg(long, value_name = "URL")]
    pub mirror: Option<String>,
    /// Take what the mirror has now, and pin a recipe in a folder to it
    #[arg(long)]
    pub update: bool,
    /// Only say what would be downloaded
    #[arg(long)]
    pub dry_run: bool,
}

/// What is done about MCP servers; nothing = they are listed.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ServersArgs {
    /// What to do
    #[command(subcommand)]
    pub command: Option<ServersCommand>,
    /// How the listing is written.
    #[command(flatten)]
    pub form: Form,
}

/// What to do with MCP servers.
#[derive(Debug, Subcommand)]
pub enum ServersCommand {
    /// Start servers, ask what their tools are, and keep that for searches
    Refresh {
        /// Names of servers; none = all
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        /// How the listing is written.
        #[command(flatten)]
        form: Form,
    },
}

/// What to do with tools.
#[derive(Debug, Subcommand)]
pub enum ToolsCommand {
    /// Find the tools of all servers that fit a wish, best first
    Search(SearchArgs),
    /// Show all tools of a server in short, or one in full
    Show {
        /// A server or a tool, each by its own name or by its Python one
        #[arg(value_name = "SERVER[.TOOL]")]
        name: String,
        /// How it is written.
        #[command(flatten)]
        form: Form,
    },
}

/// What is searched, and how much is told.
#[derive(Debug, Args)]
pub struct SearchArgs {
    /// What the tool should do, in a few words or a sentence
    #[arg(value_name = "QUERY", required = true)]
    pub query: Vec<String>,
    /// How many tools to show, 1 to 20
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=20))]
    pub limit: u8,
    /// How much to tell of each: `summary`, or `full` with schemas
    #[arg(long, value_name = "DETAIL", default_value = "summary", value_parser = detail)]
    pub detail: Detail,
    /// How it is written.
    #[command(flatten)]
    pub form: Form,
}

fn detail(text: &str) -> Result<Detail, String> {
    Detail::parse(text).ok_or_else(|| "expected summary or full".into())
}

/// Which tool is called, and with what.
#[derive(Debug, Args)]
pub struct CallArgs {
    /// SERVER.TOOL, each by its own name or by its Python one
    #[arg(value_name = "SERVER.TOOL")]
    pub tool: String,
    /// The arguments, a JSON object
    #[arg(value_name = "JSON", default_value = "{}")]
    pub arguments: String,
}

/// What `doctor` does.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// How it is written
    #[command(flatten)]
    pub form: Form,
    /// Before that, remove what dead bridges left, forget what is remembered of runtimes, and fetch the image
    #[arg(long)]
    pub fix: bool,
}

/// How a listing is written.
#[derive(Debug, Args)]
pub struct Form {
    /// As JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// What `exec` runs, and how.
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// Python source
    #[arg(
        short = 'c',
        long = "code",
        value_name = "CODE",
        allow_hyphen_values = true,
        conflicts_with = "file"
    )]
    pub code: Option<String>,
    /// File with Python source; `-` or nothing = standard input
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// MCP server that the code may call; can be given several times
    #[arg(long = "server", value_name = "NAME")]
    pub servers: Vec<String>,
    /// Name of the interpreter
    #[arg(long, value_name = "NAME")]
    pub session: Option<String>,
    /// Write the result at the end in this form instead of the output as it comes: compact, toon or json
    #[arg(long = "output", value_name = "MODE", value_parser = output_mode)]
    pub output: Option<OutputMode>,
}

fn output_mode(text: &str) -> Result<OutputMode, String> {
    OutputMode::parse(text).ok_or_else(|| format!("expected one of {}", OutputMode::NAMES.join(", ")))
}

/// A flag for each setting, with the same meaning as its variable and more weight. They can stand before and after
/// the command.
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
                    .help_heading("Settings")
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
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Cli {
        Cli::try_parse_from(std::iter::once("codebridge").chain(line.split_whitespace())).unwrap()
    }

    fn fails(line: &str) -> bool {
        Cli::try_parse_from(std::iter::once("codebridge").chain(line.split_whitespace())).is_err()
    }

    fn flags(line: &str) -> Vec<(&'static str, String)> {
        parse(line).settings.0.into_iter().map(|(variable, value)| (variable.name, value)).collect()
    }

    #[test]
    fn the_grammar_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn serving_is_the_default_and_has_two_names() {
        assert!(parse("").command.is_none());
        assert!(matches!(parse("serve").command, Some(Command::Serve)));
        assert!(matches!(parse("run").command, Some(Command::Serve)));
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

    #[test]
    fn servers_are_listed_or_asked() {
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
    fn exec_takes_its_code_from_one_place() {
        let exec = |line| match parse(line).command {
            Some(Command::Exec(args)) => args,
            other => panic!("{other:?}"),
        };
        assert_eq!(exec("exec -c -1").code.as_deref(), Some("-1"));
        assert_eq!(exec("exec file.py").file, Some("file.py".into()));
        assert_eq!(exec("exec -").file, Some("-".into()));
        assert_eq!(exec("exec --server a --server b x").servers, ["a", "b"]);
        assert_eq!(exec("exec --output json x").output, Some(OutputMode::Json));
        assert!(exec("exec").code.is_none());
        assert!(fails("exec -c 1 file.py"));
        assert!(fails("exec --output xml x"));
        assert!(fails("exec a b"));
        assert!(fails("unknown"));
    }
}
