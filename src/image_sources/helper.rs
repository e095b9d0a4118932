//! Credential helpers: programs named `docker-credential-NAME`
//! (<https://github.com/docker/docker-credential-helpers>).

use std::path::Path;
use std::time::Duration;

use codebridge_images::{CredentialHelper, HelperAnswer, HelperError};
use codebridge_runtimes::exec::{CommandLine, find_program, run_with_input};

/// A person may have to unlock a key ring.
const LIMIT: Duration = Duration::from_secs(60);
/// What helpers print, on either stream, when they have no credentials for a registry.
const UNKNOWN: &str = "credentials not found in native keychain";

/// The installed helpers.
#[derive(Debug)]
pub(super) struct Programs;

impl CredentialHelper for Programs {
    fn get<'a>(&'a self, name: &'a str, registry: &'a str) -> HelperAnswer<'a> {
        Box::pin(async move {
            let name = format!("docker-credential-{name}");
            let Some(program) = find_program(Path::new(&name)) else {
                return Err(HelperError::NotInstalled(name));
            };
            let command = CommandLine::new(program).arg("get");
            let done = match run_with_input(command, registry.as_bytes().to_vec(), LIMIT).await {
                Ok(done) => done,
                Err(error) => return Err(HelperError::Failed { program: name, why: error.to_string() }),
            };
            if done.status.success() {
                return Ok(Some(done.stdout));
            }
            let output = [done.stdout, done.stderr].join(&b' ');
            let output = String::from_utf8_lossy(&output);
            if output.contains(UNKNOWN) {
                return Ok(None);
            }
            let why = format!("{}: {}", done.status, output.trim());
            Err(HelperError::Failed { program: name, why })
        })
    }
}
