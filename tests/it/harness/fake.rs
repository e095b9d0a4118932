//! Scripted runtimes, for what real ones will not do on demand.
//!
//! The fake is a Python program that replaces crun: it records how it was called, distinguishes the probe from a
//! launch by the bundle, and follows its scenario. It sends the first frames of the guest where a scenario needs a
//! session.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::bridge::BridgeBuilder;
use super::env::TestEnv;
use super::matrix::which;

const PROGRAM: &str = include_str!("fake_runtime.py");

/// A fake in the test's place.
#[derive(Debug)]
pub(crate) struct Fake {
    programs: PathBuf,
    log: PathBuf,
    scenario: PathBuf,
}

impl Fake {
    /// A fake crun, the only program in its folder. `scenario` says what each of its commands does: see the program.
    pub(crate) fn crun(env: &TestEnv, scenario: &Value) -> Self {
        Self::named(env, "crun", scenario)
    }

    /// A fake under another name.
    pub(crate) fn named(env: &TestEnv, name: &str, scenario: &Value) -> Self {
        let log = env.write("fake.log", "");
        let path = env.write("fake.json", scenario.to_string());
        let text = PROGRAM
            .replace("PYTHON", which("python3").unwrap().to_str().unwrap())
            .replace("SCENARIO", path.to_str().unwrap())
            .replace("LOG", log.to_str().unwrap());
        let program = env.write_program(&format!("programs/{name}"), &text);
        Self { programs: program.parent().unwrap().into(), log, scenario: path }
    }

    /// From now on it does something else.
    pub(crate) fn now(&self, scenario: &Value) {
        fs::write(&self.scenario, scenario.to_string()).unwrap();
    }

    /// Where it is; others can be put beside it.
    pub(crate) fn programs(&self) -> &PathBuf {
        &self.programs
    }

    /// A bridge that finds the fake and nothing else.
    pub(crate) fn bridge<'a>(&self, env: &'a TestEnv) -> BridgeBuilder<'a> {
        env.bridge().var("PATH", &self.programs).var("MCP_BRIDGE_IMAGE", "host:")
    }

    /// Which parts of the scenario were played, and by which processes.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let log = fs::read_to_string(&self.log).unwrap();
        let calls = log.lines().map(|line| {
            let said: Value = serde_json::from_str(line).unwrap();
            Call {
                what: said["what"].as_str().unwrap().into(),
                pid: said["pid"].as_u64().unwrap().try_into().unwrap(),
            }
        });
        calls.collect()
    }
}

/// One call of a fake.
#[derive(Debug)]
pub(crate) struct Call {
    /// Which part of the scenario was played; `child` for what it left running.
    pub(crate) what: String,
    pub(crate) pid: u32,
}

/// A scenario whose probe runs and whose launch does this.
pub(crate) fn launch(steps: &[Value]) -> Value {
    json!({ "launch": steps })
}
