//! The table of environment variables: names, flags, defaults and meanings, each written down once.
//!
//! The code resolves its defaults from this table, `--help` prints it, and the README shows it.

/// One thing that can be set.
#[derive(Debug, PartialEq, Eq)]
pub struct Variable {
    /// The name in the environment.
    pub name: &'static str,
    /// Other names in the environment that are read when `name` is not set.
    pub aliases: &'static [&'static str],
    /// The flag of `serve` and `exec`, without the dashes.
    pub flag: &'static str,
    /// What stands for the value in help texts.
    pub placeholder: &'static str,
    /// The value that holds when nothing is set; `-` when there is none.
    pub default: &'static str,
    /// What it does, as the README says it.
    pub meaning: &'static str,
}

/// The default of a variable that has none.
pub const NO_DEFAULT: &str = "-";

/// Which container runtime runs the sandboxes.
pub static RUNTIME: Variable = Variable {
    name: "MCP_BRIDGE_RUNTIME",
    aliases: &[],
    flag: "runtime",
    placeholder: "RUNTIME",
    default: "auto",
    meaning: "`podman`, `docker`, `crun`, `runc`, or a path to one of them; auto = the first of that order that really works; `podman:CONNECTION` and `docker:CONTEXT` for engines elsewhere; several with commas share the sessions",
};

/// Which root filesystem the code sees.
pub static IMAGE: Variable = Variable {
    name: "MCP_BRIDGE_IMAGE",
    aliases: &[],
    flag: "image",
    placeholder: "IMAGE",
    default: "python:3.14-slim",
    meaning: "an image reference, a file (`oci-archive:` and others), `dir:/path` (a root filesystem) or `host:` (this machine's own Python); when unset and the default is not to be had, `host:`",
};

/// How long a call may run when it does not say.
pub static TIMEOUT: Variable = Variable {
    name: "MCP_BRIDGE_TIMEOUT",
    aliases: &[],
    flag: "timeout",
    placeholder: "TIME",
    default: "30",
    meaning: "seconds that a call may run when it does not say; `30s`, `2m` also read",
};

/// How long a call may ask to run.
pub static MAX_TIMEOUT: Variable = Variable {
    name: "MCP_BRIDGE_MAX_TIMEOUT",
    aliases: &[],
    flag: "max-timeout",
    placeholder: "TIME",
    default: "120",
    meaning: "seconds that a call may ask for at most",
};

/// Memory of one sandbox.
pub static MEMORY: Variable = Variable {
    name: "MCP_BRIDGE_MEMORY",
    aliases: &["MCP_BRIDGE_MEMORY_LIMIT"],
    flag: "memory",
    placeholder: "SIZE",
    default: "512m",
    meaning: "memory of a sandbox, swap included: `512m`, `1g` or bytes",
};

/// Processes in one sandbox.
pub static PIDS: Variable = Variable {
    name: "MCP_BRIDGE_PIDS",
    aliases: &["MCP_BRIDGE_PIDS_LIMIT"],
    flag: "pids",
    placeholder: "N",
    default: "128",
    meaning: "processes and threads in a sandbox",
};

/// Processors of one sandbox.
pub static CPUS: Variable = Variable {
    name: "MCP_BRIDGE_CPUS",
    aliases: &[],
    flag: "cpus",
    placeholder: "N",
    default: NO_DEFAULT,
    meaning: "processors of a sandbox, e.g. `1.5`; unlimited unless set",
};

/// Processors of one sandbox, in the unit of the kernel.
pub static CPU_QUOTA: Variable = Variable {
    name: "MCP_BRIDGE_CPU_QUOTA",
    aliases: &[],
    flag: "cpu-quota",
    placeholder: "MICROSECONDS",
    default: NO_DEFAULT,
    meaning: "the same in microseconds per 100 ms; read when `MCP_BRIDGE_CPUS` is not set",
};

/// The user inside the sandbox.
pub static CONTAINER_USER: Variable = Variable {
    name: "MCP_BRIDGE_CONTAINER_USER",
    aliases: &[],
    flag: "container-user",
    placeholder: "UID:GID",
    default: "65534:65534",
    meaning: "the user that the code runs as, `UID:GID`",
};

/// When an idle session ends.
pub static RUNTIME_IDLE_TIMEOUT: Variable = Variable {
    name: "MCP_BRIDGE_RUNTIME_IDLE_TIMEOUT",
    aliases: &[],
    flag: "runtime-idle-timeout",
    placeholder: "TIME",
    default: "300",
    meaning: "seconds after which an idle session ends, and a podman machine that the bridge started is stopped; 0 = never",
};

/// Whether a podman machine may be made.
pub static MACHINE_INIT: Variable = Variable {
    name: "MCP_BRIDGE_MACHINE_INIT",
    aliases: &[],
    flag: "machine-init",
    placeholder: "BOOL",
    default: "1",
    meaning: "0 = a podman machine is not made where podman needs one and there is none: that downloads gigabytes",
};

