//! The arguments of `codebridge servers login`, `logout` and `whoami`.

use clap::Args;

use super::form::Form;

#[derive(Debug, Args)]
pub struct LoginArgs {
    /// The name of the server
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Open no browser: read the address of the last page, or its code, from standard input
    #[arg(long)]
    pub no_browser: bool,
    /// Permissions to ask for, separated by commas [default: those that the server names]
    #[arg(long, value_name = "SCOPES")]
    pub scope: Vec<String>,
    /// Log in for this user of `serve --http`
    #[arg(long, value_name = "USER")]
    pub principal: Option<String>,
}

#[derive(Debug, Args)]
pub struct LogoutArgs {
    /// The name of the server
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Log out for this user of `serve --http`
    #[arg(long, value_name = "USER")]
    pub principal: Option<String>,
}

#[derive(Debug, Args)]
pub struct WhoamiArgs {
    /// The name of the server [default: all]
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Show the logins of this user of `serve --http`
    #[arg(long, value_name = "USER")]
    pub principal: Option<String>,
    #[command(flatten)]
    pub form: Form,
}
