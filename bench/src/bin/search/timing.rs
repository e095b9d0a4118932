//! Sizes and times of the catalogue and the search.

use std::fmt::Write;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use codebridge::upstream::About;
use codebridge::upstream::catalog::{Catalog, Detail, ListedServer, ToolItem};

use crate::data::{Query, Server};

/// The size that the bounds are for.
const MANY: usize = 10_000;
/// Searches per query.
const ROUNDS: usize = 20;
const HEADER: &str = "| figure | tools | measured | bound |\n|---|---|---|---|\n";

struct Table(String);

impl Table {
    fn row(&mut self, figure: &str, tools: usize, measured: &str, bound: &str) {
        let _ = writeln!(self.0, "| {figure} | {tools} | {measured} | {bound} |");
    }
}

pub(crate) fn measure(servers: &[Server], queries: &[Query]) -> io::Result<String> {
    let mut table = Table(HEADER.into());
    // The larger size first, because the first search of a process is the slowest.
    for tools in [MANY, servers.iter().map(|server| server.docs.len()).sum()] {
        at_size(servers, queries, tools, &mut table)?;
    }
    Ok(table.0)
}

/// Has a model read the tools of the servers, and times searches by words and meaning.
pub(crate) fn measure_model(servers: &[Server], queries: &[Query], model: PathBuf) -> io::Result<String> {
    let mut table = Table(HEADER.into());
    let folder = tempfile::tempdir()?;
    let tools = servers.iter().map(|server| server.docs.len()).sum();
    let catalog = || Catalog::at(folder.path().to_owned()).with_model(Some(model.clone()));
    let first = catalog();
    let listed = fill(&first, servers, tools);
    let started = Instant::now();
    first.prepare(&listed, |_| true).transpose().map_err(io::Error::other)?;
    table.row("read all tools with the model", tools, &milliseconds(started.elapsed()), "-");
    // As in a new process: the model and all vectors are loaded.
    let catalog = catalog();
    let started = Instant::now();
    catalog.search(&listed, "create an issue", 5);
    table.row("first search", tools, &milliseconds(started.elapsed()), "-");
    searches(&catalog, &listed, queries, "p99 <= 30 ms", &mut table);
    Ok(table.0)
}

fn at_size(servers: &[Server], queries: &[Query], tools: usize, table: &mut Table) -> io::Result<()> {
    let folder = tempfile::tempdir()?;
    let started = Instant::now();
    let listed = fill(&Catalog::at(folder.path().to_owned()), servers, tools);
    table.row("take in all tools", tools, &milliseconds(started.elapsed()), "-");
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder.path())? {
        bytes += entry?.metadata()?.len();
    }
    table.row("bytes on disk", tools, &format!("{:.0} KB", bytes as f64 / 1e3), "-");

    let catalog = Catalog::at(folder.path().to_owned());
    let started = Instant::now();
    let known = listed.iter().filter(|server| catalog.docs(&server.key).is_some()).count();
    let load = started.elapsed();
    assert_eq!(known, listed.len(), "every server was kept");
    table.row("load", tools, &milliseconds(load), if tools == MANY { "<= 100 ms" } else { "-" });

    // As in a new process: load, index, search.
    let catalog = Catalog::at(folder.path().to_owned());
    let started = Instant::now();
    let found = catalog.search(&listed, "create an issue", 5);
    let bound = if tools == MANY { "<= 150 ms" } else { "-" };
    table.row("first search", tools, &milliseconds(started.elapsed()), bound);
    assert!(found.unknown.is_empty());

    let bound = if tools >= MANY { "p99 <= 20 ms" } else { "p99 <= 5 ms" };
    searches(&catalog, &listed, queries, bound, table);
    Ok(())
}

/// Stores the servers, repeated under other names, until there are this many tools.
pub(crate) fn fill(catalog: &Catalog, servers: &[Server], tools: usize) -> Vec<ListedServer> {
    let mut listed = Vec::new();
    let mut left = tools;
    for (round, server) in (0..).flat_map(|round| servers.iter().map(move |server| (round, server))) {
        if left == 0 {
            break;
        }
        let name = if round == 0 { server.name.clone() } else { format!("{}-{round}", server.name) };
        let docs: Vec<_> = server.docs.iter().take(left).cloned().collect();
        left -= docs.len();
        let key = Arc::from(format!("definition-of-{name}"));
        catalog.keep(&key, About::default(), docs);
        listed.push(ListedServer { alias: name.replace('-', "_"), name, key });
    }
    listed
}

fn searches(catalog: &Catalog, listed: &[ListedServer], queries: &[Query], bound: &str, table: &mut Table) {
    let known = listed.iter().filter_map(|server| catalog.docs(&server.key));
    let tools = known.map(|docs| docs.tools().len()).sum();
    let mut times = Vec::new();
    let mut sizes = Vec::new();
    for round in 0..ROUNDS {
        for query in queries {
            let started = Instant::now();
            let found = catalog.search(listed, &query.text, 5);
            let items: Vec<_> =
                found.tools.iter().filter_map(|tool| tool.item(listed, Detail::Summary)).collect();
            times.push(started.elapsed());
            if round == 0 && items.len() == 5 {
                let brief: Vec<_> = items.iter().map(brief).collect();
                sizes.push(serde_json::Value::from(brief).to_string().len());
            }
        }
    }
    times.sort_unstable();
    sizes.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    let measured = format!(
        "p50 {}, p99 {}, most {}",
        milliseconds(at(0.5)),
        milliseconds(at(0.99)),
        milliseconds(at(1.0))
    );
    table.row("search, with its answer", tools, &measured, bound);
    if let Some(median) = sizes.get(sizes.len() / 2) {
        let measured = format!("{} tokens (bytes / 4)", median / 4);
        table.row("answer of five, median", tools, &measured, "<= 300");
    }
}

/// Returns a tool without the fields that repeat its names.
fn brief(item: &ToolItem) -> serde_json::Value {
    let mut value = serde_json::json!(item);
    let repeats = [
        ("name", true),
        ("serverAlias", item.server_alias == item.server),
        ("toolAlias", item.tool_alias == item.tool),
    ];
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|key, _| !repeats.contains(&(key.as_str(), true)));
    }
    value
}

fn milliseconds(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}
