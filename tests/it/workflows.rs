//! Workflows: what has reported its end is not done again, whatever ended the run before.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::process::{Output, Running, Transcript, collect};
use crate::harness::{Kind, Runtime, Suite, TestEnv, eventually};
use crate::policy::write_policy;
use crate::server_access::define;
use crate::{python, tests};

const LEDGER: &str = include_str!("fakes/ledger.py");
/// A bound for hangs.
const LIMIT: Duration = Duration::from_secs(120);
/// How often the bridge is killed; `tests/kills` does it more often.
const KILLS: usize = 20;

pub(crate) fn register(suite: &mut Suite) {
    suite.each_runtime("workflows", tests![a_workflow_continues_after_its_last_finished_step]);
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "workflows",
        tests![
            a_killed_workflow_repeats_no_finished_step,
            what_ends_a_run_is_said_with_the_command_to_continue,
            a_refused_call_is_made_when_it_is_allowed,
            of_two_that_resume_one_wins_and_cancelling_ends_it_for_good,
            a_step_that_is_called_otherwise_is_refused,
            broken_journals_and_wrong_commands_are_refused,
            the_thousandth_step_takes_as_long_as_the_first,
            a_workflow_has_the_flags_of_exec,
        ],
    );
    suite.on(&[Runtime::of_root(Kind::Crun)], "workflows", tests![a_full_disk_stops_a_workflow]);
}

fn ledger(env: &TestEnv) -> PathBuf {
    env.home().join("ledger")
}

/// The lines that servers were asked to write.
fn written(env: &TestEnv) -> Vec<String> {
    let text = fs::read_to_string(ledger(env)).unwrap_or_default();
    text.lines().map(String::from).collect()
}

fn define_ledger(env: &TestEnv) {
    let program = env.write("home/ledger.py", LEDGER);
    let server = json!({ "command": "python3", "args": [program, ledger(env)] });
    define(env, &json!({ "ledger": server }));
}

fn workflow(env: &TestEnv, words: &[&str]) -> Output {
    let builder = env.bridge().without("MCP_BRIDGE_LOG_LEVEL").args(&["workflow"]).args(words);
    builder.command().run(env.guard())
}

/// Runs a file with the ledger.
fn run(env: &TestEnv, file: &Path, words: &[&str]) -> Output {
    workflow(env, &[&["run", file.to_str().unwrap(), "--server", "ledger"], words].concat())
}

struct Started {
    running: Running,
    /// What it has printed.
    stdout: Transcript,
    printed: JoinHandle<Vec<u8>>,
    said: JoinHandle<Vec<u8>>,
}

impl Started {
    fn wait_until_it_waits(&self) {
        eventually("it waits", LIMIT, || self.stdout.text().contains("waiting").then_some(()));
    }

    /// All of its standard error, after its end.
    fn said(self) -> String {
        String::from_utf8(self.said.join().unwrap()).unwrap()
    }
}

fn start(env: &TestEnv, file: &Path, words: &[&str]) -> Started {
    let file = file.to_str().unwrap();
    let builder = env.bridge().args(&["workflow", "run", file, "--server", "ledger"]).args(words);
    let mut running = builder.command().spawn(env.guard(), Stdio::null(), Stdio::piped(), Stdio::piped());
    let said = collect(running.child.stderr.take().unwrap(), running.transcript.clone());
    let stdout = Transcript::default();
    let printed = collect(running.child.stdout.take().unwrap(), stdout.clone());
    Started { running, stdout, printed, said }
}

