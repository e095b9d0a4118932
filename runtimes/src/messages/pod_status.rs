//! What the status of a pod says: why it does not run, or no longer.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::exec;
use crate::owner::Owner;
use crate::plan::OwnedSandbox;
use crate::refusal::Refusal;
use crate::spec::SandboxName;

use super::oci;

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
#[serde(rename_all = "camelCase")]
struct Reason {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
    exit_code: Option<i32>,
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
    Some(line(&format!("{}: {}", event.reason, event.message)))
}

/// Returns a foreign text in one line that is not too long.
fn line(text: &str) -> String {
    exec::tail(exec::visible_line(text).as_bytes())
}

/// States in which a container waits for something that does not come by itself.
const STUCK: [&str; 5] = [
    "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "ImageInspectError",
    "CrashLoopBackOff",
];
const NO_IMAGE: [&str; 5] =
    ["ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"];
/// Why a node did not start a pod that it was given:
/// <https://github.com/kubernetes/kubernetes/blob/v1.32.0/pkg/kubelet/lifecycle/predicate.go>.
const NO_ROOM: [&str; 3] = ["OutOfmemory", "OutOfcpu", "OutOfpods"];

/// Returns what to do about a pod that the cluster ended for this reason of its status or of its condition `DisruptionTarget`:
/// <https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions>.
fn hint_for_end(reason: &str) -> &'static str {
    match reason {
        "Evicted" | "TerminationByKubelet" => {
            "the next call starts a new pod; write less to /tmp and /workspace, which count as memory, or choose nodes with more memory with --pod"
        }
        "Preempting" | "Preempted" | "PreemptionByScheduler" => {
            "the next call starts a new pod; `priorityClassName` in the file of --pod makes this less likely"
        }
        "DeadlineExceeded" => {
            "the next call starts a new pod; a pod ends after a day: keep what has to last with runtime.save_artifact(path)"
        }
        "OOMKilled" => "the next call starts a new pod; raise --memory if the code needs more",
        _ => "the next call starts a new pod; `kubectl get events` may say more",
    }
}

