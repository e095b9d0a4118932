//! Servers and providers that never answer, or lead elsewhere, at any step of a login.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::error::{LoginError, Problem};
use super::fetch::FetchError;
use super::keyring::Keyring;
use super::pending::{PendingLogin, Return};
use super::store::LoginStore;
use super::target::Target;
use crate::settings::Environment;
use crate::upstream::discovery::Launch;

/// Long enough for the honest answers.
const LIMIT: Duration = Duration::from_secs(3);
const RESOURCE: &str = "/.well-known/oauth-protected-resource/mcp";
const PROVIDER: &str = "/.well-known/oauth-authorization-server";

/// What happens at one path. Everywhere else, the answer is honest.
#[derive(Debug, Clone)]
enum Lie {
    /// No answer at all.
    Silence,
    /// Some of it, and no end.
    Half,
    /// It is at another place.
    Redirect(String),
}

/// A server and its provider at one URL.
struct Place {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Place {
    async fn start(at: &'static str, lie: Lie) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let place = Self { url: url.clone(), asked: Arc::clone(&asked) };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (url, asked, lie) = (url.clone(), Arc::clone(&asked), lie.clone());
                tokio::spawn(async move { answer(stream, &url, &asked, (at, &lie)).await });
            }
        });
        place
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn answer(
    stream: TcpStream,
    url: &str,
    asked: &Mutex<Vec<String>>,
    (at, lie): (&str, &Lie),
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut path, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        if path.is_empty() {
            path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if line.trim().is_empty() {
            break;
        }
    }
    stream.read_exact(&mut vec![0; length]).await?;
    asked.lock().unwrap().push(path.clone());
    let (head, body) = honest(url, &path);
    let text = match lie {
        _ if path != at => format!("{head}Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len()),
        Lie::Redirect(to) => {
            format!("HTTP/1.1 307 X\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        }
        Lie::Silence => String::new(),
        Lie::Half => format!("{head}Content-Length: 1000\r\n\r\n{{"),
    };
    stream.write_all(text.as_bytes()).await?;
    if path == at && !matches!(lie, Lie::Redirect(_)) {
        // Until the other end has had enough.
        stream.read_to_end(&mut Vec::new()).await?;
    }
    Ok(())
}

fn honest(url: &str, path: &str) -> (String, String) {
    let json =
        |value: Value| ("HTTP/1.1 200 X\r\nContent-Type: application/json\r\n".to_owned(), value.to_string());
    match path {
        "/mcp" => {
            let challenge = format!("WWW-Authenticate: Bearer resource_metadata=\"{url}{RESOURCE}\"");
            (format!("HTTP/1.1 401 X\r\n{challenge}\r\n"), String::new())
        }
        RESOURCE => json(json!({ "resource": format!("{url}/mcp"), "authorization_servers": [url] })),
        PROVIDER => json(json!({
            "issuer": url, "authorization_endpoint": format!("{url}/authorize"),
            "token_endpoint": format!("{url}/token"), "registration_endpoint": format!("{url}/register"),
            "code_challenge_methods_supported": ["S256"], "response_types_supported": ["code"],
        })),
        "/register" => json(json!({ "client_id": "c", "redirect_uris": [] })),
        "/token" => json(json!({ "access_token": "t", "token_type": "bearer" })),
        _ => ("HTTP/1.1 404 X\r\n".into(), String::new()),
    }
}

/// Logs in, with a person who needs no time.
async fn log_in(place: &Place) -> Result<(), LoginError> {
    let folder = tempfile::tempdir().unwrap();
    let store = LoginStore::new(folder.path(), Keyring::of(&Environment::default()), false);
    let launch = Launch::Http {
        url: format!("{}/mcp", place.url),
        headers: Vec::new(),
        older: false,
        options: Arc::default(),
    };
    let target = Target { limit: LIMIT, ..Target::of(&"web".into(), &launch)? };
    let pending = PendingLogin::begin(store, target, Vec::new(), Return::Loopback).await?;
    let last = format!("http://127.0.0.1/callback?code=x&state={}&iss={}", pending.state(), place.url);
    pending.paste(&last)?;
    pending.wait().await.map(drop)
}

#[tokio::test]
async fn nobody_is_waited_for_who_never_answers() {
    let mut logins = tokio::task::JoinSet::new();
    for at in ["/mcp", RESOURCE, PROVIDER, "/register", "/token"] {
        for lie in [Lie::Silence, Lie::Half] {
            logins.spawn(async move {
                let place = Place::start(at, lie.clone()).await;
                (at, lie, log_in(&place).await)
            });
        }
    }
    while let Some(login) = logins.join_next().await {
        let (at, lie, login) = login.unwrap();
        // The head of the first answer says all that is needed.
        if at == "/mcp" && matches!(lie, Lie::Half) && login.is_ok() {
            continue;
        }
        let error = login.expect_err(at);
        let is_late = matches!(&error.problem, Problem::Fetch(FetchError::TimedOut { limit: LIMIT, .. }));
        assert!(is_late, "{at}, {lie:?}: {error}");
    }
}

#[tokio::test]
async fn no_step_of_a_login_is_led_elsewhere() {
    for at in [RESOURCE, PROVIDER, "/register", "/token"] {
        let other = Place::start("", Lie::Silence).await;
        let place = Place::start(at, Lie::Redirect(format!("{}{at}", other.url))).await;
        let error = log_in(&place).await.expect_err(at);
        assert!(place.asked().iter().any(|path| path == at), "{at}: {error}");
        assert!(other.asked().is_empty(), "{at}: {error}");
    }
}

#[tokio::test]
async fn an_honest_place_lets_people_in() {
    let place = Place::start("", Lie::Silence).await;
    log_in(&place).await.unwrap();
    assert_eq!(place.asked().last().map(String::as_str), Some("/token"));
}
