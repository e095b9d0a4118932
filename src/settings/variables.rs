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
    /// What the documentation and `--help` say of it.
    pub meaning: &'static str,
}

/// The default of a setting that has none.
pub const NO_DEFAULT: &str = "-";

pub static RUNTIME: Variable = Variable {
    name: "MCP_BRIDGE_RUNTIME",
    aliases: &[],
    flag: "runtime",
    placeholder: "RUNTIME",
    default: "auto",
    meaning: "Runtime that runs the sandboxes: `podman`, `docker`, `crun`, `runc`, or a path to one of them. `auto` uses the first that runs a sandbox, in this order. `podman:CONNECTION` and `docker:CONTEXT` name an engine. Sessions are spread over several runtimes that are separated by commas",
};

pub static IMAGE: Variable = Variable {
    name: "MCP_BRIDGE_IMAGE",
    aliases: &[],
    flag: "image",
    placeholder: "IMAGE",
    default: "python:3.14-slim",
    meaning: "Image that code runs in: a reference, a file (`oci-archive:FILE`), a root filesystem (`dir:DIR`), or `host:`, the Python of this machine. If it is not set and the default is unavailable, `host:` is used",
};

pub static TIMEOUT: Variable = Variable {
    name: "MCP_BRIDGE_TIMEOUT",
    aliases: &[],
    flag: "timeout",
    placeholder: "TIME",
    default: "30",
    meaning: "Default time limit of a call, in seconds; `30s` and `2m` are also accepted",
};

pub static MAX_TIMEOUT: Variable = Variable {
    name: "MCP_BRIDGE_MAX_TIMEOUT",
    aliases: &[],
    flag: "max-timeout",
    placeholder: "TIME",
    default: "120",
    meaning: "Longest time limit that a call can request, in seconds",
};

pub static MEMORY: Variable = Variable {
    name: "MCP_BRIDGE_MEMORY",
    aliases: &["MCP_BRIDGE_MEMORY_LIMIT"],
    flag: "memory",
    placeholder: "SIZE",
    default: "512m",
    meaning: "Memory of a sandbox, including swap: `512m`, `1g` or bytes",
};

pub static PIDS: Variable = Variable {
    name: "MCP_BRIDGE_PIDS",
    aliases: &["MCP_BRIDGE_PIDS_LIMIT"],
    flag: "pids",
    placeholder: "N",
    default: "128",
    meaning: "Maximum number of processes and threads in a sandbox",
};

pub static CPUS: Variable = Variable {
    name: "MCP_BRIDGE_CPUS",
    aliases: &[],
    flag: "cpus",
    placeholder: "N",
    default: NO_DEFAULT,
    meaning: "Number of CPUs that a sandbox can use, such as `1.5`; unlimited if not set",
};

pub static CPU_QUOTA: Variable = Variable {
    name: "MCP_BRIDGE_CPU_QUOTA",
    aliases: &[],
    flag: "cpu-quota",
    placeholder: "MICROSECONDS",
    default: NO_DEFAULT,
    meaning: "The same in microseconds per 100 ms; ignored if `MCP_BRIDGE_CPUS` is set",
};

pub static CONTAINER_USER: Variable = Variable {
    name: "MCP_BRIDGE_CONTAINER_USER",
    aliases: &[],
    flag: "container-user",
    placeholder: "UID:GID",
    default: "65534:65534",
    meaning: "User and group that code runs as, `UID:GID`",
};

pub static RUNTIME_IDLE_TIMEOUT: Variable = Variable {
    name: "MCP_BRIDGE_RUNTIME_IDLE_TIMEOUT",
    aliases: &[],
    flag: "runtime-idle-timeout",
    placeholder: "TIME",
    default: "300",
    meaning: "Seconds after which an idle session ends, and a podman machine that the bridge started is stopped; `0` means never",
};

pub static MACHINE_INIT: Variable = Variable {
    name: "MCP_BRIDGE_MACHINE_INIT",
    aliases: &[],
    flag: "machine-init",
    placeholder: "BOOL",
    default: "1",
    meaning: "Whether to create a podman machine where podman needs one and none exists, which downloads gigabytes",
};

