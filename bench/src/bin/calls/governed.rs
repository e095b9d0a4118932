//! What a policy adds to a call.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use codebridge::policy::{Policy, Source};
use codebridge::upstream::{CallOptions, RawArguments, Upstream};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::server::first_tool;
use crate::table::{Table, at, home, micros};
use crate::warm::{SERVER, TEXT, TOOLS, upstream};

/// Calls of one way before it is the other's turn.
const TURN: usize = 50;
/// Rules of a large policy.
const RULES: usize = 10_000;

/// Calls the same server without a policy, with two rules, and with thousands, in turns.
pub(crate) async fn measure(calls: usize, table: &mut Table) -> io::Result<()> {
    let home = home(1, TOOLS)?;
    let few = "[[rule]]\nserver = \"x\"\neffect = \"deny\"\n[[rule]]\nserver = \"server-*\"\narguments.\"/text\" = { matches = \"as long .*\" }\neffect = \"allow\"\n";
    let many: String =
        (0..RULES).map(|n| format!("[[rule]]\nserver = \"other-{n}\"\neffect = \"deny\"\n")).collect();
    let ways = [
        upstream(home.path(), Policy::none()),
        upstream(home.path(), policy(home.path(), "few.toml", few)?),
        upstream(home.path(), policy(home.path(), "many.toml", &(many + few))?),
    ];
    let mut times: [Vec<Duration>; 3] = Default::default();
    while times[0].len() <= calls {
        for (way, times) in ways.iter().zip(&mut times) {
            let is_first = times.is_empty();
            for _ in 0..TURN {
                times.push(call(way).await?);
            }
            if is_first {
                // The server was started, the policy read.
                times.truncate(1);
            }
        }
    }
    let [none, few, many] = times.each_mut().map(|times| at(times, 0.5));
    let bound = "<= 30 µs, with the audit log";
    table.row("a policy with a condition adds to a call, p50", &micros(few.saturating_sub(none)), bound);
    table.row(&format!("the same behind {RULES} rules, p50"), &micros(many.saturating_sub(none)), "the same");
    for way in ways {
        way.shutdown().await;
    }
    Ok(())
}

fn policy(home: &Path, name: &str, text: &str) -> io::Result<Policy> {
    let file = home.join(name);
    std::fs::write(&file, text)?;
    Ok(Policy::new(Source::Named(file), home.join("accepted-tools")))
}

async fn call(upstream: &Upstream) -> io::Result<Duration> {
    let arguments = RawArguments::new(json!({ "text": TEXT }).to_string()).map_err(io::Error::other)?;
    let cancel = CancellationToken::new();
    let began = Instant::now();
    upstream
        .call(SERVER, &first_tool(), arguments, CallOptions::new(&cancel))
        .await
        .map_err(io::Error::other)?;
    Ok(began.elapsed())
}
