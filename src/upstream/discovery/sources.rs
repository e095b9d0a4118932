//! The files and folders that may contain definitions, in order of precedence.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::surroundings::Surroundings;

/// JSON files of a folder in the working directory: more were not written by a person.
pub(super) const MOST_FILES: usize = 20;

/// Where a file has its definitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Form {
    /// At any of the other places.
    Any,
    /// `mcpServers`.
    McpServers,
    /// `mcpServers`, and the same for each project.
    ClaudeCode,
    /// `servers`.
    VsCode,
    /// `mcp.servers`.
    VsCodeSettings,
    /// `[mcp_servers.NAME]`.
    Codex,
    /// `mcp`, with commands as lists.
    OpenCode,
}

/// A file or a folder of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) form: Form,
    /// Whether it stands for all JSON files of a folder.
    pub(super) is_folder: bool,
    /// Whether the user named it, so that its absence is reported.
    pub(super) is_explicit: bool,
    /// Whether it is in the working directory, where others may have put it.
    pub(super) in_project: bool,
}

impl Place {
    fn file(path: PathBuf, form: Form) -> Self {
        Self { path, form, is_folder: false, is_explicit: false, in_project: false }
    }

    fn folder(path: PathBuf) -> Self {
        Self { path, form: Form::Any, is_folder: true, is_explicit: false, in_project: false }
    }
}

/// Returns every place, the one with the highest precedence first.
pub(super) fn places(surroundings: &Surroundings) -> Vec<Place> {
    let mut places = Vec::new();
    if let Some(path) = &surroundings.servers_config {
        places.push(Place { is_explicit: true, ..Place::file(path.clone(), Form::Any) });
    }
    places.push(Place::folder(surroundings.definitions().to_path_buf()));
    let here = |path: &str| surroundings.cwd.join(path);
    let home = |path: &str| surroundings.home.as_ref().map(|home| home.join(path));
    let configs = config_folders(surroundings);
    let config = |path: &str| configs.iter().map(|folder| folder.join(path)).collect::<Vec<_>>();
    let mut add = |in_project: bool, paths: Vec<PathBuf>, form| {
        places.extend(paths.into_iter().map(|path| match form {
            None => Place { in_project, ..Place::folder(path) },
            Some(form) => Place { in_project, ..Place::file(path, form) },
        }));
    };
    let (user, project) = (false, true);

    add(project, vec![here("mcp-servers")], None);
    add(user, config("mcp/servers"), None);

    add(project, vec![here(".mcp.json")], Some(Form::McpServers));
    add(user, Vec::from_iter(home(".claude.json")), Some(Form::ClaudeCode));
    let claude_files = ["claude_code_config.json", "claude_desktop_config.json"];
    add(project, claude_files.map(here).to_vec(), Some(Form::McpServers));

    let mut claude = Vec::from_iter(home("Library/Application Support/Claude"));
    claude.extend(home("Library/Application Support/Claude Code"));
    claude.extend(config("Claude"));
    for folder in claude {
        let names = ["claude_desktop_config.json", "claude_code_config.json"];
        add(user, names.map(|name| folder.join(name)).to_vec(), Some(Form::McpServers));
    }

    add(user, Vec::from_iter(home(".cursor/mcp.json")), Some(Form::McpServers));
    add(project, vec![here(".cursor/mcp.json")], Some(Form::McpServers));
    let others = [home(".codeium/windsurf/mcp_config.json"), home(".gemini/settings.json")];
    add(user, others.into_iter().flatten().collect(), Some(Form::McpServers));

    add(project, vec![here(".vscode/mcp.json")], Some(Form::VsCode));
    for product in ["Code", "Code - Insiders", "VSCodium"] {
        let mut users = config(&format!("{product}/User"));
        users.extend(home(&format!("Library/Application Support/{product}/User")));
        for folder in users {
            add(user, vec![folder.join("mcp.json")], Some(Form::VsCode));
            add(user, vec![folder.join("settings.json")], Some(Form::VsCodeSettings));
        }
    }

    add(user, Vec::from_iter(home(".codex/config.toml")), Some(Form::Codex));

    add(user, Vec::from_iter(home(".opencode.json")), Some(Form::OpenCode));
    add(project, vec![here("opencode.json"), here("opencode.jsonc")], Some(Form::OpenCode));
    add(user, config("opencode/opencode.json"), Some(Form::OpenCode));
    add(user, config("opencode/opencode.jsonc"), Some(Form::OpenCode));
    places
}

