//! `codebridge servers`.

use std::process::ExitCode;

use super::Form;
use super::host::write;
use crate::error::Exit;
use crate::settings::{Environment, Settings};
use crate::upstream::{Listing, Upstream};

pub(super) async fn list(settings: &Settings, environment: &Environment, form: Form) -> ExitCode {
    let upstream = Upstream::without_answers(settings, environment.clone());
    let snapshot = upstream.snapshot();
    let listing = Listing::of(&upstream.list(), &snapshot.warnings);
    write(&form, &listing, listing.table(), Exit::Fine).await
}
