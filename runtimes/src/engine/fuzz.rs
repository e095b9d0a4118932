//! Any text as what an engine says of itself.

use codebridge_fuzz::fuzz;

use super::info::{parse_docker_info, parse_podman_info};

#[test]
fn engine_infos_are_what_engines_say() {
    fuzz("engine_infos", &["idMappings", "container_id", "ServerErrors", "PidsLimit"], |bytes| {
        if let Some(info) = parse_podman_info(bytes) {
            // Ids are those of a namespace, and 0 is the first.
            assert!(info.ids.is_none_or(|(users, _)| users == 0 || bytes.contains(&b'0')));
        }
        if let Some(info) = parse_docker_info(bytes) {
            assert!(!info.remote && info.ids.is_none());
        }
    });
}
