//! What a policy and the audit log add to a call.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use codebridge::audit::Audit;
use codebridge::policy::{Policy, Source};
use codebridge::settings::{AuditLevel, AuditMode};
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
    let audit = |level, required| Audit::at(home.path().join("audit"), AuditMode { level, required });
    let few = "[[rule]]\nserver = \"x\"\neffect = \"deny\"\n[[rule]]\nserver = \"server-*\"\narguments.\"/text\" = { matches = \"as long .*\" }\neffect = \"allow\"\n";
    let many: String =
        (0..RULES).map(|n| format!("[[rule]]\nserver = \"other-{n}\"\neffect = \"deny\"\n")).collect();
    let ways = [
        upstream(home.path(), Policy::none(), Audit::off()),
        upstream(home.path(), policy(home.path(), "few.toml", few)?, Audit::off()),
        upstream(home.path(), policy(home.path(), "many.toml", &(many + few))?, Audit::off()),
        upstream(home.path(), Policy::none(), audit(AuditLevel::On, false)),
        upstream(home.path(), policy(home.path(), "audited.toml", few)?, audit(AuditLevel::On, false)),
        upstream(home.path(), Policy::none(), audit(AuditLevel::Full, false)),
        upstream(home.path(), Policy::none(), audit(AuditLevel::On, true)),
    ];
    let mut times: [Vec<Duration>; 7] = Default::default();
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
    let [none, few, many, audited, both, full, required] = times.each_mut().map(|times| at(times, 0.5));
    let bound = "<= 30 µs, with the audit log";
    let added = |time: Duration| micros(time.saturating_sub(none));
    table.row("a policy with a condition adds to a call, p50", &added(few), bound);
    table.row(&format!("the same behind {RULES} rules, p50"), &added(many), "the same");
    table.row("the audit log adds to a call, p50", &added(audited), "");
    table.row("policy and audit log together, p50", &added(both), "<= 30 µs");
    table.row("the audit log with arguments and results, p50", &added(full), "");
    table.row("the audit log where it is required, p50", &added(required), "the disk");
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
