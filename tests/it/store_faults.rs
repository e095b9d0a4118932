//! The stores while calls of the system fail or the disk is full: images, packages, logins, accepted tools. What fails is said,
//! what was there is whole, and the next time it works.
//!
//! `tests/faults` does more of it.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::faults::{SOON, more};
use crate::harness::mounted::Mounted;
use crate::harness::process::{Output, Prepared};
use crate::harness::registry::{Registry, store_of};
use crate::harness::{Kind, Runtime, Suite, TestEnv};
use crate::image_store::{codebridge, listing, roots, run};
use crate::installs::{WithUv, wheels};
use crate::login::Place;
use crate::refused_calls::{PAGE, Refusal, at_each_place};
use crate::server_access::{define, fake};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "faults",
        tests![
            a_pull_that_fails_leaves_the_store_right,
            a_pull_on_a_disk_that_becomes_full_leaves_the_store_right,
            a_full_disk_loses_no_login_and_no_accepted_tools,
        ],
    );
    suite.on(&[Runtime::of_root(Kind::Runc)], "faults", tests![an_install_that_fails_leaves_the_store_right]);
}

/// What the kernel refuses to a pull, with which error, and one place where it does so with every change.
const OF_PULLS: [(&str, &str, usize); 5] = [
    ("open,openat", "EMFILE", 30),
    ("mkdir,mkdirat", "ENOSPC", 3),
    ("rename,renameat,renameat2", "ENOSPC", 1),
    ("fsync,fdatasync", "EIO", 1),
    ("connect", "ECONNREFUSED", 1),
];

/// The same for packages, whose files are the installer's: it is no part of this program.
const OF_INSTALLS: [(&str, &str, usize); 4] = [
    ("open,openat", "EMFILE", 20),
    ("mkdir,mkdirat", "ENOSPC", 2),
    ("rename,renameat,renameat2", "ENOSPC", 1),
    ("flock", "ENOLCK", 1),
];

/// It worked, or says what did not.
fn assert_said(output: &Output, story: &dyn fmt::Display) {
    let is_said = output.code() == Some(0) || output.stderr.contains("error");
    assert!(is_said && !output.stderr.contains("panicked"), "{story}: {output}");
    assert!(output.elapsed < SOON, "{story}: {output}");
}

/// A small image of a registry, and how it looks when it is whole.
struct Pull<'a> {
    env: &'a TestEnv,
    image: String,
    id: String,
    files: Vec<String>,
    _registry: Registry,
}

impl<'a> Pull<'a> {
    fn new(env: &'a TestEnv) -> Self {
        let registry = Registry::start(env);
        let image = format!("{}/small:1", registry.host);
        let id = run(env, &["image", "pull", &image]).ok();
        let files = listing(&roots(env)[0].join("rootfs"));
        Self { env, image, id, files, _registry: registry }
    }

    fn command(&self) -> Prepared {
        codebridge(self.env, &["image", "pull", &self.image])
    }

    /// Whatever is listed is whole, and the next pull works.
    fn works_after(&self, failed: &Output, story: &dyn fmt::Display) {
        assert_said(failed, story);
        let listed: Value = serde_json::from_str(&run(self.env, &["image", "ls", "--json"]).ok()).unwrap();
        assert!(listed["images"].as_array().unwrap().len() <= 1, "{story}: {listed}");
        self.is_whole(story);
        assert_eq!(self.command().run(self.env.guard()).ok(), self.id, "{story}");
        assert_eq!(roots(self.env).len(), 1, "{story}: {:?}", roots(self.env));
        self.is_whole(story);
    }

    fn is_whole(&self, story: &dyn fmt::Display) {
        let is_place = |root: &&Path| !root.file_name().unwrap().as_encoded_bytes().starts_with(b".");
        for root in roots(self.env).iter().map(PathBuf::as_path).filter(is_place) {
            assert!(listing(&root.join("rootfs")) == self.files, "{story}: half an image");
        }
    }
}

