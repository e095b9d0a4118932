//! Code in the background: it goes on while nobody waits for it, and looks show what is new.

use std::time::Duration;

use serde_json::{Value, json};

use crate::console::{Browser, News};
use crate::harness::bridge::Bridge;
use crate::harness::matrix::Kind;
use crate::harness::outcome::Outcome;
use crate::harness::{Runtime, Suite, TestEnv, eventually};
use crate::installs::WithUv;
use crate::policy::{choose, with_forms, write_policy};
use crate::server_access::{define, fake};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime("background", tests![a_run_goes_on_without_its_call_and_is_looked_at_by_its_number]);
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "background",
        tests![
            a_short_run_is_answered_at_once,
            a_busy_session_names_its_run_and_others_take_calls,
            when_all_sessions_run_in_the_background_calls_say_so,
            a_stopped_run_keeps_its_variables,
            pictures_end_a_look_and_are_shown_once,
            progress_bars_are_one_line,
            bars_of_tqdm_and_rich_are_progress_and_one_line_each,
            new_progress_ends_a_look,
            a_client_that_comes_back_over_http_finds_its_run,
            a_cancelled_look_loses_nothing,
            a_question_waits_for_a_look,
            a_run_may_take_longer_than_a_call,
            wrong_numbers_and_arguments_are_refused,
            what_a_run_printed_is_kept_when_its_bridge_ends,
            a_look_shows_what_threads_printed_before_the_run,
        ],
    );
}

/// Waits until somebody writes the file `/workspace/go`, which other sessions cannot; here the run's own thread does not need it.
const WAIT: &str = "
import os, time
print('begun', flush=True)
while not os.path.exists('/workspace/go'):
    time.sleep(0.02)
print('done')
";

fn start(bridge: &Bridge<'_>, session: &str, code: &str) -> Outcome {
    bridge.call(json!({ "code": code, "session": session, "background": true }))
}

fn look(bridge: &Bridge<'_>, run: u64, timeout: u64) -> Outcome {
    bridge.call(json!({ "run": run, "timeout": timeout }))
}

fn stop(bridge: &Bridge<'_>, run: u64) -> Outcome {
    bridge.call(json!({ "run": run, "stop": true }))
}

/// The number of a run that goes on.
fn number(outcome: &Outcome) -> u64 {
    assert!(outcome.text.starts_with("run "), "{outcome}");
    outcome.structured["runId"].as_u64().unwrap()
}

/// The addresses of what a look shows.
fn displays(outcome: &Outcome) -> Vec<String> {
    let displays = outcome.structured["displays"].as_array().cloned().unwrap_or_default();
    displays.iter().map(|display| display["uri"].as_str().unwrap().to_owned()).collect()
}

fn a_run_goes_on_without_its_call_and_is_looked_at_by_its_number(env: &TestEnv) {
    let bridge = env.bridge().start();
    let code = "import time\nfor n in range(4):\n    print('line', n, flush=True)\n    time.sleep(0.7)\nn";
    let begun = start(&bridge, "main", code);
    let run = number(&begun);
    assert!(begun.text.contains("is running in session main"), "{begun}");
    assert_eq!(begun.status(), "running");
    let mut text = begun.text.clone();
    let last = loop {
        let seen = look(&bridge, run, 2);
        text.push('\n');
        text.push_str(&seen.text);
        if seen.status() != "running" {
            break seen;
        }
    };
    assert_eq!(last.status(), "success", "{last}");
    for n in 0..4 {
        assert_eq!(text.matches(&format!("line {n}")).count(), 1, "each line once: {text}");
    }
    assert!(text.trim_end().ends_with('3'), "the value of the last expression: {text}");
    assert_eq!(bridge.run("n").ok(), "3", "the session is free again, with its variables");
    bridge.close();
}

fn a_short_run_is_answered_at_once(env: &TestEnv) {
    let bridge = env.bridge().start();
    assert_eq!(start(&bridge, "main", "1 + 1").ok(), "2");
    let failed = start(&bridge, "main", "1 / 0").expect("error");
    assert!(failed.error().contains("ZeroDivisionError"), "{failed}");
    assert_eq!(start(&bridge, "new", "'alone'").ok(), "'alone'");
    bridge.close();
}

