//! Whether a runtime works on this machine, found out without the product: by a container of its own.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use serde_json::{Value, json};

use super::env::TestEnv;
use super::matrix::{Kind, Machine, Runtime, which};
use super::process::Output;

/// Whether a container runs, tried once.
pub(crate) fn works(runtime: Runtime) -> Result<(), String> {
    static WORKS: [OnceLock<Result<(), String>>; 8] = [const { OnceLock::new() }; 8];
    let index = Runtime::ALL.iter().position(|known| *known == runtime).unwrap_or(Runtime::ALL.len());
    WORKS[index].get_or_init(|| try_out(runtime)).clone()
}

/// Runs `true` in a container that the product has no part in.
fn try_out(runtime: Runtime) -> Result<(), String> {
    if !rustix::process::getuid().is_root() {
        return Err("the tests have to be run as root, see tests/check".into());
    }
    if runtime.kind == Kind::Kubernetes {
        // tests/cluster has prepared it.
        return Machine::get().kubeconfig.as_ref().map(drop).ok_or_else(|| "there is no cluster".into());
    }
    if runtime.as_user && Machine::get().user.is_none() {
        return Err("there is no ordinary user for the tests, see tests/check".into());
    }
    let Ok(program) = which(runtime.kind.name()) else { return Err("not installed".into()) };
    let env = TestEnv::new(Some(runtime));
    let output = match runtime.kind {
        Kind::Podman | Kind::Docker => {
            let Some(image) = &Machine::get().image else {
                return Err("there is no image for it (CODEBRIDGE_TEST_IMAGE)".into());
            };
            let mut command = env.command(program);
            command.argv.extend(["run", "--rm", "--network=none"].map(Into::into));
            // The engines' own defaults are above what a process without CAP_SYS_RESOURCE may set.
            command.argv.extend(["--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"].map(Into::into));
            command.argv.extend([image.into(), OsString::from("true")]);
            command.run(env.guard())
        }
        Kind::Crun | Kind::Runc | Kind::Kubernetes => run_bundle(&env, &program),
    };
    let result = if output.status.success() {
        Ok(())
    } else {
        let said = output.stderr.trim();
        Err(said.lines().next_back().unwrap_or("it failed without a message").to_string())
    };
    env.close();
    result
}

/// The bundle that the runtime itself proposes, with `true` of a real root filesystem.
fn run_bundle(env: &TestEnv, program: &Path) -> Output {
    let bundle = env.folder("try");
    let mut spec = env.command(program);
    spec.cwd.clone_from(&bundle);
    spec.argv.push("spec".into());
    if env.runtime().as_user {
        spec.argv.push("--rootless".into());
    }
    let output = spec.run(env.guard());
    if !output.status.success() {
        return output;
    }
    let path = bundle.join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let root = Machine::get().rootfs_314.clone().unwrap_or_else(|| "/".into());
    config["root"] = json!({ "path": root, "readonly": true });
    config["process"]["terminal"] = json!(false);
    config["process"]["args"] = json!(["/bin/true"]);
    config["process"]["rlimits"] = json!([]);
    fs::write(&path, config.to_string()).unwrap();
    let mut run = env.command(program);
    let state = env.folder("state");
    run.argv.extend(["--root".into(), state.into(), "run".into(), "--bundle".into(), bundle.into()]);
    run.argv.push(format!("codebridge-try-{}-{}", std::process::id(), env.number()).into());
    run.run(env.guard())
}
