//! Several engines: where sessions go, and what becomes of them when one is killed.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use codebridge_runtimes::exec::{self, CommandLine, spawn_piped};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::task::JoinSet;

use crate::bridge::Bridge;
use crate::http::Client;
use crate::options::Options;
use crate::table::{Table, ms, p50_p99};

const NAMES: [&str; 3] = ["one", "two", "three"];
const SESSIONS: usize = 12;
/// Warm calls of each session.
const CALLS: usize = 20;
/// What runs when an engine is killed, and how long after its beginning.
const LONG: &str = "import time; time.sleep(6)";
const INTO_IT: Duration = Duration::from_secs(2);
/// How long a service may take to start, and to get sessions again.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

/// A podman service with containers of its own.
struct Service {
    podman: PathBuf,
    folder: PathBuf,
    images: PathBuf,
    child: Child,
}

impl Service {
    async fn start(podman: &Path, folder: PathBuf, images: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(&folder)?;
        let (podman, images) = (podman.to_owned(), images.to_owned());
        let child = serve(&command(&podman, &folder, &images), &folder).await?;
        Ok(Self { podman, folder, images, child })
    }

    fn url(&self) -> String {
        url(&self.folder)
    }

    fn command(&self) -> CommandLine {
        command(&self.podman, &self.folder, &self.images)
    }

    /// Returns how many containers it has; it does not have to run.
    async fn containers(&self) -> io::Result<usize> {
        let done = exec::run(self.command().args(["ps", "--all", "--quiet"]), PATIENCE).await;
        let done = done.and_then(exec::Finished::success).map_err(io::Error::other)?;
        Ok(String::from_utf8_lossy(&done.stdout).lines().count())
    }

    async fn kill(&mut self) -> io::Result<()> {
        self.child.kill().await
    }

    async fn start_again(&mut self) -> io::Result<()> {
        self.child = serve(&self.command(), &self.folder).await?;
        Ok(())
    }

    async fn end(mut self) -> io::Result<()> {
        let _ = exec::run(self.command().args(["rm", "--force", "--all", "--time=0"]), PATIENCE).await;
        if let Some(pid) = self.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())) {
            kill_process(pid, Signal::TERM)?;
        }
        self.child.wait().await?;
        // It mounts its storage onto itself.
        if let Some(umount) = exec::find_program(Path::new("umount")) {
            let mounted = self.folder.join("root/overlay");
            let _ = exec::run(CommandLine::new(umount).arg("--lazy").arg(mounted), PATIENCE).await;
        }
        Ok(())
    }
}

fn url(folder: &Path) -> String {
    format!("unix://{}", folder.join("sock").display())
}

fn command(podman: &Path, folder: &Path, images: &Path) -> CommandLine {
    let store = format!("overlay.imagestore={}", images.display());
    let command = CommandLine::new(podman).arg("--root").arg(folder.join("root"));
    let command = command.arg("--runroot").arg(folder.join("run")).arg("--tmpdir").arg(folder.join("tmp"));
    command.args(["--storage-driver=overlay", "--storage-opt", &store])
}

