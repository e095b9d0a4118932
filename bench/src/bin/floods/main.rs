//! What a flood in one session does to another session, and to the memory of the bridge.
//!
//! `cargo run --release -p codebridge-bench --bin floods -- --sandbox crun=dir:/path`: for each flood a bridge of its own; warm
//! calls of one session are timed while it is quiet, and while the flood runs in another session.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use codebridge_bench::client::Bridge;
use codebridge_bench::machine;
use serde_json::{Map, Value, json};

/// How long a flood lasts.
const SECONDS: u64 = 8;
/// The pause between two calls, as a client makes: the calls themselves must not be the load.
const PAUSE: Duration = Duration::from_millis(10);
/// The tools whose names a mistyped one is compared with.
const SERVERS: usize = 40;
const TOOLS: usize = 250;
/// The largest question of code, and how much memory a bridge may use: 64 MiB and twice that.
const MOST_MEMORY: u64 = (64 + 2 * 64) << 10;
/// The longest warm call of the other session.
const LONGEST_CALL: Duration = Duration::from_millis(100);

const PRELUDE: &str = include_str!("prelude.py");
/// Code that floods the bridge itself.
const CODE: [(&str, &str); 5] = [
    ("names of 57 MB", include_str!("names.py")),
    ("18 million arguments", include_str!("arguments.py")),
    ("10,000 questions at once", include_str!("questions.py")),
    ("frames of withdrawal", include_str!("withdrawals.py")),
    ("output", include_str!("output.py")),
];
/// A server that floods the bridge during a call.
const SERVER: &str = include_str!("server.py");
const METHODS: [&str; 4] = ["ping", "sampling/createMessage", "elicitation/create", "roots/list"];

#[derive(Parser)]
struct Options {
    /// The bridge; built with `cargo build --release`.
    #[arg(long, default_value = "target/release/codebridge")]
    program: PathBuf,
    /// Where code runs: `crun=dir:/path/to/a/root`, `podman=python:3.14-slim`.
    #[arg(long, value_name = "RUNTIME=IMAGE", required = true)]
    sandbox: Vec<String>,
    /// Also write the table to `bench/results/DATE-floods.md`.
    #[arg(long)]
    save: bool,
}

/// A flood, and the servers that its call may use.
struct Flood {
    name: String,
    code: String,
    servers: Vec<String>,
}

