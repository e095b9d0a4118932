//! What the programs of runtimes say, read by pure functions. Every parser quotes the messages that it knows, as captured from
//! real programs: `oci` reads those of crun and runc, `engine` those of podman and docker, which also pass on the former,
//! `machine` what podman says of its machines, `kube` what kubectl says, `pod_status` what a cluster
//! knows of a pod.

pub(crate) mod engine;
#[cfg(test)]
mod fuzz;
pub(crate) mod kube;
pub(crate) mod machine;
pub(crate) mod oci;
pub(crate) mod pod_status;

use crate::exec;
use crate::plan::End;
use crate::refusal::Refusal;
use crate::runtime::RuntimeKind;

/// Returns the refusal for messages that no parser knows.
pub(crate) fn unknown_refusal(runtime: RuntimeKind, end: End, text: &str) -> Refusal {
    let message = match (text, end) {
        ("", End::Exited(code)) => format!("{runtime} ended with status {code} and printed nothing"),
        ("", End::Signalled(signal)) => format!("{runtime} was killed by signal {signal}"),
        _ => exec::tail(text.as_bytes()),
    };
    Refusal::Other { message }
}

#[cfg(test)]
mod tests {
    /// Returns the text under a `== NAME` heading of `podman.txt`, without the lines with its source, which begin with `#`.
    pub(super) fn podman_text(name: &str) -> String {
        let text = include_str!("podman.txt");
        let start = text.find(&format!("== {name}\n")).unwrap_or_else(|| panic!("no fixture {name}"));
        let body = text[start..].split_once('\n').unwrap().1;
        let body = body.split("\n== ").next().unwrap();
        body.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
    }
}
