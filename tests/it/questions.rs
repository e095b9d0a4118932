//! Questions and notifications of servers reach the client behind the bridge, in both eras of the protocol.

use serde_json::{Value, json};

use crate::harness::bridge::Bridge;
use crate::harness::matrix::Kind;
use crate::harness::{Runtime, Suite, TestEnv, eventually};
use crate::server_access::{SECRET, define, fake, run};
use crate::{python, tests};

pub(crate) fn register(suite: &mut Suite) {
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "questions",
        tests![
            clients_are_notified_of_calls_and_answer_servers,
            whoever_was_shown_a_page_is_notified_when_it_is_done,
            a_client_without_a_session_answers_by_calling_once_more,
            a_question_that_stays_open_has_no_answer,
            a_server_that_asks_before_its_first_call_reaches_only_calls_that_may_use_it,
            code_is_held_to_its_time_limit_while_a_question_is_open,
            a_server_that_starts_slowly_is_named_with_its_output,
        ],
    );
}

fn clients_are_notified_of_calls_and_answer_servers(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &[]) }));
    let bridge = env.bridge().start_for(json!({ "elicitation": {}, "roots": {} }));
    let came = |method: &str| {
        eventually(method, env.guard().left(), || {
            bridge.unasked().into_iter().find(|message| message["method"] == method)
        })
    };
    let logged = run(
        &bridge,
        &["fake"],
        "await mcp_fake.log(level='warning', logger='disk', data={'free': 1})\nawait mcp_fake.log(level='debug', data='x')",
    );
    assert_eq!(logged.ok(), "'logged'");
    let message = came("notifications/message");
    assert_eq!(
        message["params"],
        json!({ "level": "warning", "logger": "fake: disk", "data": { "free": 1 } })
    );
    let pending = bridge.start_call(json!({
        "code": "print(await mcp_fake.ask(method='elicitation/create', params={'message': 'Which?', 'requestedSchema': {'type': 'object', 'properties': {}}}))",
        "servers": ["fake"],
    }));
    let question = came("elicitation/create");
    assert_eq!(question["params"]["message"], "Which?");
    bridge.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "accept", "content": { "a": 1 } } }));
    assert_eq!(pending.outcome().ok(), "{'result': {'action': 'accept', 'content': {'a': 1}}}");
    // A dialog does not stay when nobody waits for it any more.
    let pending = bridge.call(json!({
        "code": "await mcp_fake.ask(method='elicitation/create', params={'message': 'Late?', 'requestedSchema': {'type': 'object', 'properties': {}}})",
        "servers": ["fake"], "timeout": 1,
    }));
    let _ = pending.expect("timeout");
    let late = bridge.unasked().into_iter().find(|message| message["params"]["message"] == "Late?").unwrap();
    eventually("the question is taken back", env.guard().left(), || {
        let taken_back = |message: &Value| {
            message["method"] == "notifications/cancelled" && message["params"]["requestId"] == late["id"]
        };
        bridge.unasked().iter().any(taken_back).then_some(())
    });
    // Nor is an address shown by a client that shows forms.
    let by_url = "(await mcp_fake.ask(method='elicitation/create', params={'mode': 'url', 'url': 'https://h', 'message': 'x', 'elicitationId': '1'})).error.message";
    let refused = run(&bridge, &["fake"], by_url).ok();
    assert!(refused.contains("by URL' is not supported"), "{refused}");
    // What the client does not offer is refused at once.
    let refused = run(
        &bridge,
        &["fake"],
        "(await mcp_fake.ask(method='sampling/createMessage', params={})).error.message",
    )
    .ok();
    assert!(refused.contains("not supported"), "{refused}");
    let code = "while True: await mcp_fake.progress(steps=3)";
    let pending = bridge.request(
        "tools/call",
        json!({
            "name": "run_python",
            "arguments": { "code": code, "servers": ["fake"] },
            "_meta": { "progressToken": "p" },
        }),
    );
    eventually("the server's progress", env.guard().left(), || {
        let is_told = |message: &Value| {
            message["params"]["message"].as_str().is_some_and(|text| text.starts_with("fake.progress: step"))
        };
        bridge.unasked().iter().any(is_told).then_some(())
    });
    pending.cancel();
    // What it said last is told also when its result comes right after that.
    let code = "await mcp_fake.progress(steps=4)\nprint('done')";
    let pending = bridge.request(
        "tools/call",
        json!({ "name": "run_python", "arguments": { "code": code, "servers": ["fake"] }, "_meta": { "progressToken": "q" } }),
    );
    let _ = pending.result();
    let told = |message: &Value| {
        message["params"]["progressToken"] == "q"
            && message["params"]["message"].as_str().is_some_and(|text| text.contains("step 4"))
    };
    assert!(bridge.unasked().iter().any(told), "{:?}", bridge.unasked());
    bridge.close();
}

