//! Credential helpers: programs named `docker-credential-NAME`
//! (<https://github.com/docker/docker-credential-helpers>).

use std::path::Path;
use std::time::Duration;

use codebridge_images::{CredentialHelper, HelperAnswer};
use codebridge_runtimes::exec::{CommandLine, find_program, run_with_input};

/// A person may have to unlock a key ring.
const LIMIT: Duration = Duration::from_secs(60);
/// What helpers print, on either stream, when they know nothing of a registry.
const UNKNOWN: &str = "credentials not found in native keychain";

/// Helpers as they are installed.
#[derive(Debug)]
pub(super) struct Programs;

impl CredentialHelper for Programs {
    fn get<'a>(&'a self, name: &'a str, registry: &'a str) -> HelperAnswer<'a> {
        Box::pin(async move {
            let name = format!("docker-credential-{name}");
            let Some(program) = find_program(Path::new(&name)) else {
                return Err(format!("{name}, which holds the credentials, is not installed"));
            };
            let command = CommandLine::new(program).arg("get");
            let done = run_with_input(command, registry.as_bytes().to_vec(), LIMIT).await;
            let done = done.map_err(|error| error.to_string())?;
            let said = [done.stdout.as_slice(), done.stderr.as_slice()].map(String::from_utf8_lossy);
            if done.status.success() {
                return Ok(Some(done.stdout));
            }
            if said.iter().any(|text| text.contains(UNKNOWN)) {
                return Ok(None);
            }
            let said = said.join(" ");
            Err(format!("{name} ended with {}: {}", done.status, said.trim()))
        })
    }
}