fn a_busy_session_names_its_run_and_others_take_calls(env: &TestEnv) {
    let bridge = env.bridge().start();
    let run = number(&start(&bridge, "main", WAIT));
    let busy = bridge.run("1");
    assert!(busy.text.contains(&format!("session 'main' is busy: run {run} is running")), "{busy}");
    assert!(busy.text.contains(&format!("run_python(run={run}) waits for it")), "{busy}");
    let again = start(&bridge, "main", "1");
    assert!(again.text.contains("is busy"), "{again}");
    let runs = bridge
        .call(json!({ "code": "(await runtime.runs(), runtime.runs()[0]['run'])", "session": "other" }))
        .ok();
    assert!(runs.contains("'session': 'main'") && runs.contains("'status': 'running'"), "{runs}");
    let stopped = stop(&bridge, run);
    assert_eq!(stopped.status(), "cancelled", "{stopped}");
    assert_eq!(bridge.run("1").ok(), "1");
    bridge.close();
}

fn when_all_sessions_run_in_the_background_calls_say_so(env: &TestEnv) {
    let bridge = env.bridge().var("MCP_BRIDGE_MAX_SESSIONS", "1").start();
    let run = number(&start(&bridge, "main", WAIT));
    for refused in [bridge.call(json!({ "code": "1", "session": "other" })), start(&bridge, "other", "1")] {
        assert!(
            refused.text.contains(&format!("the only session is busy with runs in the background ({run})")),
            "{refused}"
        );
    }
    // A look that waits does not hold back one that stops.
    let pending = bridge.start_call(json!({ "run": run, "timeout": 100 }));
    assert!(["cancelled", "success"].contains(&stop(&bridge, run).status()));
    let _ = pending.outcome();
    assert_eq!(bridge.call(json!({ "code": "1", "session": "other" })).ok(), "1");
    bridge.close();
}

fn a_stopped_run_keeps_its_variables(env: &TestEnv) {
    let bridge = env.bridge().start();
    let run = number(&start(&bridge, "main", &format!("x = 42{WAIT}")));
    let stopped = stop(&bridge, run);
    assert!(stopped.error().contains("variables are kept"), "{stopped}");
    assert_eq!(bridge.run("x").ok(), "42");
    let again = look(&bridge, run, 1);
    assert!(again.text.contains("was shown already"), "{again}");
    bridge.close();
}

fn pictures_end_a_look_and_are_shown_once(env: &TestEnv) {
    let bridge = env.bridge().start();
    let picture = "
import base64, time
class Picture:
    def _repr_png_(self):
        return base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==')
time.sleep(1.5)
display(Picture())
";
    let run = number(&start(&bridge, "main", &format!("{picture}{WAIT}")));
    let shown = look(&bridge, run, 60);
    assert_eq!(shown.status(), "running", "{shown}");
    assert_eq!(displays(&shown), [format!("codebridge://runs/{run}/display/1")], "{shown}");
    let last = stop(&bridge, run);
    assert!(displays(&last).is_empty(), "{last}");
    bridge.close();
}

