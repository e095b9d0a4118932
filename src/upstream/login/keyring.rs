//! The keyring of the desktop, driven by its own command: `secret-tool` of libsecret, or `security` of macOS. A secret goes there
//! on standard input and comes back on standard output, and is never an argument.
//!
//! A keyring that is locked asks the person for its password, on the desktop. Nobody may be there: every command has a time limit.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use codebridge_runtimes::exec::{self, CommandLine, Finished, visible_line};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::settings::Environment;

/// How long a keyring may take to answer when nobody is asked.
const ANSWER: Duration = Duration::from_secs(5);
/// How long a person may take to unlock it.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes that `secret-tool` takes; it cuts the rest off, and says that it has succeeded.
const LONGEST: usize = 8_000;
/// Bytes of a secret in base64 that fit into a line of `security -i`.
const LONGEST_OF_SECURITY: usize = 3_900;
/// The name of all entries, and what `security` exits with when there is none.
const SERVICE: &str = "codebridge";
const NOT_FOUND: i32 = 44;
/// Characters of a foreign message.
const LONGEST_MESSAGE: usize = 200;
/// Bytes that stand for themselves in an address: <https://dbus.freedesktop.org/doc/dbus-specification.html#addresses>.
const IN_ADDRESS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'/').remove(b'\\').remove(b'.').remove(b'*');

/// Why a keyring cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    #[error("MCP_BRIDGE_KEYRING is off")]
    Off,
    #[error("no desktop session is running")]
    NoSession,
    #[error("the command '{0}' is not installed")]
    NoCommand(&'static str),
    #[error("no keyring is running in the desktop session")]
    NoKeyring,
    #[error("the keyring did not answer within {}s", .0.as_secs())]
    Silent(Duration),
    #[error("the keyring is locked")]
    Locked,
    #[error("the keyring does not have it any more")]
    Missing,
    #[error("the login is too long for the keyring")]
    TooLong,
    #[error("the keyring refused: {0}")]
    Refused(String),
}

impl KeyringError {
    /// Returns whether a person expects the keyring to work: there is one, and its command is installed.
    pub fn is_surprising(&self) -> bool {
        !matches!(self, Self::Off | Self::NoSession | Self::NoCommand(_) | Self::NoKeyring)
    }
}

/// The keyring of the person who runs this process.
#[derive(Debug, Clone)]
pub(super) struct Keyring {
    tool: Result<Tool, KeyringError>,
    /// How long a person may take to unlock it.
    patience: Duration,
}

/// The command of a keyring.
#[derive(Debug, Clone)]
enum Tool {
    /// <https://man.archlinux.org/man/secret-tool.1>. `bus` = the address of the session bus.
    SecretTool { program: PathBuf, bus: String },
    /// <https://ss64.com/mac/security.html>
    Security { program: PathBuf },
}

impl Keyring {
    /// Returns the keyring. Nothing is asked before it is needed.
    pub(super) fn of(environment: &Environment) -> Self {
        Self { tool: Tool::of(environment), patience: PATIENCE }
    }

    fn tool(&self) -> Result<&Tool, KeyringError> {
        self.tool.as_ref().map_err(Clone::clone)
    }

    /// Returns whether the keyring has an entry. It may be locked; nobody is asked.
    pub(super) async fn has(&self, key: &str) -> Result<bool, KeyringError> {
        let tool = self.tool()?;
        let limit = ANSWER.min(self.patience);
        tool.was_found(&run(tool.search(key), Vec::new(), limit).await?)
    }

    /// Returns a secret. A person may be asked for the password of the keyring.
    pub(super) async fn read(&self, key: &str) -> Result<String, KeyringError> {
        if !self.has(key).await? {
            return Err(KeyringError::Missing);
        }
        let tool = self.tool()?;
        let done = run(tool.lookup(key), Vec::new(), self.patience).await?;
        match done.status.success() && !done.stdout.is_empty() {
            true => tool.decoded(&done.stdout).ok_or(KeyringError::Missing),
            // It says nothing when the person does not unlock it.
            false if done.stderr.is_empty() => Err(KeyringError::Locked),
            false => Err(refused(&done)),
        }
    }

