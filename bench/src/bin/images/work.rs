//! The figures, taken in turns, each in folders of its own.

use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use codebridge_runtimes::exec::{self, CommandLine};

use crate::options::Options;
use crate::registry::{Registry, program};

/// Nothing here takes as long.
const LIMIT: Duration = Duration::from_secs(600);

/// Who does it.
struct Who {
    name: &'static str,
    /// User and group, for another than root.
    ids: Option<(u32, u32)>,
    home: PathBuf,
}

impl Who {
    /// Runs a command in an environment of its own; gives how long it took.
    async fn run(&self, store: &Path, words: &[&str]) -> io::Result<Duration> {
        let mut argv: Vec<OsString> = Vec::new();
        if let Some((uid, gid)) = self.ids {
            argv.push(program("setpriv")?.into());
            let ids =
                [format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".into(), "--".into()];
            argv.extend(ids.map(OsString::from));
        }
        argv.push(program("env")?.into());
        for (name, value) in [("HOME", self.home.as_path()), ("XDG_DATA_HOME", store)] {
            argv.push(format!("{name}={}", value.display()).into());
        }
        if self.ids.is_some() {
            // Somewhere of its own, where skopeo looks for logins.
            argv.push(format!("XDG_RUNTIME_DIR={}", self.home.display()).into());
        }
        argv.extend(words.iter().map(OsString::from));
        let command = CommandLine::new(PathBuf::from(argv.remove(0))).args(argv);
        // What others have written a moment ago is not for this one to wait for.
        let sync = CommandLine::new(program("sync")?);
        exec::run(sync, LIMIT).await.map_err(io::Error::other)?;
        let began = Instant::now();
        exec::run(command, LIMIT).await.and_then(exec::Finished::success).map_err(io::Error::other)?;
        Ok(began.elapsed())
    }

    /// A new folder, empty and this one's own.
    fn folder(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.home.join(name);
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        if let Some((uid, gid)) = self.ids {
            chown(&path, Some(uid), Some(gid))?;
        }
        Ok(path)
    }
}

pub(crate) async fn measure(options: &Options) -> io::Result<String> {
    let folder = tempfile::Builder::new().prefix("codebridge-bench-").tempdir_in(&options.folder)?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let registry = Registry::start(folder.path()).await?;
    let measured = measure_with(options, &registry, folder.path()).await;
    registry.stop().await;
    folder.close()?;
    measured
}

async fn measure_with(options: &Options, registry: &Registry, folder: &Path) -> io::Result<String> {
    let image = format!("{}/bench:latest", registry.host);
    let mut everybody = vec![Who { name: "root", ids: None, home: folder.join("root") }];
    if let Some(user) = &options.user {
        let ids = user.split_once(':').and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
        let ids = ids.ok_or_else(|| io::Error::other("--user takes UID:GID"))?;
        everybody.push(Who { name: "a user", ids: Some(ids), home: folder.join("user") });
    }
    for who in &everybody {
        fs::create_dir(&who.home)?;
        if let Some((uid, gid)) = who.ids {
            chown(&who.home, Some(uid), Some(gid))?;
        }
    }
    let skopeo = program("skopeo")?.display().to_string();
    let push = [&skopeo, "copy", "--dest-tls-verify=false", &options.image, &format!("docker://{image}")];
    everybody[0].run(folder, &push).await?;
    let mut table =
        String::from("| figure | who | codebridge | skopeo, umoci | ratio |\n|---|---|---|---|---|\n");
    for who in &everybody {
        let (pull, unpack) = in_turns(options, who, &skopeo, &image).await?;
        row(&mut table, "pull and unpack", who.name, pull);
        row(&mut table, "unpack", who.name, unpack);
    }
    first_call(options, &everybody[0], &image, &mut table).await?;
    Ok(table)
}

/// Ours and theirs.
type Both = (Vec<Duration>, Vec<Duration>);

async fn in_turns(options: &Options, who: &Who, skopeo: &str, image: &str) -> io::Result<(Both, Both)> {
    let ours = fs::canonicalize(&options.program)?.display().to_string();
    let umoci = program("umoci")?.display().to_string();
    let rootless: &[&str] = if who.ids.is_some() { &["--rootless"] } else { &[] };
    let (mut pull, mut unpack) = (Both::default(), Both::default());
    for _ in 0..options.rounds {
        let store = who.folder("store")?;
        pull.0.push(who.run(&store, &[&ours, "image", "pull", image]).await?);
        let store = who.folder("store")?;
        let layout = format!("{}/layout:bench", store.display());
        let (bundle, second) = (store.join("bundle"), store.join("second"));
        let copy = [
            skopeo,
            "copy",
            "--src-tls-verify=false",
            &format!("docker://{image}"),
            &format!("oci:{layout}"),
        ];
        let copied = who.run(&store, &copy).await?;
        let to = |bundle: &Path| -> Vec<String> {
            let words = [&[umoci.as_str(), "unpack"], rootless, &["--image", &layout]].concat();
            words.into_iter().map(String::from).chain([bundle.display().to_string()]).collect()
        };
        let words = to(&bundle);
        let unpacked = who.run(&store, &words.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        pull.1.push(copied + unpacked);
        // The same layout for both.
        unpack.0.push(who.run(&store, &[&ours, "image", "pull", &format!("oci:{layout}")]).await?);
        let words = to(&second);
        unpack.1.push(who.run(&store, &words.iter().map(String::as_str).collect::<Vec<_>>()).await?);
    }
    let _ = who.folder("store")?;
    Ok((pull, unpack))
}

/// The whole of a program that runs one line of Python, with everything at hand.
async fn first_call(options: &Options, who: &Who, image: &str, table: &mut String) -> io::Result<()> {
    let ours = fs::canonicalize(&options.program)?.display().to_string();
    let podman = program("podman")?.display().to_string();
    let store = who.folder("store")?;
    let pull = [podman.as_str(), "pull", "--quiet", "--tls-verify=false", image];
    who.run(&store, &pull).await?;
    let mut both = Both::default();
    let measured = async {
        let run = [ours.as_str(), "--runtime", &options.runtime, "--image", image, "exec", "-c", "print(1)"];
        // Unpacks, and finds out what works here.
        who.run(&store, &run).await?;
        let theirs =
            ["run", "--rm", "--network=none", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"];
        let theirs = [&[podman.as_str()], &theirs[..], &[image, "python3", "-c", "print(1)"]].concat();
        for _ in 0..options.rounds * 3 {
            both.0.push(who.run(&store, &run).await?);
            both.1.push(who.run(&store, &theirs).await?);
        }
        io::Result::Ok(())
    };
    let measured = measured.await;
    who.run(&store, &[&podman, "rmi", "--force", image]).await?;
    measured?;
    row(table, &format!("first call, {} beside podman", options.runtime), who.name, both);
    Ok(())
}

fn row(table: &mut String, figure: &str, who: &str, (mut ours, mut theirs): Both) {
    let (ours, theirs) = (median(&mut ours), median(&mut theirs));
    let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
    // Writing to a string cannot fail.
    let _ = writeln!(
        table,
        "| {figure} | {who} | {:.2} s | {:.2} s | {ratio:.2} |",
        ours.as_secs_f64(),
        theirs.as_secs_f64()
    );
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
