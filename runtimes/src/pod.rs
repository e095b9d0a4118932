//! Where the pods of sandboxes run: what their user may choose of a pod, in the words of Kubernetes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The longest name of an object: <https://kubernetes.io/docs/concepts/overview/working-with-objects/names/>.
const LONGEST_NAME: usize = 253;
const MOST_ENTRIES: usize = 64;

/// The fields of a pod that its user may set: <https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/>.
/// Everything else is the sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodSettings {
    /// Another low-level runtime of the nodes, as gVisor or Kata Containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_class_name: Option<String>,
    /// The labels of the nodes that may run it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// The taints of nodes that do not keep it away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// The file with codebridge's seccomp profile, in the folder of the kubelet for such files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub localhost_profile: Option<String>,
    /// The secrets with which nodes pull the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<PullSecret>,
}

/// A taint of nodes that is tolerated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Toleration {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `Exists` or `Equal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<u32>,
}

/// The name of a secret of the namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PullSecret {
    pub name: String,
}

impl PodSettings {
    /// Returns the first field whose value no cluster accepts, and what it may be.
    ///
    /// # Errors
    /// There is such a field.
    pub fn validate(&self) -> Result<(), (&'static str, &'static str)> {
        const NAME: &str = "a name of lower-case letters, digits, '-' and '.'";
        let objects = [
            ("runtimeClassName", self.runtime_class_name.as_ref()),
            ("priorityClassName", self.priority_class_name.as_ref()),
        ];
        let secrets = self.image_pull_secrets.iter().map(|secret| ("imagePullSecrets", Some(&secret.name)));
        for (field, name) in objects.into_iter().chain(secrets) {
            if name.is_some_and(|name| !is_object_name(name)) {
                return Err((field, NAME));
            }
        }
        if self.localhost_profile.as_ref().is_some_and(|path| !is_relative_path(path)) {
            return Err(("localhostProfile", "a path without '..' below the seccomp folder of the kubelet"));
        }
        if self.node_selector.iter().any(|(key, value)| !is_label_key(key) || !is_label_value(value)) {
            return Err(("nodeSelector", "labels and their values"));
        }
        let many = [self.node_selector.len(), self.tolerations.len(), self.image_pull_secrets.len()];
        if many.into_iter().any(|count| count > MOST_ENTRIES) {
            return Err(("nodeSelector, tolerations or imagePullSecrets", "64 entries at most"));
        }
        self.tolerations.iter().try_for_each(Toleration::validate)
    }
}

impl Toleration {
    fn validate(&self) -> Result<(), (&'static str, &'static str)> {
        let is_one_of = |value: &Option<String>, words: &[&str]| {
            value.as_ref().is_none_or(|value| words.contains(&value.as_str()))
        };
        if !is_one_of(&self.operator, &["Exists", "Equal"]) {
            return Err(("tolerations.operator", "Exists or Equal"));
        }
        if !is_one_of(&self.effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]) {
            return Err(("tolerations.effect", "NoSchedule, PreferNoSchedule or NoExecute"));
        }
        let key = self.key.as_ref().is_none_or(|key| is_label_key(key));
        if !key || !self.value.as_ref().is_none_or(|value| is_label_value(value)) {
            return Err(("tolerations", "the key and the value of a taint"));
        }
        Ok(())
    }
}

fn is_object_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=LONGEST_NAME).contains(&name.len())
        && name.bytes().all(|byte| plain(byte) || matches!(byte, b'-' | b'.'))
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.ends_with(|c: char| c.is_ascii_alphanumeric())
}

fn is_relative_path(path: &str) -> bool {
    let part = |part: &str| {
        !matches!(part, "" | "." | "..")
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
    };
    path.len() <= LONGEST_NAME && path.split('/').all(part)
}

fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_object_name(prefix) && !name.is_empty() && is_label_value(name),
        None => !key.is_empty() && is_label_value(key),
    }
}

fn is_label_value(value: &str) -> bool {
    value.len() <= 63
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_fields_of_the_table_are_read() {
        let text = r#"{"runtimeClassName": "gvisor", "nodeSelector": {"pool/x": "code"}, "priorityClassName": "low",
            "localhostProfile": "codebridge/sandbox.json", "tolerations": [{"key": "only", "operator": "Exists", "effect": "NoSchedule"}],
            "imagePullSecrets": [{"name": "registry"}]}"#;
        let settings: PodSettings = serde_json::from_str(text).unwrap();
        assert_eq!(settings.validate(), Ok(()));
        for text in [r#"{"hostNetwork": true}"#, r#"{"tolerations": [{"hostPath": "/"}]}"#] {
            assert!(serde_json::from_str::<PodSettings>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_value_that_no_cluster_accepts_names_its_field() {
        for (text, field) in [
            (r#"{"runtimeClassName": "A b"}"#, "runtimeClassName"),
            (r#"{"nodeSelector": {"a b": "c"}}"#, "nodeSelector"),
            (r#"{"localhostProfile": "/etc/x.json"}"#, "localhostProfile"),
            (r#"{"localhostProfile": "a/../../x"}"#, "localhostProfile"),
            (r#"{"imagePullSecrets": [{"name": ""}]}"#, "imagePullSecrets"),
            (r#"{"tolerations": [{"operator": "Any"}]}"#, "tolerations.operator"),
            (r#"{"tolerations": [{"effect": "No"}]}"#, "tolerations.effect"),
        ] {
            let settings: PodSettings = serde_json::from_str(text).unwrap();
            assert_eq!(settings.validate().unwrap_err().0, field, "{text}");
        }
    }
}
