//! What definitions depend on beside their files: folders, variables, settings.

use std::path::PathBuf;

use crate::settings::{Environment, Settings};

/// The folders and variables that discovery uses.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    pub home: Option<PathBuf>,
    /// The working folder of the bridge.
    pub cwd: PathBuf,
    /// The variables that definitions may refer to.
    pub environment: Environment,
    /// `MCP_BRIDGE_STATE_DIR`.
    pub state_dir: PathBuf,
    /// `MCP_SERVERS_CONFIG`.
    pub servers_config: Option<PathBuf>,
    /// Whether definitions of this bridge itself are used.
    pub allow_self: bool,
    /// Whether definitions in the working folder are used without the user's approval.
    pub trust_project: bool,
    /// The executable of this process.
    pub own_binary: Option<PathBuf>,
}

impl Surroundings {
    /// Returns those of this process under the settings.
    pub fn of_process(settings: &Settings, environment: Environment) -> Self {
        let home = environment.get("HOME").map(PathBuf::from).or_else(std::env::home_dir);
        Self {
            home: home.filter(|home| home.is_absolute()),
            cwd: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
            environment,
            state_dir: settings.state_dir.value.clone(),
            servers_config: settings.servers_config.value.clone(),
            allow_self: settings.allow_self_server.value,
            trust_project: settings.trust_project.value,
            own_binary: std::env::current_exe().ok(),
        }
    }
}
