//! What definitions depend on beside their files: folders, variables, settings.

use std::path::PathBuf;

use crate::settings::{Environment, Settings};

/// What discovery sees of the world.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// The user's home.
    pub home: Option<PathBuf>,
    /// Where the bridge was started.
    pub cwd: PathBuf,
    /// The variables that definitions can refer to.
    pub environment: Environment,
    /// The folder of `MCP_BRIDGE_STATE_DIR`.
    pub state_dir: PathBuf,
    /// The file of `MCP_SERVERS_CONFIG`.
    pub servers_config: Option<PathBuf>,
    /// Whether definitions of this bridge itself are listed.
    pub allow_self: bool,
    /// This program's own file.
    pub own_binary: Option<PathBuf>,
}

impl Surroundings {
    /// Those of this process, under the settings.
    pub fn of_process(settings: &Settings, environment: Environment) -> Self {
        let home = environment.get("HOME").map(PathBuf::from).or_else(std::env::home_dir);
        Self {
            home: home.filter(|home| home.is_absolute()),
            cwd: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
            environment,
            state_dir: settings.state_dir.value.clone(),
            servers_config: settings.servers_config.value.clone(),
            allow_self: settings.allow_self_server.value,
            own_binary: std::env::current_exe().ok(),
        }
    }
}
