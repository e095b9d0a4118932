//! The table of environment variables: names, flags, defaults and meanings.
//!
//! The code takes its defaults from this table, `--help` prints it, and the documentation shows it.

/// A setting as its user sees it.
#[derive(Debug, PartialEq, Eq)]
pub struct Variable {
    /// The name in the environment.
    pub name: &'static str,
    /// Other names in the environment, which are read when `name` is not set.
    pub aliases: &'static [&'static str],
    /// The flag, without the dashes.
    pub flag: &'static str,
    /// The placeholder of the value in help texts.
    pub placeholder: &'static str,
    /// The value when nothing is set; [`NO_DEFAULT`] when there is none.
    pub default: &'static str,
    /// The commands that it changes something for.
    pub commands: Commands,
    /// What the documentation and `--help` say of it.
    pub meaning: &'static str,
}

impl Variable {
    /// Returns its names in the environment, the one that wins first.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// Returns whether its flag may be given several times; its variable separates values by commas.
    pub fn may_be_repeated(&self) -> bool {
        [SHARE.name, WITH.name].contains(&self.name)
    }

    /// Returns whether its flag needs no value.
    pub fn is_switch(&self) -> bool {
        self.name == SHARE_ANYWAY.name
    }

    /// Returns whether it changes something for a command: the first word after `codebridge`.
    pub fn acts_on(&self, command: &str) -> bool {
        match self.commands {
            Commands::All => true,
            Commands::Only(names) => names.contains(&command),
        }
    }
}

/// Commands for which a setting changes something. The others do not have its flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commands {
    All,
    Only(&'static [&'static str]),
}

/// Settings of every command.
const ALWAYS: Commands = Commands::All;
/// Settings of sessions.
const SERVING: Commands = Commands::Only(&["serve"]);
/// Settings of runs of code.
const RUNNING: Commands = Commands::Only(&["serve", "exec", "workflow"]);
/// Settings of sandboxes.
const SANDBOXES: Commands =
    Commands::Only(&["serve", "exec", "workflow", "doctor", "packages", "replay", "saved"]);
/// Settings of calls of tools.
const CALLING: Commands = Commands::Only(&["serve", "exec", "workflow", "call", "saved"]);
/// Settings that say which engines there are.
const ENGINES: Commands = Commands::Only(&[
    "serve", "exec", "workflow", "doctor", "ps", "reap", "gc", "packages", "replay", "saved",
]);
/// Settings of the search for servers.
const FINDING: Commands = Commands::Only(&["serve", "exec", "workflow", "servers"]);
/// Settings of MCP servers.
const SERVERS: Commands = Commands::Only(&[
    "serve", "exec", "workflow", "doctor", "servers", "tools", "call", "policy", "saved", "search-model",
    "gc",
]);
/// Settings of searches for tools.
const SEARCHING: Commands = Commands::Only(&["serve", "exec", "workflow", "tools", "search-model"]);

/// Settings of the folder that keeps what belongs to the user.
const KEPT: Commands = Commands::Only(&[
    "serve", "exec", "workflow", "doctor", "servers", "tools", "call", "artifact", "policy", "runs", "audit",
    "replay", "console", "token", "saved", "search-model", "gc",
]);
/// Settings of what code may do.
const GOVERNED: Commands =
    Commands::Only(&["serve", "exec", "workflow", "doctor", "call", "policy", "saved"]);
/// Settings of what is recorded.
const AUDITED: Commands = Commands::Only(&["serve", "exec", "workflow", "doctor", "call", "saved"]);
/// Settings of artifacts.
const ARTIFACTS: Commands = Commands::Only(&["serve", "exec", "workflow", "artifact", "gc"]);
/// Settings of code that may run for long.
const LASTING: Commands = Commands::Only(&["serve", "workflow"]);

/// The default of a setting that has none.
pub const NO_DEFAULT: &str = "-";

macro_rules! variables {
    ($(
        $id:ident = [$name:literal $(, $alias:literal)*] $flag:literal $placeholder:literal $default:tt $commands:ident
        $meaning:literal;
    )+) => {
        $(pub static $id: Variable = Variable {
            name: $name,
            aliases: &[$($alias),*],
            flag: $flag,
            placeholder: $placeholder,
            default: $default,
            commands: $commands,
            meaning: $meaning,
        };)+

        /// Every setting, in the order of the documentation.
        pub static ALL: [&Variable; [$($flag),+].len()] = [$(&$id),+];
    };
}

