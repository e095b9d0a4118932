//! `codebridge servers login`, `logout` and `whoami`.

use std::io::{self, BufRead};
use std::path::Path;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;

use codebridge_runtimes::exec::{self, CommandLine, visible, visible_line};
use serde::Serialize;

use super::errors::CommandError;
use super::form::Form;
use super::login_args::{LoginArgs, LogoutArgs, WhoamiArgs};
use super::output::{columns, print, write};
use super::say::say;
use super::spinner::Spinner;
use crate::audit::RunFacts;
use crate::error::Exit;
use crate::tokens::PrincipalName;
use crate::upstream::{Account, LoginError, PendingLogin, UpstreamError};
use crate::workspace::Workspace;

/// A login as it is listed.
#[derive(Debug, Serialize)]
struct Listed {
    server: String,
    url: String,
    provider: String,
    account: Option<String>,
    scopes: Vec<String>,
    /// Those that the server wants, and that were not granted.
    missing_scopes: Vec<String>,
    expires: Option<String>,
    renewed: bool,
    valid: bool,
    /// Where its credentials are: `keyring` or `file`.
    kept: &'static str,
}

impl Listed {
    fn of(account: &Account) -> Self {
        let account = account.clone();
        Self {
            valid: account.is_valid(),
            kept: if account.in_keyring { "keyring" } else { "file" },
            server: account.server,
            url: account.url,
            provider: account.issuer,
            account: account.name,
            scopes: account.scopes,
            missing_scopes: account.missing,
            expires: account.expires.map(|time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
            renewed: account.is_renewed,
        }
    }

    fn row(&self) -> Vec<String> {
        let expires = match (&self.expires, self.renewed, self.valid) {
            (_, true, _) => "renewed",
            (None, ..) => "-",
            (Some(_), _, false) => "expired",
            (Some(time), ..) => time,
        };
        let missing = match self.missing_scopes.is_empty() {
            true => String::new(),
            false => format!("lacks {}", self.missing_scopes.join(" ")),
        };
        let account = self.account.clone().unwrap_or_else(|| "-".into());
        let scopes = if self.scopes.is_empty() { "-".into() } else { self.scopes.join(" ") };
        let row = [&self.server, &account, &self.provider, &scopes, expires, self.kept, &missing];
        row.into_iter().map(visible_line).collect()
    }
}

/// Returns the workspace of one of many users, if one is named.
fn of_principal(workspace: &Workspace, name: Option<&str>) -> Result<Option<Workspace>, CommandError> {
    let Some(name) = name else { return Ok(None) };
    let name: PrincipalName = name.parse().map_err(CommandError::TokenName)?;
    Ok(Some(Workspace::of_principal(Arc::clone(&workspace.bridge), name.as_str())))
}

fn failed(error: LoginError) -> CommandError {
    CommandError::Server(UpstreamError::Login(Box::new(error)))
}

/// Logs a person in to a server.
pub(super) async fn login(workspace: &Workspace, args: LoginArgs) -> Result<Account, CommandError> {
    let of_principal = of_principal(workspace, args.principal.as_deref())?;
    let upstream = &of_principal.as_ref().unwrap_or(workspace).upstream;
    let server = upstream.server(&args.name)?;
    let launch = match &server.definition {
        Ok(definition) => &definition.launch,
        Err(why) => {
            let (server, why) = (Arc::clone(&server.name), why.clone());
            return Err(CommandError::Server(UpstreamError::Skipped { server, why }));
        }
    };
    let mut spinner = Spinner::default();
    spinner.show(format!("asking {} where to log in", server.name));
    let scopes = args.scope.iter().flat_map(|text| text.split([' ', ','])).filter(|scope| !scope.is_empty());
    let pending = upstream.logins().begin(&server.name, launch, scopes.map(str::to_owned).collect()).await;
    spinner.clear();
    let pending = pending.map_err(failed)?;
    let provider = visible_line(pending.issuer());
    say(format_args!("log in to '{}' at {provider}:", visible_line(&server.name)));
    say(format_args!("{}", visible(pending.url())));
    let account = match args.no_browser {
        true => by_hand(&pending).await,
        false => {
            if !open_browser(pending.url()) {
                say("hint: no browser could be opened: open this page, on another machine with --no-browser");
            }
            pending.wait().await.map_err(failed)
        }
    };
    let account = account?;
    let facts = RunFacts::of_command("codebridge servers login", upstream.principal());
    upstream.record_login(&account, Arc::new(facts)).await;
    if let Some(workspace) = &of_principal {
        workspace.audit.close().await;
    }
    let name = account.name.as_ref().map_or_else(String::new, |name| format!(" as {name}"));
    let with = match account.scopes.is_empty() {
        true => String::new(),
        false => format!(", with the permissions '{}'", account.scopes.join(" ")),
    };
    let line = format!("logged in to '{}'{name}{with}", account.server);
    print(&format!("{}\n", visible_line(&line))).await?;
    if let Some(why) = account.not_in_keyring.as_ref().filter(|why| why.is_surprising()) {
        say(format_args!("warning: the login is kept in a file that you alone can read: {why}"));
    }
    Ok(account)
}

/// Waits for the browser, or for what the person copies from it.
async fn by_hand(pending: &PendingLogin) -> Result<Account, CommandError> {
    say("then paste the address of the last page, or the code that it shows, and press Enter:");
    let mut waiting = pin!(pending.wait());
    loop {
        let line = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            io::stdin().lock().read_line(&mut line).map(|length| (length > 0).then_some(line))
        });
        let line = tokio::select! {
            account = &mut waiting => return account.map_err(failed),
            line = line => line.map_err(io::Error::from)??,
        };
        match line.map(|line| pending.paste(&line)) {
            Some(Err(error)) => {
                say(format_args!("error: {error}"));
                say(format_args!("hint: paste the address of the last page"));
            }
            // Of two answers, the first counts.
            Some(Ok(())) | None => return waiting.await.map_err(failed),
        }
    }
}

