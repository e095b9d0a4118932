//! The wall outside of the pods: one NetworkPolicy for all of them, where this user may make it and the cluster enforces it.

use serde_json::json;

use crate::exec::ExecError;
use crate::messages::kube::parse_exists;
use crate::owner::INSTANCE_LABEL;

use super::driver::KubeDriver;

/// The name of the policy. It stays when the sandboxes end, so that it is there before the next one.
pub(super) const NAME: &str = "codebridge-no-network";

impl KubeDriver {
    /// Makes the policy that denies all traffic from and to our pods, unless it is there. Returns whether it is.
    pub(crate) async fn ensure_policy(&self) -> bool {
        let policy = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": NAME, "labels": {"app.kubernetes.io/managed-by": "codebridge"}},
            "spec": {
                "podSelector": {"matchExpressions": [{"key": INSTANCE_LABEL, "operator": "Exists"}]},
                "policyTypes": ["Ingress", "Egress"],
            },
        });
        let made = match self.request(["get", "networkpolicy", NAME, "--output=name"]).await {
            Ok(done) if done.status.success() => return true,
            Ok(_) => self.create(&policy).await,
            Err(error) => Err(error),
        };
        match &made {
            Ok(()) => true,
            // Another bridge was faster, or this user may make it but not look at it.
            Err(ExecError::Failed(failed)) if parse_exists(&failed.stderr_tail).is_some() => true,
            Err(error) => {
                tracing::info!(runtime = %self.id(), %error, "could not make the network policy of sandboxes");
                false
            }
        }
    }

    /// Removes the policy.
    pub(crate) async fn remove_policy(&self) -> Result<(), ExecError> {
        self.request(["delete", "networkpolicy", NAME, "--ignore-not-found"]).await?.success().map(drop)
    }
}
