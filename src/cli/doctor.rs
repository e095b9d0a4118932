//! `codebridge doctor`.

use std::io;
use std::process::ExitCode;

use codebridge_images::ImageName;
use codebridge_runtimes::node_profile;

use super::DoctorArgs;
use super::errors::CommandError;
use super::output::{print, write};
use super::say::say;
use crate::doctor::{Diagnosis, Readiness, fix};
use crate::error::Exit;
use crate::workspace::Workspace;

pub(super) async fn doctor(workspace: &Workspace, args: DoctorArgs) -> Result<ExitCode, CommandError> {
    if args.seccomp_profile {
        return print_profile().await;
    }
    let fixed = if args.fix { fix(&workspace.bridge.settings).await } else { Vec::new() };
    // A diagnosis may take minutes, and pulls what is not there.
    let image = &workspace.bridge.settings.image.value;
    if matches!(image, ImageName::Registry(_) | ImageName::Engine(..)) {
        say(format_args!("trying each runtime with {image}, which is pulled if it is not there"));
    }
    let diagnosis = Diagnosis::make(workspace).await;
    workspace.close().await;
    let diagnosis = Diagnosis { fixed, ..diagnosis? };
    let exit = match diagnosis.status {
        Readiness::Ready => Exit::Success,
        Readiness::Reduced => Exit::Reduced,
        Readiness::NotReady => Exit::NotReady,
    };
    write(&args.form, &diagnosis, diagnosis.text(), exit).await
}

async fn print_profile() -> Result<ExitCode, CommandError> {
    let profile = node_profile().map_err(io::Error::other)?;
    print(&(profile + "\n")).await?;
    Ok(Exit::Success.into())
}
