//! The command line: arguments, output and exit codes.

mod add;
mod add_found;
mod args;
mod artifact;
mod artifact_args;
mod ask;
mod audit;
mod audit_args;
mod build;
mod call;
mod call_result;
mod cautions;
mod code;
mod completions;
mod console;
mod console_args;
mod definitions;
mod doctor;
mod errors;
mod exec;
mod exec_args;
mod find;
mod flags;
mod folder;
mod form;
mod gc;
mod gc_args;
mod help;
mod image;
mod image_args;
mod image_text;
mod logging;
mod login;
mod login_args;
mod memory;
mod output;
mod outputs;
mod packages;
mod packages_args;
mod pictures;
mod policy;
mod policy_args;
mod policy_changes;
mod replay;
mod replay_error;
mod runs;
mod sandboxes;
mod saved;
mod saved_args;
mod saved_test;
mod say;
mod search_model;
mod serve;
mod serve_args;
mod servers;
mod servers_args;
mod servers_error;
mod setup;
mod signals;
mod spinner;
mod terminal_answers;
mod token;
mod token_args;
mod tools;
mod trust;
mod usage;
mod workflow;
mod workflow_args;
mod workflow_text;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;

use crate::error::Exit;
use crate::settings::variables::STATE_DIR;
use crate::settings::{Environment, RawSettings, SettingError, Settings};
use crate::workspace::{Bridge, Workspace};
use crate::{machine_supervisor, reaper, shares, state_folder};
use errors::CommandError;
use logging::Audience;
use say::say;

pub use args::{
    CallArgs, Cli, Command, DoctorArgs, MachineSupervisorArgs, RunsArgs, SearchArgs, SearchModelCommand,
    ServersArgs, ServersCommand, SetupArgs, ToolsCommand,
};
pub use artifact_args::{ArtifactCommand, PruneArgs};
pub use audit_args::{AuditArgs, AuditCommand, ReplayArgs};
pub use console_args::ConsoleArgs;
pub use exec_args::{ExecArgs, RunFlags};
pub use flags::SettingFlags;
pub use form::Form;
pub use gc_args::GcArgs;
pub use image_args::{BuildArgs, ImageCommand};
pub use login_args::{LoginArgs, LogoutArgs, WhoamiArgs};
pub use packages_args::PackagesCommand;
pub use policy_args::PolicyCommand;
pub use saved_args::{SavedArgs, SavedCommand};
pub use serve_args::ServeArgs;
pub use servers_args::{AddArgs, FindArgs, ImportArgs};
pub use token_args::TokenCommand;
pub use workflow_args::{WorkflowCommand, WorkflowRunArgs};

/// Runs the program.
pub fn main(arguments: impl IntoIterator<Item = OsString>, environment: &Environment) -> ExitCode {
    match Cli::try_parse_from(arguments) {
        Ok(cli) => run(cli, environment).unwrap_or_else(|error| error.report()),
        Err(error) => {
            // If the text cannot be written, nobody reads it.
            let _ = error.print();
            if let Some(hint) = usage::hint(&error) {
                say(format_args!("hint: {hint}"));
            }
            if error.use_stderr() { Exit::Usage.into() } else { Exit::Success.into() }
        }
    }
}