// The name in the environment and its aliases, the flag, the placeholder, the default, the commands, and the meaning.
variables! {
    RUNTIME = ["MCP_BRIDGE_RUNTIME"] "runtime" "RUNTIME" "auto" ENGINES
        "Runtime that runs the sandboxes: `podman`, `docker`, `crun`, `runc`, or a path to one of them. `auto` uses the first that runs a sandbox, in this order. `podman:CONNECTION` and `docker:CONTEXT` name an engine, `kubernetes:CONTEXT/NAMESPACE` a cluster. A list with commas spreads sessions over several runtimes";
    IMAGE = ["MCP_BRIDGE_IMAGE"] "image" "IMAGE" "python:3.14-slim" SANDBOXES
        "Image that code runs in: a reference, a file (`oci-archive:FILE`), a root filesystem (`dir:DIR`), or `host:`, the Python of this machine. If it is not set and the default is unavailable, `host:` is used";
    TIMEOUT = ["MCP_BRIDGE_TIMEOUT"] "timeout" "TIME" "30" SANDBOXES
        "Default time limit of a call, in seconds; `30s` and `2m` are also accepted";
    MAX_TIMEOUT = ["MCP_BRIDGE_MAX_TIMEOUT"] "max-timeout" "TIME" "120" CALLING
        "Longest time limit that a call can request, in seconds";
    MAX_BACKGROUND = ["MCP_BRIDGE_MAX_BACKGROUND"] "max-background" "TIME" "3600" LASTING
        "Longest time that code may run in the background (`background=true`), and default time limit of a workflow, in seconds; `2h` is also accepted";
    MEMORY = ["MCP_BRIDGE_MEMORY", "MCP_BRIDGE_MEMORY_LIMIT"] "memory" "SIZE" "512m" SANDBOXES
        "Memory of a sandbox, including swap: `512m`, `1g` or bytes";
    WORKSPACE_SIZE = ["MCP_BRIDGE_WORKSPACE_SIZE"] "workspace-size" "SIZE" "128m" SANDBOXES
        "Size of `/workspace`, the folder of a session's files; what is in it counts as memory of the sandbox";
    PIDS = ["MCP_BRIDGE_PIDS", "MCP_BRIDGE_PIDS_LIMIT"] "pids" "N" "128" SANDBOXES
        "Maximum number of processes and threads in a sandbox";
    CPUS = ["MCP_BRIDGE_CPUS"] "cpus" "N" NO_DEFAULT SANDBOXES
        "Number of CPUs that a sandbox can use, such as `1.5`; unlimited if not set";
    CPU_QUOTA = ["MCP_BRIDGE_CPU_QUOTA"] "cpu-quota" "MICROSECONDS" NO_DEFAULT SANDBOXES
        "CPU time that a sandbox can use, in microseconds per 100 ms; ignored if `MCP_BRIDGE_CPUS` is set";
    CONTAINER_USER = ["MCP_BRIDGE_CONTAINER_USER"] "container-user" "UID:GID" "65534:65534" SANDBOXES
        "User and group that code runs as, `UID:GID`";
    RUNTIME_IDLE_TIMEOUT = ["MCP_BRIDGE_RUNTIME_IDLE_TIMEOUT"] "runtime-idle-timeout" "TIME" "300" SANDBOXES
        "Seconds after which an idle session ends, an idle MCP server stops, and a podman machine that the bridge started stops; `0` means never";
    MACHINE_INIT = ["MCP_BRIDGE_MACHINE_INIT"] "machine-init" "BOOL" "1" SANDBOXES
        "Whether to create a podman machine where podman needs one and none exists, which downloads gigabytes";
    MACHINE_ROOTFUL = ["MCP_BRIDGE_MACHINE_ROOTFUL"] "machine-rootful" "BOOL" "0" SANDBOXES
        "Whether to make a podman machine rootful before starting it";
    MAX_SESSIONS = ["MCP_BRIDGE_MAX_SESSIONS"] "max-sessions" "N" "8" SERVING
        "Maximum number of sessions, over HTTP for each user; starting another one ends the session that has been idle longest";
    WARM = ["MCP_BRIDGE_WARM"] "warm" "N" "1" SERVING
        "Number of spare sandboxes that wait for the next new sessions, started after a call has ended; `0` for none. Only `serve` keeps any";
    MAX_RUNS = ["MCP_BRIDGE_MAX_RUNS"] "max-runs" "N" "64" SERVING
        "Over HTTP: maximum number of runs at once; free places go to users in turn";
    USER_RUNS = ["MCP_BRIDGE_USER_RUNS"] "user-runs" "N" "8" SERVING
        "Over HTTP: maximum number of runs of a user at once";
    USER_SECONDS = ["MCP_BRIDGE_USER_SECONDS"] "user-seconds" "TIME" NO_DEFAULT SERVING
        "Over HTTP: seconds that the runs of a user can take in a day; unlimited if not set";
    USER_BYTES = ["MCP_BRIDGE_USER_BYTES"] "user-bytes" "SIZE" NO_DEFAULT SERVING
        "Over HTTP: bytes that the runs of a user can print and display in a day: `1g` or bytes; unlimited if not set";
    ALLOWED_HOSTS = ["MCP_BRIDGE_ALLOWED_HOSTS"] "allowed-hosts" "HOSTS" NO_DEFAULT SERVING
        "Over HTTP: names under which clients reach the bridge, beside the address that it listens on, separated by commas: `mcp.example.com`";
    STATE_DIR = ["MCP_BRIDGE_STATE_DIR"] "state-dir" "DIR" "~/MCPs" KEPT
        "Folder of what codebridge keeps: server definitions, approvals, logins, policy, saved functions, artifacts, audit log";
    ARTIFACTS_LIMIT = ["MCP_BRIDGE_ARTIFACTS_LIMIT"] "artifacts-limit" "SIZE" "1g" ARTIFACTS
        "Bytes of all artifacts that code keeps, with their versions: `1g`, `500m` or bytes";
    OUTPUT_MODE = ["MCP_BRIDGE_OUTPUT_MODE"] "output-mode" "MODE" "compact" SERVING
        "Format of results: `compact`, `toon` or `json`";
    OUTPUT_LIMIT = ["MCP_BRIDGE_OUTPUT_LIMIT"] "output-limit" "N" "20000" RUNNING
        "Bytes of standard output in a result; the middle of longer output is cut and can be read later";
    MAX_IMAGES = ["MCP_BRIDGE_MAX_IMAGES"] "max-images" "N" "4" SERVING
        "Maximum number of pictures in a result, 0 for none; the client can read the others";
    PACKAGES = ["MCP_BRIDGE_PACKAGES"] "packages" "PACKAGES" "off" RUNNING
        "Python packages that code can install: `off`, `allow` for all, a list such as `numpy,pandas>=2,scikit-*`, or `locked:FILE` for those of a lock file";
    WITH = ["MCP_BRIDGE_WITH"] "with" "PACKAGES" NO_DEFAULT RUNNING
        "Python packages that every session has from its start, separated by commas: `pandas,httpx>=0.27`. The flag can be repeated";
    POLICY = ["MCP_BRIDGE_POLICY"] "policy" "FILE" NO_DEFAULT GOVERNED
        "File with the rules of what code may do; if not set, `policy.toml` in the state folder, if it exists";
    AUDIT = ["MCP_BRIDGE_AUDIT"] "audit" "MODE" "on" AUDITED
        "What the audit log in the state folder records: `on` for each run and each call, `full` for code, arguments, results and output as well, `required` if nothing may run or be called before its line is written, `required,full`, or `off`";
    LOG_LEVEL = ["MCP_BRIDGE_LOG_LEVEL"] "log-level" "LEVEL" "INFO" ALWAYS
        "Level of the log on standard error: ERROR, WARN, INFO, DEBUG, TRACE, or directives such as `codebridge=debug,rmcp=info`";
    SESSION_PERSIST = ["MCP_BRIDGE_SESSION_PERSIST"] "session-persist" "BOOL" "true" SERVING
        "Whether a session keeps its interpreter between calls; if not, each call gets a new sandbox";
    SHARE = ["MCP_BRIDGE_SHARE"] "share" "DIR[:NAME]" NO_DEFAULT SANDBOXES
        "Folder that code can read at `/shared/NAME`, in every sandbox; NAME is the folder's own name if not set. The flag can be repeated, the variable separates folders by commas";
    SHARE_ANYWAY = ["MCP_BRIDGE_SHARE_ANYWAY"] "share-anyway" "BOOL" "0" SANDBOXES
        "Whether a folder with known credentials can be shared: the home folder, the state folder, `.ssh`, `.aws` and the like";
    POD = ["MCP_BRIDGE_POD"] "pod" "FILE" NO_DEFAULT SANDBOXES
        "File that says where pods run: `runtimeClassName`, `nodeSelector`, `tolerations`, `priorityClassName`, `imagePullSecrets`, as TOML or JSON; for Kubernetes";
    SECURITY_OPT = ["MCP_BRIDGE_SECURITY_OPT"] "security-opt" "OPTIONS" NO_DEFAULT SANDBOXES
        "Additional `--security-opt` values for podman and docker, separated by spaces";
    ALLOW_SELF_SERVER = ["MCP_BRIDGE_ALLOW_SELF_SERVER"] "allow-self-server" "BOOL" "0" SERVERS
        "Whether code can call a configured server that is codebridge itself";
    TRUST_PROJECT = ["MCP_BRIDGE_TRUST_PROJECT"] "trust-project" "BOOL" "0" SERVERS
        "Whether definitions of servers in the working directory are used without `codebridge servers trust`";
    KEYRING = ["MCP_BRIDGE_KEYRING"] "keyring" "BOOL" "1" SERVERS
        "Whether logins to servers are kept in the keyring of the desktop, where there is one; else in files";
    SEARCH_MODEL = ["MCP_BRIDGE_SEARCH_MODEL"] "search-model" "FOLDER" NO_DEFAULT SEARCHING
        "Folder of a sentence encoder, with `model.onnx` and `tokenizer.json`: tools are then also found by meaning";
    SERVERS_CONFIG = ["MCP_SERVERS_CONFIG"] "servers-config" "FILE" NO_DEFAULT SERVERS
        "Additional file of server definitions, read before the others";
    PROFILE = ["MCP_BRIDGE_PROFILE"] "profile" "NAME" NO_DEFAULT SERVERS
        "Set of servers that is used, of those in `profiles` of a file of definitions; all servers if not set";
    REGISTRY = ["MCP_BRIDGE_REGISTRY"] "registry" "URL" NO_DEFAULT FINDING
        "URL of the MCP registry in which servers are searched";
}

