//! Searches for anything among tools of any names.

use std::collections::HashSet;

use codebridge_fuzz::{Choices, fuzz};

use super::tests::{index, tool};
use super::*;
use crate::upstream::ToolDoc;

const WORDS: [&str; 20] = [
    "create", "issue", "list", "issues", "delete", "file", "_", " ", "the", "screenshot", "screen", "shot",
    "x", "set", "timer", ". ", "-", "repo", "\u{fc}ber", "2",
];

fn docs(choices: &mut Choices<'_>) -> Vec<ToolDoc> {
    let doc = |choices: &mut Choices<'_>| tool(&choices.text(&WORDS, 5), &choices.text(&WORDS, 12));
    (0..choices.below(8)).map(|_| doc(choices)).collect()
}

#[test]
fn search_is_stable_and_hides_no_exact_name() {
    fuzz("search", &[], |bytes| {
        let mut choices = Choices::new(bytes);
        let mut servers: Vec<(String, Vec<ToolDoc>)> =
            (0..1 + choices.below(3)).map(|_| (choices.text(&WORDS, 3), docs(&mut choices))).collect();
        let all: Vec<_> = servers.iter().map(|(_, docs)| docs.len()).collect();
        let count: usize = all.iter().sum();
        let before = index(&servers);
        let query = choices.text(&WORDS, 8);
        let hits = before.search(&query, usize::MAX);
        assert_eq!(hits, before.search(&query, usize::MAX), "another order for {query:?}");
        assert_eq!(hits, index(&servers).search(&query, usize::MAX), "another order for {query:?}");
        assert_eq!(hits.iter().collect::<HashSet<_>>().len(), hits.len(), "a tool is found twice");
        assert!(hits.iter().all(|hit| hit.tool < all[hit.server]), "{hits:?}");
        let limit = choices.below(count + 2);
        assert_eq!(
            before.search(&query, limit),
            hits[..limit.min(hits.len())],
            "the first {limit} for {query:?}"
        );
        // Another tool hides none that is asked for by its name.
        let named = choices.below(servers.len());
        let Some(name) = servers[named].1.first().map(|doc| doc.name.to_string()) else { return };
        let wanted = Hit { server: named, tool: 0 };
        let is_found = before.search(&name, usize::MAX).contains(&wanted);
        let more = docs(&mut choices);
        servers.push((choices.text(&WORDS, 3), more));
        let after = index(&servers).search(&name, usize::MAX);
        assert!(!is_found || after.contains(&wanted), "{name:?} is hidden by {:?}", servers.last());
    });
}
