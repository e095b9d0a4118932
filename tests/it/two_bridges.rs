//! Two bridges of one user at the same time: neither breaks nor removes what the other uses.

use std::thread;

use crate::harness::process::Output;
use crate::harness::registry::{ImageFiles, store_of};
use crate::harness::{Bridge, Kind, Runtime, Suite, TestEnv};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.on(
        &[Runtime::of_root(Kind::Runc), Runtime::of_user(Kind::Runc)],
        "two_bridges",
        tests![functions_that_both_save_at_once_stay_whole, images_are_pulled_removed_and_used_at_once,],
    );
}

fn functions_that_both_save_at_once_stay_whole(env: &TestEnv) {
    let bridges = [env.bridge().start(), env.bridge().start()];
    let saves = |bridge: &Bridge<'_>, version: &str| {
        let code = format!("VERSION = '{version}'\n{}", python!("saved_tools", "save_again_and_again"));
        let _ = bridge.run(&code).expect("success");
    };
    let check = python!("saved_tools", "all_are_whole");
    thread::scope(|scope| {
        let saving = [("a", &bridges[0]), ("b", &bridges[1])];
        let saving = saving.map(|(version, bridge)| scope.spawn(move || saves(bridge, version)));
        while !saving.iter().all(thread::ScopedJoinHandle::is_finished) {
            // Each time in a session that loads them afresh.
            let reader = env.bridge().start();
            let outcome = reader.run(check).expect("success");
            let notices = outcome.notices();
            assert!(notices.is_empty() || notices.starts_with("saved functions: "), "{outcome}");
            reader.close();
        }
    });
    let later = env.bridge().start();
    assert!(later.run(check).expect("success").text.ends_with('3'));
    later.close();
    for bridge in bridges {
        bridge.close();
    }
}

/// A command of another process, with the image store of the test.
fn command(env: &TestEnv, words: &[&str]) -> Output {
    let builder = env.bridge().var("XDG_DATA_HOME", store_of(env)).args(words);
    builder.command().run(env.guard())
}

fn images_are_pulled_removed_and_used_at_once(env: &TestEnv) {
    const ROUNDS: usize = 6;
    let image = ImageFiles::get(env).layout();
    let living = env.bridge().start();
    let _ = living.run("x = 'alive'").expect("success");
    let again = |words: &[&str]| {
        for _ in 0..ROUNDS {
            let output = command(env, words);
            assert!(!output.stderr.contains("/.") && !output.stderr.contains("No such file"), "{output}");
            // What another test left on an engine elsewhere may be out of reach by now.
            let is_elsewhere =
                ["--connection ", "--context "].iter().any(|flag| output.stderr.contains(flag));
            assert!(output.code() == Some(0) || (words == ["reap"] && is_elsewhere), "{output}");
        }
    };
    let pull = ["image", "pull", image.as_str()];
    let exec = ["--image", image.as_str(), "exec", "-c", "import json; 6 * 7"];
    let (again, prune) = (&again, ["image", "prune", "--all"]);
    thread::scope(|scope| {
        for words in [&pull[..], &pull, &prune, &["reap"], &exec] {
            scope.spawn(move || again(words));
        }
    });
    assert_eq!(living.run("x").ok(), "'alive'");
    living.close();
}
