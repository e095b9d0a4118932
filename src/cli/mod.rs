//! The command line: flags, signals, logs, exit codes. It decides nothing; it puts the other rooms together.

mod args;
mod build;
mod code;
mod exec;
mod host;
mod image;
mod logging;
mod serve;
mod servers;
mod signals;
mod spinner;
mod table;
mod tools;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;

use crate::error::Exit;
use crate::machine_supervisor;
use crate::reaper;
use crate::settings::{Environment, RawSettings, SettingError, Settings};
use crate::workspace::{Bridge, Workspace};

/// Bytes of each stream that `exec` has in a result.
const MOST_AT_ONCE: usize = 16 << 20;

pub use args::{
    BuildArgs, CallArgs, Cli, Command, DoctorArgs, ExecArgs, Form, ImageCommand, MachineSupervisorArgs,
    SearchArgs, ServersArgs, ServersCommand, SettingFlags, ToolsCommand,
};

/// Runs the program.
pub fn main(arguments: impl IntoIterator<Item = OsString>, environment: &Environment) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Where the text cannot be written, nobody is there to read it.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Success.into() };
        }
    };
    let mut command = cli.command.unwrap_or(Command::Serve);
    // Nothing more is set up for the helpers that bridges start: they cost memory and time beside each bridge.
    let helped = match command {
        Command::Reaper { owner } => Some(reaper::run(owner)),
        Command::MachineSupervisor(ref args) => {
            Some(machine_supervisor::run(args.detached, args.folder.clone(), &args.podman, &args.machine))
        }
        _ => None,
    };
    if let Some(helped) = helped {
        return helped.map_or_else(|error| complain(&error, None, Exit::Sandbox), |()| Exit::Success.into());
    }
    let mut settings = match resolve(environment, &cli.settings) {
        Ok(settings) => settings,
        Err(error) => return complain(&error, error.hint().as_deref(), Exit::Usage),
    };
    if let Err(error) = logging::start(&settings, !matches!(command, Command::Serve)) {
        return complain(&error, None, Exit::Usage);
    }
    // One worker: a call goes through several tasks, and waking a second thread for each of them costs more than it brings.
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&error, None, Exit::Io),
    };
    if let Command::Exec(args) = &mut command {
        args.output =
            args.output.or_else(|| settings.output_mode.is_from_flag().then_some(*settings.output_mode));
        if args.output.is_some() && !settings.output_limit.is_explicit() {
            // Nobody is there later to be asked for what is cut.
            settings.output_limit.value = MOST_AT_ONCE;
        }
    }
    let open = || Workspace::new(Arc::new(Bridge::new(settings.clone(), environment.clone())));
    let exit = runtime.block_on(async {
        match command {
            Command::Serve => serve::serve(&open()).await,
            Command::Exec(args) => exec::exec(&open(), args).await,
            Command::Doctor(args) => host::doctor(&open(), args).await,
            Command::Ps(form) => host::ps(&settings, form).await,
            Command::Reap => host::reap(&settings).await,
            Command::Servers(args) => servers::servers(&open(), args).await,
            Command::Tools(command) => tools::tools(&open(), command).await,
            Command::Call(args) => tools::call(&open(), args).await,
            Command::Image(what) => image::image(what).await,
            Command::Reaper { .. } | Command::MachineSupervisor(_) => Exit::Success.into(),
        }
    });
    // A read of a file that is still under way must not keep the process alive.
    runtime.shutdown_background();
    exit
}

fn resolve(environment: &Environment, flags: &SettingFlags) -> Result<Settings, SettingError> {
    let mut raw = RawSettings::from_environment(environment)?;
    for (variable, value) in &flags.0 {
        raw.set_flag(variable, value);
    }
    Settings::resolve(&raw)
}

/// Says on standard error what is wrong, and what to do about it.
fn complain(error: &dyn std::error::Error, hint: Option<&str>, exit: Exit) -> ExitCode {
    eprintln!("codebridge: {error}");
    if let Some(hint) = hint {
        eprintln!("hint: {hint}");
    }
    exit.into()
}