/// Returns false if there is none.
pub(super) fn open_browser(url: &str) -> bool {
    browsers().into_iter().any(|command| exec::spawn_for_person(&command.arg(url)).is_ok())
}

/// Returns `$BROWSER`, else what opens pages on this system.
fn browsers() -> Vec<CommandLine> {
    let wanted = std::env::var("BROWSER").unwrap_or_default();
    let wanted = wanted.split(':').filter_map(|words| {
        let words = shlex::split(words)?;
        let (program, arguments) = words.split_first()?;
        // Some have a place for the URL, which is always the last word here.
        let arguments = arguments.iter().filter(|word| *word != "%s");
        Some(CommandLine::new(exec::find_program(Path::new(program))?).args(arguments))
    });
    let others = ["xdg-open", "open", "wslview"].into_iter();
    let others = others.filter_map(|name| exec::find_program(Path::new(name)).map(CommandLine::new));
    wanted.chain(others).collect()
}

/// Removes the logins to a server.
pub(super) async fn logout(workspace: &Workspace, args: LogoutArgs) -> Result<ExitCode, CommandError> {
    let of_principal = of_principal(workspace, args.principal.as_deref())?;
    let upstream = &of_principal.as_ref().unwrap_or(workspace).upstream;
    let server = upstream.server(&args.name).ok();
    let definition =
        server.as_ref().and_then(|server| Some((&server.name, server.definition.as_ref().ok()?)));
    let definition = definition.map(|(name, definition)| (name, &definition.launch));
    let removed = upstream.logins().forget(&args.name, definition).await.map_err(failed)?;
    let name = visible_line(&args.name);
    let text = match removed.is_empty() {
        true => format!("there is no login to '{name}'\n"),
        false => format!("logged out of '{name}'\n"),
    };
    print(&text).await?;
    Ok(Exit::Success.into())
}

/// Shows who is logged in where.
pub(super) async fn whoami(workspace: &Workspace, args: WhoamiArgs) -> Result<ExitCode, CommandError> {
    let of_principal = of_principal(workspace, args.principal.as_deref())?;
    let upstream = &of_principal.as_ref().unwrap_or(workspace).upstream;
    let accounts = upstream.logins().list().map_err(failed)?;
    let is_meant = |account: &&Account| args.name.as_ref().is_none_or(|name| *name == account.server);
    let listed: Vec<Listed> = accounts.iter().filter(is_meant).map(Listed::of).collect();
    if listed.is_empty() && !args.form.json {
        let name = args.name.as_deref().unwrap_or("NAME");
        say("nobody is logged in");
        say(format_args!("hint: `{}`", crate::upstream::login_command(name)));
    }
    let text = if listed.is_empty() { String::new() } else { table(&listed) };
    let is_missing = listed.is_empty() && args.name.is_some();
    let exit = if is_missing { Exit::Server } else { Exit::Success };
    write(&Form { json: args.form.json }, &listed, text, exit).await
}

fn table(listed: &[Listed]) -> String {
    let rows = listed.iter().map(Listed::row);
    columns(&["SERVER", "ACCOUNT", "PROVIDER", "PERMISSIONS", "EXPIRES", "KEPT IN", ""], rows)
}
