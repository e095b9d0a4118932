//! `codebridge doctor`, `ps` and `reap`, and the hidden `guardian`.

use std::io;
use std::process::ExitCode;

use serde::Serialize;
use tokio::io::AsyncWriteExt;

use super::{Form, complain};
use crate::doctor::Diagnosis;
use crate::error::Exit;
use crate::housekeeping;
use crate::server::stdio;
use crate::session::{RunPython, Sessions};

pub(super) async fn doctor(sessions: &Sessions, form: Form) -> ExitCode {
    let diagnosis = Diagnosis::make(sessions).await;
    sessions.shutdown().await;
    match diagnosis {
        Ok(diagnosis) => {
            let exit = if diagnosis.ready { Exit::Fine } else { Exit::NoRuntime };
            write(&form, &diagnosis, diagnosis.text(), exit).await
        }
        Err(text) => complain(&io::Error::other(text), None, Exit::Sandbox),
    }
}

pub(super) async fn ps(form: Form) -> ExitCode {
    let listed = housekeeping::list().await;
    write(&form, &listed, housekeeping::table(&listed), Exit::Fine).await
}

pub(super) async fn reap() -> ExitCode {
    let swept = housekeeping::reap().await;
    let mut text: String = swept.removed.iter().map(|name| format!("removed {name}\n")).collect();
    if text.is_empty() && swept.failed.is_empty() {
        text = "nothing to remove\n".into();
    }
    let written = print(&text).await;
    let mut exit = Exit::Fine.into();
    for error in swept.failed {
        exit = complain(&error, None, Exit::Sandbox);
    }
    written.map_or_else(|error| complain(&error, None, Exit::Io), |()| exit)
}

pub(super) async fn write(form: &Form, value: &impl Serialize, text: String, exit: Exit) -> ExitCode {
    let text = if form.json { serde_json::to_string_pretty(value).map(|text| text + "\n") } else { Ok(text) };
    let written = match text {
        Ok(text) => print(&text).await,
        Err(error) => Err(error.into()),
    };
    written.map_or_else(|error| complain(&error, None, Exit::Io), |()| exit.into())
}

pub(super) async fn print(text: &str) -> io::Result<()> {
    let mut output = stdio::output()?;
    output.write_all(text.as_bytes()).await?;
    output.flush().await
}
