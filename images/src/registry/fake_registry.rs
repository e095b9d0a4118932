//! A registry that fails on demand: it sends wrong content, breaks connections, ignores ranges, requires tokens, stalls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::digest::Digest;
use crate::platform::Platform;
use crate::unpack::archive::Archive;

/// The fault of one path.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// The connection breaks after this many bytes, this many times.
    Cut { after: usize, times: usize },
    /// The answer has other content.
    WrongContent(Vec<u8>),
    /// The answer has this status, this many times.
    Status { code: u16, times: usize },
    /// There is no answer.
    Silence,
    /// The answer redirects to this URL.
    Elsewhere(String),
    /// The answer has no end.
    Endless,
}

/// The login that the registry requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Login {
    /// This `Authorization` header.
    Basic(String),
    /// A token from `/token`, which requires this header; an empty one is for anybody.
    Bearer(String),
    /// A token from `/token`, which requires this in its form.
    Identity(String),
}

#[derive(Debug, Default)]
struct RegistryState {
    content: HashMap<String, (String, Vec<u8>)>,
    faults: HashMap<String, Fault>,
    asked: Vec<String>,
    ranges: bool,
    login: Option<Login>,
}

/// The registry; it ends with the test's runtime.
#[derive(Clone)]
pub(crate) struct FakeRegistry {
    pub(crate) host: String,
    state: Arc<Mutex<RegistryState>>,
}

struct Request {
    /// With the host in front when it came through as through a proxy.
    target: String,
    headers: HashMap<String, String>,
    body: String,
}

