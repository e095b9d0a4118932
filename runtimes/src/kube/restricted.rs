//! The rules of the restricted Pod Security Standard, applied to our pods:
//! <https://kubernetes.io/docs/concepts/security/pod-security-standards/>.

use serde_json::{Value, json};

use super::manifest;
use crate::owner::Owner;
use crate::spec::{Limits, RootFs, SandboxSpec, Tmpfs, User};

const VOLUMES: [&str; 8] = [
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected",
    "secret",
];
const SECCOMP: [&str; 2] = ["RuntimeDefault", "Localhost"];
const SELINUX_TYPES: [&str; 5] =
    ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];
/// Fields of a pod with containers.
const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// Returns the rules that a pod breaks.
fn violations(pod: &Value) -> Vec<&'static str> {
    let spec = &pod["spec"];
    let mut broken = Vec::new();
    let mut rule = |name, holds: bool| {
        if !holds {
            broken.push(name);
        }
    };
    let is_off = |value: &Value| value.is_null() || *value == json!(false);
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        rule("host namespaces", is_off(&spec[field]));
    }
    for volume in items(&spec["volumes"]) {
        let is_known = |(kind, _): (&String, _)| kind == "name" || VOLUMES.contains(&kind.as_str());
        rule("volume types", volume.as_object().is_some_and(|fields| fields.iter().all(is_known)));
    }
    rule("sysctls", items(&spec["securityContext"]["sysctls"]).is_empty());
    let annotations = pod["metadata"]["annotations"].as_object();
    let names_apparmor = |name: &String| name.starts_with("container.apparmor.security.beta.kubernetes.io/");
    rule("AppArmor", !annotations.is_some_and(|all| all.keys().any(names_apparmor)));
    let of_pod = &spec["securityContext"];
    let containers: Vec<&Value> = CONTAINERS.iter().flat_map(|field| items(&spec[field])).collect();
    rule("a container", !containers.is_empty());
    for context in containers.iter().map(|one| &one["securityContext"]).chain([of_pod]) {
        rule("HostProcess", is_off(&context["windowsOptions"]["hostProcess"]));
        rule("AppArmor", context["appArmorProfile"]["type"] != json!("Unconfined"));
        let selinux = &context["seLinuxOptions"];
        let kind = selinux["type"].as_str().unwrap_or_default();
        rule(
            "SELinux",
            SELINUX_TYPES.contains(&kind) && selinux["user"].is_null() && selinux["role"].is_null(),
        );
        rule("root user", context["runAsUser"] != json!(0));
    }
    for container in containers {
        let own = &container["securityContext"];
        // What a container says goes before what its pod says.
        let chosen = |field: &str| if own[field].is_null() { &of_pod[field] } else { &own[field] };
        rule("privileged", is_off(&own["privileged"]));
        rule("privilege escalation", own["allowPrivilegeEscalation"] == json!(false));
        rule("non-root", *chosen("runAsNonRoot") == json!(true));
        let seccomp = chosen("seccompProfile")["type"].as_str().unwrap_or_default();
        rule("seccomp", SECCOMP.contains(&seccomp));
        rule("capabilities", items(&own["capabilities"]["drop"]).contains(&&json!("ALL")));
        let only_bind = |name: &&Value| **name == json!("NET_BIND_SERVICE");
        rule("capabilities", items(&own["capabilities"]["add"]).iter().all(only_bind));
        rule("proc mount", own["procMount"].is_null() || own["procMount"] == json!("Default"));
        rule("host ports", items(&container["ports"]).iter().all(|port| port["hostPort"].is_null()));
        for probe in ["livenessProbe", "readinessProbe", "startupProbe", "lifecycle"] {
            rule("probes of hosts", container[probe].is_null());
        }
    }
    broken
}

fn items(list: &Value) -> Vec<&Value> {
    list.as_array().map(|items| items.iter().collect()).unwrap_or_default()
}

fn spec(pod: &str, knows_addresses: bool) -> SandboxSpec {
    SandboxSpec {
        name: "codebridge-abc-1".to_owned().try_into().unwrap(),
        root: RootFs::Image("python:3".into()),
        argv: vec!["python3".into()],
        env: Vec::new(),
        cwd: "/workspace".into(),
        hostname: "sandbox".into(),
        tmpfs: vec![Tmpfs { target: "/workspace".into(), size: 1 << 20 }],
        folders: Vec::new(),
        shares: Vec::new(),
        copied_shares: Vec::new(),
        user: User { uid: 65534, gid: 65534 },
        limits: Limits { memory: 512 << 20, pids: 128, cpus: None, descriptors: 64 },
        owner: Owner::this_process("abc".into()),
        security_options: Vec::new(),
        volumes: Vec::new(),
        pod: serde_json::from_str(pod).unwrap(),
        knows_addresses,
    }
}

#[test]
fn every_pod_meets_the_restricted_standard() {
    let all = r#"{"runtimeClassName": "gvisor", "localhostProfile": "codebridge.json", "priorityClassName": "low",
        "nodeSelector": {"pool": "code"}, "tolerations": [{"operator": "Exists"}], "imagePullSecrets": [{"name": "registry"}]}"#;
    for chosen in ["{}", all] {
        for knows_addresses in [false, true] {
            let pod = manifest::pod(&spec(chosen, knows_addresses));
            assert_eq!(violations(&pod), [""; 0], "{pod}");
        }
    }
}

#[test]
fn each_rule_is_checked() {
    let pod = manifest::pod(&spec("{}", false));
    for (path, value, rule) in [
        ("/spec/hostNetwork", json!(true), "host namespaces"),
        ("/spec/volumes/0", json!({ "name": "x", "hostPath": { "path": "/" } }), "volume types"),
        ("/spec/securityContext/runAsUser", json!(0), "root user"),
        ("/spec/securityContext/runAsNonRoot", json!(false), "non-root"),
        ("/spec/securityContext/seccompProfile/type", json!("Unconfined"), "seccomp"),
        ("/spec/containers/0/securityContext/privileged", json!(true), "privileged"),
        ("/spec/containers/0/securityContext/allowPrivilegeEscalation", Value::Null, "privilege escalation"),
        ("/spec/containers/0/securityContext/capabilities/drop", json!([]), "capabilities"),
        ("/spec/containers", json!([]), "a container"),
    ] {
        let mut pod = pod.clone();
        *pod.pointer_mut(path).unwrap() = value;
        assert!(violations(&pod).contains(&rule), "{path}");
    }
}
