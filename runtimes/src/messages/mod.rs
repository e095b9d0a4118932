//! What the runtimes' programs say, read by pure functions. Every parser quotes the messages it knows, as captured from real
//! programs: `oci` reads those of crun and runc, `engine` those of podman and docker, which also pass on the former,
//! `machine` what podman says of its machines.

pub(crate) mod engine;
pub(crate) mod machine;
pub(crate) mod oci;

#[cfg(test)]
mod tests {
    /// The text under a `== NAME` heading of `podman.txt`; the lines after it that begin with `#` say where it is from.
    pub(super) fn podman_text(name: &str) -> String {
        let text = include_str!("podman.txt");
        let start = text.find(&format!("== {name}\n")).unwrap_or_else(|| panic!("no fixture {name}"));
        let body = text[start..].split_once('\n').unwrap().1;
        let body = body.split("\n== ").next().unwrap();
        body.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
    }
}