async fn serve(command: &CommandLine, folder: &Path) -> io::Result<Child> {
    let socket = folder.join("sock");
    // What listened before says nothing of this one.
    let _ = std::fs::remove_file(&socket);
    let command = command.clone().args(["system", "service", "--time=0", &url(folder)]);
    let child = spawn_piped(&command).map_err(io::Error::other)?;
    let began = Instant::now();
    while UnixStream::connect(&socket).await.is_err() {
        if began.elapsed() > PATIENCE {
            return Err(io::Error::other("podman does not listen"));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(child)
}

/// What a call was answered with, and when.
struct Answer {
    client: Client,
    session: usize,
    result: Value,
    at: Instant,
}

pub(crate) async fn measure(options: &Options, table: &mut Table) -> io::Result<()> {
    let Some(images) = &options.engine_images else { return Ok(()) };
    let podman = exec::find_program(Path::new("podman")).ok_or_else(|| io::Error::other("no podman"))?;
    let folder = tempfile::tempdir()?;
    let mut services = Vec::new();
    for name in NAMES {
        services.push(Service::start(&podman, folder.path().join(name), images).await?);
    }
    let measured = spread(options, &folder, &mut services, table).await;
    for service in services {
        service.end().await?;
    }
    measured
}

async fn spread(
    options: &Options,
    folder: &TempDir,
    services: &mut [Service],
    table: &mut Table,
) -> io::Result<()> {
    let first = start(options, folder, &services[..1]).await?;
    let (alone, clients) = new_sessions(&first).await?;
    drop(clients);
    first.stop().await?;
    let bridge = start(options, folder, services).await?;
    let (mut times, clients) = new_sessions(&bridge).await?;
    let (middle, late) = p50_p99(&mut times);
    let (of_one, _) = p50_p99(&mut alone.clone());
    let text = format!("{} / {} ms; {} ms on one engine", ms(middle), ms(late), ms(of_one));
    table.row(&format!("a new session on one of {} podman services, p50 / p99", services.len()), &text, "-");
    table.row(&format!("where {SESSIONS} sessions are"), &distribution(services).await?, "even");
    let (mut warm, clients) = warm_calls(clients).await?;
    let (middle, late) = p50_p99(&mut warm);
    table.row("a warm call there, p50 / p99", &format!("{} / {} ms", ms(middle), ms(late)), "-");
    let clients = lose_one(clients, &mut services[0], table).await?;
    table.row("where the sessions are then", &distribution(&services[1..]).await?, "on the other two");
    let began = Instant::now();
    services[0].start_again().await?;
    let mut late = clients;
    let mut number = 0;
    // What ran there is removed first; a new session goes to the engine with the fewest.
    while services[0].containers().await? == 0 || number == 0 {
        let at = number % late.len();
        late[at].run("1", "new").await?;
        number += 1;
        if began.elapsed() > PATIENCE {
            return Err(io::Error::other("the engine that is back gets no session"));
        }
    }
    let text = format!("{:.1} s", began.elapsed().as_secs_f64());
    table.row("until the engine that is back has a session again", &text, "set aside 5 s at first");
    drop(late);
    bridge.stop().await
}

async fn start(options: &Options, folder: &TempDir, services: &[Service]) -> io::Result<Bridge> {
    let file = |name: &str| Some(folder.path().join(name).to_string_lossy().into_owned());
    std::fs::write(folder.path().join("containers.conf"), "")?;
    let env =
        [("CONTAINERS_CONF", file("containers.conf")), ("PODMAN_CONNECTIONS_CONF", file("connections.json"))];
    for (service, name) in services.iter().zip(NAMES) {
        let add =
            CommandLine::new(&service.podman).args(["system", "connection", "add", name, &service.url()]);
        let done = exec::run(add.env(env.clone()), PATIENCE).await;
        drop(done.and_then(exec::Finished::success).map_err(io::Error::other)?);
    }
    let targets: Vec<String> = NAMES[..services.len()].iter().map(|name| format!("podman:{name}")).collect();
    let most = (2 * SESSIONS).to_string();
    let flags = [
        "--runtime",
        &targets.join(","),
        "--image",
        &options.engine_image,
        "--warm",
        "0",
        "--max-sessions",
        &most,
        "--max-runs",
        &most,
    ];
    Bridge::start_with(CommandLine::new(&options.program).env(env), 1, &flags).await
}

/// Opens the sessions one after the other, each by a client of its own, and returns how long each took.
async fn new_sessions(bridge: &Bridge) -> io::Result<(Vec<Duration>, Vec<Client>)> {
    // The first one waits until all engines were tried.
    let mut probing = bridge.client(0).await?;
    probing.open().await?;
    probing.run("1", "new").await?;
    let (mut times, mut clients) = (Vec::new(), Vec::new());
    for number in 0..SESSIONS {
        let mut client = bridge.client(0).await?;
        client.open().await?;
        let began = Instant::now();
        client.run("1", &format!("s{number}")).await?;
        times.push(began.elapsed());
        clients.push(client);
    }
    Ok((times, clients))
}

async fn warm_calls(clients: Vec<Client>) -> io::Result<(Vec<Duration>, Vec<Client>)> {
    let (mut times, mut done) = (Vec::new(), Vec::new());
    for (number, mut client) in clients.into_iter().enumerate() {
        for _ in 0..CALLS {
            let began = Instant::now();
            client.run("1", &format!("s{number}")).await?;
            times.push(began.elapsed());
        }
        done.push(client);
    }
    Ok((times, done))
}

/// Kills an engine while code runs in all sessions.
async fn lose_one(clients: Vec<Client>, service: &mut Service, table: &mut Table) -> io::Result<Vec<Client>> {
    let mut running = JoinSet::new();
    for (session, mut client) in clients.into_iter().enumerate() {
        running.spawn(async move {
            let result = client.call(LONG, &format!("s{session}")).await?;
            Ok::<_, io::Error>(Answer { client, session, result, at: Instant::now() })
        });
    }
    tokio::time::sleep(INTO_IT).await;
    let killed = Instant::now();
    service.kill().await?;
    let (mut lost, mut kept) = (Vec::new(), Vec::new());
    while let Some(answer) = running.join_next().await {
        let answer = answer.map_err(io::Error::other)??;
        if answer.result["isError"] == false { kept.push(answer) } else { lost.push(answer) }
    }
    let mut times: Vec<Duration> = lost.iter().map(|answer| answer.at - killed).collect();
    let said = lost.first().map(|answer| answer.result["structuredContent"]["error"].to_string());
    let (middle, late) = p50_p99(&mut times);
    let text = format!(
        "{} calls are told after {} / {} ms: {}; {} go on",
        lost.len(),
        ms(middle),
        ms(late),
        said.unwrap_or_default().replace('|', " "),
        kept.len()
    );
    table.row("an engine is killed while code runs in all, p50 / p99", &text, "-");
    let (mut times, mut clients) = (Vec::new(), Vec::new());
    for Answer { mut client, session, .. } in lost {
        let began = Instant::now();
        client.run("1", &format!("s{session}")).await?;
        times.push(began.elapsed());
        clients.push(client);
    }
    let (middle, late) = p50_p99(&mut times);
    let text = format!("{} / {} ms", ms(middle), ms(late));
    table.row("the next call of a session that was lost, p50 / p99", &text, "as a new session");
    clients.extend(kept.into_iter().map(|answer| answer.client));
    Ok(clients)
}

async fn distribution(services: &[Service]) -> io::Result<String> {
    let mut counts = Vec::new();
    for service in services {
        counts.push(service.containers().await?.to_string());
    }
    Ok(counts.join(", "))
}
