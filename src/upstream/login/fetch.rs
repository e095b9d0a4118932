//! Requests of a login. Servers and providers name the URLs of each other, and may lie: only what nobody on the way can change is
//! asked, no redirect is followed, and a server on the internet cannot have machines of this network asked.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use codebridge_runtimes::exec::visible_line;
use http::{HeaderMap, Request, Response, header};
use reqwest::dns::{Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use rmcp::transport::{OAuthHttpClient, OAuthHttpClientFuture, OAuthHttpRequest};
use tokio::net::lookup_host;

use crate::upstream::discovery::HttpOptions;
use crate::upstream::http_client::{CertificateFileError, builder, plain_builder};

/// How long an answer may take.
pub(super) const LIMIT: Duration = Duration::from_secs(20);
/// Bytes of an answer.
const LONGEST_ANSWER: usize = 256 << 10;
/// Characters of a host that are shown.
const LONGEST_HOST: usize = 100;
/// With a proxy, addresses are its business.
const PROXIES: [&str; 6] =
    ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    #[error("'{0}' would be asked without TLS, where others can read and change a login")]
    Insecure(String),
    #[error("the server is on the internet, and '{0}' is not: it must not be asked")]
    Private(String),
    #[error("'{host}' did not answer within {limit:?}")]
    TimedOut { host: String, limit: Duration },
    #[error("the answer of '{host}' is longer than {LONGEST_ANSWER} bytes")]
    TooLong { host: String },
    #[error("could not reach '{host}': {why}")]
    Connection { host: String, why: String },
}

/// Sends the requests of a login.
#[derive(Debug)]
pub(super) struct Fetch {
    /// For the server itself, to which alone the certificate of the definition is shown.
    for_server: Client,
    for_others: Client,
    server: Url,
    headers: HeaderMap,
    /// Whether machines of this network may be asked.
    is_private: bool,
    pub(super) limit: Duration,
    /// The library passes on that there was an error, but not always which.
    last_error: Mutex<Option<FetchError>>,
}

impl Fetch {
    /// Returns what asks a server, with the headers of its definition, and those that it names.
    pub(super) async fn new(
        server: Url,
        headers: HeaderMap,
        options: &HttpOptions,
    ) -> Result<Self, CertificateFileError> {
        let (is_private, addresses) = addresses_of(&server).await;
        let has_proxy = PROXIES.iter().any(|name| std::env::var_os(name).is_some());
        let client = |for_server: bool| {
            let mut builder = builder(options, for_server)?.redirect(Policy::none());
            if let Some(host) = server.host_str().filter(|_| !addresses.is_empty()) {
                builder = builder.resolve_to_addrs(host, &addresses);
            }
            if !for_server && !is_private && !has_proxy {
                builder = builder.dns_resolver(Arc::new(PublicOnly));
            }
            // A system without certificate authorities has plain HTTP on this machine.
            let without = |error| match options.ca_file {
                None => plain_builder().tls_certs_only([]).redirect(Policy::none()).build(),
                Some(_) => Err(error),
            };
            let client = builder.build().or_else(without);
            client.map_err(|error| CertificateFileError::Client(Arc::new(error)))
        };
        Ok(Self {
            for_server: client(true)?,
            for_others: client(false)?,
            server,
            headers,
            is_private,
            limit: LIMIT,
            last_error: Mutex::default(),
        })
    }

    /// Returns the error of the last request that failed, once.
    pub(super) fn take_error(&self) -> Option<FetchError> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Sends a request, and returns the answer with its body.
    pub(super) async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, FetchError> {
        let host = shown_host(&request.uri().to_string());
        let url: Url = request
            .uri()
            .to_string()
            .parse()
            .map_err(|_| FetchError::Connection { host: host.clone(), why: "the URL is invalid".into() })?;
        let limit = self.limit;
        let answer = match self.check(&url) {
            Ok(()) => tokio::time::timeout(limit, self.exchange(url, request, &host)).await,
            Err(error) => Ok(Err(error)),
        };
        let answer = answer.unwrap_or(Err(FetchError::TimedOut { host, limit }));
        if let Err(error) = &answer {
            *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
        }
        answer
    }

    /// Whether a URL may be asked, or shown to the person.
    pub(super) fn check(&self, url: &Url) -> Result<(), FetchError> {
        let host = shown_host(url.as_str());
        let is_here = is_loopback(url);
        match url.scheme() {
            "https" => {}
            "http" if is_here => {}
            _ => return Err(FetchError::Insecure(host)),
        }
        let is_inside = is_here || address_of(url).is_some_and(|address| !is_public(address));
        if is_inside && !self.is_private { Err(FetchError::Private(host)) } else { Ok(()) }
    }

