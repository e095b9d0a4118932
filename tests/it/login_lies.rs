//! Servers and providers that lie about a login: the person reads why there is none, and nothing is sent to whom they name.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Suite, TestEnv};
use crate::tests;

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "login_lies",
        tests![a_lie_is_named_and_nobody_else_is_asked, only_the_answer_of_the_provider_counts],
    );
}

/// How long a command may take, on a loaded machine.
const START: Duration = Duration::from_secs(60);
/// The kind of an answer that is a challenge or a redirect.
type Header = (&'static str, String);

/// What is answered to a path.
#[derive(Debug, Clone)]
struct Reply {
    status: u16,
    headers: Vec<Header>,
    body: String,
}

impl Reply {
    fn json(value: &Value) -> Self {
        Self { status: 200, headers: Vec::new(), body: value.to_string() }
    }

    fn status(status: u16, headers: Vec<Header>) -> Self {
        Self { status, headers, body: String::new() }
    }
}

type Answering = Box<dyn Fn(&str, &str) -> Option<Reply> + Send>;

/// A server of HTTP that answers as it is told, and keeps what it was asked.
struct Liar {
    url: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Liar {
    /// `answer` gets its URL and a path.
    fn start(answer: Answering) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let liar = Self { url: url.clone(), seen: Arc::clone(&seen) };
        // It ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = exchange(stream, &url, &seen, &answer);
            }
        });
        liar
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

fn exchange(
    stream: TcpStream,
    url: &str,
    seen: &Mutex<Vec<String>>,
    answer: &Answering,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first)?;
    for line in reader.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty()) {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut words = first.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default().to_owned());
    seen.lock().unwrap().push(format!("{method} {path} {}", String::from_utf8_lossy(&body)));
    let Reply { status, headers, body } = answer(url, &path).unwrap_or(Reply::status(404, Vec::new()));
    let mut stream = stream;
    write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n", body.len())?;
    for (name, value) in headers {
        write!(stream, "{name}: {value}\r\n")?;
    }
    write!(stream, "\r\n{body}")
}

/// What an honest server and provider at one URL say, changed as the case wants it.
fn honest(url: &str, path: &str) -> Option<Reply> {
    let metadata = format!("{url}/.well-known/oauth-protected-resource/mcp");
    match path {
        "/mcp" => {
            let challenge = format!("Bearer resource_metadata=\"{metadata}\"");
            Some(Reply::status(401, vec![("WWW-Authenticate", challenge)]))
        }
        "/.well-known/oauth-protected-resource/mcp" => Some(Reply::json(&json!({
            "resource": format!("{url}/mcp"), "authorization_servers": [url],
        }))),
        "/.well-known/oauth-authorization-server" => Some(Reply::json(&provider(url))),
        "/register" => Some(Reply { status: 201, ..Reply::json(&registered()) }),
        "/token" => Some(Reply::json(&json!({ "access_token": "hunter2-access", "token_type": "Bearer" }))),
        _ => None,
    }
}

fn registered() -> Value {
    json!({ "client_id": "c1", "redirect_uris": [] })
}

fn provider(url: &str) -> Value {
    json!({
        "issuer": url,
        "authorization_endpoint": format!("{url}/authorize"),
        "token_endpoint": format!("{url}/token"),
        "registration_endpoint": format!("{url}/register"),
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": true,
    })
}

/// One that says something else at a path. `change` gets its URL and that of another, who must not be asked.
fn liar_at(at: &'static str, other: &str, change: fn(&str, &str) -> Reply) -> Liar {
    let other = other.to_owned();
    Liar::start(Box::new(
        move |url, path| {
            if path == at { Some(change(url, &other)) } else { honest(url, path) }
        },
    ))
}

fn with(url: &str, name: &str, value: Value) -> Reply {
    let mut metadata = provider(url);
    metadata[name] = value;
    Reply::json(&metadata)
}

const RESOURCE: &str = "/.well-known/oauth-protected-resource/mcp";
const PROVIDER: &str = "/.well-known/oauth-authorization-server";

/// Where a lie is told, what it is, and what the person reads.
type Lie = (&'static str, fn(&str, &str) -> Reply, &'static str);

fn lies() -> Vec<Lie> {
    vec![
        (
            PROVIDER,
            |url, other| with(url, "issuer", json!(other)),
            "its provider says that it is 'http://127.0.0.1:",
        ),
        (PROVIDER, |url, _| with(url, "issuer", Value::Null), "its provider does not confirm that it is"),
        (
            PROVIDER,
            |url, _| with(url, "code_challenge_methods_supported", json!(["plain"])),
            "does not offer PKCE",
        ),
        (
            PROVIDER,
            |url, _| with(url, "code_challenge_methods_supported", Value::Null),
            "does not offer PKCE",
        ),
        (
            PROVIDER,
            |url, _| with(url, "token_endpoint", json!("http://id.example/t")),
            "'id.example' would be asked without TLS",
        ),
        (PROVIDER, |url, _| with(url, "registration_endpoint", json!("http://id.example/r")), "without TLS"),
        (PROVIDER, |url, _| with(url, "authorization_endpoint", json!("javascript:alert(1)")), "without TLS"),
        (PROVIDER, |_, other| Reply::status(302, vec![("Location", format!("{other}/x"))]), "redirect"),
        (
            PROVIDER,
            |url, _| Reply {
                body: format!("{}{}", provider(url), " ".repeat(300 << 10)),
                ..Reply::json(&json!({}))
            },
            "is longer than 262144 bytes",
        ),
        (
            RESOURCE,
            |url, other| {
                Reply::json(&json!({ "resource": format!("{other}/mcp"), "authorization_servers": [url] }))
            },
            "what it says of its login is for another server, 'http://127.0.0.1:",
        ),
        (
            RESOURCE,
            |url, _| {
                let servers = ["http://id.example"];
                Reply::json(&json!({ "resource": format!("{url}/mcp"), "authorization_servers": servers }))
            },
            "'id.example' would be asked without TLS",
        ),
        (RESOURCE, |_, _| Reply::json(&json!({ "nonsense": true })), "what it says of its login is invalid"),
        (
            "/register",
            |_, other| Reply::status(307, vec![("Location", format!("{other}/x"))]),
            "did not register this client",
        ),
        (
            "/register",
            |_, _| Reply { status: 400, ..Reply::json(&json!({ "error": "\u{1b}[31mno" })) },
            "did not register this client: HTTP 400",
        ),
        ("/register", |_, _| Reply::json(&json!([1, 2])), "did not register this client"),
    ]
}

