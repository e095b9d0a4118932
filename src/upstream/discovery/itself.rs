//! Definitions that would start this bridge itself, however they hide it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::document::{Value, parse_toml};

/// What the bridge is called: its own name, and that of the bridge whose configurations it takes over.
pub(in crate::upstream) const NAMES: [&str; 2] = ["codebridge", "mcp-server-code-execution-mode"];
/// Where cargo finds the name of what it runs.
const MANIFEST: &str = "Cargo.toml";

/// How a program is found and compared.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look<'a> {
    /// The search path of the server.
    pub(super) path: Option<&'a OsStr>,
    /// Where the server starts.
    pub(super) cwd: &'a Path,
    /// This program's own file.
    pub(super) own_binary: Option<&'a Path>,
}

/// Whether a command line starts this bridge.
pub(super) fn is_itself(command: &str, args: &[String], look: Look<'_>) -> bool {
    let words: Vec<&str> = std::iter::once(command).chain(args.iter().map(String::as_str)).collect();
    look.starts_itself(&words, 8)
}

/// Options of a wrapper that take a value as the next word.
struct Options(&'static [&'static str]);

impl Options {
    /// The words after the options, and the values of those options that were asked for.
    fn skip<'w>(&self, words: &'w [&'w str], wanted: &[&str]) -> (&'w [&'w str], Vec<&'w str>) {
        let mut values = Vec::new();
        let mut at = 0;
        while let Some(word) = words.get(at).filter(|word| word.starts_with('-') && word.len() > 1) {
            at += 1;
            if *word == "--" {
                break;
            }
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None if self.0.contains(word) || wanted.contains(word) => {
                    at += 1;
                    (*word, words.get(at - 1).copied())
                }
                None => (*word, None),
            };
            values.extend(value.filter(|_| wanted.contains(&name)));
        }
        (&words[at.min(words.len())..], values)
    }
}

