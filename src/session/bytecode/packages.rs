//! Compiles the modules of packages for the Python of an image, once for each set: without them, imports take several times as
//! long, and the sandbox cannot write them.

use std::sync::Arc;
use std::time::Duration;

use codebridge_runtimes::{AnyDriver, HostFolder, Instance, SandboxSpec};
use tokio_util::sync::CancellationToken;

use super::compile::{Modules, compile};
use crate::guest;
use crate::packages::PackageSet;

/// A large set takes some ten seconds on a machine that is not busy.
const LIMIT: Duration = Duration::from_secs(180);
const TARGET: &str = "/packages";

/// Compiles as far as possible. On an engine elsewhere, the sandbox gets the files once it runs: a copy of that size is not made
/// for its start.
pub(in crate::session) async fn compile_packages(
    set: &PackageSet,
    image: &str,
    driver: &Arc<AnyDriver>,
    spec: &SandboxSpec,
    instance: &Arc<Instance>,
    is_elsewhere: bool,
    cancel: &CancellationToken,
) {
    let mut spec = spec.clone();
    spec.name = instance.next_name();
    spec.argv = guest::library_argv();
    spec.argv.push(TARGET.into());
    let empty = is_elsewhere.then(tempfile::tempdir).transpose().ok().flatten();
    let source = empty.as_ref().map_or_else(|| set.files(), |folder| folder.path().to_path_buf());
    spec.folders = vec![HostFolder { source, target: TARGET.into() }];
    spec.shares.clear();
    let modules = Modules { what: "packages", limit: LIMIT, files: Some((set.files(), TARGET)) };
    let (set, image) = (set.clone(), image.to_owned());
    let add = move |archive, stop: &_| {
        set.add_compiled(&image, archive, stop).map_err(|error| error.for_operator())
    };
    compile(modules, spec, driver, instance, cancel, add).await;
}
