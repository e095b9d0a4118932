//! Any text as what an engine, a runtime or kubectl says.

use codebridge_fuzz::fuzz;

use super::{engine, kube, machine, oci, pod_status};
use crate::refusal::Refusal;

/// Bytes of a refusal: the tail of a message, shown twice at most, and our own words.
const LONGEST: usize = 40_000;

/// Checks what people read.
fn check(refusal: Option<&Refusal>) {
    let Some(shown) = refusal.map(ToString::to_string) else { return };
    assert!(!shown.is_empty() && shown.len() < LONGEST, "{} bytes", shown.len());
    let is_odd = |c: char| c.is_control() && !c.is_whitespace();
    assert!(!shown.contains(is_odd), "a control character: {shown:?}");
}

#[test]
fn engine_outputs_become_short_printable_refusals() {
    let words = [
        "Error: ",
        "No such image: ",
        "Unable to find image '",
        ": image not known",
        "dial unix ",
        "unix:///",
        "ssh://",
        ": Permission denied (publickey",
        "manifest for ",
        " not found",
        "\"Names\"",
        "\"Config\"",
        "\"Labels\"",
        "runc run failed: ",
        "OCI runtime error: ",
        "error during connect: ",
        "\"metadata\":{\"name\":",
        "\"status\":{\"phase\":\"Running\"",
        "\"containerStatuses\":[{\"state\":{\"terminated\":{\"reason\":",
        "\"conditions\":[{\"type\":\"DisruptionTarget\",\"status\":\"True\"",
        "Error from server (Forbidden): ",
    ];
    fuzz("engine_outputs", &words, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        check(engine::parse_refusal(&text).as_ref());
        check(oci::parse_refusal(&text).as_ref());
        check(kube::parse_refusal(&text, "context").as_ref());
        let (why, _) = engine::parse_pull_failure(&text, "registry");
        assert!(why.len() < LONGEST);
        if let Some((id, _)) = engine::parse_image(bytes) {
            assert!(!id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id:?}");
        }
        let containers = engine::parse_containers(bytes).into_iter().chain(pod_status::parse_pods(bytes));
        for container in containers {
            let name = container.name.as_str();
            assert!(name.starts_with("codebridge-") && !name.contains(['/', ' ', '\n']), "{name:?}");
        }
        engine::parse_volumes(bytes);
        engine::parse_server_errors(&text);
        engine::parse_missing_container(bytes);
        if let Some(event) = pod_status::parse_last_event(bytes) {
            assert!(!event.contains(char::is_control), "{event:?}");
        }
        if let Some(pod) = pod_status::parse_pod(bytes) {
            check(pod.trouble(true).as_ref());
            check(pod.trouble(false).as_ref());
            check(pod.exit().as_ref());
            assert!(!pod.node().contains(char::is_control), "{:?}", pod.node());
        }
        kube::parse_lost_attach(&text);
        machine::parse_list(bytes);
        machine::parse_plain_list(bytes);
        machine::parse_default_connection(bytes);
        machine::parse_client_system(bytes);
    });
}