fn ids(env: &TestEnv) -> Vec<String> {
    let listed = workflow(env, &["ls", "--json"]).ok();
    let list: Value = serde_json::from_str(&listed).unwrap();
    list.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

fn the_id(env: &TestEnv) -> String {
    let ids = ids(env);
    assert_eq!(ids.len(), 1, "{ids:?}");
    ids[0].clone()
}

fn show(env: &TestEnv, id: &str) -> Value {
    serde_json::from_str(&workflow(env, &["show", id, "--json"]).ok()).unwrap()
}

fn journal(env: &TestEnv, id: &str) -> PathBuf {
    env.home().join(format!("MCPs/workflows/{id}.journal"))
}

fn a_workflow_continues_after_its_last_finished_step(env: &TestEnv) {
    define_ledger(env);
    let code = python!("workflows", "writes_three");
    let file = env.write("home/three.py", code);
    let failed = run(env, &file, &["a b", "--", "-x"]);
    assert_eq!(failed.code(), Some(1), "{failed}");
    assert!(failed.stdout.starts_with("['a b', '-x']\nwritten: first\nreported first\n"), "{failed}");
    assert_eq!(written(env), ["first", "second"]);
    let id = the_id(env);
    let command =
        format!("codebridge workflow run --resume {id} {} --server ledger 'a b' -- -x", file.display());
    assert!(failed.stderr.contains(&format!("note: this is workflow {id}\n")), "{failed}");
    assert!(
        failed.stderr.contains(&format!("hint: continue after the last finished step with `{command}`")),
        "{failed}"
    );
    let shown = show(env, &id);
    let states: Vec<&Value> = shown["steps"].as_array().unwrap().iter().map(|step| &step["status"]).collect();
    assert_eq!(states, ["finished", "finished", "failed"]);
    assert_eq!((&shown["status"], &shown["finished"]), (&json!("error"), &json!(2)));
    // The step that failed is corrected.
    let corrected = code.replace("raise ValueError(\"not yet\")", "return await write(\"third\")");
    env.write("home/three.py", &corrected);
    let resumed = run(env, &file, &["--resume", &id]);
    assert_eq!(resumed.code(), Some(0), "{resumed}");
    assert!(resumed.stdout.starts_with("['a b', '-x']\nwritten: first\n"), "{resumed}");
    assert!(resumed.stdout.ends_with("written: third\n"), "{resumed}");
    assert!(resumed.stderr.contains("continues: 2 finished steps are not repeated"), "{resumed}");
    assert!(resumed.stderr.contains("three.py has changed since then"), "{resumed}");
    assert_eq!(written(env), ["first", "second", "third"]);
    let again = run(env, &file, &["--resume", &id]);
    assert_eq!((again.code(), again.stdout.as_str()), (Some(0), ""), "{again}");
    assert!(again.stderr.contains("has finished: nothing is left to do"), "{again}");
    assert_eq!(written(env).len(), 3);
    let listed = workflow(env, &["ls"]).ok();
    assert!(
        listed.contains(&format!("{id}  finished  3/3 ")) && listed.contains("three.py 'a b' -x"),
        "{listed}"
    );
}

fn a_killed_workflow_repeats_no_finished_step(env: &TestEnv) {
    define_ledger(env);
    let file = env.write("home/many.py", python!("workflows", "writes_many"));
    // How long a whole one takes: kills come at any moment of that.
    let began = Instant::now();
    let _ = run(env, &file, &[]).ok();
    let whole = began.elapsed();
    let all: BTreeSet<String> = written(env).into_iter().collect();
    assert_eq!((all.len(), written(env).len()), (20, 20));
    let kills = std::env::var("CODEBRIDGE_TEST_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let mut dice = Dice::new();
    let (mut killed, mut at_work) = (0, 0);
    while killed < kills {
        let _ = fs::remove_file(ledger(env));
        let known = ids(env);
        let (mut id, mut counts) = (None::<String>, BTreeMap::new());
        loop {
            let words = id.as_ref().map_or(Vec::new(), |id| vec!["--resume", id.as_str()]);
            let mut started = start(env, &file, &words);
            // As many kills as are left, then one run to the end.
            if killed < kills {
                sleep(whole.mul_f64(dice.throw()));
                started.running.signal(Signal::KILL);
                killed += 1;
            }
            let status = started.running.wait();
            let printed = String::from_utf8(started.printed.join().unwrap()).unwrap();
            id = id.or_else(|| ids(env).into_iter().find(|id| !known.contains(id)));
            let Some(id) = &id else { continue };
            at_work += usize::from(!status.success());
            let finished = check(env, id, &printed, &mut counts);
            if status.success() {
                assert_eq!(finished.len(), all.len());
                assert_eq!(written(env).into_iter().collect::<BTreeSet<_>>(), all);
                break;
            }
        }
    }
    assert!(at_work > kills / 4, "{at_work} of {kills} kills hit a workflow that had begun");
}

/// Checks what a run has left: what code was told had finished is in the journal, and what an earlier journal had is not written again.
fn check(env: &TestEnv, id: &str, printed: &str, counts: &mut BTreeMap<String, usize>) -> BTreeSet<String> {
    let shown = show(env, id);
    let steps = shown["steps"].as_array().unwrap().iter().filter(|step| step["status"] == "finished");
    let line = |step: &Value| step["result"].as_str().unwrap().strip_prefix("written: ").unwrap().to_owned();
    let finished: BTreeSet<String> = steps.map(line).collect();
    let whole_lines = printed.rsplit_once('\n').map_or("", |(whole, _)| whole);
    for reported in whole_lines.lines().filter_map(|line| line.strip_prefix("reported ")) {
        assert!(finished.contains(reported), "{reported} was reported and is not in the journal: {shown:#}");
    }
    let lines = written(env);
    for line in &finished {
        let count = lines.iter().filter(|written| *written == line).count();
        assert!(count > 0, "{line} is in the journal and was not done");
        let before = *counts.entry(line.clone()).or_insert(count);
        assert_eq!(count, before, "{line} was done again after it had reported its end");
    }
    finished
}

/// Numbers from 0 to 1 that differ from run to run.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        Self(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos().into())
    }

    fn throw(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f64 / (1 << 24) as f64
    }
}