fn progress_bars_are_one_line(env: &TestEnv) {
    let bridge = env.bridge().start();
    let code = "
import sys
for n in range(101):
    sys.stderr.write('\\r%3d%%|%s|' % (n, '#' * (n // 10)))
sys.stderr.write('\\n')
runtime.progress(3, 10, 'files')
await runtime.progress(4.5)
";
    let outcome = bridge.run(code);
    assert_eq!(outcome.stderr(), "100%|##########|", "{outcome}");
    for wrong in
        ["runtime.progress('x')", "runtime.progress(float('nan'))", "runtime.progress(1, float('inf'))"]
    {
        assert!(bridge.run(wrong).expect("error").error().contains("must be a"), "{wrong}");
    }
    let run = number(&start(&bridge, "main", &format!("runtime.progress(3, 10, 'fi\\nles'){WAIT}")));
    let seen = look(&bridge, run, 1);
    assert!(seen.text.contains(": 3/10 fi\u{fffd}les"), "{seen}");
    let _ = stop(&bridge, run);
    bridge.close();
}

/// What `codebridge runs --json` lists of a user of a bridge that listens.
fn listed(env: &TestEnv, user: &str) -> Vec<Value> {
    let folder = env.home().join("MCPs/principals").join(user);
    let list = env.bridge().var("MCP_BRIDGE_STATE_DIR", folder).args(&["runs", "--json"]);
    serde_json::from_str(&list.command().run(env.guard()).ok()).unwrap()
}

/// Code with bars named `ready`, and how many lines stay of them.
const BARS: [(&str, &str, usize); 4] = [
    ("tqdm", python!("bars", "tqdm"), 1),
    ("nested", python!("bars", "tqdm_in_tqdm"), 1),
    ("rich", python!("bars", "rich"), 1),
    ("terminal", python!("bars", "rich_for_a_terminal"), 4),
];

fn bars_of_tqdm_and_rich_are_progress_and_one_line_each(env: &TestEnv) {
    let token = env.token(&["alice", "--scope", "mcp,console"]);
    let http = env.bridge().online().var("MCP_BRIDGE_WITH", "tqdm,rich").listen();
    let (alice, browser) = (http.client(&token), Browser::signed_in(&http, &token));
    let steps = python!("bars", "steps");
    for (session, bars, lines) in BARS {
        let arguments = json!({ "code": format!("{steps}\n{bars}"), "session": session });
        let params =
            json!({ "name": "run_python", "arguments": arguments, "_meta": { "progressToken": session } });
        let mut messages = alice.request("tools/call", params);
        let outcome = Outcome::parse(&messages.pop().unwrap()["result"], Duration::ZERO).expect("success");
        let printed = format!("{}\n{}", outcome.stdout(), outcome.stderr());
        let printed: Vec<&str> = printed.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(printed.len(), lines, "{session}: {printed:?}");
        assert!(printed.iter().any(|line| line.contains("ready") && line.contains("100%")), "{printed:?}");
        let texts = messages.iter().filter_map(|message| message["params"]["message"].as_str());
        let bars: Vec<&str> = texts.filter(|text| text.contains("ready")).collect();
        assert!(!bars.is_empty(), "{session}: {messages:?}");
        assert!(!bars.iter().any(|text| text.contains(['\x1b', '\u{fffd}', '\r'])), "{session}: {bars:?}");
    }
    let runs = BARS.map(|(session, bars, _)| {
        let code = format!("stands_still = True\n{steps}\n{bars}");
        number(&alice.call(json!({ "code": code, "session": session, "background": true })))
    });
    for (run, (session, ..)) in runs.iter().zip(BARS) {
        let seen = alice.call(json!({ "run": run, "timeout": 1 }));
        let now = seen.text.lines().next().unwrap();
        assert!(now.contains("ready") && (now.contains("4/8") || now.contains(" 50%")), "{session}: {seen}");
        assert!(seen.status() == "running" && seen.stderr().is_empty(), "{session}: {seen}");
        assert!(!seen.stdout().contains("ready"), "{session}: {seen}");
    }
    let listed = listed(env, "alice");
    let progress: Vec<&str> = listed.iter().filter_map(|run| run["progress"].as_str()).collect();
    assert_eq!(
        progress.iter().filter(|progress| progress.contains("ready")).count(),
        runs.len(),
        "{listed:?}"
    );
    let code = "[run['progress'] for run in runtime.runs() if 'ready' in str(run['progress'])]";
    assert_eq!(alice.call(json!({ "code": code, "session": "other" })).ok().matches("ready").count(), 4);
    let mut news = News::open(&browser, "page=now");
    assert!(news.wait_for("ready:  50%") && news.wait_for("4/8 ready"), "{}", news.text);
    for run in runs {
        assert_eq!(alice.call(json!({ "run": run, "stop": true })).status(), "cancelled");
    }
}

fn new_progress_ends_a_look(env: &TestEnv) {
    let bridge = env.bridge().start();
    let code = "import time\nfor n in range(600):\n    runtime.progress(n, 600)\n    time.sleep(0.5)";
    let run = number(&start(&bridge, "main", code));
    let step = |seen: &Outcome| -> u32 {
        assert_eq!(seen.status(), "running", "{seen}");
        let (_, progress) = seen.text.lines().next().unwrap().split_once(" s: ").unwrap();
        progress.strip_suffix("/600").unwrap().parse().unwrap()
    };
    let first = look(&bridge, run, 60).within(Duration::from_secs(30));
    let second = look(&bridge, run, 60).within(Duration::from_secs(30));
    assert!(first.elapsed >= Duration::from_secs(4), "progress ends a look at once: {first}");
    assert!(step(&second) > step(&first), "{first}\n{second}");
    let _ = stop(&bridge, run);
    bridge.close();
}

fn a_client_that_comes_back_over_http_finds_its_run(env: &TestEnv) {
    let (token, other) = (env.token(&["alice"]), env.token(&["bob"]));
    let http = env.bridge().listen();
    let before = http.client(&token);
    let run = number(&before.call(json!({ "code": format!("x = 1{WAIT}"), "background": true })));
    let bearer = format!("Bearer {token}");
    let session = before.session.lock().unwrap().clone().unwrap();
    let headers = [("Authorization", bearer.as_str()), ("Mcp-Session-Id", &session)];
    assert!(http.send("DELETE", "/mcp", &headers, "").status < 300);
    let after = http.client(&token);
    let runs = "[(run['run'], run['session'], run['status']) for run in runtime.runs()]";
    let found = after.call(json!({ "code": runs, "session": "other" })).ok();
    assert_eq!(found, format!("[({run}, 'main', 'running')]"));
    let listed_run = &listed(env, "alice")[0];
    assert!(listed_run["run"].as_str().unwrap().ends_with(&format!("-{run}")), "{listed_run}");
    assert_eq!(listed_run["status"], "running");
    let seen = after.call(json!({ "run": run, "timeout": 1 }));
    assert!(seen.text.starts_with(&format!("run {run} is running in session main")), "{seen}");
    assert_eq!(after.call(json!({ "run": run, "stop": true })).status(), "cancelled");
    assert_eq!(after.run("x").ok(), "1");
    let of_bob = http.client(&other).call(json!({ "run": run }));
    assert!(of_bob.text.contains("there is no run"), "{of_bob}");
}

fn a_cancelled_look_loses_nothing(env: &TestEnv) {
    let bridge = env.bridge().start();
    let code = "import time\ntime.sleep(1.5)\nprint('later')\ntime.sleep(0.5)";
    let run = number(&start(&bridge, "main", code));
    let pending = bridge.start_call(json!({ "run": run, "timeout": 60 }));
    pending.0.cancel();
    assert_eq!(look(&bridge, run, 60).ok(), "later");
    bridge.close();
}

fn a_question_waits_for_a_look(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &["--few"]) }));
    write_policy(env, "[[rule]]\neffect = 'ask'\n");
    let bridge = with_forms(env);
    let code = "import time\ntime.sleep(1.5)\nawait mcp_fake.echo(a=1)";
    let begun = bridge.call(json!({ "code": code, "servers": ["fake"], "background": true }));
    let run = number(&begun);
    let list = |bridge: &Bridge<'_>| bridge.call(json!({ "run": run, "timeout": 1 }));
    // Nobody is asked before somebody looks.
    let pending = bridge.start_call(json!({ "run": run, "timeout": 60 }));
    let asked = choose(env, &bridge, 0, 1);
    assert!(asked.contains("tool: fake.echo"), "{asked}");
    assert_eq!(pending.outcome().ok(), "{'a': 1}");
    assert!(list(&bridge).text.contains("was shown already"));
    bridge.close();
}

