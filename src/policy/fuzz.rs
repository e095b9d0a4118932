//! Any text as a policy, and the promise that a rule which denies never allows more.

use std::path::Path;

use codebridge_fuzz::{Choices, fuzz};
use serde_json::json;

use super::*;
use crate::glob::fits;

const SERVERS: [&str; 4] = ["github", "files", "git", ""];
const TOOLS: [&str; 3] = ["delete_repo", "get", "x"];
const ARGUMENTS: [&str; 4] =
    [r#"{"path":"/tmp/x"}"#, r#"{"amount":99,"to":["me"]}"#, r#"{"path":1,"path":2}"#, r#"{"path":null}"#];
const DENIALS: [&str; 6] = [
    "[[rule]]\neffect = \"deny\"\n",
    "[[rule]]\nserver = \"git*\"\neffect = \"deny\"\n",
    "[[rule]]\ntool = [\"get\", \"*_repo\"]\neffect = \"deny\"\nreason = \"no\"\n",
    "[[rule]]\narguments.\"/path\" = { matches = \"/tmp/.*\" }\neffect = \"deny\"\n",
    "[[rule]]\nannotations = { readOnlyHint = true }\nsession = \"main\"\neffect = \"deny\"\n",
    "[[rule]]\nkind = [\"package\", \"artifact\", \"share\"]\nname = \"p*\"\neffect = \"deny\"\n",
];

fn parse(text: &str) -> Option<Rules> {
    file::parse(Path::new("policy.toml"), text).ok()
}

/// How much a decision allows.
fn freedom(verdict: &Verdict) -> u8 {
    match verdict.effect() {
        Effect::Deny => 0,
        Effect::Ask => 1,
        Effect::Allow => 2,
    }
}

/// Decides about many things. What is denied early must be denied in any case.
fn decisions(rules: &Rules) -> Vec<u8> {
    let mut all = Vec::new();
    for session in [None, Some("main")] {
        let who = Caller { session, principal: "local" };
        for server in SERVERS {
            let no_tool = rules.denies_server(server, &who).is_some();
            for tool in TOOLS {
                let denied = rules.denies_tool(server, tool, &who).is_some();
                assert!(denied || !no_tool, "{server}.{tool}");
                for hints in [json!({}), json!({ "readOnlyHint": true, "openWorldHint": false })] {
                    let annotations = Annotations::of(Some(&hints));
                    for arguments in ARGUMENTS.map(str::as_bytes) {
                        let call = ToolCall { server, tool, annotations, arguments };
                        let verdict = rules.of_call(&call, &who);
                        assert!(!denied || verdict.effect() == Effect::Deny, "{server}.{tool}: {verdict:?}");
                        all.push(freedom(&verdict));
                    }
                }
            }
        }
        for kind in [Kind::Package, Kind::Share, Kind::Artifact, Kind::Server] {
            all.extend(["polars", "p", "", "/data"].map(|name| freedom(&rules.of(kind, name, &who))));
        }
        for kind in [Kind::Resource, Kind::Prompt] {
            all.extend(SERVERS.map(|server| freedom(&rules.of_offer(kind, server, "file:///x", &who))));
        }
    }
    all
}

#[track_caller]
fn assert_no_freer(before: &[u8], after: &Rules, text: &str) {
    let after = decisions(after);
    let freer = before.iter().zip(&after).position(|(before, after)| after > before);
    assert_eq!(freer, None, "a rule that denies allows more:\n{text}");
}

#[test]
fn policies_decide_alike_and_a_denial_never_allows_more() {
    let words = ["[[rule]]\n", "effect = \"ask\"\n", "arguments.\"/a\" = ", "matches = \"", "[budget.run]\n"];
    fuzz("policy", &words, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let rules = match file::parse(Path::new("policy.toml"), &text) {
            Ok(rules) => rules,
            Err(PolicyError::Invalid { place, why }) => {
                assert!((1..=text.lines().count().max(1) + 1).contains(&place.line), "{place:?}");
                assert!(!why.is_empty());
                return;
            }
            Err(other) => panic!("{other:?}"),
        };
        let before = decisions(&rules);
        assert_eq!(before, decisions(&rules), "the second decision is another one");
        rules.warnings(&SERVERS);
        let denial = DENIALS[bytes.len() % DENIALS.len()];
        for text in [format!("{denial}\n{text}"), format!("{text}\n{denial}")] {
            if let Some(after) = parse(&text) {
                assert_no_freer(&before, &after, &text);
            }
        }
    });
}

/// Returns the text of a rule.
fn rule(choices: &mut Choices<'_>) -> String {
    let mut text = String::from("[[rule]]\n");
    let mut lines = vec![
        ["server = \"git*\"", "server = \"files\"", "server = [\"*hub\", \"files\"]"],
        ["tool = \"get*\"", "tool = [\"x\", \"delete_*\"]", "tool = \"*\""],
        ["session = \"main\"", "session = \"m*\"", "principal = \"ada\""],
        [
            "annotations = { readOnlyHint = true }",
            "annotations = { openWorldHint = true }",
            "principal = \"*\"",
        ],
        [
            "arguments.\"/path\" = { matches = \"/tmp/.*\" }",
            "arguments = { \"/amount\" = { less_than = 100 }, \"/to/0\" = { equals = \"me\" } }",
            "arguments.\"/path\" = { equals = 1 }",
        ],
    ];
    if choices.one_in(4) {
        text = text
            + "kind = [\"package\", \"share\"]\n"
            + choices.pick(&["", "name = \"p*\"\n", "name = \"/*\"\n"]);
        lines.clear();
    }
    for line in lines {
        if choices.one_in(3) {
            text = text + choices.pick(&line) + "\n";
        }
    }
    text + choices.pick(&["effect = \"allow\"\n", "effect = \"ask\"\n", "effect = \"deny\"\n"])
}

#[test]
fn denials_at_any_place_never_allow_more() {
    fuzz("denials", &[], |bytes| {
        let mut choices = Choices::new(bytes);
        let mut rules: Vec<String> = (0..choices.below(8)).map(|_| rule(&mut choices)).collect();
        // Two of one kind in a rule are no policy.
        let Some(before) = parse(&rules.concat()) else { return };
        let at = choices.below(rules.len() + 1);
        rules.insert(at, choices.pick(&DENIALS).to_owned());
        let text = rules.concat();
        assert_no_freer(&decisions(&before), &parse(&text).unwrap(), &text);
    });
}

/// Says the same as `fits`, in the simplest way.
fn fits_simply(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => (0..=name.len()).any(|start| fits_simply(rest, &name[start..])),
        Some((first, rest)) => name.first() == Some(first) && fits_simply(rest, &name[1..]),
    }
}

#[test]
fn patterns_of_names_fit_as_they_read() {
    fuzz("patterns_of_names", &[], |bytes| {
        let mut choices = Choices::new(bytes);
        let pattern = choices.text(&["*", "a", "b", "ab", "\u{e4}"], 8);
        let name = choices.text(&["a", "b", "\u{e4}", "ba"], 10);
        assert_eq!(
            fits(&pattern, &name),
            fits_simply(pattern.as_bytes(), name.as_bytes()),
            "{pattern} {name}"
        );
    });
}
