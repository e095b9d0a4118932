//! The ranking as a whole, on a handful of tools.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::upstream::ToolDoc;

pub(super) fn tool(name: &str, description: &str) -> ToolDoc {
    ToolDoc { name: name.into(), description: description.into(), ..ToolDoc::default() }
}

fn server(name: &str, docs: Vec<ToolDoc>) -> (String, Vec<ToolDoc>) {
    (name.to_owned(), docs)
}

fn servers() -> Vec<(String, Vec<ToolDoc>)> {
    let issue =
        json!({ "properties": { "state": { "enum": ["open", "closed"], "description": "Of the ticket" } } });
    vec![
        server(
            "forge",
            vec![
                tool("create_issue", "Creates an issue in a repository."),
                ToolDoc { input_schema: issue, ..tool("list_issues", "Lists issues of a repository.") },
                tool("merge_pull_request", "Merges a pull request."),
                tool("delete_branch", "Deletes a branch of a repository."),
            ],
        ),
        server(
            "paper-mill",
            vec![
                tool("list_documents", "Lists documents of a folder."),
                tool("delete_document", "Deletes a document."),
                tool("takeScreenshot", "Takes a picture of a page."),
                tool("export_pdf", "Saves a document in another format."),
            ],
        ),
        server(
            "clock",
            vec![tool("get_time", "Tells the time of a place."), tool("xsettimer", "Set a timer.")],
        ),
    ]
}

pub(super) fn index(servers: &[(String, Vec<ToolDoc>)]) -> Index {
    let indexed: Vec<_> = servers
        .iter()
        .map(|(name, docs)| IndexedServer {
            name: name.clone(),
            terms: Arc::new(Terms::of(docs, &Boilerplate::of(docs))),
        })
        .collect();
    Index::new(&indexed)
}

fn found(query: &str) -> Vec<String> {
    let servers = servers();
    let hits = index(&servers).search(query, 10);
    hits.iter().map(|hit| servers[hit.server].1[hit.tool].name.clone()).collect()
}

fn first(query: &str) -> String {
    found(query).into_iter().next().unwrap_or_default()
}

#[test]
fn words_of_the_name_find_a_tool() {
    assert_eq!(first("create issue"), "create_issue");
    assert_eq!(first("creating issues"), "create_issue");
    assert_eq!(first("take screenshot"), "takeScreenshot");
    assert_eq!(first("set timer"), "xsettimer");
}

#[test]
fn synonyms_find_a_tool() {
    assert_eq!(first("report a bug"), "create_issue");
    assert_eq!(first("erase file"), "delete_document");
    assert_eq!(first("merge request"), "merge_pull_request");
    assert_eq!(first("what o'clock is it in Lima"), "get_time");
}

#[test]
fn typos_and_wrong_spaces_are_corrected() {
    assert_eq!(first("delte documnet"), "delete_document");
    assert_eq!(first("screen shot"), "takeScreenshot");
    assert_eq!(first("listissues"), "list_issues");
}

#[test]
fn a_name_that_another_tool_writes_as_one_word_is_found() {
    // The second half is too common to be searched for.
    let docs = vec![tool("archive_the", ""), tool("archivethe", "")];
    let hits = index(&[server("store", docs)]).search("archive_the", 2);
    assert!(hits.iter().any(|hit| hit.tool == 0), "{hits:?}");
}

#[test]
fn a_whole_sentence_finds_a_tool() {
    assert_eq!(
        first("I need you to put together the changes of my pull request now, please."),
        "merge_pull_request"
    );
    assert_eq!(first("Which documents are there in this folder?"), "list_documents");
}

#[test]
fn a_server_that_is_named_comes_first() {
    assert_eq!(first("delete"), "delete_document");
    assert_eq!(first("forge delete"), "delete_branch");
    assert_eq!(first("paper mill delete"), "delete_document");
    let forge = found("forge");
    assert_eq!(forge.len(), 4, "all its tools: {forge:?}");
}

#[test]
fn parameters_are_searched() {
    assert_eq!(first("closed"), "list_issues");
    assert_eq!(first("ticket state"), "list_issues");
}

#[test]
fn a_query_to_show_finds_lists_before_deletions() {
    let documents = found("show document");
    let place = |name: &str| documents.iter().position(|found| found == name);
    assert!(place("list_documents") < place("delete_document"), "{documents:?}");
}

#[test]
fn a_query_without_known_words_finds_nothing() {
    assert_eq!(found(""), [""; 0]);
    assert_eq!(found("?! …"), [""; 0]);
    assert_eq!(found("zyzzyva"), [""; 0]);
    assert_eq!(index(&[]).search("issue", 5), []);
    assert_eq!(index(&[server("empty", Vec::new())]).search("issue", 5), []);
}

#[test]
fn stop_words_alone_are_searched() {
    let tools = vec![tool("current_user", "Tells the name of the account."), tool("other", "Else.")];
    let hits = index(&[server("s", tools)]).search("who am I", 5);
    assert_eq!(hits.first().map(|hit| hit.tool), Some(0));
}

#[test]
fn the_limit_holds_and_the_order_is_stable() {
    let servers = [server("s", (0..50).map(|i| tool(&format!("item_{i}"), "Lists items.")).collect())];
    let built = index(&servers);
    assert_eq!(built.search("items", 0), []);
    let all = built.search("items", 100);
    assert_eq!(all.len(), 50);
    assert!(all.iter().map(|hit| hit.tool).is_sorted(), "equal ones stay in the order of the server");
    assert_eq!(built.search("items", 7), all[..7]);
    assert_eq!(index(&servers).search("items", 100), all);
}

#[test]
fn a_hostile_query_is_answered() {
    let built = index(&servers());
    for query in [
        "issue ".repeat(100_000),
        "x".repeat(1_000_000),
        "🦀".repeat(10_000),
        "\0\u{202e}'’'s's".repeat(1000),
    ] {
        built.search(&query, 20);
    }
}

#[test]
fn a_hostile_list_of_servers_is_searched() {
    let names = ["", "!!!", "a a a a", "create issue", &"long ".repeat(1000)];
    let servers: Vec<_> =
        names.iter().map(|name| server(name, vec![tool("create_issue", "Creates.")])).collect();
    assert_eq!(index(&servers).search("create issue", 20).len(), 5);
}