fn a_run_may_take_longer_than_a_call(env: &TestEnv) {
    let bridge = env.bridge().var("MCP_BRIDGE_MAX_TIMEOUT", "1").var("MCP_BRIDGE_TIMEOUT", "1").start();
    let begun = start(&bridge, "main", "import time\ntime.sleep(2.5)\nprint('late')");
    let run = number(&begun);
    let ended = eventually("the run ends", env.guard().left(), || {
        Some(look(&bridge, run, 1)).filter(|seen| seen.status() != "running")
    });
    assert_eq!(ended.ok(), "late");
    let short = bridge.call(json!({ "code": WAIT, "background": true, "timeout": 2 }));
    let run = number(&short);
    let ended = eventually("the run ends", env.guard().left(), || {
        Some(look(&bridge, run, 1)).filter(|seen| seen.status() != "running")
    });
    assert_eq!(ended.status(), "timeout", "{ended}");
    assert!(ended.error().contains("stopped after 2 s"), "{ended}");
    bridge.close();
}

fn wrong_numbers_and_arguments_are_refused(env: &TestEnv) {
    let bridge = env.bridge().start();
    for (call, why) in [
        (json!({ "run": 99 }), "there is no run 99 in the background"),
        (json!({ "run": 1, "code": "1" }), "leave 'code' out"),
        (json!({ "stop": true }), "'stop' needs 'run'"),
        (json!({ "run": "x" }), "'run' must be the number"),
    ] {
        let refused = bridge.call(call.clone());
        assert_eq!(refused.status(), "validation_error", "{call}: {refused}");
        assert!(refused.text.contains(why), "{call}: {refused}");
    }
    bridge.close();
}

