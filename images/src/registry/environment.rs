//! Environment variables for proxies, credentials and configuration folders.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// The variables, read once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment(HashMap<&'static str, OsString>);

const NAMES: &[&str] = &[
    "HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "DOCKER_CONFIG", "REGISTRY_AUTH_FILE",
    "CONTAINERS_REGISTRIES_CONF", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY",
    "all_proxy", "NO_PROXY", "no_proxy",
];

/// No proxy is used for this machine, as in curl and Go.
const NEVER_PROXIED: &str = "localhost,127.0.0.0/8,::1";

impl Environment {
    pub(crate) fn of_this_process() -> Self {
        Self::from_lookup(|name| std::env::var_os(name))
    }

    pub(crate) fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Self {
        let found =
            NAMES.iter().filter_map(|name| Some((*name, lookup(name).filter(|value| !value.is_empty())?)));
        Self(found.collect())
    }

    /// Returns a variable as a path.
    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        self.0.get(name).map(PathBuf::from)
    }

    fn text(&self, names: [&str; 2]) -> Option<String> {
        names.iter().find_map(|name| self.0.get(name)?.to_str().map(String::from))
    }

    pub(crate) fn home(&self) -> Option<PathBuf> {
        self.path("HOME").filter(|path| path.is_absolute())
    }

    pub(crate) fn config_home(&self) -> Option<PathBuf> {
        self.path("XDG_CONFIG_HOME")
            .filter(|path| path.is_absolute())
            .or_else(|| Some(self.home()?.join(".config")))
    }

    pub(crate) fn https_proxy(&self) -> Option<String> {
        self.text(["https_proxy", "HTTPS_PROXY"]).or_else(|| self.text(["all_proxy", "ALL_PROXY"]))
    }

    pub(crate) fn http_proxy(&self) -> Option<String> {
        self.text(["http_proxy", "HTTP_PROXY"]).or_else(|| self.text(["all_proxy", "ALL_PROXY"]))
    }

    pub(crate) fn no_proxy(&self) -> String {
        match self.text(["no_proxy", "NO_PROXY"]) {
            Some(hosts) => format!("{hosts},{NEVER_PROXIED}"),
            None => NEVER_PROXIED.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_case_variables_win_and_this_machine_needs_no_proxy() {
        let environment = Environment::from_lookup(|name| match name {
            "https_proxy" => Some("http://lower:1".into()),
            "HTTPS_PROXY" => Some("http://upper:1".into()),
            "ALL_PROXY" => Some("http://all:1".into()),
            "NO_PROXY" => Some("corp.example".into()),
            "HOME" => Some("/home/x".into()),
            "XDG_CONFIG_HOME" => Some("relative".into()),
            _ => None,
        });
        assert_eq!(environment.https_proxy().as_deref(), Some("http://lower:1"));
        assert_eq!(environment.http_proxy().as_deref(), Some("http://all:1"));
        assert_eq!(environment.no_proxy(), "corp.example,localhost,127.0.0.0/8,::1");
        assert_eq!(environment.config_home(), Some("/home/x/.config".into()));
    }
}