/// Returns the table of the documentation.
pub fn markdown_table() -> String {
    let mut table = String::from("| variable | flag | default | meaning |\n|---|---|---|---|\n");
    for variable in ALL {
        let mut names = format!("`{}`", variable.name);
        for alias in variable.aliases {
            names.push_str(&format!(", `{alias}`"));
        }
        let default = match variable.default {
            NO_DEFAULT => NO_DEFAULT.to_owned(),
            default => format!("`{default}`"),
        };
        table.push_str(&format!("| {names} | `--{}` | {default} | {} |\n", variable.flag, variable.meaning));
    }
    table
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_name_and_no_flag_is_used_twice() {
        let names: Vec<_> = ALL.iter().flat_map(|v| std::iter::once(&v.name).chain(v.aliases)).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        let flags: BTreeSet<_> = ALL.iter().map(|v| v.flag).collect();
        assert_eq!(flags.len(), ALL.len());
    }

    #[test]
    fn the_table_has_one_line_for_each_setting() {
        let table = markdown_table();
        assert_eq!(table.lines().count(), ALL.len() + 2);
        for line in table.lines() {
            assert_eq!(line.matches('|').count(), 5, "{line}");
        }
        assert!(table.contains(
            "| `MCP_BRIDGE_PIDS`, `MCP_BRIDGE_PIDS_LIMIT` | `--pids` | `128` | Maximum number of processes and threads in a sandbox |"
        ));
    }
}
