//! Names for new servers, made of what is known of them.

use super::discovery::is_name;

/// Programs that run what their first argument names.
const RUNNERS: &[&str] =
    &["npx", "uvx", "bunx", "pipx", "uv", "docker", "podman", "dnx", "python", "python3", "node"];
/// Words of such programs that name nothing.
const COMMANDS: &[&str] = &["run", "tool", "exec", "dlx"];
/// Labels of hosts that name nothing.
const LABELS: &[&str] = &["mcp", "www", "api", "server"];

/// Returns a name for the server at a host; None for an address.
pub fn name_of_url(host: &str) -> Option<String> {
    if host.starts_with('[') || host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let labels: Vec<&str> = host.split('.').collect();
    let owners = match labels.len() {
        0 | 1 => &labels[..],
        count => &labels[..count - 1],
    };
    let owner = owners.iter().rev().find(|label| !LABELS.contains(label)).or(owners.first())?;
    Some((*owner).to_owned()).filter(|name| is_name(name))
}

/// Returns a name for the server that a command starts.
pub fn name_of_command(command: &[String]) -> Option<String> {
    let program = file_name(command.first()?);
    if !RUNNERS.contains(&program) {
        return short_name(program);
    }
    let is_package = |word: &&String| !word.starts_with('-') && !COMMANDS.contains(&word.as_str());
    short_name(command[1..].iter().find(is_package)?)
}

/// Returns the distinctive part of a package's name: `time` of `@scope/mcp-server-time@1.0`.
pub fn short_name(package: &str) -> Option<String> {
    let name = file_name(package);
    let end = name.find(['@', '=', ':', '[', '<', '>', '~']).filter(|at| *at > 0).unwrap_or(name.len());
    let mut name = &name[..end];
    for extension in [".py", ".js", ".mjs", ".ts", ".sh"] {
        name = name.strip_suffix(extension).unwrap_or(name);
    }
    for _ in 0..2 {
        for prefix in ["mcp-server-", "mcp-", "server-", "mcp_server_", "mcp_"] {
            name = name.strip_prefix(prefix).unwrap_or(name);
        }
        for suffix in ["-mcp-server", "-mcp", "-server", "_mcp_server", "_mcp"] {
            name = name.strip_suffix(suffix).unwrap_or(name);
        }
    }
    Some(name.to_ascii_lowercase()).filter(|name| is_name(name))
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_distinctive_part() {
        for (host, name) in [
            ("mcp.tracker.example", Some("tracker")),
            ("tracker.example", Some("tracker")),
            ("mcp.example", Some("mcp")),
            ("localhost", Some("localhost")),
            ("127.0.0.1", None),
            ("[::1]", None),
        ] {
            assert_eq!(name_of_url(host).as_deref(), name, "{host}");
        }
        for (line, name) in [
            ("npx -y @scope/server-filesystem@1.2 /data", Some("filesystem")),
            ("uvx mcp-server-time==1.0", Some("time")),
            ("uv tool run weather-mcp", Some("weather")),
            ("docker run -i --rm ghcr.example/org/some-server:2", Some("some")),
            ("/opt/bin/my-server --stdio", Some("my")),
            ("python3 -u /srv/notes_mcp.py", Some("notes")),
            ("npx", None),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(name_of_command(&words).as_deref(), name, "{line}");
        }
    }
}
