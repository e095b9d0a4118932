//! The bare runtime: the same image, the same constraints, and `python3 -c` in place of a session.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use codebridge_runtimes::{
    AnyDriver, CgroupMode, Instance, Limits, Owner, PodSettings, RootFs, RuntimeId, RuntimeKind, Sandbox,
    SandboxSpec, StateDir, Tmpfs, User,
};
use tokio::io::AsyncReadExt;

/// Before a first call or a bare run nothing is started for this long. A process that moves into a control group right after
/// another one is let in at once; after a pause it waits for the kernel, some ten milliseconds, whoever starts it.
pub const IDLE: Duration = Duration::from_millis(200);

/// Runs the runtime without a bridge.
pub struct Bare {
    driver: Arc<AnyDriver>,
    instance: Arc<Instance>,
    root: RootFs,
}

impl Bare {
    /// # Errors
    /// The folder of the sandboxes cannot be written.
    pub fn new(kind: RuntimeKind, program: std::path::PathBuf, root: RootFs) -> io::Result<Self> {
        let id = RuntimeId::local(kind, program, CgroupMode::Direct);
        let owner = Owner::this_process(format!("bench{}{kind}", std::process::id()));
        let instance = StateDir::usual().create_instance(&owner).map_err(io::Error::other)?;
        Ok(Self { driver: Arc::new(AnyDriver::new(id)), instance: Arc::new(instance), root })
    }

    fn spec(&self, argv: Vec<String>) -> SandboxSpec {
        SandboxSpec {
            name: self.instance.next_name(),
            root: self.root.clone(),
            argv,
            env: vec![
                ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
                ("HOME".into(), "/workspace".into()),
            ],
            cwd: "/workspace".into(),
            hostname: "sandbox".into(),
            tmpfs: [("/tmp", 64 << 20), ("/workspace", 128 << 20), ("/projects", 16 << 20)]
                .map(|(target, size)| Tmpfs { target: target.into(), size })
                .to_vec(),
            folders: Vec::new(),
            shares: Vec::new(),
            copied_shares: Vec::new(),
            knows_addresses: false,
            user: User { uid: 65534, gid: 65534 },
            limits: Limits { memory: 512 << 20, pids: 128, cpus: None, descriptors: 1024 },
            owner: self.instance.owner().clone(),
            security_options: Vec::new(),
            volumes: Vec::new(),
            pod: PodSettings::default(),
        }
    }

    /// Starts a sandbox with this command.
    ///
    /// # Errors
    /// The runtime does not start it.
    pub async fn start(&self, argv: Vec<String>) -> io::Result<Sandbox> {
        let plan = self.driver.plan(&self.spec(argv), &self.instance).map_err(io::Error::other)?;
        Sandbox::launch(&self.driver, plan, &self.instance).await.map_err(io::Error::other)
    }

    /// The whole of `RUNTIME run … python3 -c 'print(1+1)'`, from its start to its end.
    ///
    /// # Errors
    /// The run failed.
    pub async fn run(&self) -> io::Result<Duration> {
        let spec = self.spec(["python3", "-B", "-c", "print(1+1)"].map(String::from).to_vec());
        // Files are written before the clock starts: a bare runtime finds its bundle ready.
        let plan = self.driver.plan(&spec, &self.instance).map_err(io::Error::other)?;
        let warm =
            Sandbox::launch(&self.driver, plan.clone(), &self.instance).await.map_err(io::Error::other)?;
        warm.end().await.map_err(io::Error::other)?;
        tokio::time::sleep(IDLE).await;
        let started = Instant::now();
        let mut sandbox =
            Sandbox::launch(&self.driver, plan, &self.instance).await.map_err(io::Error::other)?;
        let mut output = String::new();
        if let Some(mut stdout) = sandbox.take_stdout() {
            stdout.read_to_string(&mut output).await?;
        }
        let end = sandbox.wait().await?;
        let elapsed = started.elapsed();
        let failure = sandbox.with_messages(&format!("the bare runtime failed: {end:?}"));
        sandbox.end().await.map_err(io::Error::other)?;
        if output.trim() == "2" { Ok(elapsed) } else { Err(io::Error::other(failure)) }
    }

    /// # Errors
    /// The folder of the sandboxes cannot be removed.
    pub fn close(self) -> io::Result<()> {
        self.instance.remove().map_err(io::Error::other)
    }
}
