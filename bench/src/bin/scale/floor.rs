//! The floor: the frames of the same calls, to the same interpreters in the same sandboxes, without MCP.

use std::io;
use std::path::Path;

use codebridge::guest;
use codebridge_bench::bare::Bare;
use codebridge_runtimes::{RootFs, RuntimeKind, Sandbox, exec};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};

use crate::options::Options;

/// An interpreter in a sandbox.
pub(crate) struct Guest {
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    runs: u32,
    sandbox: Sandbox,
}

pub(crate) fn bare(options: &Options) -> io::Result<Bare> {
    let unknown = || io::Error::other(format!("'{}' is no runtime, or not installed", options.runtime));
    let kind = RuntimeKind::of_program(&options.runtime).ok_or_else(unknown)?;
    let program = exec::find_program(Path::new(&options.runtime)).ok_or_else(unknown)?;
    let root = match options.image.strip_prefix("dir:") {
        Some(path) => RootFs::Directory(path.into()),
        None => RootFs::Host,
    };
    Bare::new(kind, program, root)
}

impl Guest {
    pub(crate) async fn start(bare: &Bare) -> io::Result<Self> {
        let mut sandbox = bare.start(guest::argv()).await?;
        let gone = || io::Error::other("no pipe");
        let stdin = sandbox.take_stdin().ok_or_else(gone)?;
        let stdout = BufReader::new(sandbox.take_stdout().ok_or_else(gone)?);
        let mut guest = Self { stdin, stdout, runs: 0, sandbox };
        let start = guest::Start { limits: guest.sandbox.own_limits(), ..guest::Start::default() };
        guest.stdin.write_all(&guest::blob(&start)).await?;
        guest.read_until(b'H').await?;
        Ok(guest)
    }

    pub(crate) async fn run(&mut self, code: &str) -> io::Result<()> {
        self.runs += 1;
        let mut frames = Vec::new();
        for (kind, id, payload) in [(b'C', 0, "{}"), (b'R', self.runs, code)] {
            frames.push(kind);
            frames.extend(id.to_be_bytes());
            frames.extend(u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes());
            frames.extend_from_slice(payload.as_bytes());
        }
        self.stdin.write_all(&frames).await?;
        self.read_until(b'D').await
    }

    async fn read_until(&mut self, wanted: u8) -> io::Result<()> {
        loop {
            let mut header = [0; 9];
            self.stdout.read_exact(&mut header).await?;
            let length = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
            let mut payload = vec![0; length as usize];
            self.stdout.read_exact(&mut payload).await?;
            match header[0] {
                kind if kind == wanted => return Ok(()),
                b'X' => return Err(io::Error::other("the interpreter has ended")),
                _ => {}
            }
        }
    }

    pub(crate) async fn end(self) -> io::Result<()> {
        self.sandbox.end().await.map_err(io::Error::other)
    }
}
