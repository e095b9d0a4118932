//! Another pod, which the probe in a pod tries to reach.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::ChildStdin;

use super::choice::Probe;
use crate::driver::AnyDriver;
use crate::exec;
use crate::sandbox::Sandbox;
use crate::spec::SandboxSpec;
use crate::state::Instance;

/// How long it may take to start: its image is on a node already, and without it the probe still shows most.
const START_LIMIT: Duration = Duration::from_secs(10);
/// Enough for an interpreter.
const MEMORY: u64 = 64 << 20;
/// More than an address and a port.
const LINE_LIMIT: u64 = 100;
/// What it prints where it may not listen.
const CANNOT_LISTEN: &str = "-";

/// A pod that listens, as long as this exists. Dropping it leaves it running: call [`Peer::end`].
#[derive(Debug, Default)]
pub(super) struct Peer {
    sandbox: Option<Sandbox>,
    stdin: Option<ChildStdin>,
}

impl Peer {
    /// Starts it beside the pod of `spec`. Returns its address and port, or why it has none.
    pub(super) async fn start(
        &mut self,
        driver: &Arc<AnyDriver>,
        spec: &SandboxSpec,
        probe: &Probe,
        instance: &Arc<Instance>,
    ) -> Result<String, String> {
        let mut spec = SandboxSpec { argv: probe.peer_argv.clone(), ..spec.clone() };
        spec.name = instance.next_name();
        spec.limits.memory = spec.limits.memory.min(MEMORY);
        let plan = driver.plan(&spec, instance).map_err(|error| error.to_string())?;
        let launched = Sandbox::launch(driver, plan, instance).await.map_err(|error| error.to_string())?;
        let sandbox = self.sandbox.insert(launched);
        self.stdin = sandbox.take_stdin();
        if let Some(stdin) = &mut self.stdin {
            // What it prints before it has read a line may be lost on the way.
            let _ = stdin.write_all(b"\n").await;
        }
        let never_starts = sandbox.never_starts();
        let stdout = sandbox.take_stdout();
        let read = async {
            let mut line = String::new();
            if let Some(stdout) = stdout {
                let _ = BufReader::new(stdout.take(LINE_LIMIT)).read_line(&mut line).await;
            }
            line
        };
        let line = tokio::select! {
            line = read => line,
            refusal = never_starts => return Err(refusal.to_string()),
            () = tokio::time::sleep(START_LIMIT) => return Err("it did not start in time".into()),
        };
        match line.trim() {
            CANNOT_LISTEN => Err("the node's seccomp profile does not let a pod listen".into()),
            place if is_place(place) => Ok(place.to_owned()),
            _ => Err(exec::visible_line(&sandbox.with_messages("it did not start"))),
        }
    }

    pub(super) async fn end(self) {
        drop(self.stdin);
        if let Some(sandbox) = self.sandbox
            && let Err(error) = sandbox.end().await
        {
            tracing::warn!(%error, "could not remove the other pod of a probe");
        }
    }
}

/// Returns whether this is an address and a port.
fn is_place(text: &str) -> bool {
    let Some((address, port)) = text.split_once(' ') else { return false };
    address.parse::<std::net::IpAddr>().is_ok() && port.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_and_a_port_are_passed_on() {
        assert!(is_place("10.0.0.1 4000") && is_place("fd00::1 4000"));
        for text in ["", "-", "10.0.0.1", "10.0.0.1 99999", "x 1", "10.0.0.1 1 2"] {
            assert!(!is_place(text), "{text}");
        }
    }
}