fn whoever_was_shown_a_page_is_notified_when_it_is_done(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &[]) }));
    let bridge = env.bridge().start_for(json!({ "elicitation": { "url": {} } }));
    let pending = bridge.start_call(json!({ "code": SHOW_PAGE, "servers": ["fake"] }));
    let page = eventually("a page", env.guard().left(), || {
        bridge.unasked().into_iter().find(|message| message["method"] == "elicitation/create")
    });
    assert_eq!(
        (&page["params"]["url"], &page["params"]["elicitationId"]),
        (&json!("https://pay.example"), &json!("page-1"))
    );
    bridge.send(&json!({ "jsonrpc": "2.0", "id": page["id"], "result": { "action": "accept" } }));
    assert_eq!(pending.outcome().ok(), "accept");
    let done = || {
        let mut said = bridge.unasked();
        said.retain(|message| message["method"] == "notifications/elicitation/complete");
        said
    };
    assert_eq!(done(), Vec::<Value>::new());
    // What was not shown is not done, and what is done is done once.
    for id in ["never-shown", "page-1", "page-1"] {
        let code = format!("await mcp_fake.line(text=complete('{id}'))");
        let _ = run(&bridge, &["fake"], &format!("{COMPLETE}\n{code}")).expect("success");
    }
    let first = eventually("a notification", env.guard().left(), || done().into_iter().next());
    assert_eq!(first["params"]["elicitationId"], "page-1");
    // The notifications before this one have gone out.
    let _ = run(&bridge, &["fake"], "await mcp_fake.log(level='warning', data='last')").expect("success");
    eventually("the last notification", env.guard().left(), || {
        bridge.unasked().into_iter().find(|message| message["params"]["data"] == "last").map(drop)
    });
    assert_eq!(done().len(), 1);
    bridge.close();
}

/// Code that has its server show a page.
const SHOW_PAGE: &str = python!("questions", "show_page");
/// Code that has its server say that a page has done its work.
const COMPLETE: &str = python!("questions", "complete");
/// Code that has its server ask one thing after the other.
const ASK: &str = python!("questions", "ask");

pub(crate) fn modern(capabilities: &Value, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "codebridge-tests", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    params
}

/// Calls as a client does that shows forms.
fn call(bridge: &Bridge<'_>, code: &str, more: Value) -> Value {
    let arguments = json!({ "code": format!("{ASK}\n{code}"), "servers": ["fake"], "timeout": 20 });
    let mut params = json!({ "name": "run_python", "arguments": arguments });
    for (key, value) in more.as_object().unwrap() {
        params[key] = value.clone();
    }
    bridge.ask("tools/call", modern(&json!({ "elicitation": {} }), params))
}

/// What is asked, by its keys, and what names the call.
pub(crate) fn asked(result: &Value) -> (Vec<(String, String)>, &Value) {
    assert_eq!(result["resultType"], "input_required", "{result}");
    let questions = result["inputRequests"].as_object().unwrap().iter().map(|(key, question)| {
        assert_eq!(question["method"], "elicitation/create", "{result}");
        (key.clone(), question["params"]["message"].as_str().unwrap().to_owned())
    });
    (questions.collect(), &result["requestState"])
}

fn a_client_without_a_session_answers_by_calling_once_more(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &[]) }));
    let bridge = env.bridge().spawn();
    // One after the other, then two at once.
    let code = python!("questions", "one_by_one_then_two");
    let mut result = call(&bridge, code, json!({}));
    let mut heard = Vec::new();
    while result["resultType"] != "complete" {
        let (questions, state) = asked(&result);
        let answer = |(key, what): &(String, String)| {
            (key.clone(), json!({ "action": "accept", "content": { "a": what.len() } }))
        };
        let answers: serde_json::Map<String, Value> = questions.iter().map(answer).collect();
        let round = json!({ "inputResponses": answers, "requestState": state });
        heard.extend(questions.into_iter().map(|(_, what)| what));
        result = call(&bridge, code, round);
    }
    assert_eq!(result["content"][0]["text"], "5\n6\n4\n5", "{result}");
    heard[2..].sort();
    assert_eq!(heard, ["first", "second", "left", "right"]);
    // Code that was answered ran once, and its session goes on.
    let after = call(&bridge, "print(len(answers))", json!({}));
    assert_eq!(after["content"][0]["text"], "4", "{after}");
    let late = call(&bridge, code, json!({ "requestState": "another client's" }));
    assert!(
        late["content"][0]["text"].as_str().unwrap().contains("no call waits for these answers"),
        "{late}"
    );
    bridge.close();
}

