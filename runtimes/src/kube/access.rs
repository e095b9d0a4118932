//! What this user may do in the cluster, and what a pod can reach there.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};

use crate::exec;
use crate::messages::{kube as messages, pod_status};
use crate::plan::End;
use crate::refusal::Refusal;

use super::driver::KubeDriver;

/// A verb, a resource, and a part of it.
type Right = (&'static str, &'static str, Option<&'static str>);

/// What sandboxes need. `codebridge help kubernetes` has the Role.
const NEEDED: [Right; 6] = [
    ("create", "pods", None),
    ("get", "pods", None),
    ("list", "pods", None),
    ("watch", "pods", None),
    ("delete", "pods", None),
    ("create", "pods", Some("attach")),
];
/// What sandboxes do without: then nobody knows why a pod was deleted, or there is no network policy.
const OPTIONAL: [Right; 2] =
    [("list", "events", None), ("create", "networkpolicies.networking.k8s.io", None)];
/// How long a node may take to report how a program has ended, and the pauses between questions.
const REPORT_PATIENCE: Duration = Duration::from_secs(3);
const REPORT_PAUSE: Duration = Duration::from_secs(1);
/// Addresses that are named in a message.
const MOST_NAMED: usize = 8;

/// What is between code in a pod and the network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Walls {
    /// Whether the seccomp filter holds. Nothing runs without it.
    pub filter: bool,
    /// Whether the node applies our profile, which allows no such socket, before the first process of a sandbox starts.
    #[serde(default)]
    pub profile: bool,
    /// Whether the network policy of our pods exists and the cluster enforces it.
    pub policy: bool,
    /// What the probe tried to reach, before the filter and through it.
    #[serde(default)]
    pub tried: Vec<String>,
    /// Why another pod could not be tried.
    #[serde(default)]
    pub no_peer: Option<String>,
    /// What answered a pod without the filter.
    pub answered: Vec<String>,
    /// The optional rights that this user does not have: verb and resource.
    #[serde(default)]
    pub missing_rights: Vec<String>,
}

/// What the probe in a pod says: one line of JSON after the expected output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct PodProbe {
    /// Whether the node refused sockets as our profile does, before the filter was installed.
    #[serde(default)]
    profile: bool,
    #[serde(default)]
    tried: Vec<String>,
    /// What answered before the filter was installed.
    before: Vec<String>,
    /// What answered after it.
    after: Vec<String>,
}

/// What a look at a pod shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nothing is known to be wrong with it, on this node.
    Fine(String),
    /// This node has not taken it yet.
    Untaken(String),
    Trouble(Refusal),
    /// Its program has ended.
    Ended(Refusal),
    /// There is no such pod, or it is being deleted.
    Missing,
    /// The cluster did not say, for this reason.
    Unknown(Refusal),
}

impl PodProbe {
    /// Reads the probe's output; None when it is not what a probe prints.
    pub(crate) fn parse(output: &[u8], expected: &[u8]) -> Option<Self> {
        serde_json::from_slice(output.strip_prefix(expected)?).ok()
    }

    /// Returns the walls that hold, or why the runtime is refused.
    pub(crate) fn walls(self, has_policy: bool, no_peer: Option<String>) -> Result<Walls, Refusal> {
        let shown = |names: Vec<String>| -> Vec<String> {
            names.iter().take(MOST_NAMED).map(|name| exec::visible_line(name)).collect()
        };
        let Self { profile, tried, before, after } = self;
        if !after.is_empty() {
            let message = format!("a pod with all its walls reached {}", shown(after).join(", "));
            return Err(Refusal::NetworkOpen { message });
        }
        // Behind the profile nothing answers, whatever the network does.
        let policy = has_policy && before.is_empty() && !profile;
        let (tried, answered, missing_rights) = (shown(tried), shown(before), Vec::new());
        Ok(Walls { filter: true, profile, policy, tried, no_peer, answered, missing_rights })
    }
}

/// What to do about a connection that broke, and about a pod that somebody deleted.
const NO_CONNECTION: &str = "the next call starts a new pod; if that fails too, check with `kubectl get pods` that the API server answers";
const DELETED: &str =
    "the next call starts a new pod; `kubectl get events` may say who deleted this one, and why";

fn lost(name: &str, how: &str, hint: &str) -> Refusal {
    Refusal::PodLost { message: format!("pod {name} {how}"), hint: hint.into() }
}

impl KubeDriver {
    /// Checks that the context exists, the cluster answers, and this user may do what sandboxes need.
    pub(crate) async fn check_access(&self) -> Result<(), Refusal> {
        let missing = self.missing_of(&NEEDED).await?;
        if missing.is_empty() {
            return Ok(());
        }
        let message = format!("this user may not {} in {}", missing.join(", "), self.namespace_in_words());
        Err(Refusal::NotPermitted { message })
    }

    /// Returns the optional rights that this user does not have.
    pub(crate) async fn missing_rights(&self) -> Vec<String> {
        self.missing_of(&OPTIONAL).await.unwrap_or_default()
    }

