//! Any output as that of a probe in a pod.

use codebridge_fuzz::fuzz;

use super::access::PodProbe;

const EXPECTED: &[u8] = b"codebridge";

#[test]
fn what_a_pod_says_of_its_walls_is_short_and_printable() {
    let words =
        ["codebridge{", "\"before\":[", "\"after\":[", "\"tried\":[", "\"profile\":true", "the node at "];
    fuzz("pod_probes", &words, |bytes| {
        let Some(probe) = PodProbe::parse(bytes, EXPECTED) else { return };
        let named = match probe.walls(true, None) {
            Ok(walls) => {
                assert!(walls.filter);
                [walls.tried, walls.answered].concat()
            }
            Err(refusal) => vec![refusal.to_string()],
        };
        for name in named {
            assert!(!name.contains(char::is_control), "{name:?}");
        }
    });
}