fn a_pull_that_fails_leaves_the_store_right(env: &TestEnv) {
    let pull = Pull::new(env);
    let tried = at_each_place(&OF_PULLS, |refusal| {
        let _ = run(env, &["image", "prune", "--all"]).ok();
        let failed = pull.command().behind(refusal.tracer(env)).run(env.guard());
        pull.works_after(&failed, &refusal);
        Refusal::count(env)
    });
    if more().is_some() {
        eprintln!("calls of the system that fail during a pull, {tried} times");
    }
}

fn a_pull_on_a_disk_that_becomes_full_leaves_the_store_right(env: &TestEnv) {
    let pull = Pull::new(env);
    let sizes: Vec<usize> =
        if more().is_some() { (1..FULL).step_by(20).collect() } else { vec![3, FULL / 2] };
    for pages in sizes {
        let disk = Mounted::of_size(env, store_of(env), pages * PAGE);
        let failed = pull.command().run(env.guard());
        assert!(failed.stderr.contains("No space left on device"), "{pages} pages: {failed}");
        disk.remount("size=64m");
        pull.works_after(&failed, &format!("{pages} pages"));
    }
}

/// Pages that the small image does not fit in.
const FULL: usize = 600;

fn an_install_that_fails_leaves_the_store_right(env: &TestEnv) {
    let wheels = wheels(env);
    let packages = |words: &[&str]| {
        let builder = env.bridge().with_wheels(&wheels).without("MCP_BRIDGE_LOG_LEVEL");
        builder.args(&["packages"]).args(words).command()
    };
    let run = |words: &[&str]| packages(words).run(env.guard()).ok();
    let tried = at_each_place(&OF_INSTALLS, |refusal| {
        let _ = run(&["prune", "--all"]);
        let failed = packages(&["add", "plain"]).behind(refusal.tracer(env)).run(env.guard());
        assert_said(&failed, &refusal);
        assert_eq!(run(&["add", "plain"]), "plain 2.0\n", "{refusal}");
        let listed: Value = serde_json::from_str(&run(&["ls", "--json"])).unwrap();
        assert_eq!(listed.as_array().unwrap().len(), 1, "{refusal}: {listed}");
        let set = listed[0]["id"].as_str().unwrap();
        let file = env.home().join(".cache/codebridge/packages/sets").join(set).join("files/plain.py");
        assert_eq!(fs::read_to_string(file).unwrap(), "value = 2\n", "{refusal}");
        Refusal::count(env)
    });
    if more().is_some() {
        eprintln!("calls of the system that fail during an installation, {tried} times");
    }
}

/// A provider takes a refresh token once: the next one has to be kept, or the old one must not be used.
fn a_full_disk_loses_no_login_and_no_accepted_tools(env: &TestEnv) {
    let disk = Mounted::new(env, env.folder("home/MCPs"));
    env.write("home/MCPs/policy.toml", "[[rule]]\neffect = 'allow'\n");
    let place = Place::new(env, &json!({ "oauth": { "scopes": ["openid", "read"] } }));
    define(env, &json!({ "fake": fake(env, &["--few"]) }));
    let echo = || place.run(&["call", "fake.echo", r#"{"a": 1}"#]).code();
    place.log_in();
    assert_eq!((place.call("web.whoami").as_str(), echo()), ("alice", Some(0)));
    place.change_login(|login| login["renew_at"] = json!("2020-01-01T00:00:00Z"));
    define(env, &json!({ "fake": fake(env, &["--few", "--described", "Says it."]) }));
    assert_eq!(echo(), Some(77), "the tool has changed");
    disk.fill();
    let kept = place.login();
    for words in [&["call", "web.whoami"][..], &["policy", "accept", "fake", "--yes"]] {
        let refused = place.run(words);
        assert!(refused.code() != Some(0) && refused.stderr.contains("No space left on device"), "{refused}");
    }
    assert_eq!((place.login(), echo()), (kept, Some(77)), "nothing has changed");
    disk.free();
    assert_eq!(place.call("web.whoami"), "alice");
    assert_eq!(place.seen("POST /token 200 grant_type=refresh_token"), 1);
    assert_eq!(place.run(&["policy", "accept", "fake", "--yes"]).code(), Some(0));
    assert_eq!(echo(), Some(0));
}