    async fn exchange(
        &self,
        url: Url,
        request: Request<Vec<u8>>,
        host: &str,
    ) -> Result<Response<Vec<u8>>, FetchError> {
        let failed = |error: reqwest::Error| FetchError::Connection {
            host: host.to_owned(),
            why: innermost(&error.without_url()),
        };
        let is_server = url.origin() == self.server.origin();
        let client = if is_server { &self.for_server } else { &self.for_others };
        let (parts, body) = request.into_parts();
        let mut headers = if is_server && url.path() == self.server.path() {
            self.headers.clone()
        } else {
            HeaderMap::new()
        };
        headers.extend(parts.headers);
        let sent = client.request(parts.method, url).headers(headers).body(body).send().await;
        let mut response = sent.map_err(failed)?;
        let mut answer = Response::builder().status(response.status());
        for (name, value) in response.headers() {
            answer = answer.header(name, value);
        }
        let mut body = Vec::new();
        // A stream of events goes on for ever, and is no answer to any of these requests.
        while !is_stream(response.headers()) {
            let Some(chunk) = response.chunk().await.map_err(failed)? else { break };
            if body.len() + chunk.len() > LONGEST_ANSWER {
                return Err(FetchError::TooLong { host: host.to_owned() });
            }
            body.extend_from_slice(&chunk);
        }
        answer
            .body(body)
            .map_err(|error| FetchError::Connection { host: host.to_owned(), why: error.to_string() })
    }
}

/// The same client, in the hands of the library.
#[derive(Debug, Clone)]
pub(super) struct SharedFetch(pub(super) Arc<Fetch>);

impl OAuthHttpClient for SharedFetch {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move { Ok(self.0.send(request.request).await?) })
    }
}

fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(http::HeaderValue::as_bytes).unwrap_or_default();
    kind.starts_with(b"text/event-stream")
}

fn innermost(error: &reqwest::Error) -> String {
    let mut innermost: &dyn Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    visible_line(&innermost.to_string())
}

/// Returns host and port of a URL, for a message.
pub(super) fn shown_host(url: &str) -> String {
    let host = match url.parse::<Url>() {
        Ok(url) => match (url.host_str().unwrap_or_default(), url.port()) {
            (host, Some(port)) => format!("{host}:{port}"),
            (host, None) => host.to_owned(),
        },
        Err(_) => url.to_owned(),
    };
    visible_line(&host).chars().take(LONGEST_HOST).collect()
}

/// Whether a URL leads to this machine, whatever a name server says.
pub(super) fn is_loopback(url: &Url) -> bool {
    match address_of(url) {
        Some(address) => address.to_canonical().is_loopback(),
        None => url.host_str() == Some("localhost"),
    }
}

fn address_of(url: &Url) -> Option<IpAddr> {
    url.host_str()?.trim_matches(['[', ']']).parse().ok()
}

/// Returns whether a server is reached within this machine or network, and the addresses of its name. No other ones are used for
/// it afterwards: whoever owns the name could answer differently each time.
async fn addresses_of(server: &Url) -> (bool, Vec<SocketAddr>) {
    if let Some(address) = address_of(server) {
        return (!is_public(address), Vec::new());
    }
    let Some(host) = server.host_str() else { return (false, Vec::new()) };
    lookup_host((host, 0)).await.map_or((false, Vec::new()), |found| usable(found.collect()))
}

/// Returns whether a server with these addresses is inside, and which of them are used. One that names an address of the internet
/// is on the internet, whatever else it names.
fn usable(mut found: Vec<SocketAddr>) -> (bool, Vec<SocketAddr>) {
    let is_private = !found.is_empty() && found.iter().all(|address| !is_public(address.ip()));
    if !is_private {
        found.retain(|address| is_public(address.ip()));
    }
    (is_private, found)
}

/// Whether an address is one of the internet.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => {
            let first = address.segments()[0];
            let embeds = matches!(first, 0x2002 | 0x64) || address.segments()[..2] == [0x2001, 0];
            let is_local = first & 0xfe00 == 0xfc00 || first & 0xffc0 == 0xfe80;
            !(address.is_loopback()
                || address.is_unspecified()
                || address.is_multicast()
                || is_local
                || embeds)
        }
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    // The last two: networks of providers, and of measurements.
    let is_shared = first == 100 && second & 0xc0 == 64;
    let is_bench = first == 198 && second & 0xfe == 18;
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_broadcast()
        || address.is_multicast()
        || first == 0
        || is_shared
        || is_bench)
}

/// Finds the addresses of names, but only those of the internet.
struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|address| is_public(address.ip())).collect();
            match public.is_empty() {
                true => Err(NotPublic.into()),
                false => Ok(Box::new(public.into_iter()) as Box<dyn Iterator<Item = SocketAddr> + Send>),
            }
        })
    }
}

