//! What definitions depend on beside their files: folders, variables, settings.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use reqwest::Url;

use crate::policy::LOCAL;
use crate::settings::{Environment, Settings};

/// Who the servers are used for.
#[derive(Debug, Clone)]
pub struct User {
    /// The name that rules know.
    pub principal: Arc<str>,
    /// The state folder of the operator, for one of many users of a bridge: definitions and their approvals are there, and only
    /// the operator adds any.
    pub operator_dir: Option<PathBuf>,
}

impl Default for User {
    /// The user of this process.
    fn default() -> Self {
        Self { principal: LOCAL.into(), operator_dir: None }
    }
}

/// The folders and variables that discovery uses.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    pub home: Option<PathBuf>,
    /// The working folder of the bridge.
    pub cwd: PathBuf,
    /// The variables that definitions may refer to.
    pub environment: Arc<Environment>,
    /// `MCP_BRIDGE_STATE_DIR`.
    pub state_dir: PathBuf,
    pub user: User,
    /// `MCP_SERVERS_CONFIG`.
    pub servers_config: Option<PathBuf>,
    /// Where an MCP registry lists its servers.
    pub registry: Option<Url>,
    /// The profile whose servers are used; None = all servers.
    pub profile: Option<Arc<str>>,
    /// Whether logins go to the keyring of the desktop.
    pub keyring: bool,
    /// Whether definitions of this bridge itself are used.
    pub allow_self: bool,
    /// Whether definitions in the working folder are used without the user's approval.
    pub trust_project: bool,
    /// `MCP_BRIDGE_SEARCH_MODEL`: the folder of the model for searches by meaning.
    pub search_model: Option<PathBuf>,
    /// The executable of this process.
    pub own_binary: Option<PathBuf>,
}

impl Surroundings {
    /// Returns those of this process under the settings.
    pub fn of_process(settings: &Settings, environment: Arc<Environment>, user: User) -> Self {
        let home = environment.get("HOME").map(PathBuf::from).or_else(std::env::home_dir);
        Self {
            home: home.filter(|home| home.is_absolute()),
            cwd: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
            environment,
            state_dir: settings.state_dir.value.clone(),
            servers_config: settings.servers_config.value.clone(),
            registry: settings.registry.value.clone(),
            profile: settings.profile.value.clone(),
            // The keyring belongs to whoever runs the bridge, and not to one of its users.
            keyring: settings.keyring.value && user.operator_dir.is_none(),
            user,
            allow_self: settings.allow_self_server.value,
            trust_project: settings.trust_project.value,
            search_model: settings.search_model.value.clone(),
            own_binary: std::env::current_exe().ok(),
        }
    }

    /// Returns the folder of definitions and approvals.
    pub(super) fn definitions(&self) -> &Path {
        self.user.operator_dir.as_deref().unwrap_or(&self.state_dir)
    }
}