    /// Keeps a secret in place of the one before. A person may be asked for the password of the keyring.
    pub(super) async fn write(&self, key: &str, label: &str, secret: &str) -> Result<(), KeyringError> {
        // Whether anything answers takes less time than a person.
        self.has(key).await?;
        let tool = self.tool()?;
        let (command, input) = tool.store(key, label, secret).ok_or(KeyringError::TooLong)?;
        let done = run(command, input, self.patience).await?;
        if !done.status.success() {
            return Err(refused(&done));
        }
        match self.read(key).await? == secret {
            true => Ok(()),
            false => Err(KeyringError::Refused("it returns something else than it was given".into())),
        }
    }

    /// Removes a secret, if it is there. Nobody is asked.
    pub(super) async fn remove(&self, key: &str) -> Result<(), KeyringError> {
        let tool = self.tool()?;
        let done = run(tool.clear(key), Vec::new(), ANSWER.min(self.patience)).await?;
        // A locked one fails without a word.
        if done.status.success() || !self.has(key).await? { Ok(()) } else { Err(KeyringError::Locked) }
    }
}

impl Tool {
    fn of(environment: &Environment) -> Result<Self, KeyringError> {
        let find = |name| exec::find_program(Path::new(name)).ok_or(KeyringError::NoCommand(name));
        if cfg!(target_os = "macos") {
            return Ok(Self::Security { program: find("security")? });
        }
        let own = PathBuf::from(format!("/run/user/{}", rustix::process::getuid().as_raw()));
        let bus = bus(environment, &own).ok_or(KeyringError::NoSession)?;
        Ok(Self::SecretTool { program: find("secret-tool")?, bus })
    }

    fn line(&self) -> CommandLine {
        match self {
            Self::SecretTool { program, bus } => {
                CommandLine::new(program).env([("DBUS_SESSION_BUS_ADDRESS", Some(bus.clone()))])
            }
            Self::Security { program } => CommandLine::new(program),
        }
    }

    fn on(&self, verb: [&str; 2], key: &str) -> CommandLine {
        match self {
            Self::SecretTool { .. } => self.line().args([verb[0], "application", SERVICE, "login", key]),
            Self::Security { .. } => self.line().args([verb[1], "-s", SERVICE, "-a", key]),
        }
    }

    /// Finds an entry, and asks nobody.
    fn search(&self, key: &str) -> CommandLine {
        self.on(["search", "find-generic-password"], key)
    }

    fn clear(&self, key: &str) -> CommandLine {
        self.on(["clear", "delete-generic-password"], key)
    }

    fn lookup(&self, key: &str) -> CommandLine {
        match self {
            Self::SecretTool { .. } => self.on(["lookup", ""], key),
            Self::Security { .. } => self.on(["", "find-generic-password"], key).arg("-w"),
        }
    }

    /// Returns the command and its standard input; None if the secret is too long.
    fn store(&self, key: &str, label: &str, secret: &str) -> Option<(CommandLine, Vec<u8>)> {
        match self {
            Self::SecretTool { .. } => {
                let label = format!("--label={label}");
                let line = self.line().args(["store", &label, "application", SERVICE, "login", key]);
                (secret.len() <= LONGEST).then(|| (line, secret.into()))
            }
            // As an argument of `security` everybody on this machine could read it.
            Self::Security { .. } => {
                let secret = STANDARD.encode(secret);
                let input = format!("add-generic-password -U -s {SERVICE} -a {key} -w {secret}\n");
                (secret.len() <= LONGEST_OF_SECURITY).then(|| (self.line().arg("-i"), input.into()))
            }
        }
    }

    fn decoded(&self, stdout: &[u8]) -> Option<String> {
        match self {
            Self::SecretTool { .. } => String::from_utf8(stdout.to_vec()).ok(),
            Self::Security { .. } => String::from_utf8(STANDARD.decode(stdout.trim_ascii_end()).ok()?).ok(),
        }
    }