fn what_ends_a_run_is_said_with_the_command_to_continue(env: &TestEnv) {
    define_ledger(env);
    let file = env.write("home/waits.py", python!("workflows", "waits"));
    let timed_out = run(env, &file, &["--timeout", "2"]);
    assert_eq!(timed_out.code(), Some(124), "{timed_out}");
    let id = the_id(env);
    assert_eq!(show(env, &id)["status"], "timeout");
    for (signal, exit) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut started = start(env, &file, &["--resume", &id]);
        started.wait_until_it_waits();
        started.running.signal(signal);
        assert_eq!(started.running.wait().code(), Some(exit));
        let said = started.said();
        assert!(said.contains(&format!("codebridge workflow run --resume {id} ")), "{said}");
        assert_eq!(
            said.matches("--resume").count(),
            said.matches(&format!("--resume {id}")).count(),
            "{said}"
        );
        assert_eq!(show(env, &id)["status"], "interrupted");
    }
    assert_eq!(written(env), ["first"]);
    let mut unread = start(env, &file, &["--resume", &id]);
    unread.wait_until_it_waits();
    unread.running.signal(Signal::KILL);
    unread.running.wait();
    let shown = show(env, &id);
    assert_eq!((&shown["status"], &shown["steps"][1]["status"]), (&json!("interrupted"), &json!("begun")));
    assert_eq!(shown["steps"][1]["attempts"], 4);
}