fn what_a_run_printed_is_kept_when_its_bridge_ends(env: &TestEnv) {
    let listed = || -> Vec<Value> {
        let text = env.bridge().args(&["runs", "--json"]).command().run(env.guard()).ok();
        serde_json::from_str(&text).unwrap()
    };
    assert!(listed().is_empty());
    let bridge = env.bridge().start();
    let run =
        number(&start(&bridge, "main", &format!("print('\\x1b[2Jkept')\nruntime.progress(1, 2){WAIT}")));
    let running = listed();
    assert_eq!((&running[0]["status"], &running[0]["session"]), (&json!("running"), &json!("main")));
    let name = running[0]["run"].as_str().unwrap().to_owned();
    assert!(name.ends_with(&format!("-{run}")), "{name}");
    bridge.close();
    let audit = env.bridge().args(&["audit", "--json"]).command().run(env.guard()).ok();
    let lines = audit.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let logged: Vec<Value> = lines.filter(|line| line["event"] == "run" && line["run"] == *name).collect();
    assert_eq!((logged.len(), &logged[0]["outcome"]), (1, &json!("cancelled")), "{audit}");
    let ended = listed();
    assert!(["cancelled", "lost"].contains(&ended[0]["status"].as_str().unwrap()), "{ended:?}");
    let shown = env.bridge().args(&["runs", &name]).command().run(env.guard()).ok();
    assert!(shown.contains("kept\nbegun\n") && !shown.contains('\x1b'), "{shown}");
    let unknown = env.bridge().args(&["runs", "nope"]).command().run(env.guard());
    assert!(unknown.code() == Some(2) && unknown.stderr.contains("there is no run 'nope'"), "{unknown}");
}

fn a_look_shows_what_threads_printed_before_the_run(env: &TestEnv) {
    let bridge = env.bridge().start();
    let thread = "
import threading, time
def later():
    while not os.path.exists('/tmp/idle'):
        time.sleep(0.02)
    print('between', flush=True)
    open('/workspace/printed', 'w').close()
import os
threading.Thread(target=later).start()
import subprocess
_ = subprocess.Popen(['sh', '-c', 'sleep 0.5; touch /tmp/idle'])
";
    let _ = bridge.run(thread).ok();
    eventually("the thread has printed", env.guard().left(), || {
        let (answer, _) = bridge
            .request("resources/read", json!({ "uri": "codebridge://sessions/main/files/printed" }))
            .answer();
        answer.get("result").map(drop)
    });
    let begun = start(&bridge, "main", WAIT);
    let run = number(&begun);
    let seen = format!("{}\n{}", begun.text, look(&bridge, run, 1).text);
    assert!(seen.contains("between") && seen.contains("begun"), "{seen}");
    let _ = stop(&bridge, run);
    bridge.close();
}
