//! A registry on loopback, for as long as this lives.

use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use codebridge_runtimes::exec::{self, CommandLine};
use tokio::process::Child;

/// A program of this machine.
pub(crate) fn program(name: &str) -> io::Result<PathBuf> {
    exec::find_program(Path::new(name)).ok_or_else(|| io::Error::other(format!("{name} is not installed")))
}

/// It answers at once, or never.
const START: Duration = Duration::from_secs(20);

pub(crate) struct Registry {
    /// Address and port.
    pub(crate) host: String,
    process: Child,
}

impl Registry {
    /// A registry that keeps its content below a folder.
    pub(crate) async fn start(folder: &Path) -> io::Result<Self> {
        let host = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let config = folder.join("registry.yml");
        let text = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage:\n  filesystem: {{rootdirectory: {}}}\nhttp: {{addr: \"{host}\"}}\n",
            folder.join("registry").display()
        );
        fs::write(&config, text)?;
        // Nobody reads what it says.
        let script = "exec \"$0\" serve \"$1\" >/dev/null 2>&1";
        let command = CommandLine::new(program("sh")?).args(["-c", script]);
        let command = command.arg(program("docker-registry")?).arg(&config);
        let process = exec::spawn_piped(&command).map_err(io::Error::other)?;
        let began = Instant::now();
        while TcpStream::connect(&host).is_err() {
            if began.elapsed() > START {
                return Err(io::Error::other("the registry does not answer"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Self { host, process })
    }

    pub(crate) async fn stop(mut self) {
        let group = exec::group_of(&self.process);
        exec::terminate(&mut self.process, group, Duration::from_secs(2)).await;
    }
}
