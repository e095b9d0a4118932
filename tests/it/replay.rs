//! Runs of the audit log, run again.

use std::fs;

use serde_json::{Value, json};

use crate::audit::{TRY, files, is_in_order, lines, of, run};
use crate::harness::matrix::Kind;
use crate::harness::process::Output;
use crate::harness::{Runtime, Suite, TestEnv};
use crate::server_access::{define, fake};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "replay",
        tests![a_replay_gives_the_same_output_without_the_servers, a_replay_shows_what_differs],
    );
}

fn replay(env: &TestEnv, run: &str) -> Output {
    env.bridge().args(&["replay", run]).command().run(env.guard())
}

/// The names of the runs, in their order.
fn runs(env: &TestEnv) -> Vec<String> {
    of(&lines(env), "run").iter().filter_map(|run| Some(run["run"].as_str()?.to_owned())).collect()
}

fn a_replay_gives_the_same_output_without_the_servers(env: &TestEnv) {
    let started = env.folder("here").join("started");
    let counted = ["--few", "--starts", started.to_str().unwrap()];
    define(
        env,
        &json!({ "my-fake": fake(env, &counted), "other": fake(env, &["--few", "--named", "pay-now"]) }),
    );
    env.write(
        "home/MCPs/policy.toml",
        "[[rule]]\narguments.'/n' = { equals = 7 }\neffect = 'deny'\n[[rule]]\neffect = 'allow'\n",
    );
    let bridge = env.bridge().var("MCP_BRIDGE_AUDIT", "full").start();
    let call = |code: &str| {
        let outcome = bridge.call(json!({ "code": code, "servers": ["my-fake", "other"] }));
        assert!(!outcome.text.contains("status"), "{outcome}");
    };
    call("x = await mcp_my_fake.echo(a=[1, 2.50, 'ü'], b={'c': None})\nx");
    let code = format!(
        "{TRY}
import asyncio, sys
print(await mcp_other.pay_now(x=x['a'][1]), file=sys.stderr)
print(await asyncio.gather(*(mcp_my_fake.echo(n=n) for n in range(10))))
print(await attempt(lambda: mcp_my_fake.echo(n=7)))
print(await attempt(lambda: runtime.call_tool('nope', 'x', {{}})))
print(len(str(await mcp_other.echo(text='y' * 50_000))))
",
    );
    call(&code.replace("range(10)", "range(5)"));
    bridge.close();
    let starts = fs::read(&started).unwrap();
    // Neither the servers nor the policy are needed.
    fs::remove_file(env.home().join("MCPs/all.json")).unwrap();
    fs::remove_file(env.home().join("MCPs/policy.toml")).unwrap();
    let runs = runs(env);
    let same = replay(env, &runs[1]);
    assert!(same.code() == Some(0), "{same}");
    assert_eq!(same.stdout, format!("{}: the same\n{}: the same\n", runs[0], runs[1]), "{same}");
    assert_eq!(fs::read(&started).unwrap(), starts, "no server is started");
    let json = env.bridge().args(&["replay", "--json", &runs[0]]).command().run(env.guard()).ok();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["same"], json["runs"].as_array().unwrap().len()), (&json!(true), 1), "{json}");
    // It is a run of code, and recorded as one.
    let lines = lines(env);
    let again = lines.iter().filter(|line| line["event"] == "run" && line["client"] == "codebridge replay");
    assert_eq!(again.count(), 3);
    is_in_order(env);
}

fn a_replay_shows_what_differs(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &["--few"]) }));
    let bridge = env.bridge().var("MCP_BRIDGE_AUDIT", "full").start();
    let _ =
        run(&bridge, "import os\nprint('one\\ntwo')\nprint(os.urandom(8).hex())\nn = os.urandom(4).hex()");
    let _ = run(&bridge, "await mcp_fake.echo(n=n)");
    bridge.close();
    let runs = runs(env);
    let differs = replay(env, &runs[0]);
    assert_eq!(differs.code(), Some(1), "{differs}");
    for line in ["it differs", "  --- stdout, recorded", "   two", "  -", "  +"] {
        assert!(differs.stdout.contains(line), "{line}: {differs}");
    }
    let other = replay(env, &runs[1]);
    assert_eq!(other.code(), Some(1), "{other}");
    for line in
        ["the call of fake.echo was not made", "the call of fake.echo was not recorded", "outcome: it was ok"]
    {
        assert!(other.stdout.contains(line), "{line}: {other}");
    }
    for (run, said) in [("00000000-1", "run 00000000-1 is not in the audit log"), ("x", "'x' is no run")] {
        let unknown = replay(env, run);
        assert!(unknown.code() == Some(2) && unknown.stderr.contains(said), "{unknown}");
    }
    let plain = env.bridge().start();
    assert_eq!(plain.run("1").ok(), "1");
    plain.close();
    let mut names = self::runs(env);
    names.retain(|name| !runs.contains(name));
    let not_full = names.iter().map(|name| replay(env, name)).find(|output| output.code() == Some(2));
    assert!(not_full.unwrap().stderr.contains("was not recorded in full"));
    // A lost text is said, and nothing runs.
    let file = files(env).into_iter().find(|file| file.with_extension("blobs").exists());
    assert!(file.is_some());
    fs::remove_dir_all(file.unwrap().with_extension("blobs")).unwrap();
    let lost = replay(env, &runs[1]);
    assert!(lost.code() == Some(2) && lost.stderr.contains("is lost: it is missing"), "{lost}");
}
