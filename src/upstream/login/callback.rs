//! Where the browser comes back to: a port of this machine, for as long as a login takes.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use reqwest::Url;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::error::Problem;
use super::provider::shown;
use crate::upstream::discovery::Redirect;

const PATH: &str = "/callback";
/// Characters of a code.
const LONGEST_CODE: usize = 8 << 10;
const DONE: &str = "The login goes on in codebridge. You can close this window.";
const REFUSED: &str = "The provider did not let you log in: codebridge says why. You can close this window.";
const STRANGE: &str = "This is not the login that codebridge waits for.";

/// What a provider says at the end, through the browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Code {
        code: String,
        issuer: Option<String>,
    },
    /// It refused, and why.
    Refused(String),
}

impl Answer {
    /// Reads the query of the last page; None if it is none of the login with this state.
    pub(super) fn read(url: &Url, state: &str) -> Option<Self> {
        let (mut code, mut issuer, mut error, mut description, mut given) = (None, None, None, None, None);
        for (name, value) in url.query_pairs() {
            let slot = match &*name {
                "code" => &mut code,
                "iss" => &mut issuer,
                "error" => &mut error,
                "error_description" => &mut description,
                "state" => &mut given,
                _ => continue,
            };
            // A parameter that is there twice means something else to each reader.
            if slot.replace(value.into_owned()).is_some() {
                return None;
            }
        }
        if given.as_deref() != Some(state) {
            return None;
        }
        match (code, error) {
            (Some(code), None) if code.len() <= LONGEST_CODE => Some(Self::Code { code, issuer }),
            (None, Some(error)) => Some(Self::Refused(shown(&match description {
                Some(description) => format!("{description} ({error})"),
                None => error,
            }))),
            _ => None,
        }
    }

    /// Reads what a person has copied: the address of the last page, or the code that it shows.
    pub(super) fn read_pasted(text: &str, state: &str) -> Option<Self> {
        let text = text.trim();
        if text.contains("://") {
            return Self::read(&text.parse().ok()?, state);
        }
        let is_code =
            !text.is_empty() && text.len() <= LONGEST_CODE && text.bytes().all(|b| b.is_ascii_graphic());
        (is_code && !text.contains("code=")).then(|| Self::Code { code: text.to_owned(), issuer: None })
    }
}

/// Waits for the browser.
#[derive(Debug)]
pub(super) struct Callback {
    listeners: Vec<TcpListener>,
    pub(super) redirect_uri: String,
}

impl Callback {
    /// Listens on the port that was registered, or any free one.
    pub(super) async fn listen(redirect: Option<Redirect>) -> Result<Self, Problem> {
        let Redirect { host, port } = redirect.unwrap_or(Redirect { host: "127.0.0.1", port: 0 });
        let failed = |source: io::Error| Problem::Listen {
            address: format!("{host}:{port}"),
            source: Arc::new(source),
        };
        let mut listeners =
            vec![TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await.map_err(failed)?];
        let port = listeners[0].local_addr().map_err(failed)?.port();
        // A browser may take either for this name.
        if host == "localhost" {
            listeners.extend(TcpListener::bind(SocketAddr::from((Ipv6Addr::LOCALHOST, port))).await.ok());
        }
        Ok(Self { listeners, redirect_uri: format!("http://{host}:{port}{PATH}") })
    }

    /// Waits for the answer to the login with this state. Everything else is told that it is not awaited.
    pub(super) async fn wait(&self, state: &str) -> Answer {
        let (found, mut answer) = oneshot::channel();
        let found = Arc::new(Mutex::new(Some(found)));
        let mut connections = JoinSet::new();
        let mut listeners = self.listeners.iter();
        let (first, second) = (listeners.next(), listeners.next());
        loop {
            let accepted = tokio::select! {
                accepted = accept(first) => accepted,
                accepted = accept(second) => accepted,
                Ok(answer) = &mut answer => {
                    // The page is still being written.
                    let written = async { while connections.join_next().await.is_some() {} };
                    let _ = tokio::time::timeout(std::time::Duration::from_secs(1), written).await;
                    return answer;
                }
            };
            let Ok((stream, _)) = accepted else { continue };
            let (found, state) = (Arc::clone(&found), state.to_owned());
            connections.spawn(async move {
                let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                    let page = page(&request, &state, &found);
                    async { Ok::<_, std::convert::Infallible>(page) }
                });
                let mut http = hyper::server::conn::http1::Builder::new();
                http.timer(TokioTimer::new()).keep_alive(false);
                let _ = http.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

type Found = Mutex<Option<oneshot::Sender<Answer>>>;

fn page(request: &Request<Incoming>, state: &str, found: &Found) -> Response<Full<Bytes>> {
    let url: Option<Url> = format!("http://127.0.0.1{}", request.uri()).parse().ok();
    let is_callback = request.method() == http::Method::GET && request.uri().path() == PATH;
    let answer = url.filter(|_| is_callback).and_then(|url| Answer::read(&url, state));
    let (status, text) = match &answer {
        Some(Answer::Code { .. }) => (StatusCode::OK, DONE),
        Some(Answer::Refused(_)) => (StatusCode::OK, REFUSED),
        None => (StatusCode::BAD_REQUEST, STRANGE),
    };
    if let Some(answer) = answer
        && let Some(found) = found.lock().unwrap_or_else(PoisonError::into_inner).take()
    {
        let _ = found.send(answer);
    }
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    // The address has the code in it.
    for (name, value) in [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, http::HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str, issuer: Option<&str>) -> Option<Answer> {
        Some(Answer::Code { code: text.into(), issuer: issuer.map(str::to_owned) })
    }

    #[test]
    fn only_the_answer_to_this_login_counts() {
        let read =
            |query: &str| Answer::read(&format!("http://127.0.0.1/callback?{query}").parse().unwrap(), "s1");
        assert_eq!(
            read("code=a%2Fb&state=s1&iss=https%3A%2F%2Fid.example"),
            code("a/b", Some("https://id.example"))
        );
        let refused = read("error=access_denied&error_description=no%1b%5B1m&state=s1").unwrap();
        let Answer::Refused(why) = &refused else { panic!("{refused:?}") };
        assert!(why.ends_with("(access_denied)") && !why.contains('\u{1b}'), "{why}");
        for strange in [
            "", "code=a", "code=a&state=s2", "code=a&state=", "state=s1", "code=a&code=b&state=s1",
            "code=a&state=s1&state=s1", "code=a&error=b&state=s1", "error=access_denied",
        ] {
            assert_eq!(read(strange), None, "{strange}");
        }
    }

    #[test]
    fn a_person_may_paste_the_address_or_the_code() {
        let read = |text: &str| Answer::read_pasted(text, "s1");
        assert_eq!(read(" abc-123\n"), code("abc-123", None));
        assert_eq!(read("http://127.0.0.1:1/callback?code=c&state=s1"), code("c", None));
        for strange in ["", "two words", "http://127.0.0.1:1/callback?code=c&state=s2", "?code=c&state=s1"] {
            assert_eq!(read(strange), None, "{strange}");
        }
    }
}