impl Pod {
    /// Returns whether it has ended, or is being deleted.
    pub(crate) fn is_ending(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Returns its name, fit to be shown.
    fn name(&self) -> String {
        line(&self.metadata.name)
    }

    /// Returns the node that it was given to, by a name fit to be shown.
    pub(crate) fn node(&self) -> String {
        line(&self.spec.node_name)
    }

    /// Returns how its program failed, if it did. It exits with status 0 when its connection breaks.
    pub(crate) fn exit(&self) -> Option<Refusal> {
        let end = self.status.container_statuses.first()?.state.terminated.as_ref()?;
        if end.exit_code == Some(0) {
            return None;
        }
        let code = end.exit_code.map(|code| format!(", exit status {code}")).unwrap_or_default();
        Some(self.lost(&end.reason, &format!("ended: {}{code}", line(&end.reason))))
    }

    /// Returns that it is gone for this reason; `how` follows its name.
    fn lost(&self, reason: &str, how: &str) -> Refusal {
        let hint = hint_for_end(reason).into();
        Refusal::PodLost { message: format!("pod {} {how}", self.name()), hint }
    }

    /// Returns whether it was given to a node that has not taken it yet. A node that works takes it at once.
    pub(crate) fn is_untaken(&self) -> bool {
        !self.spec.node_name.is_empty() && self.status.phase == "Pending" && self.status.start_time.is_none()
    }

    /// Returns why it does not run; None when nothing is known to be wrong. `patient` while a node may still be found for it, or
    /// its image may still come.
    pub(crate) fn trouble(&self, patient: bool) -> Option<Refusal> {
        let Status { phase, reason, message, conditions, container_statuses, .. } = &self.status;
        let disrupted = conditions.iter().find(|it| it.kind == "DisruptionTarget" && it.status == "True");
        let ended = disrupted.map(|it| (&it.reason, &it.message));
        let ended = ended.or_else(|| (!reason.is_empty()).then_some((reason, message)));
        if let Some((reason, message)) = ended {
            let how = format!("was ended: {}: {}", line(reason), line(message));
            return Some(match NO_ROOM.contains(&reason.as_str()) {
                true => Refusal::NoRoom { message: format!("pod {} {how}", self.name()) },
                false => self.lost(reason, &how),
            });
        }
        let unscheduled =
            conditions.iter().find(|it| it.kind == "PodScheduled" && it.status == "False" && !patient);
        if let Some(it) = unscheduled {
            let message = format!("no node takes pod {}: {}", self.name(), line(&it.message));
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
        lost.then(|| Refusal::NodeLost { node: self.node(), pod: self.name() })
    }

    fn trouble_of_waiting(&self, container: &Container, waiting: &Reason, patient: bool) -> Option<Refusal> {
        let (reason, image) = (waiting.reason.as_str(), line(&container.image));
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
                Refusal::Other { message: format!("pod {}: {reason}: {why}", self.name()) }
            })
        })
    }

    fn trouble_of_end(&self, end: &Reason) -> Option<Refusal> {
        match end.reason.as_str() {
            "Completed" | "" => None,
            "OOMKilled" => {
                Some(self.lost(&end.reason, "was ended: OOMKilled: it needed more than its memory limit"))
            }
            _ if end.message.is_empty() => None,
            reason => Some(oci::parse_refusal(&end.message).unwrap_or_else(|| {
                let why = exec::tail(end.message.as_bytes());
                Refusal::Other { message: format!("pod {} ended: {}: {why}", self.name(), line(reason)) }
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::RuntimeKind;

    fn trouble(status: &str, patient: bool) -> Option<Refusal> {
        let pod = format!(r#"{{"metadata":{{"name":"p"}},"spec":{{"nodeName":"n1"}},"status":{status}}}"#);
        parse_pod(pod.as_bytes()).unwrap().trouble(patient)
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
        let Some(Refusal::PodLost { message: said, hint }) = trouble(evicted, false) else { panic!() };
        assert_eq!(said, message);
        assert!(hint.contains("write less to /tmp"), "{hint}");
        let deadline = r#"{"phase":"Failed","reason":"DeadlineExceeded","message":"Pod was active on the node longer than the specified deadline"}"#;
        let hint = |status: &str| trouble(status, false).unwrap().hint(RuntimeKind::Kubernetes).into_owned();
        assert!(hint(deadline).contains("after a day"));
        let no_python = r#"{"phase":"Failed","containerStatuses":[{"image":"x","state":{"terminated":{"exitCode":128,
            "reason":"StartError","message":"failed to create containerd task: exec: \"python3\": executable file not found in $PATH: unknown"}}}]}"#;
        assert!(matches!(trouble(no_python, true), Some(Refusal::ProgramMissing { .. })));
        let preempted = r#"{"phase":"Running","conditions":[{"type":"DisruptionTarget","status":"True",
            "reason":"PreemptionByScheduler","message":"default-scheduler: preempting to accommodate a higher priority pod"}]}"#;
        assert!(hint(preempted).contains("priorityClassName"));
        let no_memory = r#"{"phase":"Failed","reason":"OutOfmemory","message":"Node didn't have enough resource: memory"}"#;
        assert!(matches!(trouble(no_memory, false), Some(Refusal::NoRoom { .. })));
        let done = r#"{"phase":"Succeeded","containerStatuses":[{"image":"x","state":{"terminated":{"exitCode":0,"reason":"Completed"}}}]}"#;
        assert_eq!(trouble(done, false), None);
    }

    #[test]
    fn a_program_that_ended_is_told_from_a_pod_that_was_ended() {
        let exit = |status: &str| {
            parse_pod(format!(r#"{{"metadata":{{"name":"p"}},"status":{status}}}"#).as_bytes())
                .unwrap()
                .exit()
        };
        let killed = r#"{"phase":"Failed","containerStatuses":[{"image":"x","state":{"terminated":{"exitCode":137,"reason":"Error"}}}]}"#;
        assert_eq!(trouble(killed, false), None);
        assert_eq!(exit(killed).unwrap().to_string(), "pod p ended: Error, exit status 137");
        let unconnected = killed.replace("137", "0").replace("Error", "Completed");
        assert_eq!(exit(&unconnected), None);
        assert_eq!(
            exit(r#"{"phase":"Running","containerStatuses":[{"image":"x","state":{"running":{}}}]}"#),
            None
        );
    }

    #[test]
    fn names_of_others_steer_no_terminal() {
        let pod = br#"{"metadata":{"name":"a\u001b[2Jb\nc"},"status":{"phase":"Failed","reason":"Evicted"}}"#;
        let said = parse_pod(pod).unwrap().trouble(false).unwrap().to_string();
        assert!(said.starts_with("pod a\u{fffd}[2Jb\u{fffd}c was ended"), "{said:?}");
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
