//! The arguments of `codebridge console`.

use clap::Args;

#[derive(Debug, Args)]
pub struct ConsoleArgs {
    /// Where it listens: `HOST:PORT` or `unix:PATH`; port 0 is any free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub http: String,
}
