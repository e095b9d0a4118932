//! The search for tools by meaning, with a real sentence encoder.

use std::fs;

use serde_json::{Value, json};

use crate::harness::matrix::Kind;
use crate::harness::process::Output;
use crate::harness::{Runtime, Suite, TestEnv};
use crate::installs::{network, uv};
use crate::server_access::{define, fake};
use crate::telemetry::threads;
use crate::tests;

/// Bytes by which a loaded model makes a bridge larger; its weights have 23 MB.
const LOADED: u64 = 15 << 20;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "search_model",
        tests![
            a_model_that_is_fetched_finds_tools_by_their_meaning,
            where_a_model_cannot_be_used_words_decide_and_a_warning_says_so,
        ],
    );
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "search_model",
        tests![nothing_of_a_model_is_loaded_unless_the_variable_names_it],
    );
}

/// Runs a command with three servers, each with one tool.
fn run(env: &TestEnv, words: &[&str], model: Option<&str>) -> Output {
    let described = |name: &str, text: &str| fake(env, &["--few", "--named", name, "--described", text]);
    let servers = json!({
        "one": described("purge_ledger", "Erases the bookkeeping for good."),
        "two": described("fetch_forecast", "Says whether it will rain."),
    });
    define(env, &servers);
    let mut command = env.command(env.binary());
    command.argv.extend(words.iter().map(Into::into));
    command.cwd = env.folder("home");
    command.env.extend(network().map(|(name, value)| (name.into(), value)));
    let path = std::env::join_paths([uv(), "/usr/bin".into(), "/bin".into()]).unwrap();
    command.env.insert("PATH".into(), path);
    command.env.extend(model.map(|model| ("MCP_BRIDGE_SEARCH_MODEL".into(), model.into())));
    command.run(env.guard())
}

fn names(found: &str) -> Vec<String> {
    let found: Value = serde_json::from_str(found).unwrap();
    found.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
}

fn a_model_that_is_fetched_finds_tools_by_their_meaning(env: &TestEnv) {
    let none = run(env, &["search-model", "status"], None);
    assert!(none.stdout.starts_with("no search model"), "{none}");
    assert!(none.stderr.contains("hint: run `codebridge search-model fetch`"), "{none}");
    let search = ["tools", "search", "take an umbrella today?", "--json"];
    assert_eq!(names(&run(env, &search, None).ok()), [""; 0], "no word of it is in the documentation");
    let fetched = run(env, &["search-model", "fetch", "--json"], None);
    assert!(fetched.stderr.contains("hint: to use it, set MCP_BRIDGE_SEARCH_MODEL="), "{fetched}");
    let fetched: Value = serde_json::from_str(&fetched.ok()).unwrap();
    assert_eq!(fetched["tools"], fetched["ready"], "{fetched}");
    let model = fetched["folder"].as_str().unwrap();
    assert!(
        names(&run(env, &search, Some(model)).ok()).iter().position(|name| name == "fetch_forecast")
            < Some(2)
    );
    assert_eq!(
        names(&run(env, &["tools", "search", "purge_ledger", "--json"], Some(model)).ok())[0],
        "purge_ledger"
    );
    let status = run(env, &["search-model", "status"], Some(model)).ok();
    assert!(status.contains(&format!("{0} of {0} tools", fetched["tools"])), "{status}");
}

fn nothing_of_a_model_is_loaded_unless_the_variable_names_it(env: &TestEnv) {
    // The model reads the tools that are known.
    let _ = run(env, &["servers", "refresh"], None).ok();
    let model = run(env, &["search-model", "fetch"], None).ok();
    let search = "print([hit['name'] for hit in await runtime.search_tool_docs('take an umbrella today?')])";
    // What a bridge finds, whether it has a thread for the model, and its memory.
    let of = |model: Option<&str>| {
        let bridge = env.bridge();
        let bridge = match model {
            Some(model) => bridge.var("MCP_BRIDGE_SEARCH_MODEL", model),
            None => bridge,
        };
        let bridge = bridge.start();
        let found = bridge.run(search).ok();
        let has_thread = threads(bridge.pid()).iter().any(|name| name.starts_with("search-model"));
        let memory = bridge.peak_memory();
        bridge.close();
        (found, has_thread, memory)
    };
    let (found, has_thread, with) = of(Some(model.trim()));
    assert!(found.contains("fetch_forecast") && has_thread, "{found}");
    let (found, has_thread, without) = of(None);
    assert_eq!((found.as_str(), has_thread), ("[]", false));
    assert!(without + LOADED < with, "{without} bytes without a model, {with} with it");
}

fn where_a_model_cannot_be_used_words_decide_and_a_warning_says_so(env: &TestEnv) {
    let broken = env.folder("home/broken");
    fs::write(broken.join("tokenizer.json"), "{}").unwrap();
    fs::write(broken.join("model.onnx"), [0u8; 1000]).unwrap();
    for (model, told) in [
        ("/nowhere", "could not read /nowhere/tokenizer.json"),
        (broken.to_str().unwrap(), "is not a sentence encoder"),
    ] {
        let found = run(env, &["tools", "search", "ledger", "--json"], Some(model));
        assert_eq!(names(&found.stdout)[0], "purge_ledger", "{found}");
        assert!(
            found.stderr.contains("tools are searched by words alone") && found.stderr.contains(told),
            "{found}"
        );
        let status = run(env, &["search-model", "status"], Some(model));
        assert!(status.code() == Some(74) && status.stderr.contains(told), "{status}");
        assert!(status.stderr.contains("hint: set MCP_BRIDGE_SEARCH_MODEL to a folder with"), "{status}");
    }
}