/// Whether podman machines run containers as root.
pub static MACHINE_ROOTFUL: Variable = Variable {
    name: "MCP_BRIDGE_MACHINE_ROOTFUL",
    aliases: &[],
    flag: "machine-rootful",
    placeholder: "BOOL",
    default: "0",
    meaning: "1 = a podman machine that has to be started is switched to rootful before",
};

/// How many sessions may be alive.
pub static MAX_SESSIONS: Variable = Variable {
    name: "MCP_BRIDGE_MAX_SESSIONS",
    aliases: &[],
    flag: "max-sessions",
    placeholder: "N",
    default: "8",
    meaning: "sessions alive at once; the least recently used idle one makes room",
};

/// Where things are kept.
pub static STATE_DIR: Variable = Variable {
    name: "MCP_BRIDGE_STATE_DIR",
    aliases: &[],
    flag: "state-dir",
    placeholder: "DIR",
    default: "~/MCPs",
    meaning: "saved tools, artifacts, catalogue cache",
};

/// How results are written.
pub static OUTPUT_MODE: Variable = Variable {
    name: "MCP_BRIDGE_OUTPUT_MODE",
    aliases: &[],
    flag: "output-mode",
    placeholder: "MODE",
    default: "compact",
    meaning: "`compact`, `toon` or `json`",
};

/// How much output a result shows.
pub static OUTPUT_LIMIT: Variable = Variable {
    name: "MCP_BRIDGE_OUTPUT_LIMIT",
    aliases: &[],
    flag: "output-limit",
    placeholder: "N",
    default: "20000",
    meaning: "bytes of standard output that a result shows; the middle of more is cut and can be read later",
};

/// What is logged.
pub static LOG_LEVEL: Variable = Variable {
    name: "MCP_BRIDGE_LOG_LEVEL",
    aliases: &[],
    flag: "log-level",
    placeholder: "LEVEL",
    default: "INFO",
    meaning: "what goes to standard error: ERROR, WARN, INFO, DEBUG, TRACE, or directives such as `codebridge=debug,rmcp=info`",
};

/// Whether interpreters live on between calls.
pub static SESSION_PERSIST: Variable = Variable {
    name: "MCP_BRIDGE_SESSION_PERSIST",
    aliases: &[],
    flag: "session-persist",
    placeholder: "BOOL",
    default: "true",
    meaning: "false = a fresh sandbox for every call",
};

/// Extra security options of an engine.
pub static SECURITY_OPT: Variable = Variable {
    name: "MCP_BRIDGE_SECURITY_OPT",
    aliases: &[],
    flag: "security-opt",
    placeholder: "OPTIONS",
    default: NO_DEFAULT,
    meaning: "extra `--security-opt` for podman and docker; several are separated by spaces",
};

/// Whether a server definition that starts this bridge is listed.
pub static ALLOW_SELF_SERVER: Variable = Variable {
    name: "MCP_BRIDGE_ALLOW_SELF_SERVER",
    aliases: &[],
    flag: "allow-self-server",
    placeholder: "BOOL",
    default: "0",
    meaning: "list a configured server that is this bridge itself",
};

/// One more file of server definitions.
pub static SERVERS_CONFIG: Variable = Variable {
    name: "MCP_SERVERS_CONFIG",
    aliases: &[],
    flag: "servers-config",
    placeholder: "FILE",
    default: NO_DEFAULT,
    meaning: "one more file of server definitions, read first",
};

/// Every variable, in the order in which the README shows them.
pub static ALL: [&Variable; 21] = [
    &RUNTIME, &IMAGE, &TIMEOUT, &MAX_TIMEOUT, &MEMORY, &PIDS, &CPUS, &CPU_QUOTA, &CONTAINER_USER,
    &RUNTIME_IDLE_TIMEOUT, &MACHINE_INIT, &MACHINE_ROOTFUL, &MAX_SESSIONS, &STATE_DIR, &OUTPUT_MODE,
    &OUTPUT_LIMIT, &LOG_LEVEL, &SESSION_PERSIST, &SECURITY_OPT, &ALLOW_SELF_SERVER, &SERVERS_CONFIG,
];

/// The table as the README shows it.
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
    fn the_table_has_a_line_for_each_variable_and_unbroken_cells() {
        let table = markdown_table();
        assert_eq!(table.lines().count(), ALL.len() + 2);
        for line in table.lines() {
            assert_eq!(line.matches('|').count(), 5, "{line}");
        }
        assert!(table.contains(
            "| `MCP_BRIDGE_PIDS`, `MCP_BRIDGE_PIDS_LIMIT` | `--pids` | `128` | processes and threads in a sandbox |"
        ));
    }
}
