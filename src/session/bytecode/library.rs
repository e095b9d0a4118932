//! Compiles the standard library of an image, once: images often lack compiled modules, and Python cannot write them into
//! a read-only root.

use std::sync::Arc;
use std::time::Duration;

use codebridge_images::Compiling;
use codebridge_runtimes::{AnyDriver, Instance, SandboxSpec};
use tokio_util::sync::CancellationToken;

use super::compile::{Modules, compile};
use crate::guest;

/// It takes some seconds on a machine that is not busy.
const LIMIT: Duration = Duration::from_secs(60);

/// Compiles the modules before the first interpreter starts.
pub(in crate::session) async fn compile_library(
    compiling: Compiling,
    driver: &Arc<AnyDriver>,
    spec: &SandboxSpec,
    instance: &Arc<Instance>,
    cancel: &CancellationToken,
) {
    let mut spec = spec.clone();
    spec.name = instance.next_name();
    spec.argv = guest::library_argv();
    (spec.folders, spec.shares) = (Vec::new(), Vec::new());
    let modules = Modules { what: "the image", limit: LIMIT, files: None };
    let add = move |archive, stop: &_| compiling.add(archive, stop).map_err(|error| error.to_string());
    compile(modules, spec, driver, instance, cancel, add).await;
}
