//! The pod of a sandbox, in Kubernetes' words: <https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/>.
//! It satisfies the restricted Pod Security Standard: <https://kubernetes.io/docs/concepts/security/pod-security-standards/>.

use serde_json::{Map, Value, json};

use crate::owner::INSTANCE_LABEL;
use crate::spec::SandboxSpec;

/// The name of the one container of a pod.
pub(super) const CONTAINER: &str = "sandbox";
/// Seconds after which the cluster ends a pod that nobody ended: a day.
const DEADLINE: u64 = 24 * 3600;

/// The field that names a profile of the node.
const OWN_PROFILE: &str = "localhostProfile";
/// Variables of a probe, and the fields of its pod that are their values.
const ADDRESSES: [(&str, &str); 2] =
    [("CODEBRIDGE_NODE", "status.hostIP"), ("CODEBRIDGE_POD", "status.podIP")];

/// Returns what `kubectl run` is told of the pod, besides its name.
pub(super) fn pod(spec: &SandboxSpec) -> Value {
    let labels = json!({ INSTANCE_LABEL: spec.owner.instance, "app.kubernetes.io/managed-by": "codebridge" });
    let mut pod = json!({
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "hostNetwork": false,
        "hostPID": false,
        "hostIPC": false,
        "shareProcessNamespace": false,
        "hostname": spec.hostname,
        "restartPolicy": "Never",
        "activeDeadlineSeconds": DEADLINE,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": spec.user.uid,
            "runAsGroup": spec.user.gid,
            "fsGroup": spec.user.gid,
            "supplementalGroups": [],
            "seccompProfile": profile(spec),
        },
        "containers": [container(spec)],
        "volumes": spec.tmpfs.iter().enumerate().map(|(number, tmpfs)| json!({
            "name": volume(number),
            "emptyDir": {"medium": "Memory", "sizeLimit": tmpfs.size.to_string()},
        })).collect::<Vec<_>>(),
    });
    if let (Some(pod), Ok(Value::Object(chosen))) = (pod.as_object_mut(), serde_json::to_value(&spec.pod)) {
        pod.extend(chosen);
        pod.remove(OWN_PROFILE);
        pod.extend(names(spec));
    }
    // In a label, many of the owner's values would need another form.
    json!({
        "apiVersion": "v1",
        "metadata": {"labels": labels, "annotations": spec.owner.labels()},
        "spec": pod,
    })
}

/// Returns the profile that the node applies: ours where it has it, else its own.
fn profile(spec: &SandboxSpec) -> Value {
    match &spec.pod.localhost_profile {
        Some(path) => json!({"type": "Localhost", OWN_PROFILE: path}),
        None => json!({"type": "RuntimeDefault"}),
    }
}

/// Returns where its pod looks up names. Without a network there is nothing to look up, and no name of the cluster to learn.
fn names(spec: &SandboxSpec) -> Map<String, Value> {
    let none = json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.1"]}});
    let those_of_the_cluster = json!({"dnsPolicy": "ClusterFirst"});
    let chosen = if spec.knows_addresses { those_of_the_cluster } else { none };
    match chosen {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn volume(number: usize) -> String {
    format!("folder-{number}")
}

fn container(spec: &SandboxSpec) -> Value {
    let memory = spec.limits.memory.to_string();
    let mut limits = Map::new();
    limits.insert("memory".into(), memory.clone().into());
    limits.extend(spec.limits.cpus.map(|cpus| ("cpu".into(), format!("{}m", millis(cpus)).into())));
    // A request for each limit that a namespace with a quota asks for; a sandbox is idle most of the time.
    let requests = json!({"memory": memory, "cpu": "10m"});
    let mut env: Vec<Value> =
        spec.env.iter().map(|(name, value)| json!({"name": name, "value": literal(value)})).collect();
    if spec.knows_addresses {
        let of_status =
            |(name, field)| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}});
        env.extend(ADDRESSES.map(of_status));
    }
    json!({
        "name": CONTAINER,
        "image": spec.root.to_string(),
        "imagePullPolicy": "IfNotPresent",
        "command": spec.argv.iter().map(|word| literal(word)).collect::<Vec<_>>(),
        "workingDir": spec.cwd,
        "env": env,
        "stdin": true,
        // The end of our connection is the end of its input, after which it exits.
        "stdinOnce": true,
        "tty": false,
        // The kubelet mounts a file of the node there, writable to all, where only root can get to it.
        "terminationMessagePath": "/root/.codebridge-termination",
        "resources": {"limits": limits, "requests": requests},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "privileged": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": spec.tmpfs.iter().enumerate().map(|(number, tmpfs)| {
            json!({"name": volume(number), "mountPath": tmpfs.target})
        }).collect::<Vec<_>>(),
    })
}

/// Returns thousandths of a processor.
fn millis(cpus: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "validated by the settings")]
    let millis = (cpus * 1000.0).ceil() as u64;
    millis.max(1)
}

/// Returns a text that the kubelet expands no variables in: `$(NAME)` is one, `$$` stands for a dollar sign.
fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_to_a_variable_stays_as_it_is() {
        assert_eq!(literal("a $(HOME) $x $$"), "a $$(HOME) $$x $$$$");
        assert_eq!(millis(1.5), 1500);
        assert_eq!(millis(0.0001), 1);
    }
}
