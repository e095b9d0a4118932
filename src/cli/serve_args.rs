//! The arguments of `codebridge serve`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Default, Args)]
pub struct ServeArgs {
    /// Listen for clients instead of speaking on standard input and output: `127.0.0.1:8765` or `unix:PATH`
    #[arg(long, value_name = "ADDRESS")]
    pub http: Option<String>,
    /// The certificate of the listener, with those that sign it, as PEM
    #[arg(long, value_name = "FILE", requires = "http", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The key of the certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Also accept access tokens of this OpenID Connect issuer
    #[arg(long, value_name = "URL", requires = "http", requires = "audience")]
    pub oidc_issuer: Option<String>,
    /// The audience that such tokens must have
    #[arg(long, value_name = "NAME", requires = "oidc_issuer")]
    pub audience: Option<String>,
}
