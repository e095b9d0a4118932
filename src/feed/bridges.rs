//! All bridges of a user that speak over standard input and output, as their sockets show them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::sockets::Sockets;
use super::wire::Request;

/// How long a bridge may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often bridges that have begun are looked for.
const LOOK: Duration = Duration::from_secs(1);
/// Bytes of an answer: displayed objects are the largest.
const LONGEST: u64 = 256 << 20;

/// All bridges of a user.
#[derive(Debug, Clone)]
pub(super) struct Bridges(Arc<Sockets>);

impl Bridges {
    pub(super) fn of(state_dir: &Path) -> Self {
        Self(Arc::new(Sockets::at(state_dir)))
    }

    /// Asks one bridge; None if it does not answer.
    pub(super) async fn ask<T: DeserializeOwned>(&self, bridge: &str, request: &Request) -> Option<T> {
        let asking = async {
            let mut stream = open(&self.0, bridge, request).await?;
            let mut json = Vec::new();
            (&mut stream).take(LONGEST).read_to_end(&mut json).await.ok()?;
            serde_json::from_slice(&json).ok()
        };
        timeout(PATIENCE, asking).await.ok()?
    }

    /// Asks the bridge of a run or a question, whose names begin with its name.
    pub(super) async fn ask_bridge_of<T: DeserializeOwned>(
        &self,
        name: &str,
        request: &Request,
    ) -> Option<T> {
        let (bridge, _) = name.split_once('-')?;
        self.ask(bridge, request).await
    }

    /// Asks all bridges, and returns the items of all answers.
    pub(super) async fn ask_all<T: DeserializeOwned>(&self, request: &Request) -> Vec<T> {
        let bridges = self.0.bridges();
        let answers = join_all(bridges.iter().map(|bridge| self.ask::<Vec<T>>(bridge, request))).await;
        answers.into_iter().flatten().flatten().collect()
    }

    /// Notes each change of each bridge, until the handle is dropped.
    pub(super) fn follow(&self, changed: watch::Sender<u64>) -> AbortOnDropHandle<()> {
        let sockets = Arc::clone(&self.0);
        AbortOnDropHandle::new(tokio::spawn(with_each(sockets, move |sockets, bridge| {
            let changed = changed.clone();
            async move {
                let note = || changed.send_modify(|changes| *changes = changes.wrapping_add(1));
                if let Some(mut stream) = open(&sockets, &bridge, &Request::Changes).await {
                    let mut lines = [0; 64];
                    while stream.read(&mut lines).await.is_ok_and(|read| read > 0) {
                        note();
                    }
                }
                // It has ended.
                note();
            }
        })))
    }

    /// Says to each bridge that somebody answers questions, until the handle is dropped.
    pub(super) fn attend(&self) -> AbortOnDropHandle<()> {
        let sockets = Arc::clone(&self.0);
        AbortOnDropHandle::new(tokio::spawn(with_each(sockets, |sockets, bridge| async move {
            if let Some(stream) = open(&sockets, &bridge, &Request::Attend).await {
                let (mut stream, mut line) = (BufReader::new(stream), Vec::new());
                while stream.read_until(b'\n', &mut line).await.is_ok_and(|read| read > 0) {
                    line.clear();
                }
            }
        })))
    }
}

/// Connects to a bridge, and asks it.
async fn open(sockets: &Sockets, bridge: &str, request: &Request) -> Option<UnixStream> {
    let mut json = serde_json::to_vec(request).ok()?;
    json.push(b'\n');
    let mut stream = timeout(PATIENCE, sockets.connect(bridge)).await.ok()??;
    stream.write_all(&json).await.ok()?;
    Some(stream)
}

/// Does something with each bridge as long as it lives, also with those that begin later.
async fn with_each<F>(sockets: Arc<Sockets>, act: impl Fn(Arc<Sockets>, String) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut acting: HashMap<String, AbortOnDropHandle<()>> = HashMap::new();
    loop {
        let bridges = sockets.bridges();
        acting.retain(|bridge, act| bridges.contains(bridge) && !act.is_finished());
        for bridge in bridges {
            let begin = |bridge: &String| {
                AbortOnDropHandle::new(tokio::spawn(act(Arc::clone(&sockets), bridge.clone())))
            };
            acting.entry(bridge).or_insert_with_key(begin);
        }
        sleep(LOOK).await;
    }
}