fn a_question_that_stays_open_has_no_answer(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &[]) }));
    let bridge = env.bridge().spawn();
    let code = "print((await ask('which?')).error.message)";
    let result = call(&bridge, code, json!({}));
    let (_, state) = asked(&result);
    let done = call(&bridge, code, json!({ "requestState": state }));
    assert!(
        done["content"][0]["text"].as_str().unwrap().contains("it did not answer this question"),
        "{done}"
    );
    // What it cannot answer it is not asked.
    let sampling = "print((await mcp_fake.ask(method='sampling/createMessage', params={})).error.message)";
    let done = call(&bridge, sampling, json!({}));
    assert!(done["content"][0]["text"].as_str().unwrap().contains("not supported"), "{done}");
    let arguments = json!({ "code": format!("{ASK}\n{code}"), "servers": ["fake"] });
    let params = json!({ "name": "run_python", "arguments": arguments });
    let done = bridge.ask("tools/call", modern(&json!({}), params));
    assert!(done["content"][0]["text"].as_str().unwrap().contains("not supported"), "{done}");
    bridge.close();
}

fn a_server_that_asks_before_its_first_call_reaches_only_calls_that_may_use_it(env: &TestEnv) {
    let asks = |more: &[&str]| fake(env, &[&["--asks-first", "elicitation/create"], more].concat());
    // What is known of one definition is known of its equals.
    define(env, &json!({ "fake": asks(&[]), "other": asks(&["--quiet"]) }));
    let bridge = env.bridge().spawn();
    let docs_of = |server: &str| format!("print(await runtime.query_tool_docs('{server}', tool='echo'))");
    let done = call(&bridge, &docs_of("other"), json!({}));
    assert_eq!(done["resultType"], "complete", "{done}");
    assert!(done["content"][0]["text"].as_str().unwrap().contains("supported during a call only"), "{done}");
    let result = call(&bridge, &docs_of("fake"), json!({}));
    let (questions, state) = asked(&result);
    assert_eq!(questions[0].1, "Before the tools?");
    let answers = json!({ &questions[0].0: { "action": "accept", "content": { "a": 7 } } });
    let round = json!({ "inputResponses": answers, "requestState": state });
    let done = call(&bridge, &docs_of("fake"), round);
    assert!(done["content"][0]["text"].as_str().unwrap().contains("accept"), "{done}");
    bridge.close();
}

fn code_is_held_to_its_time_limit_while_a_question_is_open(env: &TestEnv) {
    define(env, &json!({ "fake": fake(env, &[]) }));
    let bridge = env.bridge().spawn();
    // The start of the server is not what takes the time.
    let ready = call(&bridge, "await mcp_fake.echo(a=1)", json!({}));
    assert_eq!(ready["content"][0]["text"], "{'a': 1}", "{ready}");
    let short = json!({ "arguments": { "code": format!("{ASK}\nawait ask('which?')"), "servers": ["fake"], "timeout": 1 } });
    let result = call(&bridge, "", short.clone());
    let (questions, state) = asked(&result);
    // It waits for the session's interpreter, as all calls do.
    let next = call(&bridge, "print('next')", json!({}));
    assert_eq!(next["content"][0]["text"], "next", "{next}");
    let answers = json!({ &questions[0].0: { "action": "accept", "content": { "a": 1 } } });
    let mut round = json!({ "inputResponses": answers, "requestState": state });
    round["arguments"] = short["arguments"].clone();
    let done = call(&bridge, "", round);
    assert_eq!(done["structuredContent"]["status"], "timeout", "{done}");
    bridge.close();
}

fn a_server_that_starts_slowly_is_named_with_its_output(env: &TestEnv) {
    define(
        env,
        &json!({ "mute": fake(env, &["--mute", "--stderr", "it needs an API key", "--stderr", SECRET]) }),
    );
    let bridge = env.bridge().start();
    let call = json!({ "code": "await mcp_mute.echo(a=1)", "servers": ["mute"], "timeout": 5 });
    let outcome = bridge.call(call).expect("timeout").because("the server 'mute', which is still starting");
    let outcome = outcome.because("(its output: it needs an API key | [API_TOKEN])");
    assert!(!outcome.error().contains(SECRET), "{outcome}");
    bridge.close();
}