fn run(cli: Cli, environment: &Environment) -> Result<ExitCode, CommandError> {
    let command = cli.command.unwrap_or_else(|| Command::Serve(ServeArgs::default()));
    // Processes that bridges start beside themselves must be small: nothing else is set up for them.
    match command {
        Command::Help { words } => return help::help(&words),
        Command::Setup(args) => return setup::setup(&args, environment),
        Command::Completions { shell } => {
            completions::completions(shell)?;
            return Ok(Exit::Success.into());
        }
        Command::Reaper { owner } => {
            reaper::run(owner).map_err(CommandError::Process)?;
            return Ok(Exit::Success.into());
        }
        Command::MachineSupervisor(args) => {
            machine_supervisor::run(args.detached, args.folder, &args.podman, &args.machine)
                .map_err(CommandError::Process)?;
            return Ok(Exit::Success.into());
        }
        _ => {}
    }
    let mut settings = resolve(environment, &cli.settings)?;
    if STATE_DIR.acts_on(&cli.settings.command) {
        state_folder::check(&settings.state_dir)?;
    }
    logging::start(&settings, Audience::of(&command), environment)?;
    cautions::check(&settings, &cli.settings)?;
    shares::check(&mut settings, environment, &cli.settings.command)?;
    match &command {
        Command::Exec(args) => exec::prepare(&args.flags, &mut settings),
        Command::Workflow(WorkflowCommand::Run(args)) => workflow::prepare(args, &mut settings),
        Command::Saved(_) => settings.one_shot = true,
        _ => {}
    }
    let writes = matches!(command, Command::Serve(_) | Command::Exec(_) | Command::Workflow(_));
    let state_dir = writes.then(|| settings.state_dir.value.clone());
    state_dir.iter().for_each(|folder| state_folder::mark(folder));
    if !matches!(command, Command::Serve(_)) {
        // Nobody would come for a spare sandbox.
        settings.warm.value = 0;
    }
    memory::give_back();
    // Without a thread, the next line would panic.
    let probe = std::thread::Builder::new().spawn(|| ()).map_err(CommandError::Thread)?;
    // Another one may need its place.
    drop(probe.join());
    // One worker: a call goes through several tasks, and waking a second thread for each of them costs more than it saves.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let done = runtime.block_on(dispatch(command, settings, environment));
    // A read of a file that is still under way must not keep the process alive.
    runtime.shutdown_background();
    // The first run has made it.
    state_dir.iter().for_each(|folder| state_folder::mark(folder));
    done
}

async fn dispatch(
    command: Command,
    settings: Settings,
    environment: &Environment,
) -> Result<ExitCode, CommandError> {
    let open = || Workspace::new(Arc::new(Bridge::new(settings.clone(), environment.clone())));
    match command {
        Command::Serve(ServeArgs { http: None, .. }) => serve::serve(&open()).await,
        Command::Serve(args) => {
            let bridge = Arc::new(Bridge::new(settings.clone(), environment.clone()));
            serve::serve_http(bridge, args).await
        }
        Command::Console(args) => {
            let bridge = Arc::new(Bridge::new(settings.clone(), environment.clone()));
            console::console(bridge, args).await
        }
        Command::Exec(args) => exec::exec(&open(), args, environment).await,
        Command::Workflow(command) => workflow::workflow(command, open, &settings, environment).await,
        Command::Doctor(args) => doctor::doctor(&open(), args).await,
        Command::Ps(form) => sandboxes::ps(&settings, form).await,
        Command::Reap(form) => sandboxes::reap(&settings, form).await,
        Command::Gc(args) => {
            gc::gc(&Arc::new(Bridge::new(settings.clone(), environment.clone())), args).await
        }
        Command::Servers(args) => servers::servers(&open(), args, environment).await,
        Command::Tools(command) => tools::tools(&open(), command).await,
        Command::SearchModel(command) => search_model::search_model(command, settings, environment).await,
        Command::Call(args) => call::call(&open(), args).await,
        Command::Runs(args) => runs::runs(&settings, args).await,
        Command::Artifact(command) => artifact::artifact(&settings, command).await,
        Command::Saved(args) => saved::saved(args, open, &settings).await,
        Command::Audit(args) => audit::audit(&settings, args).await,
        Command::Replay(args) => replay::replay(settings, environment, args).await,
        Command::Image(command) => image::image(command).await,
        Command::Token(command) => token::token(&settings, command).await,
        Command::Policy(command) => policy::policy(&open(), command).await,
        Command::Packages(command) => packages::packages(command, settings, environment).await,
        Command::Help { .. }
        | Command::Setup(_)
        | Command::Completions { .. }
        | Command::Reaper { .. }
        | Command::MachineSupervisor(_) => Ok(Exit::Success.into()),
    }
}

fn resolve(environment: &Environment, flags: &SettingFlags) -> Result<Settings, SettingError> {
    let mut raw = RawSettings::from_environment(environment)?;
    for (variable, value) in &flags.given {
        raw.set_flag(variable, value);
    }
    Settings::resolve(&raw)
}