    /// Reads the answer to a search.
    fn was_found(&self, done: &Finished) -> Result<bool, KeyringError> {
        match self {
            _ if done.status.success() && !done.stdout.is_empty() => Ok(true),
            Self::Security { .. } if done.status.code() == Some(NOT_FOUND) => Ok(false),
            Self::SecretTool { .. } if done.stderr.is_empty() => Ok(false),
            _ => Err(refused(done)),
        }
    }
}

async fn run(command: CommandLine, input: Vec<u8>, limit: Duration) -> Result<Finished, KeyringError> {
    match exec::run_with_input(command, input, limit).await {
        Ok(done) => Ok(done),
        Err(exec::ExecError::TimedOut { limit, .. }) => Err(KeyringError::Silent(limit)),
        Err(exec::ExecError::Start { source, .. } | exec::ExecError::Read { source, .. }) => {
            Err(KeyringError::Refused(source.to_string()))
        }
        Err(exec::ExecError::Failed(failed)) => Err(KeyringError::Refused(failed.status.to_string())),
    }
}

/// Reads the reason: `secret-tool: Cannot create an item in a locked collection`, or `secret-tool: The name
/// org.freedesktop.secrets was not provided by any .service files`.
fn refused(done: &Finished) -> KeyringError {
    let text = done.stderr_text();
    let text = text.trim_start_matches("secret-tool: ").trim_start_matches("security: ");
    if text.contains("locked collection") {
        return KeyringError::Locked;
    }
    if text.contains("org.freedesktop.secrets was not provided") {
        return KeyringError::NoKeyring;
    }
    let text = if text.is_empty() { done.status.to_string() } else { visible_line(text) };
    KeyringError::Refused(text.chars().take(LONGEST_MESSAGE).collect())
}

/// Returns the address of the session bus. Clients that start a bridge often leave its variables out: then it is where systemd
/// puts it.
fn bus(environment: &Environment, own: &Path) -> Option<String> {
    let variable =
        |name| environment.get(name).and_then(|value| value.to_str()).filter(|text| !text.is_empty());
    if let Some(address) = variable("DBUS_SESSION_BUS_ADDRESS") {
        return Some(address.to_owned());
    }
    let mut folders = [variable("XDG_RUNTIME_DIR").map(Path::new), Some(own)].into_iter().flatten();
    let path = folders.find_map(|folder| {
        let path = folder.join("bus");
        (path.is_absolute() && is_own_socket(&path)).then_some(path)
    })?;
    Some(format!("unix:path={}", utf8_percent_encode(path.to_str()?, IN_ADDRESS)))
}

