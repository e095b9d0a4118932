//! Lets consoles in other processes of the same user see this bridge, from its first run on.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::local::Local;
use super::sockets::{Sockets, is_own};
use super::wire::{Request, WireForm, WirePart};

/// Connections at once; further ones are closed.
const MOST: usize = 128;
/// Bytes of a question.
const LONGEST: u64 = 1 << 20;
/// How long a console may take to ask.
const PATIENCE: Duration = Duration::from_secs(5);
/// At most one line for changes in this time.
const PACE: Duration = Duration::from_millis(50);

/// Answers consoles, as long as it is polled. Nothing is made before the first run.
pub(super) async fn offer(local: Local, state_dir: &Path) {
    local.activity().first_run().await;
    let sockets = Sockets::at(state_dir);
    let socket = match sockets.listen(local.activity().bridge()) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::debug!(%error, "consoles cannot see this bridge");
            return;
        }
    };
    let (permits, mut answers) = (Arc::new(Semaphore::new(MOST)), JoinSet::new());
    loop {
        let stream = tokio::select! {
            accepted = socket.listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::debug!(%error, "a console could not connect");
                    sleep(PACE).await;
                    continue;
                }
            },
            Some(_) = answers.join_next() => continue,
        };
        if !is_own(&stream) {
            continue;
        }
        if let Ok(permit) = Arc::clone(&permits).try_acquire_owned() {
            let local = local.clone();
            answers.spawn(async move {
                // A console that is gone needs no answer.
                let _ = answer(&local, stream).await;
                drop(permit);
            });
        }
    }
}

/// Reads a question and answers it.
async fn answer(local: &Local, stream: UnixStream) -> std::io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let (mut reader, mut line) = (BufReader::new(reader.take(LONGEST)), Vec::new());
    let Ok(read) = timeout(PATIENCE, reader.read_until(b'\n', &mut line)).await else { return Ok(()) };
    read?;
    // The console is of another version.
    let Ok(request) = serde_json::from_slice::<Request>(&line) else { return Ok(()) };
    let json = match request {
        Request::Runs => json(&local.runs()),
        Request::Run { name } => json(&local.run(&name)),
        Request::Output { run, stream, from } => json(&local.output(&run, stream, from)),
        Request::Display { run, number } => {
            let forms = local.display(&run, number).await;
            json(&forms.map(|forms| {
                forms.into_iter().map(|(mime, bytes)| WireForm::new(mime, &bytes)).collect::<Vec<_>>()
            }))
        }
        Request::File { run, number, start } => {
            let part = local.file(&run, number, start).await;
            json(&part.map(|part| WirePart::new(&part)).map_err(|error| error.to_string()))
        }
        Request::Stop { run } => json(&local.stop(&run)),
        Request::Questions => json(&local.questions()),
        Request::Answer { question, answer, by } => json(&local.answer(&question, answer, &by)),
        Request::Sessions => json(&local.sessions()),
        Request::EndSession { session } => json(&local.end_session(&session).await),
        Request::Servers => json(&local.servers().await),
        Request::Changes => {
            let mut changes = local.activity().changes();
            let closed = reader.into_inner();
            let tell = async {
                while changes.changed().await.is_ok() {
                    writer.write_all(b"\n").await?;
                    sleep(PACE).await;
                }
                Ok(())
            };
            tokio::select! {
                done = tell => return done,
                () = until_closed(closed) => return Ok(()),
            }
        }
        Request::Attend => {
            let _attendance = local.activity().attend();
            writer.write_all(b"\n").await?;
            until_closed(reader.into_inner()).await;
            return Ok(());
        }
    };
    writer.write_all(&json).await
}

/// Waits until the other end is closed.
async fn until_closed(reader: impl tokio::io::AsyncRead) {
    let mut reader = std::pin::pin!(reader);
    let mut byte = [0];
    while reader.read(&mut byte).await.is_ok_and(|read| read > 0) {}
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
