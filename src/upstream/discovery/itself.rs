//! Definitions that would start this bridge itself.
//!
//! Only what is plain is recognised here. A bridge that hides behind a shell, a container or a copy of the file is
//! recognised at the handshake, by the name that it gives itself.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use codebridge_runtimes::exec::find_program_in;

/// The names of the bridge: its own, and that of the bridge whose configurations it takes over.
pub(in crate::upstream) const OWN_NAMES: [&str; 2] = ["codebridge", "mcp-server-code-execution-mode"];

/// Where the program of a definition is looked for, and what it is compared with.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProgramLookup<'a> {
    /// The search path of the server.
    pub(super) path: Option<&'a OsStr>,
    /// The folder that the server starts in.
    pub(super) cwd: &'a Path,
    /// The executable of this process.
    pub(super) own_binary: Option<&'a Path>,
}

/// Whether a command line starts this bridge: by its name, its package named to `uvx`, `npx` or `pipx`, or its file; that is
/// looked for only if `lookup` says where.
pub(super) fn is_itself(command: &str, args: &[String], lookup: Option<ProgramLookup<'_>>) -> bool {
    let name = file_name(Path::new(command));
    is_own_name(name)
        || match name {
            "uvx" | "npx" => names_own_package(args),
            "pipx" => {
                args.split_first().is_some_and(|(first, rest)| first == "run" && names_own_package(rest))
            }
            _ => lookup.is_some_and(|lookup| lookup.is_own_file(command)),
        }
}

/// Returns the arguments that the bridge itself gets from a command line that plainly starts it, or the bridge whose
/// configurations it takes over; None for any other command line.
pub fn own_arguments<'a>(command: &str, args: &'a [String]) -> Option<&'a [String]> {
    if !is_itself(command, args, None) {
        return None;
    }
    if is_own_name(file_name(Path::new(command))) {
        return Some(args);
    }
    let package = args.iter().rposition(|word| is_own_package(word));
    Some(package.map_or(&[], |package| &args[package + 1..]))
}

/// Options of uvx, npx and pipx whose value may be the next word.
const WITH_VALUES: &[&str] = &[
    "--python", "--with", "-w", "--with-editable", "--with-requirements", "--index", "--default-index",
    "--index-url", "-i", "--extra-index-url", "--find-links", "-f", "--constraints", "--directory",
    "--project", "--env-file", "--cache-dir", "--pip-args", "--registry",
];

/// Whether the package to run is ours: the first word that is not an option, or the value of an option that names it.
fn names_own_package(args: &[String]) -> bool {
    let mut words = args.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let (option, value) = match word.split_once('=') {
            Some((option, value)) if word.starts_with('-') => (option, Some(value)),
            _ => (word, None),
        };
        match option {
            "--from" | "--spec" | "--package" | "-p" => {
                if value.or_else(|| words.next()).is_some_and(is_own_package) {
                    return true;
                }
            }
            option if value.is_none() && WITH_VALUES.contains(&option) => drop(words.next()),
            option if option.starts_with('-') => {}
            package => return is_own_package(package),
        }
    }
    false
}

impl ProgramLookup<'_> {
    /// Whether a program is the executable of this process, or links to a file of our name.
    fn is_own_file(self, program: &str) -> bool {
        let found = find_program_in(Path::new(program), self.path, self.cwd);
        let Some(found) = found.and_then(|path| path.canonicalize().ok()) else { return false };
        let inode = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
        is_own_name(file_name(&found)) || self.own_binary.is_some_and(|own| inode(own) == inode(&found))
    }
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).unwrap_or_default()
}

fn is_own_name(name: &str) -> bool {
    OWN_NAMES.contains(&name.to_ascii_lowercase().replace('_', "-").as_str())
}

/// A package by its name, with a version or extras: `name@latest`, `name==1.0`, `name[extra]`.
fn is_own_package(package: &str) -> bool {
    is_own_name(package.split(['@', '=', '<', '>', '~', '!', '[', ' ']).next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn starts_itself(line: &str) -> bool {
        let words: Vec<String> = line.split(' ').map(String::from).collect();
        let cwd = tempfile::tempdir().unwrap();
        let lookup = ProgramLookup { path: None, cwd: cwd.path(), own_binary: None };
        is_itself(&words[0], &words[1..], Some(lookup))
    }

    #[test]
    fn our_names_and_our_package_are_recognised() {
        for line in [
            "codebridge",
            "codebridge serve",
            "/usr/local/bin/codebridge",
            "mcp-server-code-execution-mode run",
            "uvx codebridge",
            "uvx codebridge@latest run",
            "/usr/bin/uvx --quiet mcp-server-code-execution-mode==0.3 run",
            "uvx --from git+https://example.org/x@v1 mcp-server-code-execution-mode run",
            "uvx --from=mcp-server-code-execution-mode[all] other",
            "uvx -p 3.12 codebridge",
            "uvx --python 3.12 --with=numpy --with rich mcp-server-code-execution-mode run",
            "pipx run codebridge",
            "pipx run --spec codebridge other",
            "npx codebridge",
            "npx -y codebridge@1.2.3 serve",
            "npx --yes --package codebridge -- other",
        ] {
            assert!(starts_itself(line), "{line}");
        }
        assert!(is_own_package("mcp-server-code-execution-mode @ git+https://example.org/x/y"));
    }

    #[test]
    fn a_command_that_only_mentions_us_is_another_server() {
        for line in [
            "npx -y @modelcontextprotocol/server-filesystem /home/me/codebridge",
            "mcp-server-git --repository codebridge",
            "uvx mcp-server-git --repository codebridge",
            "uvx --from mcp-server-git mcp-server-git codebridge",
            "pipx list codebridge",
            "python3 server.py --name codebridge",
            "docker run --name codebridge some/image codebridge",
            "codebridge-helper",
            "/home/codebridge/bin/server",
            "uvx",
            "npx -p",
        ] {
            assert!(!starts_itself(line), "{line}");
        }
    }

    #[test]
    fn our_file_is_recognised_under_any_name() {
        let dir = tempfile::tempdir().unwrap();
        let program = |path: &Path| {
            fs::write(path, "#!/bin/sh\n").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        let own = dir.path().join("the-binary");
        program(&own);
        let elsewhere = dir.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        program(&elsewhere.join("other"));
        std::os::unix::fs::symlink(&own, elsewhere.join("link")).unwrap();
        fs::hard_link(&own, elsewhere.join("hard")).unwrap();
        std::os::unix::fs::symlink("/nowhere/codebridge", elsewhere.join("broken")).unwrap();
        let path = elsewhere.clone().into_os_string();
        let lookup = ProgramLookup { path: Some(&path), cwd: &elsewhere, own_binary: Some(&own) };
        for name in ["link", "hard"] {
            assert!(is_itself(name, &[], Some(lookup)), "{name} in the search path");
            assert!(is_itself(&format!("./{name}"), &[], Some(lookup)), "./{name}");
        }
        for name in ["other", "broken", "missing"] {
            assert!(!is_itself(name, &[], Some(lookup)), "{name}");
        }
    }
}