fn a_refused_call_is_made_when_it_is_allowed(env: &TestEnv) {
    define_ledger(env);
    let code = "async def write(line): return await mcp_ledger.append(line=line)\n\
                for line in 'first', 'asked':\n    await runtime.step.options(retries=5)('write', write, line)\n";
    let file = env.write("home/asked.py", code);
    write_policy(
        env,
        "[[rule]]\narguments.'/line' = { equals = 'asked' }\neffect = 'ask'\n[[rule]]\neffect = 'allow'\n",
    );
    let refused = run(env, &file, &[]);
    assert_eq!(refused.code(), Some(1), "{refused}");
    assert!(refused.stderr.contains("MCPError"), "{refused}");
    let id = the_id(env);
    let step = &show(env, &id)["steps"][1];
    assert_eq!((&step["status"], &step["attempts"]), (&json!("failed"), &json!(1)), "{step}");
    write_policy(env, "[[rule]]\neffect = 'allow'\n");
    let _ = run(env, &file, &["--resume", &id]).ok();
    assert_eq!(written(env), ["first", "asked"]);
    let audit = env.bridge().args(&["audit", "--json"]).command().run(env.guard()).ok();
    assert!(audit.contains(r#""client":"codebridge workflow""#), "{audit}");
}

fn of_two_that_resume_one_wins_and_cancelling_ends_it_for_good(env: &TestEnv) {
    define_ledger(env);
    let file = env.write("home/waits.py", python!("workflows", "waits"));
    let mut started = start(env, &file, &[]);
    started.wait_until_it_waits();
    let id = the_id(env);
    assert_eq!(show(env, &id)["status"], "running");
    let second = run(env, &file, &["--resume", &id]);
    assert_eq!(second.code(), Some(2), "{second}");
    assert!(second.stderr.contains(&format!("workflow {id} is running in another process")), "{second}");
    let cancelled = workflow(env, &["cancel", &id]);
    assert!(
        cancelled.stderr.contains(&format!("cancelled workflow {id}; its process stops it")),
        "{cancelled}"
    );
    assert!(!started.running.wait_within(LIMIT).success());
    let said = started.said();
    assert!(said.contains(&format!("workflow {id} was cancelled")) && !said.contains("--resume"), "{said}");
    assert_eq!(show(env, &id)["status"], "cancelled");
    let resumed = run(env, &file, &["--resume", &id]);
    assert_eq!(resumed.code(), Some(2), "{resumed}");
    assert!(resumed.stderr.contains("was cancelled") && resumed.stderr.contains("hint: "), "{resumed}");
    assert!(workflow(env, &["cancel", &id]).stderr.ends_with(&format!("cancelled workflow {id}\n")));
    assert_eq!(written(env), ["first"]);
}

fn a_step_that_is_called_otherwise_is_refused(env: &TestEnv) {
    define_ledger(env);
    let code = "import sys\nasync def write(line): return await mcp_ledger.append(line=line)\n\
                await runtime.step('write', write, 'NAME')\nawait runtime.step('fail', int, 'x')\n";
    let file = env.write("home/changed.py", code.replace("NAME", "old"));
    assert_eq!(run(env, &file, &["argument"]).code(), Some(1));
    let id = the_id(env);
    let other = run(env, &file, &["--resume", &id, "other"]);
    assert_eq!(other.code(), Some(2), "{other}");
    assert!(other.stderr.contains("was started with other arguments"), "{other}");
    env.write("home/changed.py", code.replace("NAME", "new"));
    let changed = run(env, &file, &["--resume", &id, "argument"]);
    assert_eq!(changed.code(), Some(1), "{changed}");
    assert!(changed.stderr.contains("step 'write' finished earlier with other arguments"), "{changed}");
    assert_eq!(written(env), ["old"]);
    // A name that was not there is another step.
    env.write(
        "home/changed.py",
        code.replace("'write', write, 'NAME'", "'rewrite', write, 'new'").replace("'x'", "'1'"),
    );
    let _ = run(env, &file, &["--resume", &id]).ok();
    assert_eq!(written(env), ["old", "new"]);
}

fn broken_journals_and_wrong_commands_are_refused(env: &TestEnv) {
    define_ledger(env);
    let hostile = "for name in '\\x1b[2J\\n', 'x' * (1 << 20):\n    try: await runtime.step(name, lambda: 'y\\x1b[2J')\n    \
                   except ValueError as error: print(error)\nawait runtime.step('large', lambda: 'x' * (2 << 20))";
    let file = env.write("home/hostile.py", hostile);
    let failed = run(env, &file, &[]);
    assert_eq!(failed.code(), Some(1), "{failed}");
    assert!(failed.stdout.contains("the name of a step has 1048576 bytes"), "{failed}");
    assert!(failed.stderr.contains("step 'large' ran, but its result has 2097154 bytes"), "{failed}");
    let id = the_id(env);
    let shown = workflow(env, &["show", &id]).ok();
    assert!(!shown.contains('\u{1b}') && shown.contains("'large'") && shown.len() < 2000, "{shown}");
    let path = journal(env, &id);
    let whole = fs::read(&path).unwrap();
    // A crash has cut the last line off.
    fs::write(&path, &whole[..whole.len() - 3]).unwrap();
    assert!(run(env, &file, &["--resume", &id]).stderr.contains("1 finished step is not repeated"));
    let mut damaged = whole.clone();
    damaged[30] ^= 1;
    fs::write(&path, &damaged).unwrap();
    for words in [&["run", file.to_str().unwrap(), "--resume", &id][..], &["show", &id]] {
        let refused = workflow(env, words);
        assert_eq!(refused.code(), Some(2), "{refused}");
        assert!(refused.stderr.contains(&format!("{id}.journal' is damaged: line 1")), "{refused}");
        assert!(refused.stderr.contains("hint: "), "{refused}");
    }
    let listed = workflow(env, &["ls"]);
    assert!(listed.stderr.contains("is damaged") && listed.code() == Some(0), "{listed}");
    let file = file.to_str().unwrap();
    for (words, why) in [
        (&["run", file, "--resume", "00000000"][..], "there is no workflow '00000000'"),
        (&["run", file, "--resume", "../../x"], "there is no workflow '../../x'"),
        (&["show", "\u{1b}[2J"], "there is no workflow"),
        (&["cancel", ""], "there is no workflow ''"),
        (&["run", "-"], "a workflow needs a file"),
        (&["run", "/no/such.py"], "failed to read /no/such.py"),
        (&["run"], "required arguments were not provided"),
    ] {
        let refused = workflow(env, words);
        assert_eq!(refused.code(), Some(2), "{refused}");
        assert!(refused.stderr.contains(why) && !refused.stderr.contains('\u{1b}'), "{refused}");
    }
}

fn the_thousandth_step_takes_as_long_as_the_first(env: &TestEnv) {
    define_ledger(env);
    let code = "import time\nbegan = time.monotonic()\nfor n in range(3000):\n    await runtime.step('s', str, n)\n    \
                if n % 300 == 299:\n        print(time.monotonic() - began)\n        began = time.monotonic()\n";
    let file = env.write("home/long.py", format!("{code}raise SystemExit(3)\n"));
    let times = |output: &Output| -> Vec<f64> {
        assert_eq!(output.code(), Some(3), "{output}");
        output.stdout.lines().map(|line| line.parse().unwrap()).collect()
    };
    let first = times(&run(env, &file, &[]));
    let again = times(&run(env, &file, &["--resume", &the_id(env)]));
    for times in [&first, &again] {
        assert_eq!(times.len(), 10);
        let fastest = |part: &[f64]| part.iter().copied().fold(f64::INFINITY, f64::min);
        // If each step took longer than the one before, the second half would take three times as long.
        assert!(fastest(&times[5..]) < 2.0 * fastest(&times[..5]), "{times:?}");
    }
    assert!(again.iter().sum::<f64>() < first.iter().sum(), "{again:?} {first:?}");
}

fn a_workflow_has_the_flags_of_exec(env: &TestEnv) {
    define_ledger(env);
    env.write("home/data/one.csv", "1");
    let (data, out) = (env.home().join("data"), env.home().join("out"));
    let file = env.write("home/shares.py", python!("workflows", "shares"));
    let words = ["--share", data.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let ran = run(env, &file, &words);
    assert_eq!((ran.code(), ran.stdout.as_str()), (Some(0), "['one.csv']\n/workspace\n"), "{ran}");
    assert_eq!(fs::read_to_string(out.join("made.txt")).unwrap(), "made");
    let help = env.bridge().args(&["workflow", "run", "--help"]).command().run(env.guard()).ok();
    for flag in ["--share", "--with", "--policy", "--max-background", "--timeout", "--audit", "--in"] {
        assert!(help.contains(flag), "{flag}");
    }
}

fn a_full_disk_stops_a_workflow(env: &TestEnv) {
    define_ledger(env);
    let code = "made = 0\nfor n in range(12):\n    try:\n        await runtime.step('make', lambda: 'x' * 4000)\n        made += 1\n    \
                except runtime.MCPError as error: print(made, error, flush=True)\nprint('end', made)\n";
    let file = env.write("home/large.py", code);
    let (folder, binary) = (env.folder("home/MCPs/workflows"), env.binary());
    let (folder, binary, name) = (folder.display(), binary.display(), file.display());
    let script = format!(
        "mount -t tmpfs -o size=24k,mode=700 none {folder}; \"$@\"; echo exit $?; mount -o remount,size=1m {folder}; \
         {binary} workflow run {name} --resume $(ls {folder} | cut -d. -f1); echo exit $?"
    );
    let behind = ["unshare", "--mount", "--", "sh", "-c", &script, "sh"];
    let builder = env.bridge().args(&["workflow", "run", file.to_str().unwrap()]).behind(behind);
    let ran = builder.command().run(env.guard());
    let (full, resumed) = ran.stdout.split_once("exit 74\n").unwrap_or_else(|| panic!("{ran}"));
    let made: usize = full.split_whitespace().next().unwrap().parse().unwrap();
    assert!((1..12).contains(&made), "{ran}");
    assert!(
        full.contains("the workflow has stopped: its journal could not be written: No space left"),
        "{ran}"
    );
    // Code that goes on after the error gets no further.
    assert!(full.ends_with(&format!("end {made}\n")) && !full.contains(&format!("{folder}")), "{ran}");
    assert!(ran.stderr.contains("has stopped: could not use the journal"), "{ran}");
    assert!(ran.stderr.contains(&format!("continues: {made} finished step")), "{ran}");
    assert_eq!(resumed, "end 12\nexit 0\n", "{ran}");
}
