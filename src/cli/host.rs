//! `codebridge doctor`, `ps` and `reap`.

use std::io;
use std::process::ExitCode;

use serde::Serialize;
use tokio::io::AsyncWriteExt;

use super::{DoctorArgs, Form, complain, table};
use crate::doctor::{Diagnosis, Readiness, fix};
use crate::error::Exit;
use crate::housekeeping;
use crate::mcp::stdio;
use crate::settings::Settings;
use crate::workspace::Workspace;

pub(super) async fn doctor(workspace: &Workspace, args: DoctorArgs) -> ExitCode {
    let fixed = if args.fix { fix(&workspace.bridge.settings).await } else { Vec::new() };
    let diagnosis = Diagnosis::make(workspace).await;
    workspace.close().await;
    match diagnosis {
        Ok(diagnosis) => {
            let diagnosis = Diagnosis { fixed, ..diagnosis };
            let exit = match diagnosis.status {
                Readiness::Ready => Exit::Success,
                Readiness::Reduced => Exit::Reduced,
                Readiness::NotReady => Exit::NotReady,
            };
            write(&args.form, &diagnosis, diagnosis.text(), exit).await
        }
        Err(error) => complain(&error, None, Exit::Sandbox),
    }
}

pub(super) async fn ps(settings: &Settings, form: Form) -> ExitCode {
    let listed = housekeeping::list(settings).await;
    write(&form, &listed, table::sandboxes(&listed), Exit::Success).await
}

pub(super) async fn reap(settings: &Settings) -> ExitCode {
    let swept = housekeeping::reap(settings).await;
    let mut text: String = swept.removed.iter().map(|name| format!("removed {name}\n")).collect();
    if text.is_empty() && swept.failed.is_empty() && swept.absent.is_empty() {
        text = "nothing to remove\n".into();
    }
    let written = print(&text).await;
    let mut exit = Exit::Success.into();
    for error in swept.failed {
        exit = complain(&error, None, Exit::Sandbox);
    }
    for error in swept.absent {
        let hint = "its engine does not answer; it is removed once that does, and forgotten a week after it was started";
        exit = complain(&error, Some(hint), Exit::Sandbox);
    }
    written.map_or_else(|error| complain(&error, None, Exit::Io), |()| exit)
}

pub(super) async fn write(form: &Form, value: &impl Serialize, text: String, exit: Exit) -> ExitCode {
    let text = if form.json {
        serde_json::to_string_pretty(value).map(|text| text + "\n")
    } else {
        Ok(printable(&text))
    };
    let written = match text {
        Ok(text) => print(&text).await,
        Err(error) => Err(error.into()),
    };
    written.map_or_else(|error| complain(&error, None, Exit::Io), |()| exit.into())
}

/// Without what servers and files could tell a terminal to do.
fn printable(text: &str) -> String {
    text.replace(|c: char| c.is_control() && !matches!(c, '\n' | '\t'), "\u{fffd}")
}

pub(super) async fn print(text: &str) -> io::Result<()> {
    let mut output = stdio::output()?;
    output.write_all(text.as_bytes()).await?;
    output.flush().await
}