impl Look<'_> {
    /// `depth` bounds wrappers in wrappers.
    fn starts_itself(self, words: &[&str], depth: u8) -> bool {
        let Some((program, rest)) = words.split_first().filter(|_| depth > 0) else { return false };
        let base = base_name(program);
        if is_own_name(base) || self.is_own_file(program) {
            return true;
        }
        let inner = |words: &[&str]| self.starts_itself(words, depth - 1);
        match strip_version(base) {
            "env" => {
                let (rest, split) =
                    Options(&["-u", "--unset", "-C", "--chdir"]).skip(rest, &["-S", "--split-string"]);
                let program = rest.iter().position(|word| !word.contains('=')).unwrap_or(rest.len());
                split.iter().any(|line| self.shell_starts_itself(line, depth)) || inner(&rest[program..])
            }
            "sudo" | "doas" | "nice" | "ionice" | "nohup" | "setsid" | "stdbuf" | "time" | "command"
            | "exec" | "chrt" | "dbus-run-session" | "caffeinate" | "arch" | "xvfb-run" => {
                let options = Options(&[
                    "-u", "-g", "-n", "-c", "-p", "-i", "-o", "-e", "-C", "-h", "--user", "--group",
                    "--adjustment",
                ]);
                inner(options.skip(rest, &[]).0)
            }
            "timeout" => {
                let (rest, _) = Options(&["-s", "-k", "--signal", "--kill-after"]).skip(rest, &[]);
                inner(rest.get(1..).unwrap_or_default())
            }
            "sh" | "bash" | "dash" | "zsh" | "ksh" | "ash" | "fish" => {
                let script = rest
                    .iter()
                    .position(|word| word.starts_with('-') && !word.starts_with("--") && word.ends_with('c'));
                match script.and_then(|at| rest.get(at + 1)) {
                    Some(line) => self.shell_starts_itself(line, depth),
                    None => {
                        let (rest, _) = Options(&["-o", "-O", "--rcfile", "--init-file"]).skip(rest, &[]);
                        rest.first()
                            .is_some_and(|file| is_own_name(base_name(file)) || self.is_own_file(file))
                    }
                }
            }
            "uvx" => self.tool_is_itself(rest),
            "uv" => match Options(UV_OPTIONS).skip(rest, &[]).0 {
                ["tool", "run", rest @ ..] | ["x", rest @ ..] => self.tool_is_itself(rest),
                ["run", rest @ ..] => {
                    let (rest, packages) =
                        Options(UV_OPTIONS).skip(rest, &["--with", "--from", "-m", "--module"]);
                    packages.into_iter().any(is_own_package) || inner(rest)
                }
                _ => false,
            },
            "pipx" => matches!(rest, ["run", rest @ ..] if self.tool_is_itself(rest)),
            "npx" | "bunx" | "pnpx" => self.package_is_itself(rest, depth),
            "npm" => matches!(rest, ["exec" | "x", rest @ ..] if self.package_is_itself(rest, depth)),
            "pnpm" | "yarn" => {
                matches!(rest, ["dlx" | "exec" | "run", rest @ ..] if self.package_is_itself(rest, depth))
            }
            "bun" | "deno" => match rest {
                ["x" | "run", rest @ ..] => self.package_is_itself(rest, depth),
                rest => self.script_is_itself(rest),
            },
            "node" | "nodejs" | "tsx" | "ts-node" => self.script_is_itself(rest),
            "cargo" => self.cargo_runs_itself(rest),
            "docker" | "podman" | "nerdctl" => container_is_itself(rest),
            name if name.starts_with("python") || name.starts_with("pypy") => self.python_runs_itself(rest),
            _ => false,
        }
    }

    /// Every command of a shell line is looked at; what is quoted in odd ways is not worth more.
    fn shell_starts_itself(self, line: &str, depth: u8) -> bool {
        let Some(words) = shlex::split(&line.replace(';', " ; ")) else { return false };
        words.split(|word| matches!(word.as_str(), "&&" | "||" | ";" | "|" | "&")).any(|command| {
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            let start = words.iter().position(|word| !word.contains('=')).unwrap_or(words.len());
            self.starts_itself(&words[start..], depth.saturating_sub(1))
        })
    }

    /// `uvx` and its like: a package, perhaps named apart from the program in it.
    fn tool_is_itself(self, words: &[&str]) -> bool {
        let (rest, packages) = Options(UV_OPTIONS).skip(words, &["--from", "--spec"]);
        packages.into_iter().any(is_own_package) || rest.first().is_some_and(|tool| is_own_package(tool))
    }

    /// `npx` and its like.
    fn package_is_itself(self, words: &[&str], depth: u8) -> bool {
        let (rest, values) = Options(&["--workspace", "-w", "--prefix", "--registry"])
            .skip(words, &["-p", "--package", "-c", "--call"]);
        values.iter().any(|value| is_own_package(value) || self.shell_starts_itself(value, depth))
            || rest.first().is_some_and(|tool| is_own_package(tool) || self.is_own_file(tool))
    }

    fn python_runs_itself(self, words: &[&str]) -> bool {
        let (rest, modules) = Options(&["-W", "-X"]).skip(words, &["-m", "-c"]);
        match modules.first() {
            Some(module) => module.split('.').next().is_some_and(is_own_name),
            None => rest.first().is_some_and(|script| self.names_itself(script)),
        }
    }

    fn script_is_itself(self, words: &[&str]) -> bool {
        let (rest, _) =
            Options(&["-r", "--require", "--import", "--loader", "-C", "--env-file"]).skip(words, &[]);
        rest.first().is_some_and(|script| self.names_itself(script))
    }

    /// Whether a script is ours by its name, or by that of the package it is installed in.
    fn names_itself(self, script: &str) -> bool {
        let installed = Path::new(script).components().zip(Path::new(script).components().skip(1)).any(
            |(folder, package)| {
                folder.as_os_str() == "node_modules" && package.as_os_str().to_str().is_some_and(is_own_name)
            },
        );
        installed || is_own_name(base_name(script)) || self.is_own_file(script)
    }

    /// `cargo run`: by the names given, or by the manifest that it would find.
    fn cargo_runs_itself(self, words: &[&str]) -> bool {
        let words = words.split(|word| *word == "--").next().unwrap_or_default();
        if !words.iter().any(|word| matches!(*word, "run" | "r")) {
            return false;
        }
        let values = |names: &[&str]| -> Vec<&str> {
            let value = |(at, word): (usize, &&'_ str)| {
                names.iter().find_map(|name| match word.strip_prefix(name)? {
                    "" => words.get(at + 1).copied(),
                    rest => words[at][word.len() - rest.len()..].strip_prefix('='),
                })
            };
            words.iter().enumerate().filter_map(value).collect()
        };
        let named = values(&["--bin", "--package", "-p"]);
        if !named.is_empty() {
            return named.into_iter().any(is_own_name);
        }
        match values(&["--manifest-path"]).first() {
            Some(path) => is_own_manifest(&self.cwd.join(path)),
            None => {
                let manifest =
                    self.cwd.ancestors().map(|folder| folder.join(MANIFEST)).find(|path| path.is_file());
                manifest.is_some_and(|path| is_own_manifest(&path))
            }
        }
    }

    /// Whether a program is this very file: the same path, a link to it, or a copy of it under any name.
    fn is_own_file(self, program: &str) -> bool {
        let Some(found) = self.find(program) else { return false };
        if found.file_name().and_then(OsStr::to_str).is_some_and(is_own_name) {
            return true;
        }
        let Some(own) = self.own_binary else { return false };
        let (Ok(found_data), Ok(own_data)) = (fs::metadata(&found), fs::metadata(own)) else { return false };
        if (found_data.dev(), found_data.ino()) == (own_data.dev(), own_data.ino()) {
            return true;
        }
        found_data.is_file() && found_data.len() == own_data.len() && same_content(&found, own)
    }

    /// The file behind a program, links followed.
    fn find(self, program: &str) -> Option<PathBuf> {
        if program.contains('/') {
            return fs::canonicalize(self.cwd.join(program)).ok();
        }
        let folders = std::env::split_paths(self.path?);
        folders
            .map(|folder| self.cwd.join(folder).join(program))
            .find(|file| file.is_file())?
            .canonicalize()
            .ok()
    }
}