fn is_own_socket(path: &Path) -> bool {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let own = rustix::process::getuid().as_raw();
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_socket() && found.uid() == own)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use super::*;

    async fn secret_tool(script: &str, folder: &Path, patience: Duration) -> Keyring {
        let (draft, program) = (folder.join("draft"), folder.join("secret-tool"));
        std::fs::write(&draft, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&draft, std::fs::Permissions::from_mode(0o755)).unwrap();
        // What is open for writing here, children that other tests start now have too, and nobody could run it.
        let copy = CommandLine::new("/bin/cp").arg("--remove-destination").arg(&draft).arg(&program);
        let _ = exec::run(copy, PATIENCE).await.and_then(Finished::success).unwrap();
        let tool = Tool::SecretTool { program, bus: "unix:path=/nowhere".into() };
        Keyring { tool: Ok(tool), patience }
    }

    #[tokio::test]
    async fn a_keyring_that_waits_for_a_person_has_a_time_limit() {
        let folder = tempfile::tempdir().unwrap();
        let waits = secret_tool(
            r#"[ "$1" = search ] && echo found || exec sleep 600"#,
            folder.path(),
            Duration::from_millis(300),
        )
        .await;
        let silent = Some(KeyringError::Silent(waits.patience));
        assert_eq!(waits.read("k").await.err(), silent);
        assert_eq!(waits.write("k", "l", "hunter2").await.err(), silent);
        assert_eq!(waits.remove("k").await.err(), silent);
    }

    #[tokio::test]
    async fn what_a_keyring_cuts_off_or_loses_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let cuts =
            secret_tool(r#"[ "$1" = store ] && cat >/dev/null || echo hunt"#, folder.path(), PATIENCE).await;
        let error = cuts.write("k", "l", "hunter2").await.unwrap_err();
        assert!(matches!(error, KeyringError::Refused(_)), "{error}");
        let long = "x".repeat(LONGEST + 1);
        assert_eq!(cuts.write("k", "l", &long).await.err(), Some(KeyringError::TooLong));
        let loses =
            secret_tool(r#"[ "$1" = store ] && cat >/dev/null; exit 0"#, folder.path(), PATIENCE).await;
        assert_eq!(loses.write("k", "l", "hunter2").await.err(), Some(KeyringError::Missing));
        let fails = secret_tool("echo 'secret-tool: no\tway' >&2; exit 1", folder.path(), PATIENCE).await;
        assert!(matches!(fails.read("k").await, Err(KeyringError::Refused(_))));
    }

    #[test]
    fn no_secret_is_in_a_command_line() {
        let tools = [
            Tool::SecretTool { program: "/usr/bin/secret-tool".into(), bus: "unix:path=/b".into() },
            Tool::Security { program: "/usr/bin/security".into() },
        ];
        let lines = |tool: &Tool| {
            let (store, input) = tool.store("k", "server", "hunter2").unwrap();
            let lines = [tool.search("k"), tool.lookup("k"), tool.clear("k"), store];
            let lines = lines.map(|line| line.to_string()).join("\n");
            (lines, String::from_utf8(input).unwrap())
        };
        let (secret_tool, input) = lines(&tools[0]);
        assert_eq!(
            secret_tool,
            "/usr/bin/secret-tool search application codebridge login k\n\
             /usr/bin/secret-tool lookup application codebridge login k\n\
             /usr/bin/secret-tool clear application codebridge login k\n\
             /usr/bin/secret-tool store '--label=server' application codebridge login k"
        );
        assert_eq!(input, "hunter2");
        let (security, input) = lines(&tools[1]);
        assert_eq!(
            security,
            "/usr/bin/security find-generic-password -s codebridge -a k\n\
             /usr/bin/security find-generic-password -s codebridge -a k -w\n\
             /usr/bin/security delete-generic-password -s codebridge -a k\n\
             /usr/bin/security -i"
        );
        assert_eq!(input, "add-generic-password -U -s codebridge -a k -w aHVudGVyMg==\n");
        assert!(tools[1].decoded(b"aHVudGVyMg==\n").is_some_and(|secret| secret == "hunter2"));
        assert!(tools[1].store("k", "l", &"x".repeat(LONGEST_OF_SECURITY)).is_none());
    }

    #[test]
    fn the_session_bus_is_found_without_variables() {
        let folder = tempfile::tempdir().unwrap();
        let (given, own) = (folder.path().join("a b"), folder.path().join("own"));
        std::fs::create_dir(&given).unwrap();
        std::fs::create_dir(&own).unwrap();
        let mut environment = Environment::new();
        environment.insert("XDG_RUNTIME_DIR".into(), given.clone().into());
        assert_eq!(bus(&environment, &own), None);
        let _own = UnixListener::bind(own.join("bus")).unwrap();
        assert_eq!(bus(&environment, &own), Some(format!("unix:path={}/bus", own.display())));
        let _given = UnixListener::bind(given.join("bus")).unwrap();
        let path = format!("unix:path={}/a%20b/bus", folder.path().display());
        assert_eq!(bus(&environment, &own), Some(path));
        environment.insert("DBUS_SESSION_BUS_ADDRESS".into(), "unix:abstract=x".into());
        assert_eq!(bus(&environment, &own).as_deref(), Some("unix:abstract=x"));
    }
}
