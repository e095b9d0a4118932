//! What kubectl, the API server and the status of a pod say.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::exec;
use crate::owner::Owner;
use crate::plan::OwnedSandbox;
use crate::refusal::Refusal;
use crate::spec::SandboxName;

use super::oci;

/// Returns why kubectl did not do it, for the context of this name:
///
/// - 1.32: ``Error in configuration: context was not found for specified context: x``; 1.20: ``error: context "x" does not
///   exist``
/// - 1.20 and 1.32: ``The connection to the server 127.0.0.1:16443 was refused - did you specify the right host or port?``
/// - ``Unable to connect to the server: net/http: TLS handshake timeout``, ``… dial tcp: lookup x: no such host``
/// - ``error: You must be logged in to the server (Unauthorized)``
/// - ``Error from server (NotFound): namespaces "x" not found``
/// - ``Error from server (Forbidden): pods "x" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited:
///   pods=1``
/// - ``Error from server (Forbidden): pods is forbidden: User "weak" cannot create resource "pods" in API group "" in the
///   namespace "default"``, and what admission refuses: ``pods "x" is forbidden: violates PodSecurity "restricted:latest": …``
/// - ``pod default/x terminated (StartError)`` and the message of the low-level runtime
pub(crate) fn parse_refusal(text: &str, context: &str) -> Option<Refusal> {
    let text = without_log(text);
    let has = |needle: &str| text.contains(needle);
    let message = || exec::tail(text.as_bytes());
    if has("context was not found for specified context") || (has("context \"") && has(" does not exist")) {
        let message = format!("kubectl has no context '{context}'");
        Some(Refusal::UnknownConnection { message })
    } else if has("The connection to the server ")
        || has("Unable to connect to the server")
        || has("error dialing backend")
        || has("Error from server (ServiceUnavailable)")
        || has("net/http: request canceled")
        || has("connect: connection refused")
    {
        let (message, at) = (message(), parse_address(&text));
        Some(Refusal::DaemonUnreachable { message, engine: None, at, product: None, denied: false })
    } else if has("(Unauthorized)") || has("must be logged in") {
        Some(Refusal::NotPermitted { message: format!("the cluster of '{context}' does not know this user") })
    } else if has("exceeded quota") || has("status unknown for quota") {
        Some(Refusal::NoRoom { message: after_server(&text) })
    } else if has("(Forbidden)") {
        Some(Refusal::NotPermitted { message: after_server(&text) })
    } else if has("Error from server (NotFound): namespaces") {
        Some(Refusal::UnknownConnection { message: after_server(&text) })
    } else {
        oci::parse_refusal(&text)
    }
}

/// Drops the lines of kubectl's own log: ``E1123 04:32:20.164849   21307 memcache.go:265] …``.
fn without_log(text: &str) -> String {
    let is_log = |line: &&str| {
        let mut bytes = line.bytes();
        matches!(bytes.next(), Some(b'E' | b'W' | b'I'))
            && bytes.by_ref().take(4).filter(u8::is_ascii_digit).count() == 4
            && bytes.next() == Some(b' ')
    };
    let lines: Vec<&str> = text.lines().filter(|line| !is_log(line)).collect();
    lines.join("\n").trim().to_owned()
}

fn parse_address(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("The connection to the server ")?;
    rest.split(' ').next().map(str::to_owned)
}

/// Returns what follows ``Error from server (Forbidden): ``.
fn after_server(text: &str) -> String {
    let rest = text.split_once("Error from server (").and_then(|(_, rest)| rest.split_once("): "));
    exec::tail(rest.map_or(text, |(_, rest)| rest).as_bytes())
}

/// Returns why `kubectl run` could not attach to its pod: ``warning: couldn't attach to pod/x, falling back to streaming logs:
/// unable to upgrade connection: …`` (1.20 and 1.32).
pub(crate) fn parse_lost_attach(text: &str) -> Option<String> {
    text.contains("falling back to streaming logs").then(|| exec::tail(text.as_bytes()))
}

/// Returns whether the pod was not found: ``Error from server (NotFound): pods "x" not found``.
pub(crate) fn parse_missing_pod(stderr: &[u8]) -> Option<()> {
    String::from_utf8_lossy(stderr).contains("Error from server (NotFound): pods ").then_some(())
}