fn define(env: &TestEnv, liar: &Liar) {
    let web = json!({ "url": format!("{}/mcp?key=hunter2-in-the-url", liar.url) });
    env.write("home/MCPs/web.json", json!({ "mcpServers": { "web": web } }).to_string());
}

fn a_lie_is_named_and_nobody_else_is_asked(env: &TestEnv) {
    let other = Liar::start(Box::new(|_, _| None));
    for (at, change, why) in lies() {
        let liar = liar_at(at, &other.url, change);
        define(env, &liar);
        let mut command = env.command(env.binary());
        command.argv.extend(["servers", "login", "web", "--no-browser"].map(Into::into));
        let output = command.run(env.guard());
        assert!(
            output.code() == Some(76) && output.stderr.starts_with("error: could not log in to 'web': "),
            "{at}: {output}"
        );
        assert!(output.stderr.contains(why), "{at}: '{why}' is not in {output}");
        assert!(!output.to_string().contains("hunter2") && !output.stderr.contains('\u{1b}'), "{output}");
        assert!(
            liar.seen().iter().all(|line| !line.contains("hunter2") || line.starts_with("POST /mcp")),
            "{:?}",
            liar.seen()
        );
    }
    assert_eq!(other.seen(), [""; 0]);
    assert!(!env.folder("home").join("MCPs/logins").exists());
}

/// Opens a page as a browser would, and returns its status line.
fn open(url: &str) -> String {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap_or_default().to_owned()
}

fn only_the_answer_of_the_provider_counts(env: &TestEnv) {
    let liar = Liar::start(Box::new(honest));
    define(env, &liar);
    let query = |page: &str, name: &str| {
        let pairs = page.split(['?', '&']).filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(key, _)| *key == name).unwrap().1.to_owned()
    };
    let decoded = |text: &str| text.replace("%3A", ":").replace("%2F", "/");
    // The last answer, and what comes of it.
    for (last, why) in [
        ("code=hunter2-code&state=STATE", "does not confirm that it is"),
        (
            "code=hunter2-code&state=STATE&iss=http://evil.example",
            "its provider says that it is 'http://evil.example'",
        ),
        ("error=server_error&error_description=%1b%5B31mno&state=STATE", "its provider refused: "),
        ("code=hunter2-code&state=STATE&iss=ISSUER", ""),
    ] {
        let mut command = env.command(env.binary());
        command.argv.extend(["servers", "login", "web", "--no-browser"].map(Into::into));
        let mut running = command.spawn(env.guard(), Stdio::piped(), Stdio::piped(), Stdio::piped());
        let mut lines = BufReader::new(running.child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let page = lines.find(|line| line.starts_with("http://")).unwrap();
        assert_eq!(query(&page, "code_challenge_method"), "S256");
        assert_eq!(decoded(&query(&page, "resource")), format!("{}/mcp", liar.url));
        let (back, state) = (decoded(&query(&page, "redirect_uri")), query(&page, "state"));
        // Whoever does not know the state ends nothing.
        for strange in ["", "?code=x", "?code=x&state=other", "?code=x&code=y&state=STATE", "?error=x"] {
            let strange = strange.replace("STATE", &state);
            assert!(open(&format!("{back}{strange}")).contains(" 400 "), "{strange}");
        }
        assert!(open(&back.replace("/callback", &format!("/other?code=x&state={state}"))).contains(" 400 "));
        let last = last.replace("STATE", &state).replace("ISSUER", &liar.url);
        assert!(open(&format!("{back}?{last}")).contains(" 200 "));
        let said: String = lines.collect::<Vec<_>>().join("\n");
        let status = running.wait_within(START);
        assert!(
            said.contains(why) && !said.contains("hunter2") && !said.contains('\u{1b}'),
            "{last}: {said}"
        );
        let has_login = env.folder("home").join("MCPs/logins").exists();
        assert_eq!(has_login, why.is_empty(), "{last}: {status} {said}");
    }
    let asked = liar.seen();
    let token = asked.iter().filter(|line| line.starts_with("POST /token")).collect::<Vec<_>>();
    assert!(
        token.len() == 1 && token[0].contains("code_verifier=") && token[0].contains("resource="),
        "{token:?}"
    );
}
