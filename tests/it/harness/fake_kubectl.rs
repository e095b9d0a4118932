//! A kubectl that answers from a table, writes down how it was called, and runs pods on this machine.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::bridge::{Bridge, BridgeBuilder};
use super::env::TestEnv;
use super::host::{REMOVAL, instance_in, with_instances_in};
use super::matrix::which;
use super::process::{Output, command_line, eventually, processes};

const FAKE: &str = include_str!("fake_kubectl.py");
/// Words of command lines, and what is answered.
pub(crate) type Answers<'a> = [(&'a str, Value)];

#[derive(Debug)]
pub(crate) struct Double<'a> {
    env: &'a TestEnv,
    /// A PATH with nothing else in it.
    path: PathBuf,
    log: PathBuf,
    /// Where its bridges keep their instances.
    instances: PathBuf,
}

impl<'a> Double<'a> {
    pub(crate) fn new(env: &'a TestEnv, answers: &Answers<'_>) -> Self {
        let log = env.write("kubectl.log", "");
        let text = FAKE
            .replace("PYTHON", which("python3").unwrap().to_str().unwrap())
            .replace("LOG", log.to_str().unwrap())
            .replace("EVENT", env.write("kubectl.event", "").to_str().unwrap())
            .replace("ANSWERS", env.write("kubectl.json", "[]").to_str().unwrap());
        let program = env.write_program("programs/kubectl", &text);
        let double =
            Self { env, path: program.parent().unwrap().into(), log, instances: env.folder("instances") };
        double.answer(answers);
        double
    }

    /// Has it give these answers from now on.
    pub(crate) fn answer(&self, answers: &Answers<'_>) {
        self.replace("kubectl.json", &json!(answers).to_string());
    }

    /// Has something happen to the pods that run: `silence`, or what kubectl says when the connection breaks.
    pub(crate) fn happens(&self, event: &str) {
        self.replace("kubectl.event", event);
    }

    /// Replaces a file that is read at any moment.
    fn replace(&self, name: &str, content: &str) {
        let new = self.env.write(&format!("{name}.new"), content);
        fs::rename(&new, new.with_extension("")).unwrap();
    }

    pub(crate) fn bridge(&self) -> BridgeBuilder<'a> {
        self.env
            .bridge()
            .behind(with_instances_in(&self.instances))
            .var("PATH", &self.path)
            .var("MCP_BRIDGE_RUNTIME", "kubernetes:big/boxes")
            .var("MCP_BRIDGE_IMAGE", "python:3.14-slim")
    }

    /// The folder of the instance of one of its bridges.
    pub(crate) fn instance(&self, bridge: &Bridge<'_>) -> PathBuf {
        instance_in(&self.instances, bridge.pid()).expect("the bridge has an instance").1
    }

    pub(crate) fn command(&self, args: &[&str]) -> Output {
        self.bridge().without("MCP_BRIDGE_LOG_LEVEL").args(args).command().run(self.env.guard())
    }

    /// What `codebridge exec` says that fails.
    pub(crate) fn exec(&self, args: &[&str]) -> String {
        let output = self.command(&[&["exec", "-c", "print(1)"], args].concat());
        assert!(!output.status.success(), "{output:?}");
        output.stderr
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// The names of the pods that it was told to run, or to delete.
    pub(crate) fn pods(&self, words: &str) -> BTreeSet<String> {
        let log = self.log();
        let named = log.lines().filter_map(|line| line.split_once(&format!(" {words} codebridge-")));
        named.map(|(_, rest)| rest.split(' ').next().unwrap().to_owned()).collect()
    }

    /// Nothing of it runs any more, not even what hung when its bridge ended.
    pub(crate) fn assert_ended(&self) {
        let program = self.path.join("kubectl").display().to_string();
        let runs = || processes().any(|pid| command_line(pid).contains(&program));
        eventually("every kubectl has ended", REMOVAL, || (!runs()).then_some(()));
    }

    /// Every pod that was started was deleted.
    pub(crate) fn assert_deleted(&self) {
        let started = self.pods("run");
        assert!(!started.is_empty() && started == self.pods("delete pod"), "{}", self.log());
    }
}

pub(crate) fn yes() -> (&'static str, Value) {
    ("auth can-i", json!({ "out": "yes\n" }))
}

pub(crate) fn policy() -> (&'static str, Value) {
    ("get networkpolicy", json!({ "out": "networkpolicy.networking.k8s.io/codebridge-no-network\n" }))
}

pub(crate) fn gone() -> (&'static str, Value) {
    ("delete pod", json!({}))
}

/// A pod that is on the cluster.
pub(crate) fn pod(status: &Value) -> Value {
    json!({ "out": json!({ "metadata": { "name": "{name}" }, "status": status }).to_string() })
}

/// The words of a kubectl that runs pods, and finds no fault with them.
pub(crate) fn works() -> Vec<(&'static str, Value)> {
    let pod = pod(&json!({ "phase": "Running" }));
    vec![
        yes(),
        policy(),
        ("run", json!({ "pod": true })),
        ("get pods --output=json", json!({ "out": "{\"items\":[]}" })),
        ("get events", json!({ "out": "{\"items\":[]}" })),
        ("get pod", pod),
        gone(),
    ]
}

/// The same with other answers, which go before.
pub(crate) fn works_but(others: Vec<(&'static str, Value)>) -> Vec<(&'static str, Value)> {
    others.into_iter().chain(works()).collect()
}