#[derive(Debug)]
struct NotPublic;

impl fmt::Display for NotPublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server is on the internet, and this name has only addresses inside this network")
    }
}

impl Error for NotPublic {}

impl From<NotPublic> for io::Error {
    fn from(error: NotPublic) -> Self {
        Self::other(error)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn fetch(server: &str) -> Fetch {
        Fetch::new(server.parse().unwrap(), HeaderMap::new(), &HttpOptions::default()).await.unwrap()
    }

    fn get(url: &str) -> Request<Vec<u8>> {
        Request::get(url).body(Vec::new()).unwrap()
    }

    #[tokio::test]
    async fn only_what_nobody_on_the_way_can_change_is_asked() {
        let (inside, outside) = (fetch("http://127.0.0.1:1/mcp").await, fetch("https://8.8.8.8/mcp").await);
        let may = |fetch: &Fetch, url: &str| fetch.check(&url.parse().unwrap()).is_ok();
        for (url, from_inside, from_outside) in [
            ("https://id.example/token", true, true),
            ("https://1.1.1.1/", true, true),
            ("http://id.example/token", false, false),
            ("http://8.8.8.8/", false, false),
            ("http://10.0.0.1/", false, false),
            ("https://10.0.0.1/", true, false),
            ("https://169.254.169.254/latest", true, false),
            ("https://[fd00::1]/", true, false),
            ("https://[::ffff:10.0.0.1]/", true, false),
            ("http://127.0.0.1:2/", true, false),
            ("http://localhost:2/", true, false),
            ("https://localhost/", true, false),
            ("ftp://id.example/", false, false),
            ("file:///etc/passwd", false, false),
            ("javascript:alert(1)", false, false),
        ] {
            assert_eq!((may(&inside, url), may(&outside, url)), (from_inside, from_outside), "{url}");
        }
    }

    #[test]
    fn a_name_with_an_address_inside_is_not_found_for_others() {
        for (address, expected) in [
            ("8.8.8.8", true),
            ("100.64.0.1", false),
            ("198.18.0.1", false),
            ("0.0.0.0", false),
            ("2606:4700::1111", true),
            ("::1", false),
            ("fe80::1", false),
            ("64:ff9b::a00:1", false),
        ] {
            assert_eq!(is_public(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn a_server_with_a_public_address_is_on_the_internet_whatever_else_it_names() {
        let all = |texts: &[&str]| -> Vec<SocketAddr> {
            texts.iter().map(|text| SocketAddr::new(text.parse().unwrap(), 0)).collect()
        };
        for (found, is_private, used) in [
            (&["127.0.0.1", "10.0.0.1", "::1"][..], true, &["127.0.0.1", "10.0.0.1", "::1"][..]),
            (&["10.0.0.1", "8.8.8.8"], false, &["8.8.8.8"]),
            (&["8.8.8.8", "169.254.169.254"], false, &["8.8.8.8"]),
            (&["2606:4700::1111"], false, &["2606:4700::1111"]),
            (&[], false, &[]),
        ] {
            assert_eq!(usable(all(found)), (is_private, all(used)), "{found:?}");
        }
    }

    /// Answers each request with the bytes, and keeps the connection open.
    async fn server(answer: Vec<u8>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                // An answer before the request would be an error of the server.
                let mut request = [0; 1 << 10];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(&answer).await;
                open.push(stream);
            }
        });
        url
    }

    #[tokio::test]
    async fn who_never_answers_or_answers_for_ever_is_not_waited_for() {
        let mut fetch = fetch("http://127.0.0.1:1/mcp").await;
        fetch.limit = Duration::from_millis(200);
        let silent = server(Vec::new()).await;
        let error = fetch.send(get(&silent)).await.unwrap_err();
        assert!(matches!(error, FetchError::TimedOut { .. }), "{error}");
        assert_eq!(fetch.take_error(), Some(error));
        let stream = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: x\n\n";
        assert!(fetch.send(get(&server(stream.to_vec()).await)).await.unwrap().body().is_empty());
        fetch.limit = LIMIT;
        let huge = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(LONGEST_ANSWER + 1));
        let error = fetch.send(get(&server(huge.into_bytes()).await)).await.unwrap_err();
        assert!(matches!(error, FetchError::TooLong { .. }), "{error}");
    }

    #[tokio::test]
    async fn no_redirect_is_followed() {
        let target = server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()).await;
        let answer = format!("HTTP/1.1 307 Elsewhere\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n");
        let fetch = fetch("http://127.0.0.1:1/mcp").await;
        let answer = fetch.send(get(&server(answer.into_bytes()).await)).await.unwrap();
        assert_eq!(answer.status(), 307);
    }
}