    async fn missing_of(&self, rights: &[Right]) -> Result<Vec<String>, Refusal> {
        let asked = rights.iter().map(|(verb, resource, part)| async move {
            let part = part.map(|part| format!("--subresource={part}"));
            let words = ["auth", "can-i", *verb, *resource].map(String::from).into_iter().chain(part.clone());
            let done = self.request(words).await;
            (format!("{verb} {resource}{}", part.map(|_| "/attach").unwrap_or_default()), done)
        });
        let mut missing = Vec::new();
        for (what, done) in join_all(asked).await {
            let done = done.map_err(|error| self.refusal_of(&error))?;
            // It prints `yes` or `no`, also when something else went wrong.
            match done.stdout.trim_ascii() {
                b"yes" => {}
                answer if answer.starts_with(b"no") => missing.push(what),
                _ => {
                    return Err(
                        self.explain(End::Exited(done.status.code().unwrap_or(-1)), &done.stderr_text())
                    );
                }
            }
        }
        Ok(missing)
    }

    /// Looks at the pod of a sandbox. `patient` while it may still find a node.
    pub(crate) async fn look(&self, name: &str, patient: bool) -> Look {
        let done = match self.request(["get", "pod", name, "--output=json"]).await {
            Ok(done) => done,
            Err(error) => return Look::Unknown(self.refusal_of(&error)),
        };
        let unknown = || {
            let end = End::Exited(done.status.code().unwrap_or(-1));
            Look::Unknown(self.explain(end, &done.stderr_text()))
        };
        if done.status.success() {
            let Some(pod) = pod_status::parse_pod(&done.stdout) else { return unknown() };
            let fine = match () {
                () if pod.is_ending() => Look::Missing,
                () if pod.is_untaken() => Look::Untaken(pod.node()),
                () => pod.exit().map_or_else(|| Look::Fine(pod.node()), Look::Ended),
            };
            return pod.trouble(patient).map_or(fine, Look::Trouble);
        }
        if messages::parse_missing_pod(&done.stderr).is_some() { Look::Missing } else { unknown() }
    }

    /// Returns why a pod does not answer that was asked in vain. A cluster may notice only after a minute that a node is lost.
    pub(crate) async fn why_silent(&self, name: &str) -> Refusal {
        match self.look(name, false).await {
            Look::Trouble(refusal) | Look::Ended(refusal) => refusal,
            Look::Missing => self.why_deleted(name).await,
            Look::Fine(node) | Look::Untaken(node) => Refusal::NodeLost { node, pod: name.into() },
            Look::Unknown(refusal) => {
                let why = format!("does not answer, and the API server does not say why: {refusal}");
                lost(name, &why, NO_CONNECTION)
            }
        }
    }

    /// Returns why the connection to a pod is gone; `said` is what its client said last.
    pub(crate) async fn why_gone(&self, name: &str, said: &str) -> Refusal {
        let began = Instant::now();
        loop {
            return match self.look(name, false).await {
                Look::Trouble(refusal) | Look::Ended(refusal) => refusal,
                Look::Missing => self.why_deleted(name).await,
                Look::Fine(_) | Look::Untaken(_) if began.elapsed() < REPORT_PATIENCE => {
                    tokio::time::sleep(REPORT_PAUSE).await;
                    continue;
                }
                Look::Fine(_) | Look::Untaken(_) => {
                    let message = format!("the connection to pod {name} broke{}", exec::after_colon(said));
                    Refusal::PodLost { message, hint: NO_CONNECTION.into() }
                }
                Look::Unknown(refusal) => {
                    let why = format!("is out of reach, and the API server does not say why: {refusal}");
                    lost(name, &why, NO_CONNECTION)
                }
            };
        }
    }

    /// Returns why a pod that was there is gone.
    pub(crate) async fn why_deleted(&self, name: &str) -> Refusal {
        let why = self.last_event(name).await.map(|why| format!(": {why}")).unwrap_or_default();
        lost(name, &format!("was deleted{why}"), DELETED)
    }

    /// Returns why a pod that has a node does not start there, if the node says that it failed.
    pub(crate) async fn why_stuck(&self, name: &str) -> Option<Refusal> {
        let why = self.last_event(name).await.filter(|why| why.starts_with("Failed"))?;
        Some(Refusal::Other { message: format!("pod {name} does not start: {why}") })
    }

    async fn last_event(&self, name: &str) -> Option<String> {
        let of_pod = format!("--field-selector=involvedObject.name={name}");
        let events = self.request(["get", "events", &of_pod, "--output=json"]).await.ok()?;
        pod_status::parse_last_event(&events.stdout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_reaches_something_through_the_filter_is_refused() {
        let probe = |text: &str| PodProbe::parse(text.as_bytes(), b"codebridge").unwrap();
        let open = probe("codebridge{\"before\": [\"the node\"], \"after\": [\"the node\"]}\n");
        assert!(matches!(open.walls(true, None), Err(Refusal::NetworkOpen { .. })));
        let walls = |text: &str| probe(text).walls(true, None).unwrap();
        let open = walls("codebridge{\"before\": [\"the node\"], \"after\": []}");
        assert_eq!((open.filter, open.policy), (true, false));
        assert!(walls("codebridge{\"before\": [], \"after\": []}").policy);
        let behind = walls("codebridge{\"profile\": true, \"before\": [], \"after\": []}");
        assert_eq!((behind.profile, behind.policy), (true, false));
        assert_eq!(PodProbe::parse(b"codebridge", b"codebridge"), None);
        assert_eq!(PodProbe::parse(b"other{}", b"codebridge"), None);
    }
}