impl FakeRegistry {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let state = Arc::new(Mutex::new(RegistryState { ranges: true, ..RegistryState::default() }));
        let registry = Self { host, state };
        let serving = registry.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let registry = serving.clone();
                // Some tests close the connection.
                tokio::spawn(async move { drop(registry.serve(stream).await) });
            }
        });
        registry
    }

    fn put(&self, path: String, media_type: &str, content: Vec<u8>) {
        self.state.lock().unwrap().content.insert(path, (media_type.into(), content));
    }

    pub(crate) fn fault(&self, path: impl Into<String>, fault: Fault) {
        self.state.lock().unwrap().faults.insert(path.into(), fault);
    }

    pub(crate) fn without_ranges(&self) {
        self.state.lock().unwrap().ranges = false;
    }

    pub(crate) fn require(&self, login: Login) {
        self.state.lock().unwrap().login = Some(login);
    }

    /// Returns the requests since the last call, one line each.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().asked)
    }

    /// Adds a blob; returns its descriptor.
    pub(crate) fn blob(&self, repository: &str, media_type: &str, content: &[u8]) -> Value {
        let digest = Digest::of(content);
        self.put(blob_path(repository, &digest), "application/octet-stream", content.to_vec());
        json!({ "mediaType": media_type, "digest": digest, "size": content.len() })
    }

    /// Adds a manifest by its digest, and by a tag if there is one.
    pub(crate) fn manifest(
        &self,
        repository: &str,
        tag: Option<&str>,
        media_type: &str,
        manifest: &Value,
    ) -> Value {
        let content = manifest.to_string().into_bytes();
        let digest = Digest::of(&content);
        for name in tag.into_iter().map(String::from).chain([digest.to_string()]) {
            self.put(format!("/v2/{repository}/manifests/{name}"), media_type, content.clone());
        }
        json!({ "mediaType": media_type, "digest": digest, "size": content.len() })
    }

    /// An image whose layers are these archives; gives its manifest's descriptor and the layers' digests.
    pub(crate) fn image(
        &self,
        repository: &str,
        tag: Option<&str>,
        layers: &[Archive],
    ) -> (Value, Vec<Digest>) {
        self.image_for(repository, tag, layers, &Platform::here().architecture)
    }

    pub(crate) fn image_for(
        &self,
        repository: &str,
        tag: Option<&str>,
        layers: &[Archive],
        architecture: &str,
    ) -> (Value, Vec<Digest>) {
        let plain: Vec<_> = layers.iter().map(|layer| layer.clone().done()).collect();
        let diff_ids: Vec<_> = plain.iter().map(|layer| Digest::of(layer)).collect();
        let config = json!({ "os": "linux", "architecture": architecture, "config": { "Env": ["A=b"] },
            "rootfs": { "type": "layers", "diff_ids": diff_ids } });
        let config = config.to_string().into_bytes();
        let config = self.blob(repository, "application/vnd.oci.image.config.v1+json", &config);
        let layers: Vec<_> = plain
            .iter()
            .map(|layer| {
                let layer = zstd::encode_all(layer.as_slice(), 1).unwrap();
                self.blob(repository, "application/vnd.oci.image.layer.v1.tar+zstd", &layer)
            })
            .collect();
        let digests = layers.iter().map(|layer| layer["digest"].as_str().unwrap().parse().unwrap()).collect();
        let manifest = json!({ "schemaVersion": 2, "config": config, "layers": layers });
        (self.manifest(repository, tag, "application/vnd.oci.image.manifest.v1+json", &manifest), digests)
    }

    async fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        while let Some(request) = read_request(&mut stream).await? {
            let (answer, cut) = self.answer(&request);
            let Some(answer) = answer else { return std::future::pending().await };
            stream.get_mut().write_all(&answer[..cut.unwrap_or(answer.len())]).await?;
            if cut == Some(usize::MAX) || answer.ends_with(ENDLESS) {
                loop {
                    stream.get_mut().write_all(&[b' '; 4096]).await?;
                }
            }
            if cut.is_some() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The bytes to send, and where to break off; nothing for silence.
    fn answer(&self, request: &Request) -> (Option<Vec<u8>>, Option<usize>) {
        let mut state = self.state.lock().unwrap();
        let auth = request.headers.get("authorization").cloned().unwrap_or_default();
        let range = request.headers.get("range").cloned().unwrap_or_default();
        state.asked.push(format!("{} {auth}{range}", request.target).trim_end().to_string());
        let path = match request.target.strip_prefix("http://") {
            Some(rest) => &rest[rest.find('/').unwrap_or(rest.len())..],
            None => &request.target,
        };
        let path = path.split('?').next().unwrap_or_default().to_string();
        if let Some(refusal) = self.refuse(&mut state, &path, &auth, &request.body) {
            return (Some(refusal), None);
        }
        let fault = state.faults.get(&path).cloned();
        if let Some(Fault::Status { times, .. } | Fault::Cut { times, .. }) = state.faults.get_mut(&path) {
            *times = times.saturating_sub(1);
        }
        let (media_type, mut content) = match state.content.get(&path) {
            Some(found) => found.clone(),
            None if path == "/v2/" => ("application/json".into(), b"{}".to_vec()),
            None => return (Some(status(404, "", br#"{"errors":[{"code":"MANIFEST_UNKNOWN"}]}"#)), None),
        };
        let mut cut = None;
        match fault {
            Some(Fault::Silence) => return (None, None),
            Some(Fault::Elsewhere(url)) => {
                return (Some(status(307, &format!("Location: {url}\r\n"), b"")), None);
            }
            Some(Fault::Status { code, times }) if times > 0 => {
                return (Some(status(code, "", b"not now")), None);
            }
            Some(Fault::Cut { after, times }) if times > 0 => cut = Some(after),
            Some(Fault::WrongContent(other)) => content = other,
            Some(Fault::Endless) => {
                return (Some([b"HTTP/1.1 200 OK\r\n\r\n", ENDLESS].concat()), None);
            }
            _ => {}
        }
        let start =
            range.strip_prefix("bytes=").and_then(|text| text.trim_end_matches('-').parse::<usize>().ok());
        let answer = match start {
            Some(start) if state.ranges && start < content.len() => {
                let header =
                    format!("Content-Range: bytes {start}-{}/{}\r\n", content.len() - 1, content.len());
                status(206, &header, &content[start..])
            }
            _ => status(200, &format!("Content-Type: {media_type}\r\n"), &content),
        };
        // Counted from the content's first byte: headers are no progress.
        let head = answer.windows(4).position(|window| window == b"\r\n\r\n").map_or(0, |end| end + 4);
        let cut = cut.map(|after| (head + after).min(answer.len()));
        (Some(answer), cut)
    }

    fn refuse(&self, state: &mut RegistryState, path: &str, auth: &str, body: &str) -> Option<Vec<u8>> {
        match state.login.clone()? {
            Login::Basic(wanted) if auth != wanted => {
                Some(status(401, "WWW-Authenticate: Basic realm=\"fake\"\r\n", b""))
            }
            Login::Bearer(wanted) if path == "/token" => Some(match auth == wanted {
                true => status(200, "", br#"{"token":"t0ken"}"#),
                false => status(401, "", b"who are you?"),
            }),
            Login::Identity(wanted) if path == "/token" => Some(match body.contains(&wanted) {
                true => status(200, "", br#"{"access_token":"t0ken"}"#),
                false => status(400, "", b"{}"),
            }),
            Login::Bearer(_) | Login::Identity(_) if auth != "Bearer t0ken" => {
                let challenge = format!(
                    "WWW-Authenticate: Bearer realm=\"http://{}/token\",service=\"fake\"\r\n",
                    self.host
                );
                Some(status(401, &challenge, b""))
            }
            _ => None,
        }
    }
}

/// Stands where an answer goes on for ever.
const ENDLESS: &[u8] = b"{ ";

pub(crate) fn blob_path(repository: &str, digest: &Digest) -> String {
    format!("/v2/{repository}/blobs/{digest}")
}

fn status(code: u16, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut answer =
        format!("HTTP/1.1 {code} X\r\n{headers}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend_from_slice(body);
    answer
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> std::io::Result<Option<Request>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        let line = line.trim_end().to_string();
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let target = lines[0].split(' ').nth(1).unwrap_or_default().to_string();
    let headers = lines[1..].iter().filter_map(|line| line.split_once(": "));
    let headers: HashMap<_, String> =
        headers.map(|(key, value)| (key.to_lowercase(), value.into())).collect();
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(Some(Request { target, headers, body: String::from_utf8_lossy(&body).into_owned() }))
}
