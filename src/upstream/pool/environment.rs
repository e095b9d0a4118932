//! The environment of a server: a small allow-list of ours, and the variables of its definition.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use crate::settings::Environment;

/// Paths, user, language, display, proxies and certificates.
const INHERITED: &[&str] = &[
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TMP", "TEMP",
    "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK", "HTTP_PROXY",
    "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "FTP_PROXY", "http_proxy", "https_proxy", "no_proxy",
    "all_proxy", "ftp_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "NODE_USE_ENV_PROXY", "NIX_SSL_CERT_FILE", "NIX_PATH",
    "NIX_PROFILES", "__CF_USER_TEXT_ENCODING",
];
/// Prefixes of such variables: locale, folders, and the tools that start servers.
const INHERITED_PREFIXES: &[&str] = &[
    "LC_", "XDG_", "NVM_", "FNM_", "VOLTA_", "ASDF_", "MISE_", "PYENV_", "UV_", "PIP_", "PIPX_",
    "npm_config_", "NPM_CONFIG_", "PNPM_", "BUN_", "DENO_", "CARGO_HOME", "RUSTUP_", "GOPATH", "GOBIN",
    "GOPROXY", "GOCACHE", "JAVA_HOME", "CONDA_", "DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT",
    "CONTAINER_HOST",
];
/// Variables with these in their names are not inherited, whatever their prefix.
const CREDENTIALS: &[&str] = &["TOKEN", "PASSWORD", "SECRET", "AUTH", "CREDENTIAL", "_KEY"];

/// Returns the whole environment of a server.
pub(super) fn environment(ours: &Environment, own: &[(String, String)]) -> BTreeMap<OsString, OsString> {
    let inherited = ours.iter().filter(|(name, _)| is_inherited(name));
    let mut environment: BTreeMap<OsString, OsString> =
        inherited.map(|(name, value)| (name.into(), value.clone())).collect();
    environment.extend(own.iter().map(|(name, value)| (name.into(), value.into())));
    environment
}

/// Returns the search path of a server.
pub(super) fn search_path(environment: &BTreeMap<OsString, OsString>) -> Option<&OsStr> {
    environment.get(OsStr::new("PATH")).map(OsString::as_os_str)
}

fn is_inherited(name: &str) -> bool {
    let in_family = || INHERITED_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let upper = || name.to_ascii_uppercase();
    INHERITED.contains(&name)
        || (in_family() && !CREDENTIALS.iter().any(|credential| upper().contains(credential)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_variables_are_inherited_and_those_of_the_definition_win() {
        let ours: Environment = [
            ("PATH", "/bin"),
            ("HOME", "/h"),
            ("LC_ALL", "C"),
            ("XDG_CACHE_HOME", "/c"),
            ("GITHUB_TOKEN", "no"),
            ("AWS_SECRET_ACCESS_KEY", "no"),
            ("UV_CACHE_DIR", "/u"),
            ("UV_PUBLISH_TOKEN", "no"),
            ("npm_config__authToken", "no"),
            ("LD_PRELOAD", "no"),
            ("MCP_BRIDGE_IMAGE", "no"),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .into();
        let own = [("PATH".to_string(), "/own".to_string()), ("API_KEY".into(), "k".into())];
        let environment = environment(&ours, &own);
        let names: Vec<_> = environment.keys().map(|name| name.to_str().unwrap()).collect();
        assert_eq!(names, ["API_KEY", "HOME", "LC_ALL", "PATH", "UV_CACHE_DIR", "XDG_CACHE_HOME"]);
        assert_eq!(search_path(&environment), Some(OsStr::new("/own")));
    }
}