/// Options of uv, uvx and pipx that take a value.
const UV_OPTIONS: &[&str] = &[
    "--with", "--with-editable", "--with-requirements", "--python", "-p", "--index", "--index-url", "-i",
    "--extra-index-url", "--find-links", "-f", "--directory", "--project", "--env-file", "--cache-dir",
    "--constraints", "-c", "--overrides", "--extra", "--group", "--package", "--pip-args", "--config-file",
    "--link-mode", "--refresh-package", "-P", "--upgrade-package", "--prerelease", "--resolution",
];

/// The last part of a path, without what only some systems or languages append.
fn base_name(program: &str) -> &str {
    let base = program.trim_end_matches('/').rsplit(['/', '\\']).next().unwrap_or(program);
    let end = [".exe", ".cmd", ".py", ".pyz", ".js", ".mjs", ".cjs", ".ts", ".sh", ".git"].iter().find_map(
        |suffix| {
            let at = base.len().checked_sub(suffix.len())?;
            (base.is_char_boundary(at) && base[at..].eq_ignore_ascii_case(suffix)).then_some(at)
        },
    );
    end.map_or(base, |at| &base[..at])
}

/// A name without the version that may be a part of it: `python3.12`, `tool@latest`, `tool==1.0`, `tool[extra]`.
fn strip_version(name: &str) -> &str {
    name.split(['@', '=', '<', '>', '~', '!', '[', ' ', ';']).next().unwrap_or(name)
}

fn is_own_name(name: &str) -> bool {
    let name = strip_version(name).to_ascii_lowercase().replace('_', "-");
    NAMES.contains(&name.as_str())
}

