//! Drives pods by kubectl's command line: <https://kubernetes.io/docs/reference/kubectl/>.

use std::ffi::OsStr;
use std::time::Duration;

use serde_json::Value;

use crate::exec::{self, CommandLine, ExecError, Finished};
use crate::messages::{kube as messages, pod_status, unknown_refusal};
use crate::owner::INSTANCE_LABEL;
use crate::plan::{End, HeldLimits, Mechanism, OwnedSandbox, Plan, PlanError, ReclaimError, ShareMechanism};
use crate::refusal::Refusal;
use crate::rlimits::OwnLimits;
use crate::runtime::RuntimeId;
use crate::seccomp;
use crate::spec::{RootFs, SandboxName, SandboxSpec, SpecError};
use crate::state::{Instance, Record};
use crate::watched_folders::WatchedFolders;

use super::manifest;

/// Every command but that of a sandbox: also one whose server does not answer.
const COMMAND_LIMIT: Duration = Duration::from_secs(20);
/// kubectl's own limit for one request, which gives a better message.
const REQUEST_TIMEOUT: &str = "--request-timeout=15s";
/// Longer than any start is waited for.
const RUNNING_TIMEOUT: &str = "--pod-running-timeout=1h";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeDriver {
    id: RuntimeId,
}

impl KubeDriver {
    pub(crate) fn new(id: RuntimeId) -> Self {
        Self { id }
    }

    pub(crate) fn id(&self) -> &RuntimeId {
        &self.id
    }

    /// Returns kubectl with the flags that say which cluster and namespace.
    fn kubectl(&self) -> CommandLine {
        let target = self.id.target();
        let (context, namespace) = target.pod_place();
        CommandLine::new(&self.id.program)
            .env(self.id.address.environment(self.id.kind))
            .arg(format!("--context={context}"))
            .args(namespace.map(|namespace| format!("--namespace={namespace}")))
    }

    pub(super) fn namespace_in_words(&self) -> String {
        match self.id.target().pod_place().1 {
            Some(namespace) => format!("namespace {namespace}"),
            None => "the namespace of the context".into(),
        }
    }

    pub(super) async fn request<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> Result<Finished, ExecError> {
        exec::run(self.kubectl().arg(REQUEST_TIMEOUT).args(args), COMMAND_LIMIT).await
    }

    pub(super) async fn create(&self, object: &Value) -> Result<(), ExecError> {
        let command = self.kubectl().arg(REQUEST_TIMEOUT).args(["create", "--filename=-"]);
        let input = object.to_string().into_bytes();
        exec::run_with_input(command, input, COMMAND_LIMIT).await?.success().map(drop)
    }

    pub(crate) fn plan(&self, spec: &SandboxSpec, _: &Instance) -> Result<Plan, PlanError> {
        let RootFs::Image(image) = &spec.root else {
            return Err(PlanError::UnsupportedRoot {
                runtime: self.id.kind,
                root: spec.root.to_string(),
                hint: "nodes start only images that they can pull; name one",
            });
        };
        if let Some(folder) = spec.host_folders().next() {
            return Err(PlanError::NoFolders { path: folder.source.clone() });
        }
        if spec.argv.is_empty() {
            return Err(SpecError::Command.into());
        }
        let command = self
            .kubectl()
            .args(["run", spec.name.as_str(), "--stdin", "--quiet", "--restart=Never", RUNNING_TIMEOUT])
            .arg(format!("--image={image}"))
            .arg(format!("--overrides={}", manifest::pod(spec)));
        let cgroup = Mechanism::Cgroup;
        Ok(Plan {
            command,
            folder: None,
            files: Vec::new(),
            aliases: Vec::new(),
            supplied: Vec::new(),
            volumes: Vec::new(),
            root: None,
            image: None,
            record: Record::now(&spec.name, &self.id, spec.root.clone()),
            // The kubelet limits the processes of a pod, by a number of its own that nobody can ask for.
            held: HeldLimits { memory: cgroup, sockets: cgroup, pids: Mechanism::Nothing, cpus: cgroup },
            memory: spec.limits.memory,
            folders: WatchedFolders::default(),
            own_limits: OwnLimits { descriptors: Some(spec.limits.descriptors), ..OwnLimits::default() },
            own_filter: Some(seccomp::program()?),
        })
    }

    #[expect(clippy::unused_self, reason = "as those of the other drivers")]
    pub(crate) fn share_mechanism(&self) -> ShareMechanism {
        ShareMechanism::None
    }

    /// Deletes the pod of a sandbox. The cluster removes a pod that is being deleted, once its node has ended it.
    pub(crate) async fn reclaim(&self, name: &SandboxName) -> Result<(), ReclaimError> {
        let error = |source| ReclaimError::Command { name: name.clone(), source };
        let words =
            ["delete", "pod", name.as_str(), "--ignore-not-found", "--grace-period=1", "--wait=false"];
        self.request(words).await.map_err(error)?.success().map_err(error)?;
        Ok(())
    }

    /// Returns whether the pod is gone, or is being deleted.
    pub(crate) async fn is_gone(&self, name: &SandboxName) -> Result<bool, ExecError> {
        let words = ["get", "pod", name.as_str(), "--ignore-not-found", "--output=json"];
        let done = self.request(words).await?.success()?;
        Ok(pod_status::parse_pod(&done.stdout).is_none_or(|pod| pod.is_ending()))
    }

    pub(crate) async fn list_owned(&self) -> Result<Vec<OwnedSandbox>, ExecError> {
        let selector = format!("--selector={INSTANCE_LABEL}");
        let done = self.request(["get", "pods", &selector, "--output=json"]).await?.success()?;
        Ok(pod_status::parse_pods(&done.stdout))
    }

    /// Returns the refusal for a client that could not connect to a running pod, and waits for what it prints in vain.
    #[expect(clippy::unused_self, reason = "it is about this client")]
    pub(crate) fn lost_attach(&self, said: &str) -> Option<Refusal> {
        messages::parse_lost_attach(said).map(|message| Refusal::Other { message })
    }

    /// Returns the refusal for a command that failed, or did not run to its end.
    pub(crate) fn refusal_of(&self, error: &ExecError) -> Refusal {
        match error {
            ExecError::Start { source, .. } => Refusal::of_start(source),
            ExecError::Failed(failed) => {
                self.explain(End::Exited(failed.status.code().unwrap_or(-1)), &failed.stderr_tail)
            }
            other => Refusal::TimedOut { message: other.to_string() },
        }
    }

    pub(crate) fn explain(&self, end: End, text: &str) -> Refusal {
        let target = self.id.target();
        let mut refusal = messages::parse_refusal(text, target.pod_place().0)
            .unwrap_or_else(|| unknown_refusal(self.id.kind, end, text));
        if let Refusal::DaemonUnreachable { engine, .. } = &mut refusal {
            *engine = Some(self.id.kind);
        }
        refusal
    }
}