/// What is known of a pod: <https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#PodStatus>.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Pod {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    deletion_timestamp: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    node_name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    phase: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
    /// When the kubelet of its node took it.
    start_time: Option<String>,
    #[serde(default)]
    conditions: Vec<Condition>,
    #[serde(default)]
    container_statuses: Vec<Container>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Condition {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Container {
    #[serde(default)]
    image: String,
    #[serde(default)]
    state: State,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct State {
    waiting: Option<Reason>,
    terminated: Option<Reason>,
    running: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Reason {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

#[derive(Debug, Deserialize)]
struct Items<T> {
    items: Vec<T>,
}

pub(crate) fn parse_pod(json: &[u8]) -> Option<Pod> {
    serde_json::from_slice(json).ok()
}

/// Returns our pods of a list that are not being deleted.
pub(crate) fn parse_pods(json: &[u8]) -> Vec<OwnedSandbox> {
    let Ok(Items::<Pod> { items }) = serde_json::from_slice(json) else { return Vec::new() };
    let owned = |pod: Pod| {
        let name = SandboxName::try_from(pod.metadata.name).ok()?;
        let owner = Owner::from_labels(&pod.metadata.annotations)?;
        pod.metadata.deletion_timestamp.is_none().then_some(OwnedSandbox { name, owner })
    };
    items.into_iter().filter_map(owned).collect()
}

/// Returns what the last event says that is no step of an ordinary life.
pub(crate) fn parse_last_event(json: &[u8]) -> Option<String> {
    const ORDINARY: [&str; 6] = ["Scheduled", "Pulling", "Pulled", "Created", "Started", "Killing"];
    let Items::<Reason> { items } = serde_json::from_slice(json).ok()?;
    let event = items.into_iter().rfind(|event| !ORDINARY.contains(&event.reason.as_str()))?;
    Some(exec::visible_line(&format!("{}: {}", event.reason, event.message)))
}

/// States in which a container waits for something that does not come by itself.
const STUCK: [&str; 5] = [
    "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "ImageInspectError",
    "CrashLoopBackOff",
];
const NO_IMAGE: [&str; 5] =
    ["ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"];
/// Why the cluster ended a pod, or did not start it on the node that it chose.
const NO_ROOM: [&str; 6] = ["Evicted", "Preempting", "Preempted", "OutOfmemory", "OutOfcpu", "OutOfpods"];

impl Pod {
    /// Returns whether it has ended, or is being deleted.
    pub(crate) fn is_ending(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Returns the node that it was given to, by a name fit to be shown.
    pub(crate) fn node(&self) -> String {
        exec::visible_line(&self.spec.node_name)
    }

    /// Returns whether it was given to a node that has not taken it yet. A node that works takes it at once.
    pub(crate) fn is_untaken(&self) -> bool {
        !self.spec.node_name.is_empty() && self.status.phase == "Pending" && self.status.start_time.is_none()
    }

    /// Returns why it does not run; None when nothing is known to be wrong. `patient` while a node may still be found for it, or
    /// its image may still come.
    pub(crate) fn trouble(&self, patient: bool) -> Option<Refusal> {
        let Status { phase, reason, message, conditions, container_statuses, .. } = &self.status;
        let pod = &self.metadata.name;
        let line = |text: &str| exec::visible_line(text);
        let disrupted = conditions.iter().find(|it| it.kind == "DisruptionTarget" && it.status == "True");
        if let Some(it) = disrupted {
            let message = format!("pod {pod} was ended: {}: {}", line(&it.reason), line(&it.message));
            return Some(Refusal::NoRoom { message });
        }
        if !reason.is_empty() {
            let message = format!("pod {pod} was ended: {}: {}", line(reason), line(message));
            return Some(match NO_ROOM.contains(&reason.as_str()) {
                true => Refusal::NoRoom { message },
                false => Refusal::Other { message },
            });
        }
        let unscheduled =
            conditions.iter().find(|it| it.kind == "PodScheduled" && it.status == "False" && !patient);
        if let Some(it) = unscheduled {
            let message = format!("no node takes pod {pod}: {}", line(&it.message));
            return Some(Refusal::NoRoom { message });
        }
        let container = container_statuses.first()?;
        if let Some(waiting) = &container.state.waiting {
            return self.trouble_of_waiting(container, waiting, patient);
        }
        if let Some(terminated) = &container.state.terminated {
            return self.trouble_of_end(terminated);
        }
        let ready = conditions.iter().find(|it| it.kind == "Ready");
        let lost = phase == "Running"
            && container.state.running.is_some()
            && ready.is_some_and(|it| it.status != "True" && it.reason != "ContainersNotReady");
        lost.then(|| Refusal::NodeLost { node: self.node(), pod: line(pod) })
    }

    fn trouble_of_waiting(&self, container: &Container, waiting: &Reason, patient: bool) -> Option<Refusal> {
        let (reason, image) = (waiting.reason.as_str(), exec::visible_line(&container.image));
        // The first failure of a pull is tried again at once.
        let may_come = patient && reason == "ErrImagePull";
        if NO_IMAGE.contains(&reason) && !may_come {
            let why = exec::tail(waiting.message.as_bytes());
            let message = format!("the cluster cannot pull {image}: {reason}: {why}");
            let hint =
                "check the name, that nodes can reach its registry, and imagePullSecrets in --pod".into();
            return Some(Refusal::ImageMissing { image, message, hint: Some(hint) });
        }
        STUCK.contains(&reason).then(|| {
            oci::parse_refusal(&waiting.message).unwrap_or_else(|| {
                let why = exec::tail(waiting.message.as_bytes());
                Refusal::Other { message: format!("pod {}: {reason}: {why}", self.metadata.name) }
            })
        })
    }

    fn trouble_of_end(&self, end: &Reason) -> Option<Refusal> {
        let pod = &self.metadata.name;
        match end.reason.as_str() {
            "Completed" | "" => None,
            "OOMKilled" => {
                let message = format!("pod {pod} was ended: OOMKilled: it needed more than its memory limit");
                Some(Refusal::Other { message })
            }
            _ if end.message.is_empty() => None,
            reason => Some(oci::parse_refusal(&end.message).unwrap_or_else(|| {
                let why = exec::tail(end.message.as_bytes());
                Refusal::Other { message: format!("pod {pod} ended: {reason}: {why}") }
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> Refusal {
        parse_refusal(text, "big").unwrap_or_else(|| panic!("{text}"))
    }

    fn trouble(status: &str, patient: bool) -> Option<Refusal> {
        let pod = format!(r#"{{"metadata":{{"name":"p"}},"spec":{{"nodeName":"n1"}},"status":{status}}}"#);
        parse_pod(pod.as_bytes()).unwrap().trouble(patient)
    }

    #[test]
    fn messages_of_kubectl_are_told_apart() {
        for text in [
            "Error in configuration: context was not found for specified context: big",
            "error: context \"big\" does not exist",
        ] {
            assert_eq!(
                refusal(text),
                Refusal::UnknownConnection { message: "kubectl has no context 'big'".into() }
            );
        }
        let text = "E1123 04:32:20.164849   21307 memcache.go:265] \"Unhandled Error\" err=\"couldn't get current server API group list\"\nThe connection to the server 127.0.0.1:16444 was refused - did you specify the right host or port?";
        let Refusal::DaemonUnreachable { at, message, .. } = refusal(text) else { panic!() };
        assert_eq!(at.as_deref(), Some("127.0.0.1:16444"));
        assert!(message.starts_with("The connection"), "{message}");
        let text = "Error from server (Forbidden): pods \"x\" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1";
        let message =
            "pods \"x\" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1";
        assert_eq!(refusal(text), Refusal::NoRoom { message: message.into() });
        let text = "Error from server (Forbidden): pods is forbidden: User \"weak\" cannot create resource \"pods\" in API group \"\" in the namespace \"default\"";
        assert!(matches!(refusal(text), Refusal::NotPermitted { .. }));
        let text = "Error from server (NotFound): namespaces \"nosuch\" not found";
        assert!(matches!(refusal(text), Refusal::UnknownConnection { .. }));
        let text = "error: You must be logged in to the server (Unauthorized)";
        assert!(matches!(refusal(text), Refusal::NotPermitted { .. }));
    }

    #[test]
    fn a_pod_that_waits_for_its_image_or_a_node_says_why() {
        let pulling = r#"{"phase":"Pending","containerStatuses":[{"image":"nosuch.invalid/x:1","state":{"waiting":
            {"reason":"ErrImagePull","message":"failed to resolve reference: no such host"}}}]}"#;
        assert_eq!(trouble(pulling, true), None);
        let Some(Refusal::ImageMissing { image, message, .. }) = trouble(pulling, false) else { panic!() };
        assert_eq!(image, "nosuch.invalid/x:1");
        assert!(message.contains("no such host"), "{message}");
        let unscheduled = r#"{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False",
            "reason":"Unschedulable","message":"0/1 nodes are available: 1 Insufficient memory."}]}"#;
        assert_eq!(trouble(unscheduled, true), None);
        let message = "no node takes pod p: 0/1 nodes are available: 1 Insufficient memory.";
        assert_eq!(trouble(unscheduled, false), Some(Refusal::NoRoom { message: message.into() }));
    }

    #[test]
    fn a_pod_that_was_ended_says_why() {
        let evicted =
            r#"{"phase":"Failed","reason":"Evicted","message":"The node was low on resource: memory."}"#;
        let message = "pod p was ended: Evicted: The node was low on resource: memory.";
        assert_eq!(trouble(evicted, false), Some(Refusal::NoRoom { message: message.into() }));
        let deadline = r#"{"phase":"Failed","reason":"DeadlineExceeded","message":"Pod was active on the node longer than the specified deadline"}"#;
        assert!(matches!(trouble(deadline, false), Some(Refusal::Other { .. })));
        let no_python = r#"{"phase":"Failed","containerStatuses":[{"image":"x","state":{"terminated":{"exitCode":128,
            "reason":"StartError","message":"failed to create containerd task: exec: \"python3\": executable file not found in $PATH: unknown"}}}]}"#;
        assert!(matches!(trouble(no_python, true), Some(Refusal::ProgramMissing { .. })));
        let preempted = r#"{"phase":"Running","conditions":[{"type":"DisruptionTarget","status":"True",
            "reason":"PreemptionByScheduler","message":"default-scheduler: preempting to accommodate a higher priority pod"}]}"#;
        assert!(matches!(trouble(preempted, false), Some(Refusal::NoRoom { .. })));
        let done = r#"{"phase":"Succeeded","containerStatuses":[{"image":"x","state":{"terminated":{"exitCode":0,"reason":"Completed"}}}]}"#;
        assert_eq!(trouble(done, false), None);
    }

    #[test]
    fn a_node_that_is_gone_is_named() {
        let lost = r#"{"phase":"Running","conditions":[{"type":"Ready","status":"False"}],
            "containerStatuses":[{"image":"x","state":{"running":{"startedAt":"2026-11-23T04:33:29Z"}}}]}"#;
        assert_eq!(trouble(lost, false), Some(Refusal::NodeLost { node: "n1".into(), pod: "p".into() }));
        assert_eq!(trouble(&lost.replace("False", "True"), false), None);
    }

    #[test]
    fn a_pod_that_its_node_has_not_taken_is_known() {
        let is_untaken = |node: &str, status: &str| {
            let pod = format!(r#"{{"spec":{{"nodeName":"{node}"}},"status":{status}}}"#);
            parse_pod(pod.as_bytes()).unwrap().is_untaken()
        };
        let (given, taken) =
            (r#"{"phase":"Pending"}"#, r#"{"phase":"Pending","startTime":"2026-11-23T04:33:29Z"}"#);
        assert!(is_untaken("n1", given));
        assert!(!is_untaken("", given), "the scheduler has not chosen a node yet");
        assert!(!is_untaken("n1", taken));
        assert!(!is_untaken("n1", r#"{"phase":"Running"}"#));
    }

    #[test]
    fn owners_are_read_from_annotations() {
        let owner = Owner::this_process("abc".into());
        let annotations = serde_json::to_string(&owner.labels()).unwrap();
        let pod = |name: &str, rest: &str| {
            format!(r#"{{"metadata":{{"name":"{name}","annotations":{annotations}{rest}}}}}"#)
        };
        let ending = pod("codebridge-abc-2", r#","deletionTimestamp":"2026-11-23T04:33:29Z""#);
        let list = format!(r#"{{"items":[{},{ending},{}]}}"#, pod("codebridge-abc-1", ""), pod("other", ""));
        let found = parse_pods(list.as_bytes());
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), &found[0].owner), ("codebridge-abc-1", &owner));
    }

    #[test]
    fn the_event_that_explains_an_end_is_found() {
        let events = r#"{"items":[{"reason":"Scheduled","message":"a"},{"reason":"Preempted","message":"Preempted by x on node n1"},{"reason":"Killing","message":"b"}]}"#;
        assert_eq!(
            parse_last_event(events.as_bytes()).as_deref(),
            Some("Preempted: Preempted by x on node n1")
        );
    }
}