/// A requirement of pip or npm: a name with a version, a scope, a path, or a repository's URL.
fn is_own_package(requirement: &str) -> bool {
    let requirement = requirement.split('#').next().unwrap_or(requirement);
    // `name @ url`, `git+https://host/name.git@v1`, `github:owner/name`, `@scope/name@1`.
    let parts = requirement.split_whitespace().flat_map(|part| {
        let before_version =
            part.rfind('@').filter(|at| *at > part.rfind('/').unwrap_or(0)).map(|at| &part[..at]);
        [Some(part), before_version]
    });
    parts.flatten().any(|part| is_own_name(base_name(part.rsplit(':').next().unwrap_or(part))))
}

/// `docker run … IMAGE`: the first word that is neither an option nor its value.
fn container_is_itself(words: &[&str]) -> bool {
    let Some(run) = words.iter().position(|word| *word == "run") else { return false };
    let options = Options(&[
        "-v", "--volume", "-e", "--env", "--env-file", "--name", "--mount", "--network", "--net", "-w",
        "--workdir", "-u", "--user", "-p", "--publish", "--entrypoint", "-l", "--label", "-h", "--hostname",
        "-m", "--memory", "--cpus", "--platform", "--pull", "--add-host", "--cap-add", "--cap-drop",
        "--security-opt", "--tmpfs", "--device", "--gpus", "--ipc", "--pid", "--restart", "--runtime",
        "--shm-size", "--ulimit", "--userns",
    ]);
    let (rest, _) = options.skip(&words[run + 1..], &[]);
    let image = rest.first().map(|image| image.split('@').next().unwrap_or(image));
    let name =
        image.and_then(|image| image.rsplit('/').next()).map(|last| last.split(':').next().unwrap_or(last));
    name.is_some_and(is_own_name)
}

fn is_own_manifest(path: &Path) -> bool {
    let path = if path.is_dir() { path.join(MANIFEST) } else { path.to_path_buf() };
    let Some(manifest) = fs::read_to_string(path).ok().and_then(|text| parse_toml(&text).ok()?) else {
        return false;
    };
    let name = manifest.get("package").and_then(|package| package.get("name")).map(|name| &name.value);
    matches!(name, Some(Value::Text(name)) if is_own_name(name))
}