/// What was measured.
#[derive(Default)]
struct Figures {
    quiet: Vec<Duration>,
    flooded: Vec<Duration>,
    /// In kibibytes.
    most_memory: u64,
    /// Whether the bridge ended when its input was closed.
    ended: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let done = measure(&options).await.and_then(|table| {
        io::stdout().write_all(table.as_bytes())?;
        if options.save { machine::save("-floods", &table) } else { Ok(()) }
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "floods: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(options: &Options) -> io::Result<String> {
    let header = machine::header(": floods in one session, warm calls of another");
    let mut table = format!(
        "{header}A warm call may take {LONGEST_CALL:?}, and the bridge may use {} MiB.\n\n\
         | flood | runtime | warm call before, p50 / max | during, p50 / p99 / max | most memory |\n|---|---|---|---|---|\n",
        MOST_MEMORY >> 10
    );
    let home = tempfile::tempdir()?;
    let config = define(home.path())?;
    for sandbox in &options.sandbox {
        let (runtime, image) =
            sandbox.split_once('=').ok_or_else(|| io::Error::other("RUNTIME=IMAGE is wanted"))?;
        let args = [
            "serve",
            "--runtime",
            runtime,
            "--image",
            image,
            "--state-dir",
            &home.path().to_string_lossy(),
            "--servers-config",
            &config.to_string_lossy(),
        ]
        .map(String::from);
        for flood in floods() {
            match run(&options.program, &args, &flood).await {
                Ok(mut figures) => table.push_str(&row(&flood.name, runtime, &mut figures)),
                Err(error) => table.push_str(&format!("| {} | {runtime} | - | {error} | - |\n", flood.name)),
            }
        }
    }
    Ok(table)
}

fn floods() -> Vec<Flood> {
    let of_code = |(name, code): (&str, &str)| Flood {
        name: name.into(),
        code: format!("SECONDS = {SECONDS}\n{PRELUDE}\n{code}"),
        servers: Vec::new(),
    };
    let of_server = |method: &str| Flood {
        name: format!("{method} of a server"),
        code: "await runtime.call_tool('flood-' + METHOD, 'flood', {})"
            .replace("METHOD", &format!("{:?}", short(method))),
        servers: vec![format!("flood-{}", short(method))],
    };
    CODE.into_iter().map(of_code).chain(METHODS.into_iter().map(of_server)).collect()
}

fn short(method: &str) -> &str {
    method.split('/').next().unwrap_or(method)
}

/// Writes definitions of servers with many tools, and of one for each flood; returns the file.
fn define(home: &Path) -> io::Result<PathBuf> {
    let server = home.join("server.py");
    std::fs::write(&server, SERVER)?;
    let many = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bin/floods/tools.py");
    let mut all: Map<String, Value> = (0..SERVERS)
        .map(|number| {
            let args = json!([many, number.to_string(), TOOLS.to_string()]);
            (format!("server-{number}"), json!({ "command": "python3", "args": args }))
        })
        .collect();
    for method in METHODS {
        let flood = json!({ "command": "python3", "args": [server, method] });
        all.insert(format!("flood-{}", short(method)), flood);
    }
    let config = home.join("servers.json");
    std::fs::write(&config, json!({ "mcpServers": all }).to_string())?;
    Ok(config)
}

async fn run(program: &Path, args: &[String], flood: &Flood) -> io::Result<Figures> {
    let mut bridge = Bridge::start(program, args).await?;
    let mut figures = Figures::default();
    // Every server has listed its tools, and both sessions are there.
    bridge.run("len(runtime.search_tool_docs_sync('alpha'))").await?;
    bridge.run_each("1", &["flood".to_owned()]).await?;
    figures.quiet = calls(&mut bridge, Duration::from_secs(2)).await?;
    bridge
        .begin(json!({
            "code": flood.code, "session": "flood", "servers": flood.servers, "timeout": SECONDS,
        }))
        .await?;
    figures.flooded = calls(&mut bridge, Duration::from_secs(SECONDS)).await?;
    figures.most_memory = bridge.status("VmHWM").unwrap_or_default();
    figures.ended = bridge.stop().await.is_ok();
    Ok(figures)
}

/// Times warm calls for so long.
async fn calls(bridge: &mut Bridge, span: Duration) -> io::Result<Vec<Duration>> {
    let began = Instant::now();
    let mut times = Vec::new();
    while began.elapsed() < span {
        times.push(bridge.run("1 + 1").await?);
        tokio::time::sleep(PAUSE).await;
    }
    Ok(times)
}

fn row(name: &str, runtime: &str, figures: &mut Figures) -> String {
    let ms = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
    let part = |times: &mut Vec<Duration>, part: f64| {
        times.sort_unstable();
        times[((times.len() - 1) as f64 * part) as usize]
    };
    let longest = part(&mut figures.flooded, 1.0);
    let verdict = |holds: bool| if holds { "" } else { " (too much)" };
    format!(
        "| {name} | {runtime} | {} / {} ms | {} / {} / {} ms{} | {} MiB{}{} |\n",
        ms(part(&mut figures.quiet, 0.5)),
        ms(part(&mut figures.quiet, 1.0)),
        ms(part(&mut figures.flooded, 0.5)),
        ms(part(&mut figures.flooded, 0.99)),
        ms(longest),
        verdict(longest <= LONGEST_CALL),
        figures.most_memory >> 10,
        verdict(figures.most_memory <= MOST_MEMORY),
        if figures.ended { "" } else { ", did not end" },
    )
}