/// Returns the files and folders of the user, as opposed to those of a project, that may contain definitions with credentials.
pub fn user_files(surroundings: &Surroundings) -> Vec<PathBuf> {
    places(surroundings).into_iter().filter(|place| !place.in_project).map(|place| place.path).collect()
}

/// Returns `~/.config`, and `$XDG_CONFIG_HOME` if it is another folder.
fn config_folders(surroundings: &Surroundings) -> Vec<PathBuf> {
    let mut folders: Vec<_> = surroundings.home.iter().map(|home| home.join(".config")).collect();
    let other = surroundings.environment.get("XDG_CONFIG_HOME").map(|value: &OsString| PathBuf::from(value));
    folders.extend(other.filter(|other| other.is_absolute() && !folders.contains(other)));
    folders
}

/// Returns the JSON files of a folder, sorted by name.
fn json_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json")) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the files of a place. A folder that cannot be read or has too many is returned itself, so that reading it says so.
pub(super) fn files_of(place: Place) -> Vec<Place> {
    if !place.is_folder {
        return vec![place];
    }
    match json_files(&place.path) {
        Ok(files) if place.in_project && files.len() > MOST_FILES => vec![place],
        Ok(files) => {
            files.into_iter().map(|path| Place { path, is_folder: false, ..place.clone() }).collect()
        }
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Vec::new(),
        Err(_) => vec![place],
    }
}

/// Returns the folders whose own definitions are used: the working folder and its parents, the nearest first, with links
/// resolved and unresolved.
pub(super) fn projects(cwd: &Path) -> Vec<PathBuf> {
    let mut projects: Vec<PathBuf> = cwd.ancestors().map(Path::to_path_buf).collect();
    if let Ok(real) = cwd.canonicalize() {
        for folder in real.ancestors() {
            if !projects.iter().any(|known| known == folder) {
                projects.push(folder.to_path_buf());
            }
        }
    }
    projects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_named_once_and_in_order() {
        let surroundings = Surroundings {
            home: Some("/h".into()),
            cwd: "/c".into(),
            environment: std::sync::Arc::new([("XDG_CONFIG_HOME".into(), "/x".into())].into()),
            state_dir: "/h/MCPs".into(),
            servers_config: Some("/s.toml".into()),
            ..Surroundings::default()
        };
        let paths: Vec<_> = places(&surroundings).into_iter().map(|place| place.path).collect();
        let unique: std::collections::HashSet<_> = paths.iter().collect();
        assert_eq!(unique.len(), paths.len());
        let at = |path: &str| paths.iter().position(|known| known == Path::new(path)).expect(path);
        let order = [
            "/s.toml",
            "/h/MCPs",
            "/c/mcp-servers",
            "/h/.config/mcp/servers",
            "/x/mcp/servers",
            "/c/.mcp.json",
            "/h/.claude.json",
            "/c/claude_code_config.json",
            "/c/claude_desktop_config.json",
            "/h/Library/Application Support/Claude/claude_desktop_config.json",
            "/h/Library/Application Support/Claude Code/claude_code_config.json",
            "/h/.config/Claude/claude_desktop_config.json",
            "/h/.cursor/mcp.json",
            "/c/.cursor/mcp.json",
            "/h/.codeium/windsurf/mcp_config.json",
            "/h/.gemini/settings.json",
            "/c/.vscode/mcp.json",
            "/h/.config/Code/User/settings.json",
            "/h/.codex/config.toml",
            "/h/.opencode.json",
            "/c/opencode.json",
            "/h/.config/opencode/opencode.json",
        ];
        assert!(order.map(at).is_sorted());
    }

    #[test]
    fn without_a_home_the_places_here_are_left() {
        let surroundings =
            Surroundings { cwd: "/c".into(), state_dir: "/s".into(), ..Surroundings::default() };
        let places = places(&surroundings);
        assert!(places.iter().all(|place| place.path.starts_with("/c") || place.path == Path::new("/s")));
        assert!(places.iter().any(|place| place.path == Path::new("/c/.mcp.json")));
    }
}