fn same_content(left: &Path, right: &Path) -> bool {
    use std::io::Read;
    let (Ok(mut left), Ok(mut right)) = (fs::File::open(left), fs::File::open(right)) else { return false };
    let (mut from_left, mut from_right) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let Ok(count) = left.read(&mut from_left) else { return false };
        if count == 0 {
            return true;
        }
        if right.read_exact(&mut from_right[..count]).is_err() || from_left[..count] != from_right[..count] {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(cwd: &Path) -> Look<'_> {
        Look { path: None, cwd, own_binary: None }
    }

    fn found(line: &str) -> bool {
        let words = shlex::split(line).unwrap();
        let cwd = tempfile::tempdir().unwrap();
        is_itself(&words[0], &words[1..], look(cwd.path()))
    }

    #[test]
    fn every_way_to_start_this_bridge_is_seen() {
        for line in [
            "codebridge",
            "codebridge serve",
            "/usr/local/bin/codebridge",
            "C:\\\\bin\\\\codebridge.exe",
            "mcp-server-code-execution-mode run",
            "uvx codebridge",
            "uvx codebridge@latest run",
            "uvx --python 3.12 mcp-server-code-execution-mode==0.3 run",
            "uvx --from git+https://example.org/x/mcp-server-code-execution-mode.git@v1 mcp-server-code-execution-mode run",
            "uvx --from=mcp-server-code-execution-mode[all] other",
            "uvx --from 'mcp-server-code-execution-mode @ git+https://example.org/x/y' run",
            "uv tool run codebridge",
            "uv run --directory /x mcp_server_code_execution_mode.py run",
            "uv --quiet run codebridge",
            "uv run python -m mcp_server_code_execution_mode",
            "pipx run --spec codebridge codebridge",
            "python3 -u /x/mcp_server_code_execution_mode.py run",
            "python3.12 -m mcp_server_code_execution_mode.cli",
            "npx codebridge",
            "npx -y codebridge@1.2.3 serve",
            "npx --yes --package codebridge -- other",
            "npx -y -p @scope/codebridge@1 x",
            "npx -c 'codebridge serve'",
            "npm exec -- codebridge",
            "pnpm dlx codebridge",
            "bunx codebridge",
            "node /x/node_modules/codebridge/bin/start.js",
            "cargo run --release --bin codebridge -- serve",
            "cargo +nightly run -q -p codebridge",
            "cargo run --package=codebridge",
            "env -u X A=1 B=2 codebridge",
            "env -S 'codebridge serve'",
            "sudo -u me codebridge",
            "timeout -k 5 30 nice -n 5 codebridge",
            "sh -c 'cd /x && A=1 exec codebridge serve'",
            "bash -lc 'sleep 1; codebridge'",
            "bash /opt/codebridge.sh",
            "docker run --rm -i --name x -e A=B example.org:5000/me/codebridge:latest serve",
            "podman run -i codebridge@sha256:00",
        ] {
            assert!(found(line), "{line}");
        }
    }

    #[test]
    fn what_only_mentions_it_is_none() {
        for line in [
            "npx -y @modelcontextprotocol/server-filesystem /home/me/codebridge",
            "mcp-server-git --repository codebridge",
            "uvx mcp-server-git --repository /x/codebridge",
            "uvx --from mcp-server-git mcp-server-git codebridge",
            "python3 server.py --name codebridge",
            "python3 -m server codebridge",
            "python3 -c 'print(1)' codebridge",
            "node index.js codebridge",
            "cargo run --bin other -- codebridge",
            "sh -c 'echo codebridge'",
            "docker run --name codebridge -v /x/codebridge:/y some/image codebridge",
            "docker ps codebridge",
            "env A=codebridge other",
            "codebridge-helper",
            "/home/codebridge/bin/server",
            "timeout 30",
            "uv",
            "sh -c",
            "npx",
        ] {
            assert!(!found(line), "{line}");
        }
    }

    #[test]
    fn cargo_runs_what_its_manifest_names() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("src/deep");
        fs::create_dir_all(&inner).unwrap();
        let run = |words: &[&str], cwd: &Path| {
            let args: Vec<String> = words.iter().map(|word| (*word).to_string()).collect();
            is_itself("cargo", &args, look(cwd))
        };
        fs::write(dir.path().join(MANIFEST), "[package]\nname = \"codebridge\"\n").unwrap();
        assert!(run(&["run", "--"], &inner));
        let manifest = dir.path().join(MANIFEST).display().to_string();
        assert!(run(&["run", "--manifest-path", &manifest], Path::new("/")));
        assert!(run(&["run", &format!("--manifest-path={manifest}"), "--", "x"], Path::new("/")));
        assert!(!run(&["build"], &inner));
        fs::write(dir.path().join(MANIFEST), "[package]\nname = \"other\"\n").unwrap();
        assert!(!run(&["run"], &inner));
    }

    #[test]
    fn this_file_is_known_under_any_name() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("the-binary");
        fs::write(&own, vec![7; 100_000]).unwrap();
        let elsewhere = dir.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        std::os::unix::fs::symlink(&own, elsewhere.join("link")).unwrap();
        fs::hard_link(&own, elsewhere.join("hard")).unwrap();
        fs::copy(&own, elsewhere.join("copy")).unwrap();
        let mut other = vec![7; 100_000];
        other[99_999] = 8;
        fs::write(elsewhere.join("other"), other).unwrap();
        std::os::unix::fs::symlink("/nowhere/codebridge", elsewhere.join("broken")).unwrap();
        let path = elsewhere.clone().into_os_string();
        let look = Look { path: Some(&path), cwd: &elsewhere, own_binary: Some(&own) };
        for name in ["link", "hard", "copy"] {
            assert!(is_itself(name, &[], look), "{name} in the search path");
            assert!(is_itself(&format!("./{name}"), &[], look), "./{name}");
            assert!(is_itself("env", &[name.to_string()], look), "env {name}");
        }
        for name in ["other", "broken", "missing"] {
            assert!(!is_itself(name, &[], look), "{name}");
        }
    }
}
