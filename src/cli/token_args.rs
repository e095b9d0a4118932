//! The arguments of `codebridge token`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use super::artifact_args::age;
use super::form::Form;

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token for a user, and print it: it cannot be shown again
    Add {
        /// The user: lower-case letters, digits, `.`, `_`, `-` and `@`. A user can have several tokens
        #[arg(value_name = "NAME")]
        name: String,
        /// How long the token holds: `30d`, `12h` [default: until it is revoked]
        #[arg(long, value_name = "TIME", value_parser = age)]
        expires: Option<Duration>,
        /// The file with the rules of what code of this user may do; it is copied
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
        /// Replace the rules that the user has
        #[arg(long, requires = "policy")]
        force: bool,
        /// What the token is for: mcp, console, approve, metrics, separated by commas
        #[arg(long, value_name = "SCOPES", default_value = "mcp")]
        scope: String,
    },
    /// List the tokens, and the refused users of the issuer
    Ls(Form),
    /// Revoke the tokens of a user, or one token; its sessions end. Users of the issuer are refused from then on
    Revoke {
        /// The user, or the id of a token; `oidc.SUBJECT` for a user of the issuer
        #[arg(value_name = "NAME|ID")]
        name: String,
        #[command(flatten)]
        form: Form,
    },
    /// Accept tokens of the issuer for a user again, after `revoke`
    Allow {
        /// The user: `oidc.SUBJECT`
        #[arg(value_name = "NAME")]
        name: String,
    },
}
