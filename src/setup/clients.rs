//! The clients: their names, and where they keep their servers.

use std::path::{Path, PathBuf};

use codebridge_runtimes::exec::find_program_in;

use crate::settings::Environment;

/// An MCP client that codebridge can be registered in.
#[derive(Debug)]
pub struct Client {
    /// What the user types.
    pub name: &'static str,
    /// What the client calls itself.
    pub title: &'static str,
    /// Its program on the command line; empty if it has none.
    program: &'static str,
    pub(super) form: Form,
    /// The files of which the first that exists is used; if none exists, the first.
    places: &'static [Place],
}

/// Where the entries of a file are, and what they look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `mcpServers`.
    McpServers,
    /// `mcpServers`, in which Claude Code also names the transport.
    ClaudeCode,
    /// `servers`.
    VsCode,
    /// `[mcp_servers.NAME]`.
    Codex,
    /// `mcp`, or `mcp.servers`, with the command as a list.
    OpenCode,
}

/// A file below a folder of the user.
type Place = (Root, &'static str);

#[derive(Debug, Clone, Copy)]
enum Root {
    Home,
    /// `$XDG_CONFIG_HOME` or `~/.config`.
    Config,
    /// Where desktop applications keep their files: as `Config`, on macOS `~/Library/Application Support`.
    Applications,
    /// The folder that this variable names; nowhere if it is not set.
    Variable(&'static str),
}

/// Every client, in the order of the documentation.
pub static CLIENTS: [Client; 8] = [
    // https://code.claude.com/docs/en/mcp
    Client {
        name: "claude-code",
        title: "Claude Code",
        program: "claude",
        form: Form::ClaudeCode,
        places: &[(Root::Variable("CLAUDE_CONFIG_DIR"), ".claude.json"), (Root::Home, ".claude.json")],
    },
    // https://modelcontextprotocol.io/docs/develop/connect-local-servers
    Client {
        name: "claude-desktop",
        title: "Claude Desktop",
        program: "",
        form: Form::McpServers,
        places: &[(Root::Applications, "Claude/claude_desktop_config.json")],
    },
    // https://cursor.com/docs/context/mcp
    Client {
        name: "cursor",
        title: "Cursor",
        program: "cursor",
        form: Form::McpServers,
        places: &[(Root::Home, ".cursor/mcp.json")],
    },
    // https://code.visualstudio.com/docs/copilot/customization/mcp-servers
    Client {
        name: "vscode",
        title: "VS Code",
        program: "code",
        form: Form::VsCode,
        places: &[
            (Root::Applications, "Code/User/mcp.json"),
            (Root::Applications, "Code - Insiders/User/mcp.json"),
            (Root::Applications, "VSCodium/User/mcp.json"),
        ],
    },
    // https://developers.openai.com/codex/mcp
    Client {
        name: "codex",
        title: "Codex",
        program: "codex",
        form: Form::Codex,
        places: &[(Root::Variable("CODEX_HOME"), "config.toml"), (Root::Home, ".codex/config.toml")],
    },
    // https://geminicli.com/docs/tools/mcp-server/
    Client {
        name: "gemini",
        title: "Gemini CLI",
        program: "gemini",
        form: Form::McpServers,
        places: &[(Root::Home, ".gemini/settings.json")],
    },
    // https://opencode.ai/docs/mcp-servers/
    Client {
        name: "opencode",
        title: "opencode",
        program: "opencode",
        form: Form::OpenCode,
        places: &[(Root::Config, "opencode/opencode.jsonc"), (Root::Config, "opencode/opencode.json")],
    },
    // https://docs.windsurf.com/windsurf/cascade/mcp
    Client {
        name: "windsurf",
        title: "Windsurf",
        program: "windsurf",
        form: Form::McpServers,
        places: &[(Root::Home, ".codeium/windsurf/mcp_config.json")],
    },
];

/// The user's folders and variables.
#[derive(Debug)]
pub struct Folders<'a> {
    home: PathBuf,
    environment: &'a Environment,
    is_macos: bool,
}

impl<'a> Folders<'a> {
    /// Returns the folders of this process; None if the user has no home.
    pub fn of_process(environment: &'a Environment) -> Option<Self> {
        let home = environment.get("HOME").map(PathBuf::from).or_else(std::env::home_dir)?;
        home.is_absolute().then_some(Self { home, environment, is_macos: cfg!(target_os = "macos") })
    }

    /// Returns where a client has its file, and whether the client was found.
    pub(super) fn find(&self, client: &Client) -> (PathBuf, bool) {
        // Where a variable of the client is set, the client reads nothing else.
        let is_named =
            |(root, _): &&Place| matches!(root, Root::Variable(_)) && self.path((*root, "")).is_some();
        let places = client.places.iter().find(is_named).map_or(client.places, std::slice::from_ref);
        let files: Vec<PathBuf> = places.iter().filter_map(|place| self.path(*place)).collect();
        let by_file = files.iter().find(|file| file.exists());
        // A folder of the client counts, its parents do not: the home folder is everybody's.
        let own_folder =
            |file: &&PathBuf| file.parent().is_some_and(|folder| folder != self.home && folder.is_dir());
        let found = by_file.or_else(|| files.iter().find(own_folder));
        let is_found = found.is_some() || self.has_program(client.program);
        let file = found.or(files.first()).cloned().unwrap_or_default();
        (file, is_found)
    }

    fn path(&self, (root, file): Place) -> Option<PathBuf> {
        let variable =
            |name: &str| self.environment.get(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
        let config = || variable("XDG_CONFIG_HOME").unwrap_or_else(|| self.home.join(".config"));
        let folder = match root {
            Root::Home => self.home.clone(),
            Root::Applications if self.is_macos => self.home.join("Library/Application Support"),
            Root::Config | Root::Applications => config(),
            Root::Variable(name) => variable(name)?,
        };
        Some(folder.join(file))
    }

    fn has_program(&self, program: &str) -> bool {
        let path = self.environment.get("PATH").map(std::ffi::OsString::as_os_str);
        !program.is_empty() && find_program_in(Path::new(program), path, Path::new("/")).is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn client(name: &str) -> &'static Client {
        CLIENTS.iter().find(|client| client.name == name).unwrap()
    }

    fn find(home: &Path, environment: &Environment, is_macos: bool, name: &str) -> (String, bool) {
        let folders = Folders { home: home.to_owned(), environment, is_macos };
        let (file, is_found) = folders.find(client(name));
        (file.strip_prefix(home).unwrap().to_string_lossy().into_owned(), is_found)
    }

    #[test]
    fn every_client_has_a_file_on_linux_and_on_macos() {
        let home = tempfile::tempdir().unwrap();
        let nothing = Environment::new();
        let files =
            |is_macos| CLIENTS.each_ref().map(|client| find(home.path(), &nothing, is_macos, client.name));
        let linux = [
            ".claude.json",
            ".config/Claude/claude_desktop_config.json",
            ".cursor/mcp.json",
            ".config/Code/User/mcp.json",
            ".codex/config.toml",
            ".gemini/settings.json",
            ".config/opencode/opencode.jsonc",
            ".codeium/windsurf/mcp_config.json",
        ];
        assert_eq!(files(false), linux.map(|file| (file.to_owned(), false)));
        let macos = files(true);
        assert_eq!(macos[1].0, "Library/Application Support/Claude/claude_desktop_config.json");
        assert_eq!(macos[3].0, "Library/Application Support/Code/User/mcp.json");
        assert_eq!(macos[6].0, ".config/opencode/opencode.jsonc");
    }

    #[test]
    fn a_client_is_found_by_its_file_its_folder_or_its_program() {
        let home = tempfile::tempdir().unwrap();
        let at = |path: &str| home.path().join(path);
        let bin = at("bin");
        fs::create_dir_all(&bin).unwrap();
        let environment: Environment = [("PATH".to_owned(), bin.clone().into_os_string())].into();
        let found = |name| find(home.path(), &environment, false, name);

        fs::create_dir_all(at(".config/VSCodium/User")).unwrap();
        assert_eq!(found("vscode"), (".config/VSCodium/User/mcp.json".into(), true));
        fs::create_dir_all(at(".config/opencode")).unwrap();
        fs::write(at(".config/opencode/opencode.json"), "{}").unwrap();
        assert_eq!(found("opencode"), (".config/opencode/opencode.json".into(), true));
        assert!(!found("claude-code").1);
        std::os::unix::fs::symlink("/bin/sh", bin.join("claude")).unwrap();
        assert_eq!(found("claude-code"), (".claude.json".into(), true));
    }

    #[test]
    fn the_variables_of_clients_name_their_folders() {
        let home = tempfile::tempdir().unwrap();
        let at = |path: &str| home.path().join(path).into_os_string();
        let environment: Environment = [
            ("CODEX_HOME".to_owned(), at("x")),
            ("CLAUDE_CONFIG_DIR".to_owned(), at("y")),
            ("XDG_CONFIG_HOME".to_owned(), at("z")),
        ]
        .into();
        // They win over files that exist elsewhere.
        fs::write(home.path().join(".claude.json"), "{}").unwrap();
        for (name, file) in [
            ("codex", "x/config.toml"),
            ("claude-code", "y/.claude.json"),
            ("opencode", "z/opencode/opencode.jsonc"),
        ] {
            assert_eq!(find(home.path(), &environment, false, name).0, file);
        }
    }
}