pub static MACHINE_ROOTFUL: Variable = Variable {
    name: "MCP_BRIDGE_MACHINE_ROOTFUL",
    aliases: &[],
    flag: "machine-rootful",
    placeholder: "BOOL",
    default: "0",
    meaning: "Whether to make a podman machine rootful before starting it",
};

pub static MAX_SESSIONS: Variable = Variable {
    name: "MCP_BRIDGE_MAX_SESSIONS",
    aliases: &[],
    flag: "max-sessions",
    placeholder: "N",
    default: "8",
    meaning: "Maximum number of sessions; one more ends the session that has been idle for longest",
};

pub static STATE_DIR: Variable = Variable {
    name: "MCP_BRIDGE_STATE_DIR",
    aliases: &[],
    flag: "state-dir",
    placeholder: "DIR",
    default: "~/MCPs",
    meaning: "Folder of saved tools, server definitions and the catalogue of tools",
};

pub static OUTPUT_MODE: Variable = Variable {
    name: "MCP_BRIDGE_OUTPUT_MODE",
    aliases: &[],
    flag: "output-mode",
    placeholder: "MODE",
    default: "compact",
    meaning: "Format of results: `compact`, `toon` or `json`",
};

pub static OUTPUT_LIMIT: Variable = Variable {
    name: "MCP_BRIDGE_OUTPUT_LIMIT",
    aliases: &[],
    flag: "output-limit",
    placeholder: "N",
    default: "20000",
    meaning: "Bytes of standard output in a result; the middle of longer output is cut and can be read later",
};

pub static LOG_LEVEL: Variable = Variable {
    name: "MCP_BRIDGE_LOG_LEVEL",
    aliases: &[],
    flag: "log-level",
    placeholder: "LEVEL",
    default: "INFO",
    meaning: "Level of the log on standard error: ERROR, WARN, INFO, DEBUG, TRACE, or directives such as `codebridge=debug,rmcp=info`",
};

pub static SESSION_PERSIST: Variable = Variable {
    name: "MCP_BRIDGE_SESSION_PERSIST",
    aliases: &[],
    flag: "session-persist",
    placeholder: "BOOL",
    default: "true",
    meaning: "Whether a session keeps its interpreter between calls; if not, each call gets a new sandbox",
};

pub static SECURITY_OPT: Variable = Variable {
    name: "MCP_BRIDGE_SECURITY_OPT",
    aliases: &[],
    flag: "security-opt",
    placeholder: "OPTIONS",
    default: NO_DEFAULT,
    meaning: "Additional `--security-opt` values for podman and docker, separated by spaces",
};

pub static ALLOW_SELF_SERVER: Variable = Variable {
    name: "MCP_BRIDGE_ALLOW_SELF_SERVER",
    aliases: &[],
    flag: "allow-self-server",
    placeholder: "BOOL",
    default: "0",
    meaning: "Whether to list a configured server that is this bridge itself",
};

pub static SERVERS_CONFIG: Variable = Variable {
    name: "MCP_SERVERS_CONFIG",
    aliases: &[],
    flag: "servers-config",
    placeholder: "FILE",
    default: NO_DEFAULT,
    meaning: "Additional file of server definitions, read before the others",
};

/// Every setting, in the order of the documentation.
pub static ALL: [&Variable; 21] = [
    &RUNTIME, &IMAGE, &TIMEOUT, &MAX_TIMEOUT, &MEMORY, &PIDS, &CPUS, &CPU_QUOTA, &CONTAINER_USER,
    &RUNTIME_IDLE_TIMEOUT, &MACHINE_INIT, &MACHINE_ROOTFUL, &MAX_SESSIONS, &STATE_DIR, &OUTPUT_MODE,
    &OUTPUT_LIMIT, &LOG_LEVEL, &SESSION_PERSIST, &SECURITY_OPT, &ALLOW_SELF_SERVER, &SERVERS_CONFIG,
];

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
