//! A podman that needs a machine, as on a laptop; see the program for what it does. Containers run in a real podman
//! service that stands for the engine in the machine.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::bridge::BridgeBuilder;
use super::engines::{PodmanService, bridge_on};
use super::env::TestEnv;
use super::matrix::which;
use super::process::{MACHINE_SUPERVISOR, command_line, pid_of, processes};

const PROGRAM: &str = include_str!("fake_podman.py");

/// The fake, its machine, and the engine in it.
pub(crate) struct FakeMachine<'a> {
    env: &'a TestEnv,
    programs: PathBuf,
    state: PathBuf,
    pub(crate) service: PodmanService<'a>,
}

impl<'a> FakeMachine<'a> {
    /// A podman of this version with a machine that is stopped; `changes` are made to that.
    pub(crate) fn new(env: &'a TestEnv, version: &str, changes: &Value) -> Self {
        let service = PodmanService::start(env, "in-the-machine");
        Self::with(env, service, version, changes)
    }

    /// The same with an engine that runs already.
    pub(crate) fn with(env: &'a TestEnv, service: PodmanService<'a>, version: &str, changes: &Value) -> Self {
        let state = env.write("machine.json", "{}");
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/runtimes/src/messages/podman.txt");
        let text = PROGRAM
            .replace("PYTHON", which("python3").unwrap().to_str().unwrap())
            .replace("STATE", state.to_str().unwrap())
            .replace("FIXTURES", fixtures)
            .replace("PODMAN", which("podman").unwrap().to_str().unwrap());
        let program = env.write_program("programs/podman", &text);
        let machine = Self { env, programs: program.parent().unwrap().into(), state, service };
        machine.write(&json!({
            "version": version, "exists": true, "running": false, "last_up": "0001-01-01T00:00:00Z",
            "init_seconds": 0.3, "start_seconds": 0.2, "up_at": null, "shared": true, "ssh": true, "takes_volumes": false,
            "start_fails": false, "os": "darwin", "url": machine.service.url(), "calls": [], "looks": 0,
        }));
        machine.change(changes);
        machine
    }

    fn write(&self, state: &Value) {
        let staging = self.state.with_extension("test");
        fs::write(&staging, state.to_string()).unwrap();
        fs::rename(staging, &self.state).unwrap();
    }

    pub(crate) fn state(&self) -> Value {
        serde_json::from_slice(&fs::read(&self.state).unwrap()).unwrap()
    }

    /// Something happens to the machine that the bridge does not do.
    pub(crate) fn change(&self, changes: &Value) {
        let lock = fs::File::create(format!("{}.lock", self.state.display())).unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let mut state = self.state();
        for (key, value) in changes.as_object().unwrap() {
            state[key] = value.clone();
        }
        self.write(&state);
    }

    /// What was done with the machine, but for looking.
    pub(crate) fn calls(&self) -> Vec<String> {
        let state = self.state();
        let words = |call: &Value| {
            let words: Vec<&str> = call.as_array().unwrap().iter().filter_map(Value::as_str).collect();
            words.join(" ")
        };
        state["calls"]
            .as_array()
            .unwrap()
            .iter()
            .map(words)
            .filter(|call| !call.starts_with("ssh "))
            .collect()
    }

    /// How often the machine was stopped.
    pub(crate) fn stops(&self) -> usize {
        self.calls().iter().filter(|call| call.starts_with("stop ")).count()
    }

    /// How often it was asked whether anything runs in it.
    pub(crate) fn looks(&self) -> u64 {
        self.state()["looks"].as_u64().unwrap()
    }

    /// The folder in which bridges record machines.
    pub(crate) fn cache(&self) -> PathBuf {
        self.env.home().join(".cache/codebridge")
    }

    /// The machine supervisors.
    pub(crate) fn supervisors(&self) -> Vec<u32> {
        let folder = self.cache().display().to_string();
        let is_ours = |pid: &u32| {
            let words = command_line(*pid);
            words.iter().any(|word| word == MACHINE_SUPERVISOR) && words.contains(&folder)
        };
        processes().filter(is_ours).collect()
    }

    /// A bridge that finds this podman and nothing else.
    pub(crate) fn bridge(&self) -> BridgeBuilder<'a> {
        bridge_on(self.env, "podman").var("PATH", &self.programs)
    }
}

impl Drop for FakeMachine<'_> {
    fn drop(&mut self) {
        // One may be about to start another.
        while let supervisors @ [_, ..] = &self.supervisors()[..] {
            for supervisor in supervisors {
                let _ = rustix::process::kill_process(pid_of(*supervisor), rustix::process::Signal::KILL);
            }
        }
    }
}
